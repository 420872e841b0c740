"""Fan-out: a user's request that waits for n backends is as slow as the slowest of them (Dean and Barroso 2013)."""

from __future__ import annotations

import math


def slow_share(q: float, n: int) -> float:
    """The share of user requests that are slow when each of ``n`` independent backends is slow with probability ``q``."""
    _check(q, n)
    return -math.expm1(n * math.log1p(-q)) if q < 1 else 1.0


def slow_share_allowed(share: float, n: int) -> float:
    """How rare slowness must be at one of ``n`` backends so that at most ``share`` of user requests are slow."""
    _check(share, n)
    return -math.expm1(math.log1p(-share) / n) if share < 1 else 1.0


def backend_percentile(percentile: float, n: int) -> float:
    """The percentile of one backend that becomes the user's ``percentile`` over ``n`` backends: 99 and 100 give 99.98995."""
    if not 0 < percentile < 100:
        raise ValueError(f"a percentile lies between 0 and 100, found {percentile}")
    return 100 * (1 - slow_share_allowed(1 - percentile / 100, n))


def _check(q: float, n: int) -> None:
    if not 0 <= q <= 1:
        raise ValueError(f"a share lies between 0 and 1, found {q}")
    if n < 1:
        raise ValueError(f"a fan-out needs at least one backend, found {n}")
