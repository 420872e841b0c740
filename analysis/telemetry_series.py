"""Mathematics of sampled series: counters over resets, integrals, histograms between two instants, intervals of a state. Pure.

Times are int64 ns from the epoch, strictly increasing; values float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """One field of one source: ``values[i]`` at ``at_ns[i]``. ``counter``: cumulative, so only differences mean something."""

    at_ns: Times
    values: Values
    counter: bool = False

    def __len__(self) -> int:
        return len(self.at_ns)

    def between(self, from_ns: float, to_ns: float) -> Series:
        """The samples in [from, to)."""
        low, high = np.searchsorted(self.at_ns, [from_ns, to_ns])
        return Series(self.at_ns[low:high], self.values[low:high], self.counter)


def increases(values: Values) -> Values:
    """What a counter grew by before each sample but the first. A fall is a reset: it then grew by at least its new value."""
    steps = np.diff(values)
    return np.where(steps < 0, values[1:], steps)


def total_since_start(series: Series) -> Values:
    """The counter as it would stand without resets, from 0 at its first sample; non-finite samples must be out already."""
    return np.concatenate([[0.0], np.cumsum(increases(series.values))]) if len(series) else np.empty(0)


def increase(series: Series, from_ns: float, to_ns: float) -> float | None:
    """What a counter grew by in [from, to], interpolated at the edges; None where the samples do not cover the interval."""
    if len(series) < 2 or from_ns < series.at_ns[0] or to_ns > series.at_ns[-1] or to_ns <= from_ns:
        return None
    low, high = np.interp([from_ns, to_ns], series.at_ns, total_since_start(series))
    return float(high - low)


def rate(series: Series) -> Series:
    """A counter as a rate per second, at the middle of each pair of samples; resets as in ``increases``."""
    if len(series) < 2:
        return Series(np.empty(0, np.int64), np.empty(0))
    width_ns = np.diff(series.at_ns)
    return Series(series.at_ns[:-1] + width_ns // 2, increases(series.values) / (width_ns / 1e9))


def integral(series: Series, from_ns: float, to_ns: float) -> float | None:
    """The trapezoid integral of a gauge over [from, to], in value-seconds; None where the samples do not cover it."""
    if len(series) < 2 or from_ns < series.at_ns[0] or to_ns > series.at_ns[-1] or to_ns <= from_ns:
        return None
    inside = series.between(from_ns, to_ns)
    edges = np.interp([from_ns, to_ns], series.at_ns, series.values)
    at = np.concatenate([[from_ns], inside.at_ns, [to_ns]])
    return float(np.trapezoid(np.concatenate([[edges[0]], inside.values, [edges[1]]]), at / 1e9))


def mean_by_bin(series: Series, edges_ns: Times) -> Values:
    """The mean of a gauge's samples in each [edge, next edge); NaN where there is none."""
    which = np.searchsorted(edges_ns, series.at_ns, side="right") - 1
    inside = (which >= 0) & (which < len(edges_ns) - 1)
    counts = np.bincount(which[inside], minlength=len(edges_ns) - 1)
    sums = np.bincount(which[inside], weights=series.values[inside], minlength=len(edges_ns) - 1)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def intervals(at_ns: Sequence[int], held: Iterable[bool], longest_gap_ns: int) -> list[tuple[int, int]]:
    """When a sampled state held: from the sample that shows it to the next that does not.

    A gap between samples longer than ``longest_gap_ns`` ends an interval at the last sample that showed it.
    """
    found: list[tuple[int, int]] = []
    since: int | None = None
    last = 0
    for at, now in zip(at_ns, held, strict=True):
        if since is not None and at - last > longest_gap_ns:
            found.append((since, last))
            since = None
        if now and since is None:
            since = at
        elif not now and since is not None:
            found.append((since, at))
            since = None
        last = at
    if since is not None:
        found.append((since, last))
    return found


def histogram_increase(buckets: Mapping[float, Series], from_ns: float, to_ns: float) -> dict[float, float] | None:
    """Per upper bound, how many observations at or below it came between two instants; None where the samples do not cover them.

    Cumulative counts of equal bounds add up over servers: that is how histograms are merged.
    """
    found = {bound: increase(series, from_ns, to_ns) for bound, series in sorted(buckets.items())}
    if not found or None in found.values():
        return None
    return {bound: float(value) for bound, value in found.items() if value is not None}


def merge(histograms: Iterable[Mapping[float, float]]) -> dict[float, float]:
    """The sum of cumulative histograms. Raises ValueError when their bounds differ: such histograms cannot be merged."""
    total: dict[float, float] = {}
    for histogram in histograms:
        if total and total.keys() != histogram.keys():
            raise ValueError("the histograms have different buckets; they cannot be merged")
        for bound, count in histogram.items():
            total[bound] = total.get(bound, 0.0) + count
    return total


def quantile_bounds(histogram: Mapping[float, float], q: float) -> tuple[float, float] | None:
    """Between which two bounds the q-quantile lies (the upper one may be infinite): what a bucket histogram can say, no more."""
    bounds = sorted(histogram)
    if not bounds or histogram[bounds[-1]] <= 0:
        return None
    wanted, low = q * histogram[bounds[-1]], 0.0
    for bound in bounds:
        if histogram[bound] >= wanted:
            return low, bound
        low = bound
    return low, float("inf")
