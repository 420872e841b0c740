"""A rate curve, a spacing and a dispersion fitted to a trace, in one streamed pass.

The rate is the count per window; neighbouring windows whose counts do not differ more than chance allows are joined, since a
rate curve that follows the noise of its own counts would double the variance of what is drawn from it. Within the windows,
the index of dispersion of the counts in tenths of a window says how bursty arrivals are; a gamma spacing is chosen that has
the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shapes.traces.rows import Rows
from shapes.traces.times import SECOND_NS

DEFAULT_WINDOW_S = 10.0
PARTS = 10  # tenths of a window, in which dispersion is measured
MOST_WINDOWS = 2_000_000
# Neighbours are joined up to z^2 = 3 ln n (n windows), and at least 3 standard deviations: among many windows some differ a lot by chance,
# and joining the most alike first leaves those standing that differ most.
JOIN_Z_SQUARED, JOIN_PER_LOG = 9.0, 3.0
CV_RANGE = (0.05, 30.0)
# Fewer arrivals than this in a part of a window, and its counts tell next to nothing of the gaps' law: they tend to Poisson's.
LEAST_MEAN_FOR_DISPERSION = 0.5

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Fit:
    """A fitted trace: rates[i] from edges_s[i] to edges_s[i + 1] (s from the window's start), and how arrivals scatter
    around it.
    """

    n: int
    length_s: float
    window_s: float
    edges_s: Floats
    rates_rps: Floats
    gap_cv: float
    dispersion: float
    part_mean: float

    @cached_property
    def cv(self) -> float:
        """The CV of gamma gaps that scatter as the trace does (:func:`spacing_cv`)."""
        return spacing_cv(self.dispersion, self.part_mean, self.gap_cv)

    @property
    def mean_rps(self) -> float:
        """Arrivals by length."""
        return self.n / self.length_s

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; NaN (not enough arrivals to tell) as null."""
        return {
            "arrivals": self.n,
            "length_s": self.length_s,
            "mean_rps": self.mean_rps,
            "window_s": self.window_s,
            "pieces": len(self.rates_rps),
            "rate_min_rps": float(self.rates_rps.min()),
            "rate_max_rps": float(self.rates_rps.max()),
            "gap_cv": None if math.isnan(self.gap_cv) else self.gap_cv,
            "dispersion_within_windows": None if math.isnan(self.dispersion) else self.dispersion,
            "cv": self.cv,
        }


class _Totals:
    """Counts per window and per part of a window, and sums of gaps and their squares by the window in which they begin."""

    def __init__(self, width_ns: int) -> None:
        self.width_ns = width_ns
        self.parts = np.zeros(PARTS * 64, np.int64)
        self.gaps = np.zeros((3, 64))
        self.n = self.last_ns = 0

    def add(self, times: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Times are sorted, and not before those added already."""
        part = times // max(1, self.width_ns // PARTS)
        highest = int(part[-1])
        if highest >= MOST_WINDOWS * PARTS:
            raise ValueError(f"more than {MOST_WINDOWS} windows of {self.width_ns / SECOND_NS:g} s; state a wider fit_window_s")
        if highest >= len(self.parts):
            self.parts = np.concatenate([self.parts, np.zeros(2 * highest + PARTS - len(self.parts), np.int64)])
            self.gaps = np.concatenate([self.gaps, np.zeros((3, len(self.parts) // PARTS + 2 - self.gaps.shape[1]))], axis=1)
        first = int(part[0])
        self.parts[first : highest + 1] += np.bincount(part - first, minlength=highest + 1 - first)
        before = times[:-1] if not self.n else np.concatenate([[self.last_ns], times[:-1]])
        gaps = (times[len(times) - len(before) :] - before) / SECOND_NS
        window = before // self.width_ns
        short = gaps < self.width_ns / SECOND_NS  # a longer gap spans windows of different rates, and says nothing of either
        if short.any():
            window, gaps = window[short], gaps[short]
            low, width = int(window[0]), int(window[-1] - window[0]) + 1
            for row, weights in enumerate((None, gaps, gaps * gaps)):
                self.gaps[row, low : low + width] += np.bincount(window - low, weights, width)
        self.n, self.last_ns = self.n + len(times), int(times[-1])


def fit(blocks: Iterable[Rows], window_s: float | None, length_ns_of: Callable[[int, int], int]) -> Fit:
    """Fit sorted rows with times from 0. ``length_ns_of(n, last_ns)`` tells the recording's length. Raises ValueError."""
    width_ns = max(PARTS, round((window_s or DEFAULT_WINDOW_S) * SECOND_NS) // PARTS * PARTS)
    totals = _Totals(width_ns)
    for rows in blocks:
        totals.add(rows.times_ns)
    length_s = length_ns_of(totals.n, totals.last_ns) / SECOND_NS
    width_s = width_ns / SECOND_NS
    windows = max(1, math.ceil(length_s / width_s - 1e-9))
    parts = np.zeros(windows * PARTS, np.int64)
    held = min(len(parts), len(totals.parts))
    parts[:held] = totals.parts[:held]
    edges = np.minimum(np.arange(windows + 1) * width_s, length_s)
    dispersion, mean = _dispersion(parts.reshape(windows, PARTS)[: int(length_s // width_s)])
    counts = parts.reshape(windows, PARTS).sum(axis=1).astype(float)
    edges_s, rates = joined(edges, counts, 1.0 if math.isnan(dispersion) else max(1.0, dispersion))
    gap_cv = _gap_cv(totals.gaps, rates, edges_s, width_s)
    return Fit(totals.n, length_s, width_s, edges_s, rates, gap_cv, dispersion, mean)


def _dispersion(parts: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[float, float]:
    """(pooled index of dispersion of the parts' counts within their windows, mean count of a part); Poisson has 1."""
    filled = parts[parts.sum(axis=1) > 0].astype(float)
    if not filled.size:
        return math.nan, 0.0
    squares = ((filled - filled.mean(axis=1, keepdims=True)) ** 2).sum()
    return float(squares / ((PARTS - 1) * filled.mean(axis=1).sum())), float(filled.mean())


def _gap_cv(sums: Floats, rates: Floats, edges_s: Floats, width_s: float) -> float:
    """CV of the gaps in operational time (each gap by its piece's rate), so that a trend does not pass for burstiness."""
    middle = (np.arange(sums.shape[1]) + 0.5) * width_s
    rate = rates[np.clip(np.searchsorted(edges_s, middle, "right") - 1, 0, len(rates) - 1)]
    n, first, second = sums[0].sum(), (sums[1] * rate).sum(), (sums[2] * rate * rate).sum()
    if n < 2 or first <= 0:
        return math.nan
    return math.sqrt(max(0.0, n * second / first**2 - 1))


def joined(edges: Floats, counts: Floats, dispersion: float) -> tuple[Floats, Floats]:
    """(edges, rates) with neighbours joined, the most alike first, until all differ by more than chance lets them.

    The variance of a count is taken as ``dispersion`` times its mean. In each round all pairs join that are more alike than
    the pairs beside them, so rounds are few; equal differences (as between empty windows) are put in an order by chance,
    with a fixed seed.
    """
    random = np.random.Generator(np.random.Philox(11))
    most = max(JOIN_Z_SQUARED, JOIN_PER_LOG * math.log(len(counts)))
    while len(counts) > 1:
        widths = np.diff(edges)
        rates = counts / widths
        pooled = (counts[:-1] + counts[1:]) / (widths[:-1] + widths[1:])
        variance = pooled * dispersion * (1 / widths[:-1] + 1 / widths[1:])
        z_squared = np.divide(np.diff(rates) ** 2, variance, out=np.zeros(len(pooled)), where=variance > 0)
        near = z_squared <= most
        if not near.any():
            break
        rank = np.empty(len(near))
        rank[np.lexsort((random.random(len(near)), z_squared))] = np.arange(len(near))
        around = np.concatenate([[np.inf], rank, [np.inf]])
        chosen = np.flatnonzero(near & (rank < around[:-2]) & (rank < around[2:]))
        counts[chosen] += counts[chosen + 1]
        counts, edges = np.delete(counts, chosen + 1), np.delete(edges, chosen + 1)
    return edges, counts / np.diff(edges)


def spacing_cv(dispersion: float, mean: float, gap_cv: float) -> float:
    """The CV of the gamma gaps whose counts, at ``mean`` a part of a window, have this index of dispersion within windows.

    Found by bisection on a simulation with a fixed seed. Where parts are too thin to tell, the gaps' own CV; Poisson's 1
    without gaps.
    """
    if math.isnan(dispersion) or mean < LEAST_MEAN_FOR_DISPERSION:
        return float(np.clip(gap_cv, *CV_RANGE)) if not math.isnan(gap_cv) else 1.0
    low, high = math.log(CV_RANGE[0]), math.log(CV_RANGE[1])
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if _simulated_dispersion(math.exp(middle), mean) < dispersion else (low, middle)
    return math.exp((low + high) / 2)


def _simulated_dispersion(cv: float, mean: float, windows: int = 1000) -> float:
    shape = 1 / cv**2
    random = np.random.Generator(np.random.Philox(7))
    n = int(min(200_000, windows * PARTS * mean * 1.2 + 1000))
    times = np.cumsum(random.gamma(shape, 1 / shape, n)) / mean
    whole = int(min(times[-1], windows * PARTS)) // PARTS
    counts = np.bincount(times[times < whole * PARTS].astype(np.int64), minlength=whole * PARTS)
    found = _dispersion(counts[: whole * PARTS].reshape(whole, PARTS))[0] if whole else math.nan
    return 0.0 if math.isnan(found) else found


def arrivals_snippet(fitted: Fit, most_pieces: int = 200) -> Mapping[str, Any]:
    """A scenario's ``arrivals:`` with the fitted rate as steps and the fitted spacing. Raises ValueError with too many pieces."""
    if len(fitted.rates_rps) > most_pieces:
        pieces = len(fitted.rates_rps)
        raise ValueError(
            f"the fitted rate has {pieces} pieces, more than {most_pieces}; state a wider fit window, or use mode: model"
        )
    lengths = np.diff(fitted.edges_s)
    if len(lengths) == 1:
        rate: Any = f"{fitted.mean_rps:.6g}/s"
    else:
        steps = zip(fitted.rates_rps.tolist(), lengths.tolist(), strict=True)
        rate = {"steps": [{"rate": f"{rps:.6g}/s", "for": f"{length:.6g}s"} for rps, length in steps]}
    near_poisson = 0.9 <= fitted.cv <= 1.1
    return {"rate": rate, "spacing": "poisson" if near_poisson else {"gamma": {"cv": round(fitted.cv, 4)}}}
