"""A discrete-event simulation of a batching service with faults, as records: written for the tests of the diagnosis only.

It shares no code with the reference service or with analysis.batching; what a fault does follows docs of the reference service.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from truetail.records import FAILED, FLAG_WARMUP, OK, RECORD


@dataclass
class Service:
    """A service with a, c in s, and faults. A window is (start, end) in s."""

    a: float = 0.010
    c: float = 0.0005
    max_batch: int = 16
    max_delay: float = 0.002
    replicas: int = 1
    mode: str = "batch"  # or "shared" (processor sharing), "fifo" (exponential service of mean a)
    slow_windows: list[tuple[float, float, float]] = field(default_factory=list)  # start, end, factor
    pauses: list[tuple[float, float]] = field(default_factory=list)
    away: list[tuple[int, float, float]] = field(default_factory=list)  # replica, start, end
    slow_replica: tuple[int, float] | None = None
    queue_delay: float = 0.0
    preprocess: float = 0.0
    on_loop: bool = False
    network: tuple[float, float] = (0.0, 0.0)  # delay, jitter
    dependency: tuple[float, float] = (0.0, 0.0)  # share of the requests, delay
    oversized: tuple[float, float] = (0.0, 1.0)  # share, size
    foreign_rps: float = 0.0
    cold: tuple[int, float] = (0, 1.0)  # requests, factor
    tells: bool = True

    def speed(self, at: float, replica: int) -> tuple[float, float]:
        """Speed of a device, and until when it holds."""
        speed, until = 1.0, np.inf
        windows = [(b, e, 0.0) for b, e in self.pauses] + [(b, e, 1 / f) for b, e, f in self.slow_windows]
        for begin, end, factor in windows:
            if begin <= at < end:
                speed, until = speed * factor, min(until, end)
            elif at < begin:
                until = min(until, begin)
        if self.slow_replica and self.slow_replica[0] == replica:
            speed /= self.slow_replica[1]
        return speed, until

    def finish(self, at: float, work: float, replica: int) -> float:
        """When work begun at ``at`` is done."""
        while True:
            speed, until = self.speed(at, replica)
            if speed and at + work / speed <= until:
                return at + work / speed
            work -= (until - at) * speed
            at = until

    def awake(self, at: float) -> float:
        """The first instant from ``at`` on at which the process is not paused."""
        return max([end for begin, end in self.pauses if begin <= at < end], default=at)


def serve(
    service: Service, arrivals_s: np.ndarray, seed: int, warmup_s: float = 0.0, late_s: np.ndarray | None = None
) -> np.ndarray:
    """Records of all arrivals; 1 for replica-0's id, and so on."""
    rng = np.random.default_rng(seed)
    n = len(arrivals_s)
    late = rng.uniform(50e-6, 300e-6, n) if late_s is None else late_s
    sent = arrivals_s + late
    way = rng.uniform(100e-6, 400e-6, n)
    there = sent + way + service.network[0] + rng.uniform(0, 1, n) * service.network[1]
    entered = np.array([service.awake(t) for t in there])
    pre = rng.uniform(50e-6, 150e-6, n) + service.preprocess
    came, loop_free = np.sort(entered), np.zeros(n)
    if service.preprocess and service.on_loop:  # one at a time: waiting for the loop is outside the stages
        free = 0.0
        for rank, i in enumerate(np.argsort(entered)):
            entered[i] = max(entered[i], free)
            loop_free[rank] = free = entered[i] + pre[i]

    def loop(at: float) -> float:
        """When the event loop comes to what is ready at ``at``: after those who came before."""
        rank = np.searchsorted(came, at, "right") - 1
        return max(at, float(loop_free[rank])) if rank >= 0 else at

    dependency = np.where(rng.random(n) < service.dependency[0], service.dependency[1] * rng.uniform(0.8, 1.2, n), 0.0)
    queued = entered + pre + dependency
    sizes = np.where(rng.random(n) < service.oversized[0], service.oversized[1], 1.0)
    records = np.zeros(n, RECORD)
    for name in ("connect", "queue", "preprocess", "inference", "postprocess", "dependency", "itl_max"):
        records[f"{name}_us"] = np.nan
    records["first_byte_ns"] = records["first_token_ns"] = -1
    records["k"], records["outcome"], records["status"] = np.arange(n), OK, 200
    records["intended_ns"], records["sent_ns"] = np.rint(arrivals_s * 1e9), np.rint(sent * 1e9)
    records["flags"] = np.where(arrivals_s < warmup_s, FLAG_WARMUP, 0)
    assigned = _assign(service, queued, arrivals_s[-1], rng, sizes)
    refused = np.ones(n, dtype=bool)
    for replica, (joined, owner, size) in enumerate(assigned):
        starts, ends, batch = _run(service, joined + service.queue_delay, size, replica, rng)
        own = owner >= 0
        k = owner[own]
        refused[k] = False
        sent_back = np.array([service.awake(loop(t)) for t in ends[own] + 50e-6])
        back = sent_back + way[k]
        records["done_ns"][k] = np.rint(back * 1e9)
        records["replica"][k], records["batch"][k] = replica + 1, batch[own]
        if service.tells:
            records["queue_us"][k] = (starts[own] - queued[k]) * 1e6
            records["inference_us"][k] = (ends - starts)[own] * 1e6
            records["preprocess_us"][k], records["postprocess_us"][k] = pre[k] * 1e6, (sent_back - ends[own]) * 1e6
            records["dependency_us"][k] = np.where(dependency[k] > 0, dependency[k] * 1e6, np.nan)
    records["done_ns"][refused] = np.rint((entered + way)[refused] * 1e9)
    records["outcome"][refused], records["status"][refused] = FAILED, 503
    return records


def _assign(service, queued, last_s, rng, sizes):
    """(instants, numbers or -1 for others' requests, sizes) by replica: round robin over those that are there."""
    others = (
        np.cumsum(rng.exponential(1 / service.foreign_rps, int(last_s * service.foreign_rps * 1.2) + 10))
        if service.foreign_rps
        else []
    )
    at = np.concatenate([queued, others])
    owner = np.concatenate([np.arange(len(queued)), np.full(len(others), -1)]).astype(int)
    size = np.concatenate([sizes, np.ones(len(others))])
    lists = [[] for _ in range(service.replicas)]
    turn = 0
    for i in np.argsort(at, kind="stable"):
        there = [r for r in range(service.replicas) if not any(w == r and b <= at[i] < e for w, b, e in service.away)]
        if there:
            lists[there[turn % len(there)]].append(i)
            turn += 1
    return [(at[index], owner[index], size[index]) for index in (np.array(found, dtype=int) for found in lists)]


def _run(service, joined, size, replica, rng):
    """Starts, ends and batch of requests (sorted by ``joined``) on one replica."""
    n = len(joined)
    starts, ends, batch = np.zeros(n), np.zeros(n), np.ones(n, dtype=int)
    if service.mode == "shared":
        starts[:] = joined
        ends[:] = _shared(joined, (service.a + service.c) * size)
        return starts, ends, batch
    free, i, most = 0.0, 0, service.max_batch if service.mode == "batch" else 1
    while i < n:
        full = joined[i + most - 1] if i + most <= n else np.inf
        start = max(free, min(joined[i] + (service.max_delay if most > 1 else 0), full))
        b = 1
        while b < most and i + b < n and joined[i + b] <= start:
            b += 1
        work = service.a + service.c * size[i : i + b].sum() if service.mode == "batch" else rng.exponential(service.a) * size[i]
        work *= service.cold[1] if i < service.cold[0] else 1.0
        free = service.finish(start, work * rng.uniform(1.0, 1.02), replica)
        starts[i : i + b], ends[i : i + b], batch[i : i + b] = start, free, b
        i += b
    return starts, ends, batch


def _shared(joined, work):
    """Ends under processor sharing, by stepping from event to event."""
    inside: list[tuple[float, int]] = []
    ends, now, virtual = np.zeros(len(joined)), 0.0, 0.0
    for k in range(len(joined) + 1):
        at = joined[k] if k < len(joined) else np.inf
        while inside and now + (inside[0][0] - virtual) * len(inside) <= at:
            now += (inside[0][0] - virtual) * len(inside)
            virtual, i = heapq.heappop(inside)
            ends[i] = now
        if k < len(joined):
            virtual += (at - now) / len(inside) if inside else 0.0
            now = at
            heapq.heappush(inside, (virtual + work[k], k))
    return ends
