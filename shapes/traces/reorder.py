"""Rows in the order of time: through a bounded window, or by a stated sort of the whole trace outside memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from shapes.traces.drops import Drops, TraceError, quoted
from shapes.traces.rows import Rows, concatenate
from shapes.traces.times import SECOND_NS, Ints

Flags = np.ndarray[Any, np.dtype[np.bool_]]

WINDOW_S = 60.0
MOST_ROWS_HELD = 200_000
ORDERS = ("window", "sort")
LATE = "out of order by more than the reorder window (order: sort takes any order; a timezone may be missing)"
OUTLIER = "a lone time ahead of both its neighbours by more than the reorder window (a clock jump)"


def ordered(rows: Iterable[Rows], drops: Drops, order: str = "window", window_s: float = WINDOW_S) -> Iterator[Rows]:
    """The same rows, sorted by time; equal times keep the file's order. Raises TraceError for an order that is not known.

    In a window, a row that comes later than ``window_s`` behind the latest time seen is dropped by name, as is a lone row
    that far ahead of both its neighbours (else one wrong row would make all that follow late). Memory: at most about
    MOST_ROWS_HELD rows.
    """
    if order not in ORDERS:
        raise TraceError(f"{drops.file}: order {quoted(order)} is not one of {', '.join(ORDERS)}")
    if order == "sort":
        from shapes.traces.sort import sorted_rows

        return sorted_rows(rows, drops)
    return _windowed(_without_outliers(rows, drops, round(window_s * SECOND_NS)), drops, round(window_s * SECOND_NS))


def _without_outliers(blocks: Iterable[Rows], drops: Drops, window_ns: int) -> Iterator[Rows]:
    """Drop lone times far ahead; a block's last row waits for the first of the next."""
    held: Rows | None = None
    before_ns: int | None = None
    for block in blocks:
        rows = block if held is None else concatenate([held, block])
        if len(rows.times_ns) == 1:
            held = rows
            continue
        alone = _ahead(rows.times_ns, before_ns, window_ns)
        for line in rows.lines[:-1][alone].tolist():
            drops.drop(OUTLIER, line, "time")
        kept = rows.take(slice(0, -1)).take(~alone)
        held = rows.take(slice(-1, None))
        if len(kept.times_ns):
            before_ns = int(kept.times_ns[-1])
            yield kept
    if held is not None:
        yield held


def _ahead(times: Ints, before_ns: int | None, window_ns: int) -> Flags:
    """For all but the last time: more than the window ahead of the one before and the one after, which is not behind the one
    before.
    """
    earlier = np.concatenate([[times[1] if before_ns is None else before_ns], times[:-2]])
    now, later = times[:-1], times[1:]
    alone: Flags = (now - earlier > window_ns) & (now - later > window_ns) & (later >= earlier - window_ns)
    return alone


def _windowed(blocks: Iterable[Rows], drops: Drops, window_ns: int) -> Iterator[Rows]:
    held: Rows | None = None
    latest_ns = released_ns = -(2**62)
    for block in blocks:
        latest = np.maximum.accumulate(np.maximum(block.times_ns, latest_ns))
        on_time = block.times_ns >= np.maximum(latest - window_ns, released_ns)
        if not on_time.all():
            for line in block.lines[~on_time].tolist():
                drops.drop(LATE, line, "time")
            block = block.take(on_time)
        if not len(block.times_ns):
            continue
        rows = block if held is None else concatenate([held, block])
        if np.any(np.diff(rows.times_ns) < 0):
            rows = rows.take(np.argsort(rows.times_ns, kind="stable"))
        latest_ns = int(latest[-1])
        free = int(np.searchsorted(rows.times_ns, latest_ns - window_ns, "left"))
        free = max(free, len(rows.times_ns) - MOST_ROWS_HELD)  # bounded memory first: at high rates the window is a shorter time
        if free:
            yield _released(rows.take(slice(0, free)), drops)
            released_ns = int(rows.times_ns[free - 1])
        held = rows.take(slice(free, None))
    if held is not None and len(held.times_ns):
        yield _released(held, drops)


def _released(rows: Rows, drops: Drops) -> Rows:
    drops.kept += len(rows.times_ns)
    return rows
