"""Where the latency-load curve crosses the limit, from a few noisy runs around it, and how sure that is. Pure.

Of every run 1 / percentile is taken. Near the wall that is close to a straight line (it is one in M/M/1), and its scatter is about
the same at every rate: the percentile's own relative error grows as the gap to the wall shrinks, just as 1 / percentile does. So a plain
straight line is fitted, weighted only by how long the runs were; the runs' own standard errors are not used, since a run near the wall
is too short to know its own. The uncertainty comes from how far the runs lie from the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

NEAR = 0.06
"""Runs this far (relative) from the crossing take part: further away the line is no longer straight."""
FEWEST = 5
"""Runs before the scatter about the line says anything."""
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Crossing:
    """``rate_rps``; ``share``: half of its 95 % interval, relative (inf: not known); ``used``: the rates that it rests on."""

    rate_rps: float
    share: float = math.inf
    used: tuple[float, ...] = ()


def crossing(
    rates_rps: Sequence[float], values_s: Sequence[float], seconds: Sequence[float], limit_s: float, low_rps: float, high_rps: float
) -> Crossing:  # fmt: skip
    """The rate within [``low_rps``, ``high_rps``] at which the percentile is ``limit_s``; the middle where the runs do not tell.

    ``values_s`` are the percentiles of runs at ``rates_rps`` (finite, above 0) that measured for ``seconds``. The runs near the
    crossing are found by turns: a line through those in the bracket first, then through those near where it crossed.
    """
    rates, inverse, weights = np.asarray(rates_rps, float), 1 / np.asarray(values_s, float), np.sqrt(np.asarray(seconds, float))
    near = (rates >= low_rps * (1 - NEAR)) & (rates <= high_rps * (1 + NEAR))
    found = _line(rates[near], inverse[near], weights[near], limit_s, low_rps, high_rps)
    for _ in range(ROUNDS):
        near = np.abs(rates / found.rate_rps - 1) <= NEAR
        closer = _line(rates[near], inverse[near], weights[near], limit_s, low_rps, high_rps)
        if not closer.used:  # so few lie near it that it was guessed from afar, where the line bends
            return Crossing(found.rate_rps, used=found.used)
        if closer.used == found.used:
            break
        found = closer
    return found


def _line(
    rates: NDArray[np.float64], inverse: NDArray[np.float64], weights: NDArray[np.float64], limit_s: float, low: float, high: float
) -> Crossing:  # fmt: skip
    """The crossing of a weighted straight line through 1 / percentile; the middle, with nothing used, where it does not fall."""
    middle = Crossing((low + high) / 2)
    if len(np.unique(rates)) < 2:
        return middle
    squares = weights**2 / (weights**2).sum()
    centre, level = float(squares @ rates), float(squares @ inverse)
    spread = float(squares @ (rates - centre) ** 2)
    slope = float(squares @ ((rates - centre) * (inverse - level))) / spread
    if slope >= 0:
        return middle
    at = centre + (1 / limit_s - level) / slope
    share = math.inf
    if len(rates) >= FEWEST:
        free = len(rates) - 2
        left = inverse - level - slope * (rates - centre)
        variance = float(squares @ left**2) * len(rates) / free  # of one run of the usual length
        error = math.sqrt(variance / len(rates) * (1 + (at - centre) ** 2 / spread)) / -slope
        share = float(stdtrit(free, 0.975)) * error / at if at > 0 else math.inf
    used = tuple(sorted(rates.tolist()))
    if math.isinf(share) and not low <= at <= high:
        return Crossing((low + high) / 2, used=used)
    return Crossing(min(max(at, low), high), share, used)
