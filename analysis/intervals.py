"""Confidence intervals for percentiles of autocorrelated latencies, and when no interval may be claimed.

Method: rank inversion. With x the nearest-rank percentile, I_i = [x_i > x] in order of intended time (whole fleet) is a
stationary 0/1 series whose long-run variance v is the spectrum at frequency 0, estimated by Heidelberger and Welch's regression
on the log periodogram (CACM 24, 1981). The interval's ends are the order statistics at ranks n q -+ t sqrt(n v).

Too short to claim (docs/statistics.md has the measured error rates): the upper rank lies beyond n, or fewer than 10
effective exceedances, or batch means still correlated (von Neumann). Then only the lower end is told: "p99 >= L, needs about
n requests".
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtrit

from analysis.sample_size import TAIL_ESS, needed_for_claim
from truetail.ranks import PPM, nearest_rank

PAIRS = 25
"""Pairs of periodogram ordinates in the regression (K of the paper), a quadratic."""
BIAS_C1, DEGREES_OF_FREEDOM = 0.882, 7
"""The paper's constants for K = 25 and degree 2: undo the bias of exponentiating, and t's degrees of freedom."""
LOG_MEAN = 0.270
"""Minus the mean of the log of an average of two unit exponentials."""
FEWEST_BATCHES = 4 * PAIRS
VON_NEUMANN_BATCHES = 32
VON_NEUMANN_Z = 1.645

Series = NDArray[np.float64] | NDArray[np.bool_]
"""Numbers in order of time; True counts as 1."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile with its interval, in the values' unit. ``high`` is infinite unless ``two_sided``; ``reason`` says why not.

    ``vif`` is the estimated variance inflation, ``tail_ess`` the effective exceedances, ``needed_n`` the requests that a claim
    would need (0 when this run suffices).
    """

    percentile: str
    n: int
    value: float
    low: float
    high: float
    two_sided: bool
    confidence: float
    vif: float
    tail_ess: float
    needed_n: int
    reason: str

    def text(self, scale: float = 1e3, unit: str = "ms") -> str:
        """``p99 = 27.7 ms, two-sided [26.9, 28.4] ms`` or ``p99 >= 31 ms; ...``; values times ``scale``."""
        name = f"p{self.percentile}"
        if self.two_sided:
            return (
                f"{name} = {self.value * scale:.4g} {unit}, two-sided [{self.low * scale:.4g}, {self.high * scale:.4g}] {unit} "
                f"({self.confidence:.0%})"
            )
        return (
            f"{name} >= {self.low * scale:.4g} {unit}; the run is too short ({self.reason}), needs about {self.needed_n} requests"
        )

    def claims(self, limit: float) -> bool | None:
        """Whether the percentile lies at or below ``limit``: True or False where the interval shows it, None where it cannot."""
        if self.low > limit:
            return False
        return True if self.two_sided and self.high <= limit else None


def percentile_interval(
    values: NDArray[np.floating], ppm: int, confidence: float = 0.95, ordered: NDArray[np.float64] | None = None
) -> Interval:
    """The percentile (``ppm`` parts per million) of ``values`` in order of intended time; +inf stands for a failure.

    ``ordered`` is the same sorted, from a caller who has it. Raises ValueError for no values or a NaN among them.
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    rank = nearest_rank(n, ppm)
    # A NaN is sorted to the end.
    if np.isnan(x).any() if ordered is None else np.isnan(ordered[-1]):
        raise ValueError("a latency is NaN: a request without a time belongs into the ledger, not here")
    q = ppm / PPM
    if q >= 1:
        raise ValueError("the maximum has no interval: only percentiles below 100 do")
    value = float((np.partition(x, rank - 1) if ordered is None else ordered)[rank - 1])
    beyond = exceedances(x, value)
    v = long_run_variance(beyond, q * (1 - q))
    t = float(stdtrit(DEGREES_OF_FREEDOM, 0.5 + confidence / 2))
    half = t * math.sqrt(n * v)
    low_rank, high_rank = math.floor(n * q - half), math.ceil(n * q + half)
    vif = v / (q * (1 - q))
    tail_ess = n * (1 - q) / vif
    reason = _too_short(n, high_rank, tail_ess, beyond)
    ends = np.partition(x, [max(low_rank, 1) - 1, min(high_rank, n) - 1]) if ordered is None else ordered
    low = float(ends[low_rank - 1]) if low_rank >= 1 else -math.inf
    high = float(ends[high_rank - 1]) if not reason else math.inf
    # A rule may fail although n exceeds what its VIF asks for (batch means correlated): then the VIF is not to be believed.
    needed = max(needed_for_claim(100 * q, max(vif, 1.0)), 2 * n) if reason else 0
    return Interval(f"{ppm / 10_000:g}", n, value, low, high, not reason, confidence, vif, tail_ess, needed, reason)


def exceedances(x: NDArray[np.floating], value: float) -> NDArray[np.bool_]:
    """Where x exceeds ``value``; where nothing does (the percentile is the maximum, or infinite), where it is reached."""
    beyond = x > value
    return beyond if beyond.any() else x >= value


def _too_short(n: int, high_rank: int, tail_ess: float, beyond: NDArray[np.bool_]) -> str:
    """Why no two-sided claim may be made; empty when one may."""
    if n < FEWEST_BATCHES:
        return f"fewer than {FEWEST_BATCHES} requests"
    if high_rank > n:
        return "the upper end lies beyond the largest value seen"
    if tail_ess < TAIL_ESS:
        return f"{tail_ess:.1f} effective requests beyond the percentile, {TAIL_ESS:g} are needed"
    if von_neumann_z(beyond) >= VON_NEUMANN_Z:
        return "slow phases last too long against the run"
    return ""


def batch_means(x: Series, batches: int) -> NDArray[np.float64]:
    """Means of ``batches`` consecutive batches of equal size; the few values left over at the end are left out."""
    size = len(x) // batches
    means: NDArray[np.float64] = x[: size * batches].reshape(batches, size).mean(axis=1)
    return means


def long_run_variance(x: Series, floor: float) -> float:
    """Heidelberger and Welch's spectrum at frequency 0 of ``x``, at least ``floor`` (the variance if x were independent)."""
    n = len(x)
    if n < FEWEST_BATCHES or x.min() == x.max():
        return floor
    batches = n if n < 400 else 200 if n < 4000 else 400
    means = batch_means(x, batches)
    m = len(means)
    power = np.abs(np.fft.rfft(means - means.mean())[1 : 2 * PAIRS + 1]) ** 2 / m
    pairs = (power[0::2] + power[1::2]) / 2
    if pairs.max() <= 0:
        return floor
    logs = np.log(np.maximum(pairs, 1e-12 * pairs.max())) + LOG_MEAN
    frequency = (4 * np.arange(1, PAIRS + 1) - 1) / (2 * m)
    at_zero = np.polynomial.polynomial.polyfit(frequency, logs, 2)[0]
    return max(BIAS_C1 * math.exp(at_zero) * (n // batches), floor)


def von_neumann_z(x: Series, batches: int = VON_NEUMANN_BATCHES) -> float:
    """Von Neumann's ratio on batch means as a standard normal: large when neighbours are alike, 0 when they are constant."""
    y = batch_means(x, batches)
    squares = float(((y - y.mean()) ** 2).sum())
    if squares == 0:
        return 0.0
    c = 1 - float((np.diff(y) ** 2).sum()) / (2 * squares)
    return c / math.sqrt((batches - 2) / (batches**2 - 1))


def independent_ranks(n: int, ppm: int, confidence: float = 0.95) -> tuple[int, int]:
    """Ranks (1-based; 0 and n + 1 = unbounded) of the binomial interval, right only for independent values.

    Kept to show in docs and reports what it would have said: near saturation it covers the truth in 2-9 % of runs, not 95 %.
    """
    q, tail = ppm / PPM, (1 - confidence) / 2

    def at_most(k: int) -> float:
        """P(X <= k) of the binomial distribution."""
        return float(bdtr(k, n, q))

    low = bisect_right(range(n + 1), tail, key=at_most)
    high = bisect_left(range(n + 1), 1 - tail, key=at_most) + 1
    return low, min(high, n + 1)
