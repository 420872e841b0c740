"""The run over time, at bounded size: exact differences of cumulative merges, first a second wide, then coarser. No I/O, no clock.

A window's histogram is the difference of two cumulative fleet merges, so its percentiles are those of exactly the requests that ended
within it; windows that are joined add up cell by cell, and never average percentiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetail.histogram import LAST_INDEX, Histogram, bounds_us
from truetail.ranks import nearest_rank, to_ppm

PERCENTILES = ("50", "95", "99", "99.9")
PPMS = tuple(to_ppm(percentile) for percentile in PERCENTILES)
CHARTED = ("response", "service", "lateness", "ttft")
"""Series that are kept over time; the others (names, replicas) are shown for the whole run."""
RECENT = 120
"""Windows of one second that are kept."""
MOST = 120
"""Windows of the whole run: two hours at 64 s."""

Cells = NDArray[np.int64]
AnyCells = NDArray[np.integer[Any]]
WHERE = np.uint16


@dataclass(slots=True)
class Merged:
    """Histograms added up, as an array over all cells. The figures are those of :class:`Histogram`, to the last digit."""

    cells: Cells
    n: int = 0
    sum_ns: int = 0
    max_ns: int = -1
    invalid: int = 0

    @classmethod
    def of(cls, histograms: Iterable[Histogram]) -> Merged:
        """The sum of histograms."""
        merged = cls(np.zeros(LAST_INDEX + 1, np.int64))
        for histogram in histograms:
            merged.cells[: len(histogram.cells)] += histogram.cells
            merged.n += histogram.n
            merged.sum_ns += histogram.sum_ns
            merged.max_ns = max(merged.max_ns, histogram.max_ns)
            merged.invalid += histogram.invalid
        return merged

    def percentiles_ns(self, ppms: Iterable[int] = PPMS, infinite: int = 0) -> list[int | None]:
        """As :meth:`Histogram.percentile_ns`, for several percentiles in one pass. ``infinite`` never answered."""
        where = np.flatnonzero(self.cells)
        return percentiles_ns(where, self.cells[where], self.n, self.max_ns, ppms, infinite)

    def at_most(self, limit_ns: int) -> int:
        """How many values lie in cells that end at or below a limit: never too many, and short by at most one cell's count."""
        return int(self.cells[: cell_after(limit_ns)].sum())


def cell_after(limit_ns: int) -> int:
    """The first cell whose top lies above a limit."""
    low, high = 0, LAST_INDEX + 1
    while low < high:
        middle = (low + high) // 2
        if bounds_us(middle)[1] * 1000 + 999 <= limit_ns:
            low = middle + 1
        else:
            high = middle
    return low


def percentiles_ns(
    where: AnyCells, counts: AnyCells, n: int, max_ns: int, ppms: Iterable[int] = PPMS, infinite: int = 0
) -> list[int | None]:
    """Nearest-rank percentiles of sparse cells, as the tops of their cells, never above ``max_ns``; None: no data, or never answered."""
    total = n + infinite
    sums = np.cumsum(counts)
    found: list[int | None] = []
    for ppm in ppms:
        rank = nearest_rank(total, ppm) if total else 1
        if rank > n:
            found.append(None)
            continue
        at = int(np.searchsorted(sums, rank))
        found.append(max_ns if at == len(where) else min(bounds_us(int(where[at]))[1] * 1000 + 999, max_ns))
    return found


@dataclass(slots=True)
class Delta:
    """What one series gained within a window: sparse cells. ``max_ns`` bounds the window's maximum (the run's so far)."""

    where: AnyCells
    counts: AnyCells
    n: int
    max_ns: int
    ns: list[int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.ns = percentiles_ns(self.where, self.counts, self.n, self.max_ns)

    @classmethod
    def between(cls, before: Merged | None, after: Merged) -> Delta:
        """The difference of two cumulative merges. A fleet's counts only grow, so no cell is negative."""
        cells = after.cells if before is None else after.cells - before.cells
        where = np.flatnonzero(cells)
        return cls(where.astype(WHERE), _narrow(cells[where]), after.n - (before.n if before else 0), after.max_ns)

    def plus(self, later: Delta) -> Delta:
        """Both windows as one."""
        where, inverse = np.unique(np.concatenate((self.where, later.where)), return_inverse=True)
        counts = np.zeros(len(where), np.int64)
        np.add.at(counts, inverse, np.concatenate((self.counts, later.counts)))
        return Delta(where, _narrow(counts), self.n + later.n, max(self.max_ns, later.max_ns))


def _narrow(counts: Cells) -> AnyCells:
    """In the smallest type that holds them: hundreds of windows are held, each of up to thousands of cells, most of which count below 256."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


@dataclass(slots=True)
class Window:
    """A stretch of the run: what was sent, completed, failed and dropped in it, and how in flight and CPU stood at its end or at most."""

    from_s: float
    to_s: float
    counts: dict[str, int]
    levels: dict[str, float]
    deltas: dict[str, Delta]

    def plus(self, later: Window) -> Window:
        """Both as one: counts add up, levels keep the higher."""
        deltas = dict(self.deltas)
        for series, delta in later.deltas.items():
            deltas[series] = deltas[series].plus(delta) if series in deltas else delta
        return Window(
            self.from_s,
            later.to_s,
            {name: count + later.counts.get(name, 0) for name, count in self.counts.items()},
            {name: max(level, later.levels.get(name, level)) for name, level in self.levels.items()},
            deltas,
        )


class Timeline:
    """Windows of the last two minutes (a second each) and of the whole run (at most ``MOST``, their width doubles as the run goes on)."""

    def __init__(self) -> None:
        self.recent: deque[Window] = deque(maxlen=RECENT)
        self.whole: list[Window] = []
        self.width_s = 1.0
        self._at_s = 0.0
        self._counts: Mapping[str, int] = {}
        self._merged: Mapping[str, Merged] = {}

    def look(self, at_s: float, counts: Mapping[str, int], levels: Mapping[str, float], merged: Mapping[str, Merged]) -> None:
        """Note the fleet's cumulative state at an instant; an instant that is not later than the last changes nothing."""
        if at_s <= self._at_s:
            return
        deltas = {series: Delta.between(self._merged.get(series), merged[series]) for series in CHARTED if series in merged}
        gained = {name: count - self._counts.get(name, 0) for name, count in counts.items()}
        self._add(Window(self._at_s, at_s, gained, dict(levels), deltas))
        self._at_s, self._counts, self._merged = at_s, dict(counts), merged

    def last(self, seconds: float) -> Window | None:
        """The newest windows that together are at most so long, as one; at least the newest. None before the first."""
        joined: Window | None = None
        for window in reversed(self.recent):
            if joined is not None and joined.to_s - window.from_s > seconds + 0.5:
                break
            joined = window if joined is None else window.plus(joined)
        return joined

    def _add(self, window: Window) -> None:
        self.recent.append(window)
        self._join(window)
        while len(self.whole) > MOST:
            self.width_s *= 2
            narrow, self.whole = self.whole, []
            for each in narrow:
                self._join(each)

    def _join(self, window: Window) -> None:
        """Into the last window when both begin in the same stretch of the width."""
        middle = self.whole[-1].from_s if self.whole else -1.0
        if self.whole and _stretch(middle, self.width_s) == _stretch(window.from_s, self.width_s):
            self.whole[-1] = self.whole[-1].plus(window)
        else:
            self.whole.append(window)


def _stretch(at_s: float, width_s: float) -> int:
    """The number of the stretch; an instant a little short of a border counts as the next, since snapshots come a few ms early or late."""
    return int((at_s + 0.2) // width_s)
