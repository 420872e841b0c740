"""Mooncake's traces (FAST25 release, and others of its form): milliseconds from the start, lengths in tokens, prefix blocks
by hash.

Many rows share a time stamp (3 s ticks in the conversation trace): an exact replay makes herds that production did not have.
"""

from __future__ import annotations

from collections.abc import Iterator

from shapes.traces import jsonl_reader
from shapes.traces.drops import Drops
from shapes.traces.rows import Rows, Source


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows with prompt and output tokens, hash ids (as JSON text) and the session where the file has one. Raises
    TraceError.
    """
    yield from jsonl_reader.read_layout(source, drops, unit="ms", clock="start")
