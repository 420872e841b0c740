"""How long the device works on a batch when nothing disturbs it: t(b) = a + c b, or a law of probability."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

ServiceTime = Callable[[float], float]
"""Seconds of work as a function of the batch's size (the sum of its inputs' sizes)."""


def affine(a_s: float, c_s: float) -> ServiceTime:
    """t(b) = a + c b: a fixed cost per call and a small one per input."""
    return lambda size: a_s + c_s * size


def drawn(law: str, mean_s: float, cv: float, rng: random.Random) -> ServiceTime:
    """Service time with the mean (at size 1) and, for "lognormal", the coefficient of variation; proportional to the size.

    Laws: "fixed", "exponential", "lognormal" (sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2).
    """
    if law == "fixed" or mean_s == 0:
        return lambda size: mean_s * size
    if law == "exponential":
        return lambda size: rng.expovariate(1 / mean_s) * size
    if law == "lognormal":
        sigma = math.sqrt(math.log1p(cv * cv))
        mu = math.log(mean_s) - sigma * sigma / 2
        return lambda size: rng.lognormvariate(mu, sigma) * size
    raise ValueError(f"service {law!r}: allowed are fixed, exponential, lognormal")
