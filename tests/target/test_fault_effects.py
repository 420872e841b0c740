"""Faults as pure functions of time: windows, and what they do to a device's pace, batches and requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from target.batcher import Job
from target.config import load
from target.effects import Effects, ReplicaPace
from target.faults import KINDS, Fault, load_fault, parse_fault
from target.replica import build_station
from target.units import NEVER_NS, NS

MS = 1_000_000


def effects(*faults: dict[str, object]) -> Effects:
    """Effects with these faults, all counting from instant 0."""
    found = Effects(seed=1)
    for fault in faults:
        found.add(load_fault(fault), 0)
    return found


@pytest.mark.parametrize(
    ("fault", "open_s", "closed_s"),
    [
        ({"kind": "throttle"}, [0, 1e6], []),
        ({"kind": "throttle", "start": "2s"}, [2, 9], [0, 1.999]),
        ({"kind": "throttle", "start": "2s", "duration": "1s"}, [2, 2.999], [0, 3, 100]),
        ({"kind": "throttle", "start": "1s", "duration": "1s", "period": "5s"}, [1, 6, 1001.5], [0, 2, 5.9, 7, 1002]),
    ],
)
def test_windows(fault: dict[str, object], open_s: list[float], closed_s: list[float]) -> None:
    """Start, duration and period give the half-open windows that they say."""
    checked = load_fault(fault)
    assert all(checked.window(round(t * NS))[0] for t in open_s)
    assert not any(checked.window(round(t * NS))[0] for t in closed_s)


@given(
    start=st.floats(0, 3), duration=st.floats(0.05, 1), gap=st.floats(0.05, 2), factor=st.floats(1, 9),
    begin_ms=st.integers(0, 8000), work_ms=st.floats(0, 2000),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_finish_is_the_inverse_of_work_done(
    start: float, duration: float, gap: float, factor: float, begin_ms: int, work_ms: float
) -> None:
    """Work between start and finish equals the work asked for, through any number of throttled and standing windows."""
    found = effects(
        {"kind": "throttle", "start": start, "duration": duration, "period": duration + gap, "factor": factor},
        {"kind": "pause", "start": 1.5, "duration": 0.3, "period": 2.0},
    )
    pace, begin_ns = ReplicaPace(found, 0), begin_ms * MS
    end_ns = pace.finish_ns(begin_ns, work_ms * MS)
    assert pace.work_ns(begin_ns, end_ns) == pytest.approx(work_ms * MS, abs=2)


def test_pace_against_a_sum_over_small_steps() -> None:
    """A second derivation: the speed summed over 0.1 ms steps gives the same finish within a step."""
    pace = ReplicaPace(effects({"kind": "throttle", "start": 1, "duration": 0.5, "period": 1.3, "factor": 3}), 0)
    speeds = np.array([pace.speed(k * MS // 10)[0] for k in range(60_000)])
    done_ms = np.cumsum(speeds) / 10
    first = int(np.argmax(done_ms >= 2500.0))
    assert pace.finish_ns(0, 2500 * MS) / MS == pytest.approx(first / 10, abs=0.2)


def test_endless_pause_never_finishes() -> None:
    """Work begun in a window of speed 0 that never closes again has no end, and says so instead of looping."""
    found = Effects()
    found.add(load_fault({"kind": "pause", "duration": 60, "start": 0}).model_copy(update={"duration": None}), 0)
    assert ReplicaPace(found, 0).finish_ns(0, 1) == NEVER_NS


def test_throttle_slows_only_its_replica() -> None:
    """Work takes factor times as long on the replica named, and the clock shows it; the other replica is as before."""
    found = effects({"kind": "throttle", "factor": "2.5x", "replica": 1})
    assert [ReplicaPace(found, i).finish_ns(0, 10 * MS) for i in (0, 1)] == [10 * MS, 25 * MS]
    assert [found.clock_share(i, 0) for i in (0, 1)] == [1.0, 0.4]


def test_pause_stops_a_shared_device_too() -> None:
    """Processor sharing through a pause of 100 ms: two requests of 50 ms end at 200 ms instead of 100."""
    config = load({"mode": "shared", "service": "fixed", "service_mean": "50ms"})
    station = build_station(config, effects({"kind": "pause", "start": "30ms", "duration": "100ms"}), 0)
    station.submit(Job(0))
    station.submit(Job(0))
    assert [batch.end_ns for batch in station.advance(NS)] == [200 * MS, 200 * MS]


def test_cold_start_costs_the_first_requests() -> None:
    """The first 3 requests take 5 times as long, the fourth no longer; per replica."""
    config = load({"mode": "fifo", "service": "fixed", "service_mean": "10ms"})
    found = effects({"kind": "cold_start", "requests": 3, "factor": 5})
    for index in (0, 1):
        station = build_station(config, found, index)
        for _ in range(4):
            station.submit(Job(0))
        times = [(b.end_ns - b.start_ns) // MS for b in station.advance(NS)]
        assert times == [50, 50, 50, 10]


def test_memory_pressure_halves_batches() -> None:
    """Batches are limited while memory is short and whole again afterwards."""
    pressure = {"kind": "memory_pressure", "max_batch": 4, "factor": 1, "duration": "10ms", "used": "90%"}
    found = effects(pressure)
    station = build_station(load({"max_batch": 16}), found, 0)
    for _ in range(20):
        station.submit(Job(0))
    batches = station.advance(1) + station.advance(11 * MS) + station.advance(NS)
    assert [len(batch.jobs) for batch in batches] == [4, 16]
    assert found.memory_share(0, 0) == 0.9 and found.memory_share(0, 10 * MS) == 0.0


def test_deploy_rolls_over_the_replicas() -> None:
    """One replica after the other is out, never two at once; a deploy of one replica starts with that one."""
    found = effects({"kind": "deploy", "start": 1, "duration": 2})
    out = {t: [i for i in range(3) if found.down(i, t * NS)] for t in range(8)}
    assert out == {0: [], 1: [0], 2: [0], 3: [1], 4: [1], 5: [2], 6: [2], 7: []}
    assert effects({"kind": "deploy", "replica": 2, "duration": 1}).down(2, 0)


def test_oversized_share() -> None:
    """The share asked for is enlarged (2,000 draws at 10 %, within 4 standard deviations: alpha 6e-5), by the size asked for."""
    found = effects({"kind": "oversized_inputs", "share": "10%", "size": 7})
    factors = [found.size_factor(0) for _ in range(2000)]
    assert set(factors) == {1.0, 7.0}
    assert abs(factors.count(7.0) - 200) < 4 * (2000 * 0.1 * 0.9) ** 0.5


def test_request_delays_add_up_and_end() -> None:
    """Each delay is there in its window and gone after it; two of a kind add up."""
    window = {"duration": "1s", "delay": "20ms"}
    kinds = ["queue_delay", "slow_preprocess", "network_delay", "dependency_stall", "dependency_stall"]
    found = effects(*({"kind": kind, **window} for kind in kinds), {"kind": "slow_preprocess", "cpu": True, **window})
    assert found.queue_s(0) == 0.02 and found.preprocess(0) == (0.02, 0.02)
    assert found.network_s(0) == 0.02 and found.dependency_s(0) == 0.04
    assert (found.queue_s(NS), found.preprocess(NS), found.network_s(NS), found.dependency_s(NS)) == (0, (0, 0), 0, 0)


def test_overload_rates_add_up() -> None:
    """Two overloads: the rates add, the size is the mean over requests."""
    found = effects({"kind": "overload", "rate": "100/s"}, {"kind": "overload", "rate": 300, "size": 5})
    assert found.overload(0) == (400, 4.0)
    assert effects().overload(0) == (0, 1.0)


def test_pause_of_the_world_and_of_one_replica() -> None:
    """Only a pause without a replica stops the event loop; it says until when."""
    found = effects({"kind": "pause", "start": 1, "duration": "250ms"}, {"kind": "pause", "replica": 0})
    assert found.pause_until_ns(0) is None
    assert found.pause_until_ns(NS) == NS + 250 * MS
    assert ReplicaPace(found, 0).finish_ns(0, 1) == 200 * MS + 1


def test_add_and_remove() -> None:
    """Ids stay unique; removing an unknown one says so."""
    found = effects({"kind": "throttle"}, {"kind": "pause"})
    assert found.remove(1) and not found.remove(1)
    assert found.add(load_fault({"kind": "throttle"}), 0).id == 3


def test_every_kind_loads_with_its_defaults_alone() -> None:
    """A kind alone is a fault (slow_replica must say which)."""
    for kind in KINDS:
        extra = {"replica": 0} if kind == "slow_replica" else {}
        assert isinstance(load_fault({"kind": kind, **extra}), Fault)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "gremlins"}, "there are cold_start"),
        ({}, "fault kind None"),
        ("throttle", "fault kind None"),
        ({"kind": "throttle", "factor": 0.5}, "factor"),
        ({"kind": "throttle", "speed": 2}, "'speed' is unknown; allowed are kind, start"),
        ({"kind": "throttle", "start": "soon"}, 'a duration such as "10ms"'),
        ({"kind": "throttle", "period": "1s"}, "needs a duration"),
        ({"kind": "slow_replica"}, "replica"),
        ({"kind": "pause", "duration": "1h"}, "duration"),
        ({"kind": "overload", "rate": "1e9/s"}, "rate"),
        ({"kind": "oversized_inputs", "share": "150%"}, "more than the whole"),
        ({"kind": "network_delay", "delay": float("nan")}, "finite"),
    ],
)
def test_wrong_faults_are_refused(fault: object, said: str) -> None:
    """Every wrong fault is refused with what is allowed."""
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        load_fault(fault)


def test_faults_on_one_line() -> None:
    """The flag's short form gives the same mapping."""
    assert load_fault(parse_fault("throttle, factor=2, start=5s")) == load_fault({"kind": "throttle", "factor": 2, "start": 5})
    with pytest.raises(ValueError, match="key=value"):
        parse_fault("throttle,fast")
