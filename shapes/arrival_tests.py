"""Are these arrivals a Poisson process at the declared rate? Six tests on operational-time points Lambda(t), numpy only.

In operational time a Poisson process of any rate lambda(t) has unit rate, so one set of tests certifies constant rates, ramps and bursts alike.
Together the six hold ``alpha`` by Bonferroni. No single one is enough: a stall shows in windows of ten arrivals only, rounded
timestamps in the gaps only, a slow ramp in the uniforms only. They cannot see independent delays of each arrival (displaced
Poisson points are Poisson again), nor a few missing at random: those need a check by arrival number.

With 1e5 points and more the tests reject deviations that matter to nobody; so each carries its effect size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
ALPHA = 0.01
MIN_POINTS = 100
"""Fewer points support no window of ten and no approximation used here."""


@dataclass(frozen=True)
class ArrivalTest:
    """One test: its statistic, two-sided p-value, the effect it measures, and whether it passes at its share of alpha."""

    name: str
    statistic: float
    p_value: float
    effect_name: str
    effect: float
    passed: bool


@dataclass(frozen=True)
class Certificate:
    """The six tests of one set of points."""

    count: int
    expected: float
    alpha: float
    tests: tuple[ArrivalTest, ...]

    @property
    def passed(self) -> bool:
        """No test rejects: with Poisson arrivals this is so with probability 1 - alpha at least."""
        return all(test.passed for test in self.tests)

    @property
    def failures(self) -> tuple[str, ...]:
        """Names of the tests that reject."""
        return tuple(test.name for test in self.tests if not test.passed)

    def __getitem__(self, name: str) -> ArrivalTest:
        """The test of this name."""
        return next(test for test in self.tests if test.name == name)


def certify(points: ArrayLike, total: float, alpha: float = ALPHA) -> Certificate:
    """The six tests on points Lambda(t_k) in [0, total], total = Lambda(duration). Raises ValueError if there are too few points or any lies outside."""
    x = np.sort(np.asarray(points, dtype=np.float64))
    if x.size < MIN_POINTS:
        raise ValueError(f"found {x.size} arrivals; at least {MIN_POINTS} are needed to test their law")
    if not np.isfinite(x).all() or x[0] < 0 or x[-1] > total:
        raise ValueError(f"found points from {x[0]:g} to {x[-1]:g}; allowed is 0 to the total, {total:g}")
    found = [_count(x, total), _uniform(x, total), _lewis(x, total)]
    found += [_dispersion(x, total, name, windows) for name, windows in _windows(x.size)]
    limit = alpha / len(found)
    tests = tuple(
        ArrivalTest(name, statistic, p, effect_name, effect, p >= limit) for name, statistic, p, effect_name, effect in found
    )
    return Certificate(x.size, float(total), alpha, tests)


_Found = tuple[str, float, float, str, float]


def _count(x: Floats, total: float) -> _Found:
    """z = (N - Lambda) / sqrt(Lambda) against the normal distribution."""
    z = (x.size - total) / math.sqrt(total)
    return "count", z, math.erfc(abs(z) / math.sqrt(2)), "rate ratio", x.size / total


def _uniform(x: Floats, total: float) -> _Found:
    """Given their number, Poisson points are independent and uniform: Kolmogorov and Smirnov's D. Sees trends of the rate."""
    d = ks_statistic(x / total)
    return "conditional uniforms", d, ks_p_value(d, x.size), "largest deviation", d


def _lewis(x: Floats, total: float) -> _Found:
    """Lewis' test with Durbin's transform: the ordered gaps, each difference weighted, are uniform again. Sees any wrong law of gaps."""
    gaps = np.diff(np.concatenate([[0.0], x, [total]])) / total
    n = x.size
    ordered = np.sort(gaps)
    weighted = np.arange(n + 1.0, 0.0, -1.0) * np.diff(np.concatenate([[0.0], ordered]))
    d = ks_statistic(np.cumsum(weighted)[:-1])
    inner = gaps[1:-1]
    return "Lewis-Durbin", d, ks_p_value(d, n), "squared CV of gaps", float(inner.var() / inner.mean() ** 2)


def _windows(n: int) -> Iterable[tuple[str, int]]:
    return (
        ("dispersion, 50 windows", 50),
        ("dispersion, windows of 10", max(2, round(n / 10))),
        ("dispersion, windows of 100", max(2, round(n / 100))),
    )


def _dispersion(x: Floats, total: float, name: str, windows: int) -> _Found:
    """Index of dispersion of the counts in equal windows: (W - 1) IDC is chi-squared with W - 1 degrees of freedom."""
    places = np.minimum((x / total * windows).astype(np.intp), windows - 1)
    counts = np.bincount(places, minlength=windows)
    chi2 = float(((counts - counts.mean()) ** 2).sum() / counts.mean())
    upper = chi2_upper_tail(chi2, windows - 1)
    return name, chi2, min(1.0, 2 * min(upper, 1 - upper)), "index of dispersion", chi2 / (windows - 1)


def ks_statistic(u: Floats) -> float:
    """The largest distance between the empirical distribution of u and the uniform one on [0, 1]."""
    ordered = np.sort(u)
    n = ordered.size
    ranks = np.arange(n)
    return float(max((ordered - ranks / n).max(), ((ranks + 1) / n - ordered).max()))


def ks_p_value(d: float, n: int) -> float:
    """P(D >= d): Kolmogorov's limit with Stephens' correction for n (1970)."""
    x = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    if x < 0.2:
        return 1.0
    return float(min(1.0, max(0.0, 2 * sum((-1) ** (j - 1) * math.exp(-2 * (j * x) ** 2) for j in range(1, 101)))))


def chi2_upper_tail(chi2: float, freedom: int) -> float:
    """P(chi-squared >= chi2): the cube root is nearly normal (Wilson and Hilferty, 1931)."""
    scale = 2 / (9 * freedom)
    z = ((chi2 / freedom) ** (1 / 3) - (1 - scale)) / math.sqrt(scale)
    return 0.5 * math.erfc(z / math.sqrt(2))
