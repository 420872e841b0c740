"""Recorded traffic: readers (one format a file), what was dropped and why, and replays of it as a schedule.

Import :func:`shapes.traces.replay.open_trace` for a schedule's blocks, :func:`shapes.traces.detect.open_rows` for the rows
of a file.
"""
