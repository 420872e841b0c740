"""BurstGPT: seconds since local midnight of the first day. Files differ in their columns, so that only names are trusted.

A response of 0 tokens is a failed request; it did arrive, so it is kept and counted. The trace's head is far quieter than
its steady state: look at a window's rate (``truetail trace inspect``) before replaying it.
"""

from __future__ import annotations

from collections.abc import Iterator

from shapes.traces import csv_reader
from shapes.traces.drops import Drops
from shapes.traces.rows import Rows, Source

COLUMNS = {"time": "Timestamp", "prompt_tokens": "Request tokens", "output_tokens": "Response tokens", "model": "Model"}


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows with tokens, model and, where the file has them, session and duration. Raises TraceError when the header is
    another.
    """
    for rows in csv_reader.read_layout(source, drops, COLUMNS, unit="s", clock="midnight"):
        if not source.times_only:
            drops.note("failed in the trace (0 response tokens), kept", int((rows.columns["output_tokens"] == 0).sum()))
        yield rows
