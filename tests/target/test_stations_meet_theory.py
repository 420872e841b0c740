"""The pure stations on virtual time against the lesson's figures and closed forms. Seeds are fixed, tolerances stated."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from target.batcher import Batch, Job
from target.config import load
from target.effects import Effects
from target.replica import build_station
from target.station import Station
from target.units import NEVER_NS

MS = 1_000_000


def poisson_ns(rate: float, count: int, seed: int) -> list[int]:
    """Arrival instants of a Poisson process."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1e9 / rate, count)).astype(np.int64).tolist()


def serve(station: Station, arrivals_ns: list[int]) -> list[Batch]:
    """Everything that the station does with these arrivals, in virtual time."""
    batches: list[Batch] = []
    for at_ns in arrivals_ns:
        batches += station.advance(at_ns)
        assert station.submit(Job(at_ns))
    return batches + station.advance(NEVER_NS - 1)


def latencies_ms(batches: list[Batch]) -> np.ndarray:
    """Time from arrival to the batch's end, of every job."""
    return np.array([(batch.end_ns - job.arrived_ns) / MS for batch in batches for job in batch.jobs])


def station(**options: object) -> Station:
    """Replica 0's station with an unbounded queue and no faults."""
    return build_station(load({"max_queue": 1_000_000, **options}), Effects(), 0)


BATCH = {"mode": "batch", "a": "10ms", "c": "0.5ms", "max_batch": 16, "max_delay": "2ms"}


@pytest.mark.parametrize(
    ("rate", "delay", "batch", "mean_ms", "p99_ms"),
    [(400, "2ms", 5.0, 19.3, 27.7), (800, "2ms", 13.3, 28.0, 48.5), (20, "2ms", None, 13.2, None), (20, "0", None, 11.6, None)],
)
def test_batcher_gives_the_lessons_figures(
    rate: float, delay: str, batch: float | None, mean_ms: float, p99_ms: float | None
) -> None:
    """Mean batch, mean and p99 latency of the lesson's table: means within 1.5 %, p99 within 3 % (60,000 Poisson arrivals)."""
    batches = serve(station(**{**BATCH, "max_delay": delay}), poisson_ns(rate, 60_000, seed=1))
    latency = latencies_ms(batches)
    assert len(latency) == 60_000
    assert latency.mean() == pytest.approx(mean_ms, rel=0.015)
    if batch is not None:
        assert 60_000 / len(batches) == pytest.approx(batch, rel=0.015)
    if p99_ms is not None:
        assert np.quantile(latency, 0.99, method="inverted_cdf") == pytest.approx(p99_ms, rel=0.03)


def test_above_capacity_the_queue_grows_without_bound() -> None:
    """At 1000/s against 16 / 18 ms = 889/s the waiting grows in proportion to time: 11 % of it, within 15 % of that."""
    arrivals = poisson_ns(1000, 20_000, seed=2)
    latency = latencies_ms(serve(station(**BATCH), arrivals))
    expected_ms = (arrivals[-1] / MS) * (1000 / (16 / 0.018) - 1)
    assert latency[-100:].mean() == pytest.approx(expected_ms, rel=0.15)
    assert latency[-100:].mean() > 1.5 * latency[9_900:10_000].mean()


@pytest.mark.parametrize("size", [1, 8, 16])
def test_capacity_is_b_over_t_of_b(size: int) -> None:
    """With a full queue throughput is b / t(b): 95, 571, 889/s, exactly."""
    batches = serve(station(**{**BATCH, "max_batch": size}), [0] * 1600)
    rate = 1600 / (batches[-1].end_ns / 1e9)
    assert rate == pytest.approx(size / (0.010 + 0.0005 * size), rel=1e-9)


def test_every_batch_obeys_the_rule() -> None:
    """Against the rule in words: each batch starts at its cause, is not over B, and leaves nobody behind who had arrived."""
    batches = serve(station(**BATCH), poisson_ns(500, 5_000, seed=3))
    free_ns, order = 0, []
    queue_after = [job.arrived_ns for batch in batches for job in batch.jobs]
    assert queue_after == sorted(queue_after)
    for batch in batches:
        arrived = [job.arrived_ns for job in batch.jobs]
        order += arrived
        cause_ns = arrived[0] + 2 * MS
        if len(arrived) == 16:
            cause_ns = min(cause_ns, arrived[15])
        assert batch.start_ns == max(free_ns, cause_ns)
        assert len(arrived) <= 16
        later = queue_after[len(order)] if len(order) < len(queue_after) else NEVER_NS
        assert len(arrived) == 16 or later > batch.start_ns
        assert batch.end_ns - batch.start_ns == 10 * MS + len(arrived) * MS // 2
        free_ns = batch.end_ns


def test_late_wake_ups_change_nothing() -> None:
    """The same arrivals, looked at only every 37 ms or just in time: the same batches, so a late thread costs no capacity."""
    arrivals = poisson_ns(700, 3_000, seed=4)
    exact = serve(station(**BATCH), arrivals)
    late_station, late, looked_ns = station(**BATCH), [], 0
    for at_ns in arrivals:
        while looked_ns + 37 * MS < at_ns:
            looked_ns += 37 * MS
            late += late_station.advance(looked_ns)
        assert late_station.submit(Job(at_ns))
    late += late_station.advance(NEVER_NS - 1)
    assert [(b.start_ns, b.end_ns, len(b.jobs)) for b in late] == [(b.start_ns, b.end_ns, len(b.jobs)) for b in exact]


def test_fifo_is_mm1() -> None:
    """lambda 25, mu 50: mean 40 ms and p99 184 ms; 60,000 requests of a correlated sequence, so within 5 % and 8 %."""
    fifo = station(mode="fifo", service="exponential", service_mean="20ms", seed=5)
    latency = latencies_ms(serve(fifo, poisson_ns(25, 60_000, seed=5)))
    assert latency.mean() == pytest.approx(40, rel=0.05)
    assert np.quantile(latency, 0.99) == pytest.approx(1000 * math.log(100) / 25, rel=0.08)
    assert fifo.busy.total_ns == pytest.approx(60_000 * 20 * MS, rel=0.015)


@pytest.mark.parametrize(("law", "cv"), [("fixed", 0.0), ("lognormal", 1.5)])
def test_fifo_meets_pollaczek_khinchine(law: str, cv: float) -> None:
    """Mean wait of M/G/1, lambda 25, mean 20 ms: rho (1 + cv^2) / (2 (1 - rho)) mean (within 10 %).

    That is 10 ms for fixed and 32.5 ms for lognormal times of cv 1.5.
    """
    fifo = station(mode="fifo", service=law, service_mean="20ms", service_cv=cv, seed=8)
    latency = latencies_ms(serve(fifo, poisson_ns(25, 60_000, seed=6)))
    wait_ms = 0.5 * (1 + cv * cv) / (2 * 0.5) * 20
    assert latency.mean() - 20 == pytest.approx(wait_ms, rel=0.1)


def test_four_at_once_take_200_ms_each() -> None:
    """The note's example: 50 ms alone, four at once with kernels interleaved take 200 ms each; at 100 ms intervals 50 ms each."""
    alone = {"mode": "shared", "service": "fixed", "service_mean": "50ms"}
    assert latencies_ms(serve(station(**alone), [0, 0, 0, 0])) == pytest.approx([200] * 4)
    assert latencies_ms(serve(station(**alone), [0, 100 * MS, 200 * MS, 300 * MS])) == pytest.approx([50] * 4)


def test_processor_sharing_by_hand() -> None:
    """Two requests of 50 ms, 20 ms apart: the first ends at 20 + 2 x 30 = 80 ms, the second at 100: 80 ms each."""
    shared = station(mode="shared", service="fixed", service_mean="50ms")
    assert latencies_ms(serve(shared, [0, 20 * MS])) == pytest.approx([80, 80])
    assert shared.busy.total_ns == pytest.approx(100 * MS)


@pytest.mark.parametrize("law", ["exponential", "fixed"])
def test_processor_sharing_mean_depends_on_the_mean_alone(law: str) -> None:
    """M/G/1-PS: W = mean / (1 - rho) = 40 ms at rho 0.5 whatever the law (insensitivity); 60,000 requests, within 4 %."""
    shared = station(mode="shared", service=law, service_mean="20ms", seed=3)
    assert latencies_ms(serve(shared, poisson_ns(25, 60_000, seed=7))).mean() == pytest.approx(40, rel=0.04)


def test_large_jobs_count_their_instances() -> None:
    """A job of more than max_batch instances goes alone and in one call; smaller ones are never split."""
    batching = station(**BATCH)
    for items in (3, 40, 10, 10):
        batching.submit(Job(0, items, float(items)))
    batches = batching.advance(NEVER_NS - 1)
    assert [[job.items for job in batch.jobs] for batch in batches] == [[3], [40], [10], [10]]
    assert batches[1].end_ns - batches[1].start_ns == 30 * MS


def test_queue_is_bounded_and_recovers() -> None:
    """Job max_queue + 1 is refused; after a batch has left the queue there is room again."""
    small = build_station(load({**BATCH, "max_queue": 20}), Effects(), 0)
    assert [small.submit(Job(0)) for _ in range(21)] == [True] * 20 + [False]
    small.advance(1)
    assert small.waiting() == 4 and small.running() == 16
    assert small.submit(Job(2))


def test_lead_hands_over_early_but_keeps_the_device_busy() -> None:
    """With a lead of 0.2 ms a batch is handed over that much early; the next one still starts at the planned end."""
    eager = build_station(load(BATCH), Effects(), 0, lead_ns=200_000)
    for _ in range(32):
        eager.submit(Job(0))
    assert eager.advance(0) == [] and eager.next_ns() == 18 * MS - 200_000
    first = eager.advance(18 * MS - 200_000)
    assert [batch.end_ns for batch in first] == [18 * MS]
    assert eager.running() == 0 and eager.next_ns() == 18 * MS
    assert [batch.start_ns for batch in eager.advance(NEVER_NS - 1)] == [18 * MS]


def test_same_seed_same_service_times_other_replica_others() -> None:
    """Service times are a function of (seed, replica): seed 0 is a seed like any other."""

    def draws(seed: int, index: int) -> list[int]:
        fifo = build_station(load({"mode": "fifo", "seed": seed}), Effects(), index)
        return [batch.end_ns - batch.start_ns for batch in serve(fifo, [0] * 20)]

    assert draws(0, 0) == draws(0, 0)
    assert draws(0, 0) != draws(0, 1) and draws(0, 0) != draws(1, 0)


def test_lognormal_has_the_stated_mean_and_cv() -> None:
    """100,000 draws: mean within 1.5 % and coefficient of variation within 5 % of what was asked."""
    from target.service_time import drawn

    law = drawn("lognormal", 0.02, 0.8, random.Random(1))
    values = np.array([law(1.0) for _ in range(100_000)])
    assert values.mean() == pytest.approx(0.02, rel=0.015)
    assert values.std() / values.mean() == pytest.approx(0.8, rel=0.05)
