"""Draws that depend on the number of an arrival and the seed alone: which request of the mix it is, and what its payload holds.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with k as its counter, vectorised: any worker draws
for its own arrivals only, in any order, and gets what any other would.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapes.variates import check_seed

MIX = 0
"""Dimension of the choice of requests."""

Words = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four 32-bit random words (in uint64 arrays) for each counter of four 32-bit words, under a key of two."""
    a, b, c, d = counter
    for i in range(_ROUNDS):
        k0, k1 = (np.uint64((key[j] + i * _WEYL[j]) & 0xFFFFFFFF) for j in (0, 1))
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (right >> _32) ^ b ^ k0, right & _LOW, (left >> _32) ^ d ^ k1, left & _LOW
    return a, b, c, d


def uniforms(ks: ArrayLike, seed: int, dimension: int | str) -> NDArray[np.float64]:
    """One double in (0, 1) for each arrival number k >= 0, independent between dimensions (a number below 2^32, or a name)."""
    k = np.asarray(ks, dtype=np.int64).astype(np.uint64)
    number = zlib.crc32(dimension.encode()) if isinstance(dimension, str) else dimension
    named = np.uint64(isinstance(dimension, str))
    counter = (k & _LOW, k >> _32, np.full_like(k, number), np.full_like(k, named))
    check_seed(seed)
    high, low, _, _ = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return (((high << np.uint64(20)) | (low >> np.uint64(12))).astype(np.float64) + 0.5) * 2.0**-52


def choices(ks: ArrayLike, weights: Sequence[float], seed: int) -> NDArray[np.intp]:
    """Which entry of the mix each arrival is: index i with probability weights[i] / sum(weights). Raises ValueError."""
    shares = np.array(weights, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum() > 0:
        raise ValueError(f"weights: found {list(weights)}; allowed are finite numbers from 0 on, at least one above 0")
    edges = np.cumsum(shares)
    drawn = uniforms(ks, seed, MIX) * edges[-1]
    return np.minimum(np.searchsorted(edges, drawn, side="right"), int(np.flatnonzero(shares)[-1])).astype(np.intp)
