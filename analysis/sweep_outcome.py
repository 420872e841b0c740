"""What one run's values say about an SLO on a percentile: meets, misses, unsure, or that the queue grows. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from analysis.intervals import DEGREES_OF_FREEDOM, FEWEST_BATCHES, Interval, exceedances, long_run_variance, percentile_interval
from analysis.sweep_search import Outcome
from truetail.slo import Slo

CLEARLY = 0.5
"""Only a percentile below this share of the limit may be judged by the share of requests beyond the limit, which needs fewer
requests than an interval: near the limit it lets 9 to 45 % of runs pass that should not (docs/sweep.md)."""
RAREST = 10
"""So many requests tell how slow ones cluster; fewer would not."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome with its percentile, and the standard error of the percentile's logarithm (inf where there is none)."""

    outcome: Outcome
    interval: Interval
    log_error: float


def judge(values_s: NDArray[np.floating], slo: Slo, *, full: bool) -> Judged:
    """Judge ``values_s`` in order of intended time (+inf: failed). A run that is not ``full`` never shows that the SLO is met.

    Raises ValueError for no values.
    """
    values = np.asarray(values_s, dtype=float)
    found = percentile_interval(values, slo.ppm or 0)
    if growing(values, slo):
        outcome = Outcome.GROWING
    elif found.low > slo.limit:
        outcome = Outcome.MISSES
    elif full and (found.claims(slo.limit) is True or (found.value <= CLEARLY * slo.limit and surely_within(values, slo))):
        outcome = Outcome.MEETS
    else:
        outcome = Outcome.UNSURE
    return Judged(outcome, found, log_error(found))


def growing(values: NDArray[np.float64], slo: Slo) -> bool:
    """Most of the later half is beyond the limit, where a small share may be: the queue was never going to come down.

    "Most" is half-way between the allowed share and all: for p99 half of the requests, for p50 three quarters.
    """
    later = values[len(values) // 2 :]
    allowed = 1 - (slo.ppm or 0) / 1e6
    return bool(len(later) and (later > slo.limit).mean() > (1 + allowed) / 2)


def surely_within(values: NDArray[np.float64], slo: Slo, confidence: float = 0.975) -> bool:
    """Whether the share beyond the limit is shown to be at most the allowed one (1 % for p99), also where few or none are beyond.

    Clopper and Pearson's upper bound (1934) for the effective number of requests: n over the variance inflation of "beyond the
    limit", or of "among the slowest 10" where fewer than 10 are.
    """
    n, allowed = len(values), 1 - (slo.ppm or 0) / 1e6
    if n < FEWEST_BATCHES:
        return False
    beyond = int((values > slo.limit).sum())
    threshold = min(slo.limit, float(np.partition(values, n - RAREST - 1)[n - RAREST - 1]))
    series = exceedances(values, threshold)
    share = float(series.mean())
    vif = max(long_run_variance(series, share * (1 - share)) / (share * (1 - share)), 1.0) if 0 < share < 1 else 1.0
    bound = float(betaincinv(beyond / vif + 1, max((n - beyond) / vif, 1e-9), confidence))
    return bound <= allowed


def log_error(found: Interval) -> float:
    """The standard error of ln(percentile) that the interval implies; from its lower half where it has no upper end."""
    t = float(stdtrit(DEGREES_OF_FREEDOM, 0.5 + found.confidence / 2))
    if not (0 < found.low <= found.value < math.inf):
        return math.inf
    half = math.log(found.high / found.low) / 2 if math.isfinite(found.high) else math.log(found.value / found.low)
    return max(half / t, 1e-6)
