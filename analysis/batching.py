"""Dynamic batching: a batch of b requests takes t(b) = a + c b.

The closed forms (capacity, and the batch size that a busy replica settles at), and a simulator with the exact dispatch rule: a
batch starts when a replica is free and either max_batch requests wait or the oldest has waited max_delay. First in, first out.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.queueing import Unstable


@dataclass(frozen=True, slots=True)
class BatchTime:
    """t(b) = ``a_s`` + ``c_s`` b, in seconds: the fixed cost of a call, and what each request in it adds."""

    a_s: float
    c_s: float

    def __post_init__(self) -> None:
        if not (self.a_s >= 0 and self.c_s >= 0 and 0 < self.a_s + self.c_s < math.inf):
            raise ValueError(f"t(b) = a + c b needs a, c >= 0 and one of them > 0, found a = {self.a_s} s, c = {self.c_s} s")

    def time_s(self, batch: float) -> float:
        """t(b)."""
        return self.a_s + self.c_s * batch

    def capacity_rps(self, batch: int) -> float:
        """B / t(B): the most that one replica can serve with batches of at most ``batch``."""
        return batch / self.time_s(batch)

    @property
    def limit_rps(self) -> float:
        """1 / c: what no batch size can exceed (infinite when c is 0)."""
        return 1 / self.c_s if self.c_s else math.inf

    def fixed_point(self, arrival_rps: float, max_batch: int) -> float:
        """b* = lambda a / (1 - lambda c): the batch a busy replica settles at, capped at ``max_batch``.

        Below 1 the replica idles between single requests. Raises Unstable at or above the capacity B / t(B).
        """
        capacity_rps = self.capacity_rps(max_batch)
        if arrival_rps >= capacity_rps:
            raise Unstable(f"{arrival_rps:g}/s is not below the capacity {capacity_rps:.4g}/s of batches of {max_batch}")
        return arrival_rps * self.a_s / (1 - arrival_rps * self.c_s)


@dataclass(frozen=True, slots=True)
class BatchRule:
    """When a batch starts: at most ``max_batch`` requests, the oldest held back at most ``max_delay_s``."""

    max_batch: int
    max_delay_s: float = 0.0

    def __post_init__(self) -> None:
        if self.max_batch < 1 or not 0 <= self.max_delay_s < math.inf:
            raise ValueError(f"a batch holds at least 1 and waits 0 or more, found {self.max_batch}, {self.max_delay_s} s")


@dataclass(frozen=True, slots=True)
class Batched:
    """What the simulator saw, per request in order of arrival: ``response_s`` and ``batch`` (the size of the batch it was in)."""

    response_s: NDArray[np.float64]
    batch: NDArray[np.int64]
    batches: int
    utilisation: float

    @property
    def mean_batch(self) -> float:
        """Requests per batch."""
        return len(self.batch) / self.batches


def simulate(arrivals_s: NDArray[np.float64], time: BatchTime, rule: BatchRule, replicas: int = 1) -> Batched:
    """Serve sorted ``arrivals_s`` with ``replicas`` behind one queue; about 0.5 us a request and 2 us a batch."""
    arrivals = np.asarray(arrivals_s, dtype=np.float64)
    if len(arrivals) == 0 or np.any(np.diff(arrivals) < 0):
        raise ValueError("arrivals must be sorted, and there must be some")
    times_s = [time.time_s(b) for b in range(rule.max_batch + 1)]
    sizes, starts = _dispatch(arrivals.tolist(), times_s, rule, replicas)
    size = np.asarray(sizes)
    ends = np.asarray(starts) + np.asarray(times_s)[size]
    busy_s = float(np.asarray(times_s)[size].sum())
    span_s = max(float(ends.max()) - float(arrivals[0]), 1e-12)
    return Batched(np.repeat(ends, size) - arrivals, np.repeat(size, size), len(size), busy_s / span_s / replicas)


def _dispatch(arrivals: list[float], times_s: list[float], rule: BatchRule, replicas: int) -> tuple[list[int], list[float]]:
    """Sizes and starts of all batches. Replicas are alike, so only the instants at which they become free matter."""
    free = [-math.inf] * replicas
    n, most, delay_s = len(arrivals), rule.max_batch, rule.max_delay_s
    sizes: list[int] = []
    starts: list[float] = []
    i = 0
    while i < n:
        ready = arrivals[i] + delay_s
        if i + most <= n:
            ready = min(ready, arrivals[i + most - 1])
        start = max(free[0], ready)
        size = bisect_right(arrivals, start, i, min(i + most, n)) - i
        size = max(size, 1)
        heapq.heapreplace(free, start + times_s[size])
        sizes.append(size)
        starts.append(start)
        i += size
    return sizes, starts


def poisson_arrivals_s(rate_rps: float, n: int, seed: int) -> NDArray[np.float64]:
    """``n`` Poisson arrivals at ``rate_rps``, in seconds from 0: what simulations here are fed with."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate_rps, n))
