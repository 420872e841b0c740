"""Capacity from theory: replicas for an SLO, batch settings for an SLO, and the largest rate that meets it.

An SLO here is "the q-quantile of the response time stays at or below limit_s". Traffic is Poisson.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.batching import BatchRule, BatchTime, poisson_arrivals_s, simulate
from analysis.queueing import Unstable, md1_quantile_s, mm1_quantile_s, mmc_quantile_s

MOST_REPLICAS = 10_000
SIMULATED, SEED = 200_000, 1
BATCHES = (1, 2, 4, 8, 16, 32, 64)
SERVICE_LAWS: Mapping[str, str] = {
    "exponential": "M/M/1: service times vary as much as their mean (somewhat pessimistic for most models)",
    "constant": "M/D/1: every request takes the same time",
}


class Unreachable(ValueError):
    """No number of replicas or no setting meets the SLO: the service time alone is too long."""


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What ``replicas`` would do, traffic spread evenly; ``quantile_s`` is None without a steady state."""

    replicas: int
    rate_each_rps: float
    utilisation: float
    quantile_s: float | None
    meets: bool


def quantile_s(q: float, rate_rps: float, service_s: float, law: str = "exponential") -> float:
    """The q-quantile of one replica's response time; ``law`` is one of SERVICE_LAWS. Raises queueing.Unstable."""
    if law not in SERVICE_LAWS:
        raise ValueError(f"service law {law!r} is unknown; there are {', '.join(SERVICE_LAWS)}")
    return (mm1_quantile_s if law == "exponential" else md1_quantile_s)(q, rate_rps, service_s)


def highest_rate_rps(q: float, limit_s: float, service_s: float, law: str = "exponential") -> float:
    """The largest rate at which one replica meets the SLO. M/M/1: mu - ln(1 / (1 - q)) / limit. Raises Unreachable."""
    floor_s = -math.log1p(-q) * service_s if law == "exponential" else service_s
    if limit_s <= floor_s:
        raise Unreachable(
            f"an idle replica already has p{100 * q:g} = {1e3 * floor_s:.4g} ms, which is not below {1e3 * limit_s:g} ms: "
            f"more replicas cannot help, shorten the service time ({1e3 * service_s:g} ms)"
        )
    if law == "exponential":
        return 1 / service_s + math.log1p(-q) / limit_s
    low, high = 0.0, 0.999 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if quantile_s(q, middle, service_s, law) <= limit_s else (low, middle)
    return low


def replica_plan(
    replicas: int, q: float, limit_s: float, peak_rps: float, service_s: float, law: str = "exponential"
) -> ReplicaPlan:
    """What this many replicas would do at the peak, traffic spread evenly at random."""
    each = peak_rps / replicas
    try:
        found: float | None = quantile_s(q, each, service_s, law)
    except Unstable:
        found = None
    return ReplicaPlan(replicas, each, each * service_s, found, found is not None and found <= limit_s)


def replicas_for(q: float, limit_s: float, peak_rps: float, service_s: float, law: str = "exponential") -> int:
    """The fewest replicas that meet the SLO at the peak. Raises Unreachable."""
    return max(1, math.ceil(peak_rps / highest_rate_rps(q, limit_s, service_s, law) - 1e-9))


def shared_queue_replicas(q: float, limit_s: float, peak_rps: float, service_s: float) -> int:
    """The fewest replicas behind one common queue (M/M/c): fewer than with separate queues, if the router can do it."""
    highest_rate_rps(q, limit_s, service_s)
    for servers in range(math.floor(peak_rps * service_s) + 1, MOST_REPLICAS):
        if mmc_quantile_s(q, peak_rps, service_s, servers) <= limit_s:
            return servers
    raise Unreachable(f"more than {MOST_REPLICAS} replicas would be needed")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch setting at a rate. Times in s; the simulated ones are None at or above capacity. ``idle_s``: one request alone."""

    rule: BatchRule
    capacity_rps: float
    fixed_point: float | None
    full_batch_s: float
    idle_s: float
    mean_batch: float | None
    mean_s: float | None
    quantile_s: float | None
    meets: bool


def batch_plan(time: BatchTime, rule: BatchRule, q: float, limit_s: float, rate_rps: float, n: int = SIMULATED) -> BatchPlan:
    """Simulate one setting at ``rate_rps`` with ``n`` Poisson arrivals, the same ones for every setting."""
    capacity = time.capacity_rps(rule.max_batch)
    idle_s = time.time_s(1) + (rule.max_delay_s if rule.max_batch > 1 else 0.0)
    if rate_rps >= capacity:
        return BatchPlan(rule, capacity, None, time.time_s(rule.max_batch), idle_s, None, None, None, False)
    seen = simulate(poisson_arrivals_s(rate_rps, n, SEED), time, rule)
    response = seen.response_s[n // 10 :]  # the queue starts empty: its first tenth would flatter
    quantile = float(np.quantile(response, q, method="inverted_cdf"))
    return BatchPlan(
        rule, capacity, time.fixed_point(rate_rps, rule.max_batch), time.time_s(rule.max_batch), idle_s,
        seen.mean_batch, float(response.mean()), quantile, quantile <= limit_s,
    )  # fmt: skip


def batch_plans(
    time: BatchTime, q: float, limit_s: float, rate_rps: float, delays_s: Iterable[float], batches: Iterable[int] = BATCHES
) -> list[BatchPlan]:
    """All settings of ``batches`` and ``delays_s`` at a rate, batches ascending."""
    return [
        batch_plan(time, BatchRule(b, d), q, limit_s, rate_rps)
        for b in batches
        for d in (sorted(set(delays_s)) if b > 1 else [0.0])
    ]


def best_batch_plan(plans: Iterable[BatchPlan], rate_rps: float, headroom: float) -> BatchPlan | None:
    """The smallest batch with capacity of at least ``headroom`` times the rate that meets the SLO; None if none does.

    Of its delays the one with the lowest quantile, and of those within 1 % of it the shortest: at low load a delay only costs.
    """
    fit = [p for p in plans if p.meets and p.capacity_rps >= headroom * rate_rps]
    if not fit:
        return None
    smallest = min(p.rule.max_batch for p in fit)
    fit = [p for p in fit if p.rule.max_batch == smallest]
    lowest = min(p.quantile_s or math.inf for p in fit)
    return min((p for p in fit if (p.quantile_s or math.inf) <= 1.01 * lowest), key=lambda p: p.rule.max_delay_s)


def highest_batch_rate_rps(time: BatchTime, rule: BatchRule, q: float, limit_s: float, n: int = SIMULATED) -> float:
    """The largest rate at which the simulated batcher meets the SLO, within 0.2 %; equal random numbers at every rate tried."""
    low, high = 0.0, time.capacity_rps(rule.max_batch)
    if limit_s < time.time_s(1):
        raise Unreachable(f"one request alone takes {1e3 * time.time_s(1):g} ms, which is above {1e3 * limit_s:g} ms")
    while high - low > 0.002 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if batch_plan(time, rule, q, limit_s, middle, n).meets else (low, middle)
        if high < 1e-3:
            raise Unreachable(f"even the emptiest replica misses {1e3 * limit_s:g} ms: the queue delay alone is too long")
    return low
