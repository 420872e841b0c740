"""Whether a run can support "the percentile lies below its limit": the exceedances of the limit itself, at their effective number.

"p99 < L" says that fewer than 1 % of requests take longer than L. Of n requests m did. Requests of a queue are alike, so the run is
worth n / VIF independent ones; with those numbers the exact (Clopper-Pearson) upper bound of the share must lie below 1 %. Counting
beyond the limit, not beyond the percentile, lets a run with room to spare be short, and asks a close one to be long.

VIF is the largest of: 8 (a queue at half load, docs/statistics.md), and half as much again as the exceedances of the measured percentile and those of
the limit show. With ten or more beyond the limit no claim while their batch means are still alike (von Neumann). Slow
phases longer than the run cannot be seen from within it.
Measured on M/M/1 at utilisation 0.5 to 0.9 with the limit at the true p99: 0 to 6.7 % false claims (docs/statistics.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from analysis.intervals import FEWEST_BATCHES, VON_NEUMANN_Z, exceedances, long_run_variance, von_neumann_z
from analysis.sample_size import CONFIDENCE, LEAST_VIF, UNCERTAINTY
from truetail.ranks import PPM, nearest_rank

FEWEST_TO_ESTIMATE = 10
MOST_FACTOR = 1e4


@dataclass(frozen=True, slots=True)
class Claim:
    """``supported``: the run shows the claim. ``share_at_most``: upper bound of the share beyond the limit.

    ``needed_n``: about how many requests would show it, at the same share beyond; 0 when supported, or when none would.
    """

    supported: bool
    beyond: int
    n: int
    vif: float
    share_at_most: float
    allowed: float
    needed_n: int

    def text(self, percentile: str) -> str:
        """In words."""
        worth = f"worth {self.n / self.vif:,.0f} independent requests"
        seen = f"{self.beyond:,} of {self.n:,} lie beyond the limit, so at most {self.share_at_most:.3g} of all ({CONFIDENCE:.1%} sure; {worth})"
        if self.supported:
            return f"supported: {seen}"
        if self.share_at_most <= self.allowed:
            return (
                f"not claimed for p{percentile}: {seen}; but those beyond come in slow phases that last too long against the run"
            )
        more = f"; about {self.needed_n:,} requests would show it" if self.needed_n else ""
        return f"the run is too short to claim p{percentile}: {seen}{more}"


def below(values: NDArray[np.floating], limit: float, ppm: int) -> Claim:
    """The claim that the percentile of ``values`` (in order of intended time, +inf for a failure) lies below ``limit``."""
    x = np.asarray(values, dtype=float)
    n, allowed = len(x), 1 - ppm / PPM
    beyond = x >= limit
    m = int(beyond.sum())
    rank = nearest_rank(n, ppm)
    value = float(np.partition(x, rank - 1)[rank - 1])
    vif = max(LEAST_VIF, UNCERTAINTY * _vif(exceedances(x, value)))
    if m >= FEWEST_TO_ESTIMATE:
        vif = max(vif, UNCERTAINTY * _vif(beyond))
    at_most = upper_bound(m / vif, n / vif)
    settled = m < FEWEST_TO_ESTIMATE or n < FEWEST_BATCHES or von_neumann_z(beyond) < VON_NEUMANN_Z
    supported = at_most <= allowed and settled
    return Claim(supported, m, n, vif, at_most, allowed, 0 if supported else _needed(m / n, n, vif, allowed))


def upper_bound(m: float, n: float, confidence: float = CONFIDENCE) -> float:
    """Clopper-Pearson's one-sided upper bound of a share, for effective (not whole) numbers; 1 when everything lies beyond."""
    return float(betaincinv(m + 1, n - m, confidence)) if m < n else 1.0


def _vif(beyond: NDArray[np.bool_]) -> float:
    share = float(beyond.mean())
    independent = share * (1 - share)
    return long_run_variance(beyond, independent) / independent if independent > 0 else 1.0


def _needed(share: float, n: int, vif: float, allowed: float) -> int:
    """The smallest multiple of n (in steps of a tenth) that would support the claim at this share; 0 when none would."""
    if share >= allowed:
        return 0
    factor = 1.1
    while factor < MOST_FACTOR:
        if upper_bound(share * n * factor / vif, n * factor / vif) <= allowed:
            return math.ceil(n * factor)
        factor *= 1.1
    return 0
