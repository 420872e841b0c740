"""The part of a trace that is replayed: ordered rows within a window, counted from the window's start; read anew each time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from shapes.traces.detect import open_rows
from shapes.traces.drops import Drops, TraceError
from shapes.traces.reorder import ordered
from shapes.traces.rows import Rows
from shapes.traces.spec import TraceSpec
from shapes.traces.times import SECOND_NS


class Recording:
    """Rows of a window of a trace. ``drops`` is what the latest whole reading lost; a reading under way has its own until it
    ends.
    """

    def __init__(self, spec: TraceSpec) -> None:
        self.spec = spec
        self.drops = Drops(spec.source.path.name)

    def _unordered(self, times_only: bool) -> Iterator[Rows]:
        spec = self.spec
        self.drops = Drops(spec.source.path.name, spec.strict)
        return open_rows(dataclasses.replace(spec.source, times_only=times_only), spec.format, self.drops)

    def _ordered(self, times_only: bool) -> Iterator[Rows]:
        return ordered(self._unordered(times_only), self.drops, self.spec.order, self.spec.reorder_window_s)

    @cached_property
    def _first(self) -> tuple[int, str]:
        if self.spec.order == "sort":  # the earliest time needs no sorting
            blocks = ((int(rows.times_ns.min()), rows.clock) for rows in self._unordered(times_only=True))
            earliest = min(blocks, default=None)
        else:
            rows = next(self._ordered(times_only=True), None)
            earliest = None if rows is None else (int(rows.times_ns[0]), rows.clock)
        if earliest is None:
            raise TraceError(
                f"{self.spec.source.path.name}: no arrivals; " + ("; ".join(self.drops.lines()) or "the file has no rows")
            )
        return earliest

    @property
    def origin_ns(self) -> int:
        """The window's start on the trace's clock: the first arrival's time plus the window's ``from``."""
        return self._first[0] + self.spec.from_ns

    @property
    def clock(self) -> str:
        """What zero of the trace's clock is (:class:`shapes.traces.rows.Rows`)."""
        return self._first[1]

    def rows(self, times_only: bool = False) -> Iterator[Rows]:
        """The window's rows, ordered, times from the window's start (0 <= t < to - from). Raises TraceError when there are
        none.
        """
        origin_ns = self.origin_ns
        length_ns = 2**62 if self.spec.to_ns is None else self.spec.to_ns - self.spec.from_ns
        found = False
        for rows in self._ordered(times_only):
            times = rows.times_ns - origin_ns
            low, high = np.searchsorted(times, [0, length_ns], "left").tolist()
            if low < high:
                found = True
                yield rows._replace(times_ns=times).take(slice(low, high))
            if high < len(times):
                break
        if not found:
            to_s = "the end" if self.spec.to_ns is None else f"{self.spec.to_ns / SECOND_NS:g} s"
            raise TraceError(
                f"{self.spec.source.path.name}: no arrivals in the window from {self.spec.from_ns / SECOND_NS:g} s to {to_s}"
            )

    @cached_property
    def extent(self) -> tuple[int, int]:
        """(arrivals in the window, length in ns); an open window ends a mean gap after its last arrival. Reads the window
        once.
        """
        n = last = 0
        for rows in self.rows(times_only=True):
            n, last = n + len(rows.times_ns), int(rows.times_ns[-1])
        return n, self.length_ns(n, last)

    def length_ns(self, n: int, last_ns: int) -> int:
        """The window's length: as stated, or up to a mean gap after the last of ``n`` arrivals (1 s where there is no gap)."""
        if self.spec.to_ns is not None:
            return self.spec.to_ns - self.spec.from_ns
        return last_ns + ((round(last_ns / (n - 1)) if n > 1 else 0) or SECOND_NS)
