"""Envoy's JSON access log: ``start_time`` is when the request arrived (ISO 8601), ``duration`` is in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

from shapes.traces import jsonl_reader
from shapes.traces.drops import Drops
from shapes.traces.rows import Rows, Source


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows with method, path, status, bytes and duration. Lines are written at a request's end: expect them unordered."""
    yield from jsonl_reader.read_layout(source, drops, duration_unit_s=0.001)
