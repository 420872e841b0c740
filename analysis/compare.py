"""Two groups of runs: is the candidate's tail the same, better or worse than the base's?

One run against one cannot tell a change from a restart's luck, so each arm needs replicates (five fresh starts,
interleaved), and the test is on the runs' log percentiles: Welch's t for the ratio and its interval, with the exact
permutation p beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from analysis.intervals import DEGREES_OF_FREEDOM, Interval, percentile_interval

MOST_PERMUTATIONS = 200_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """The candidate's percentile over the base's, with a two-sided interval at 1 - ``alpha``; values in the input's unit.

    ``verdict``: better, same, worse, or cannot say; ``indicative`` when an arm has a single run. ``permutation_p`` is NaN then.
    """

    percentile: str
    base: Sequence[float]
    candidate: Sequence[float]
    n_each: int
    ratio: float
    low: float
    high: float
    p: float
    permutation_p: float
    alpha: float
    margin: float
    verdict: str
    indicative: bool

    @property
    def text(self) -> str:
        """One line for people."""
        end = "unbounded" if math.isinf(self.high) else f"{self.high:.3f}"
        kind = "; a single pair is indicative only" if self.indicative else ""
        return (
            f"p{self.percentile}: candidate / base = {self.ratio:.3f} [{self.low:.3f}, {end}] ({1 - self.alpha:.0%}), "
            f"p = {self.p:.3g}: {self.verdict}{kind}"
        )


def verdict(low: float, high: float, margin: float) -> str:
    """``worse`` if the ratio's interval lies above 1, ``better`` below 1, ``same`` if a slowdown of ``margin`` is ruled out."""
    if low > 1:
        return "worse"
    if high < 1:
        return "better"
    return "same" if high < 1 + margin else "cannot say"


def compare(
    base: Sequence[NDArray[np.floating]],
    candidate: Sequence[NDArray[np.floating]],
    ppm: int,
    margin: float = 0.1,
    alpha: float = 0.05,
) -> Comparison:
    """Compare runs' values (in order of intended time, +inf for failures), each cut to the shortest run's length.

    Raises ValueError for an empty arm or an empty run.
    """
    if not base or not candidate:
        raise ValueError("both arms need at least one run")
    n = min(len(values) for values in (*base, *candidate))
    if n == 0:
        raise ValueError("a run has no requests after its warm-up: there is nothing to compare")
    arms = [[percentile_interval(np.asarray(values)[:n], ppm, 1 - alpha) for values in arm] for arm in (base, candidate)]
    values = [[found.value for found in arm] for arm in arms]
    single = min(len(arm) for arm in arms) < 2
    if not all(math.isfinite(v) and v > 0 for arm in values for v in arm):
        low, high, p, permuted, ratio = 0.0, math.inf, 1.0, math.nan, math.nan  # a failed tail has no logarithm
    elif single:
        ratio, low, high, p = _pair([_log_mean_and_error(arm) for arm in arms], alpha)
        permuted = math.nan
    else:
        logs = [np.log(arm) for arm in values]
        ratio, low, high, p = welch(logs[0], logs[1], alpha)
        permuted = permutation_p(logs[0], logs[1])
    return Comparison(
        arms[0][0].percentile, values[0], values[1], n, ratio, low, high, p, permuted, alpha, margin,
        verdict(low, high, margin), single,
    )  # fmt: skip


def welch(base_logs: NDArray[np.float64], candidate_logs: NDArray[np.float64], alpha: float) -> tuple[float, float, float, float]:
    """(ratio, low, high, p) by Welch's unequal-variance t on logarithms (Welch 1947); at least two runs an arm."""
    a, b = np.asarray(base_logs), np.asarray(candidate_logs)
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    difference, squared = float(b.mean() - a.mean()), float(va + vb)
    if squared == 0:  # runs identical to the last digit (a simulated clock): no scatter to judge by
        ratio = math.exp(difference)
        return ratio, ratio, ratio, float(difference == 0)
    freedom = squared**2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return _interval(difference, math.sqrt(squared), freedom, alpha)


def permutation_p(base_logs: NDArray[np.float64], candidate_logs: NDArray[np.float64]) -> float:
    """Two-sided exact permutation p on the difference of means; NaN where there are more than 200,000 divisions."""
    pooled = np.concatenate([base_logs, candidate_logs])
    k, n = len(base_logs), len(pooled)
    if math.comb(n, k) > MOST_PERMUTATIONS:
        return math.nan
    members = np.array(list(combinations(range(n), k)))
    sums = pooled[members].sum(axis=1)
    centre = pooled.sum() * k / n
    observed = abs(pooled[:k].sum() - centre)
    return float((np.abs(sums - centre) >= observed - 1e-12 * max(1.0, abs(centre))).mean())


def _log_mean_and_error(arm: Sequence[Interval]) -> tuple[float, float]:
    """Mean log percentile of an arm, and the standard error that the runs' own intervals imply (infinite when unbounded)."""
    t = float(stdtrit(DEGREES_OF_FREEDOM, 0.5 + arm[0].confidence / 2))
    logs, squares = [], 0.0
    for found in arm:
        logs.append(math.log(found.value))
        known = found.two_sided and found.low > 0 and math.isfinite(found.high)
        squares += (math.log(found.high / found.low) / (2 * t)) ** 2 if known else math.inf
    return float(np.mean(logs)), math.sqrt(squares) / len(logs)


def _pair(arms: Sequence[tuple[float, float]], alpha: float) -> tuple[float, float, float, float]:
    """Within-run errors only: what differs between restarts is not in them, hence indicative."""
    (base, base_error), (candidate, candidate_error) = arms
    error = math.hypot(base_error, candidate_error)
    if math.isinf(error):
        return math.exp(candidate - base), 0.0, math.inf, 1.0
    return _interval(candidate - base, max(error, 1e-12), 2 * DEGREES_OF_FREEDOM, alpha)


def _interval(difference: float, error: float, freedom: float, alpha: float) -> tuple[float, float, float, float]:
    half = float(stdtrit(freedom, 1 - alpha / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(difference) / error))
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half), p
