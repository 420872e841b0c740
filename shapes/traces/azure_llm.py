"""The Azure LLM inference traces: 2023 (local times without an offset, taken as UTC) and 2024 (with one), both ISO 8601."""

from __future__ import annotations

from collections.abc import Iterator

from shapes.traces import csv_reader
from shapes.traces.drops import Drops
from shapes.traces.rows import Rows, Source

COLUMNS = {"time": "TIMESTAMP", "prompt_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows with prompt and output tokens. Raises TraceError when the header is another."""
    yield from csv_reader.read_layout(source, drops, COLUMNS, unit="iso")
