"""Random numbers that can be made again: counter-based bits, and exponential and gamma variates computed from them.

The bits are numpy's Philox4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), whose raw output numpy keeps stable;
numpy's *distributions* may change between versions (NEP 19), so they are not used. What turns bits into variates is
:mod:`shapes.elementary`, the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shapes.elementary import Floats, exp, log

MAX_SEED = 2**64 - 1
GAPS = 1
"""Dimension of the bits behind the gaps of a schedule."""


def check_seed(seed: int) -> int:
    """The seed, if it is an integer of 64 bits; 0 is a seed like any other. Raises ValueError."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed: found {seed!r}; allowed is a whole number from 0 to 2^64 - 1")
    return seed


class Bits:
    """The stream of random bits of one (seed, dimension, block, part): no two of them overlap.

    The key is (seed, dimension); block and part stand in the upper words of the 256-bit counter, so each stream has 2^64 counts to itself
    and a block can be made without those before it.
    """

    def __init__(self, seed: int, dimension: int, block: int, part: int = 0) -> None:
        key = np.array([check_seed(seed), dimension], dtype=np.uint64)
        counter = np.array([0, block, part, 0], dtype=np.uint64)
        self._philox = np.random.Philox(key=key, counter=counter)

    def uniforms(self, n: int) -> Floats:
        """n doubles (j + 1/2) 2^-52, j a whole number of 52 bits: symmetric, never 0 and never 1."""
        raw: NDArray[np.uint64] = self._philox.random_raw(n)
        raw >>= np.uint64(12)
        uniforms = raw.astype(np.float64)
        uniforms += 0.5
        uniforms *= 2.0**-52
        return uniforms


def exponentials(bits: Bits, n: int) -> Floats:
    """n exponential variates of mean 1, -log u; at most 36.7, since u >= 2^-53."""
    variates = log(bits.uniforms(n))
    return np.negative(variates, out=variates)


def gammas(bits: Bits, shape: float, n: int) -> Floats:
    """n gamma variates of this shape and scale 1.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): with d = shape - 1/3, c = 1/sqrt(9 d) and x normal,
    d (1 + c x)^3 is kept where log u < x^2/2 + d - d v + d log v. Shapes below 1: gamma(shape + 1) u^(1/shape). Every round draws
    for all that are not yet filled, in their order, so the result depends on the bits alone.
    """
    if shape < 1:
        boost = exp(log(bits.uniforms(n)) / shape)
        return gammas(bits, shape + 1.0, n) * boost
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    variates = np.empty(n)
    missing = np.arange(n)
    while missing.size:
        x, drawn = _normals(bits, missing.size)
        v = 1.0 + c * x
        v = v * v * v
        drawn &= v > 0.0
        v = np.where(drawn, v, 1.0)
        kept = drawn & (log(bits.uniforms(missing.size)) < 0.5 * x * x + d * (1.0 - v + log(v)))
        variates[missing[kept]] = d * v[kept]
        missing = missing[~kept]
    return variates


def _normals(bits: Bits, n: int) -> tuple[Floats, NDArray[np.bool_]]:
    """n tries at a normal variate by the polar method, and which succeeded (pi/4 of them)."""
    x = 2.0 * bits.uniforms(n) - 1.0
    y = 2.0 * bits.uniforms(n) - 1.0
    square = x * x + y * y
    inside = (square < 1.0) & (square > 0.0)
    square = np.where(inside, square, 0.5)
    return x * np.sqrt(-2.0 * log(square) / square), inside
