"""How many requests a claim about a percentile needs.

Latencies of neighbours in a queue are alike, so n of them are worth fewer. The variance inflation factor (VIF) says by how
much: the variance of the share of exceedances is VIF q (1 - q) / n. The table below is of simulated M/M/1 response times
in the steady state (docs/statistics.md has its origin); real services can be better or worse, so it plans, and the run's own
estimate (analysis.intervals) decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

UTILISATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
PERCENTILES = (50.0, 95.0, 99.0, 99.9)
VIF = np.array(
    [[1, 1, 1, 1], [2, 3, 3, 4], [3, 8, 8, 8], [11, 26, 27, 31], [24, 68, 74, 67], [104, 239, 276, 373], [494, 1461, 1348, 1259]],
    dtype=float,
)
"""Rows: UTILISATIONS; columns: PERCENTILES."""
TAIL_ESS = 10.0
"""Effective exceedances beyond the percentile that a two-sided claim needs."""
HIGHEST_UTILISATION = 0.99
LEAST_VIF = 8.0
"""What a claim about a limit assumes at least: a queue at half load."""
UNCERTAINTY = 1.5
"""A run's own estimate of VIF is itself uncertain, and biased low in short runs: claims take it this much larger."""
CONFIDENCE = 0.975
"""One-sided, of a claim about a limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests for a percentile at a utilisation: ``claim_n`` for a two-sided claim, ``precise_n`` for a half-width."""

    percentile: float
    utilisation: float
    vif: float
    claim_n: int
    precise_n: int
    half_width: float

    @property
    def n(self) -> int:
        """What to run: the larger of the two."""
        return max(self.claim_n, self.precise_n)


def inflation(percentile: float, utilisation: float) -> float:
    """The VIF at a percentile and a utilisation, interpolated in log VIF over log(1 / (1 - rho)) and log(1 / (1 - q)).

    Beyond 0.95 it grows on as it does between 0.9 and 0.95. Raises ValueError outside 0 <= rho <= 0.99 or 0 < percentile < 100.
    """
    if not 0 <= utilisation <= HIGHEST_UTILISATION:
        raise ValueError(f"a utilisation lies between 0 and {HIGHEST_UTILISATION:.0%} here, found {utilisation:g}")
    if not 0 < percentile < 100:
        raise ValueError(f"a percentile lies between 0 and 100, found {percentile:g}")
    load = -np.log1p(-np.array(UTILISATIONS))
    depth = -np.log1p(-np.array(PERCENTILES) / 100)
    log_vif = np.log(VIF)
    at = -math.log1p(-utilisation)
    row = np.array([np.interp(at, load, column) for column in log_vif.T])
    if at > load[-1]:
        row = row + (at - load[-1]) * (log_vif[-1] - log_vif[-2]) / (load[-1] - load[-2])
    return float(np.exp(np.interp(-math.log1p(-percentile / 100), depth, row)))


def plan(percentile: float, utilisation: float, half_width: float = 0.1, confidence: float = 0.95) -> Plan:
    """Requests needed for p``percentile``; ``half_width`` is relative (0.1: +-10 %).

    By the delta method for an exponential tail: at the q-quantile x, density times x is (1 - q) ln(1 / (1 - q)).
    """
    if not 0 < half_width < 1:
        raise ValueError(f"a half-width lies between 0 and 1 of the value, found {half_width:g}")
    q = percentile / 100
    vif = inflation(percentile, utilisation)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(q * (1 - q) * vif) / (half_width * (1 - q) * -math.log1p(-q))
    return Plan(percentile, utilisation, vif, needed_for_claim(percentile, vif), math.ceil(spread**2), half_width)


def needed_for_claim(percentile: float, vif: float) -> int:
    """Requests after which a two-sided interval may be claimed: TAIL_ESS effective exceedances, and both ranks inside."""
    return math.ceil(max(TAIL_ESS * vif / (1 - percentile / 100) - 1e-6, zero_exceedance_n(percentile) * vif))


def fewest_n(percentile: float, vif: float = 1.0) -> int:
    """Requests, none of them beyond the limit, that let a run claim "p``percentile`` lies below the limit" (analysis.claim).

    What `truetail check`, `truetail plan requests` and the verdict tell. ``vif``: expected; 1 where nothing is expected, which gives
    the least that ever supports a claim: 576 for p95, 2,937 for p99, 29,497 for p99.9. From q^(n / VIF) <= 1 - CONFIDENCE.
    """
    if not 0 < percentile < 100 or not vif > 0:
        raise ValueError(f"percentile and inflation must lie inside their ranges, found {percentile:g}, {vif:g}")
    return math.ceil(math.log1p(-CONFIDENCE) / math.log(percentile / 100) * max(LEAST_VIF, UNCERTAINTY * vif))


def zero_exceedance_n(percentile: float, confidence: float = 0.95) -> int:
    """Independent requests, all below L, that show "percentile <= L" at one-sided ``confidence``: 299 for p99 at 95 %.

    From q^n <= 1 - confidence. Requests of a queue are not independent: multiply by the VIF.
    """
    if not 0 < percentile < 100 or not 0 < confidence < 1:
        raise ValueError(f"percentile and confidence must lie inside their ranges, found {percentile:g}, {confidence:g}")
    return math.ceil(math.log1p(-confidence) / math.log(percentile / 100))
