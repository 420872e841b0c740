"""The master's fleet state machine and its messages: seats, digests, snapshots and the ledger, without a network."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetail.fleet import Fleet, State
from truetail.histogram import Histogram
from truetail.messages import Drained, Hello, Planned, Snapshot, parse
from truetail.share import Share

DIGEST = "a" * 64


def hello(name):
    return Hello(name=name, host="h", pid=1, boot_id="b", versions={})


def snapshot(seq, sent, scheduled=10):
    histogram = Histogram()
    for _ in range(sent):
        histogram.record_ns(5_000_000)
    data = {
        "seq": seq, "at_ns": seq * 10**9, "in_flight": 0, "idle": 1, "backlog": 0, "last_handed_k": sent, "series": {"response": histogram.to_json()},
        "ledger": {"scheduled": scheduled, "sent": sent, "dropped": 0, "unsent": scheduled - sent, "ok": sent, "failed": 0, "timed_out": 0, "abandoned": 0},
        "generator": {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5},
    }  # fmt: skip
    return parse(Snapshot, data)


@pytest.fixture
def fleet():
    """Two seated workers with plans."""
    made = Fleet(2)
    for name in ("w0", "w1"):
        made.hello(name, hello(name))
        assert made.planned(name, Planned(digest=DIGEST, count=20, slot_count=10), DIGEST, 20) == ""
    return made


def test_seats_are_given_once():
    """A repeated hello keeps its slot, a third worker and a doubled name are refused in words."""
    fleet = Fleet(2)
    first = fleet.hello("id0", hello("w0"))
    assert fleet.hello("id0", hello("w0")) is first
    assert "already in the fleet" in fleet.hello("id1", hello("w0"))
    assert fleet.hello("id1", hello("w1")).slot == 1
    assert "complete" in fleet.hello("id2", hello("w2"))


def test_other_schedule_is_a_fault(fleet):
    """A worker whose digest or count differs from the master's is named."""
    assert "another schedule" in fleet.planned("w0", Planned(digest="b" * 64, count=20, slot_count=10), DIGEST, 20)
    assert "w1: boom" in fleet.planned("w1", Planned(digest=DIGEST, count=20, slot_count=10, fault="boom"), DIGEST, 20)


def test_snapshots_are_cumulative_and_ordered(fleet):
    """The newest snapshot stands for all before it; a late older one changes nothing."""
    fleet.snapshot("w0", snapshot(2, 6))
    fleet.snapshot("w0", snapshot(1, 3))
    fleet.snapshot("w1", snapshot(1, 4))
    assert fleet.merged()["response"].n == 10
    assert fleet.ledger(20)["sent"] == 10


def test_lost_worker_leaves_its_rest_as_lost(fleet):
    """What a dead worker had not sent is lost, not unsent; the law of the ledger holds."""
    fleet.snapshot("w0", snapshot(1, 6))
    fleet.drained("w1", Drained(snapshot=snapshot(1, 10), rows=10))
    assert fleet.lost("w0", 5).lost_at_ns == 5
    assert fleet.lost("w0", 6) is None
    assert fleet.lost("w1", 6) is None
    ledger = fleet.ledger(20)
    assert (ledger["scheduled"], ledger["sent"], ledger["lost"], ledger["unsent"]) == (20, 16, 4, 0)
    assert fleet.ended


def test_worker_that_never_reported_is_wholly_lost(fleet):
    """Without a single snapshot every arrival of the slot is lost."""
    fleet.lost("w0", 1)
    assert fleet.ledger(20)["lost"] == 20
    fleet.snapshot("w1", snapshot(1, 4))
    assert (fleet.ledger(20)["lost"], fleet.ledger(20)["unsent"]) == (10, 6)
    assert fleet.members["w0"].state is State.LOST


@pytest.mark.parametrize(
    "change",
    [
        {"seq": -1}, {"seq": 1.5}, {"seq": "1"}, {"seq": True}, {"at_ns": None}, {"in_flight": 1 << 60}, {"generator": {}}, {"ledger": None}, {"series": []},
        {"generator": {"cpu_share": float("nan"), "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5}},
        {"generator": {"cpu_share": float("inf"), "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5}},
        {"series": {f"s{i}": {} for i in range(300)}}, {"series": {"x" * 1000: {}}}, {"trouble": "x" * 10_000}, {"last_handed_k": -2},
    ],
)  # fmt: skip
def test_hostile_snapshots_are_refused(change):
    """Wrong types, ranges, sizes and numbers that are not finite: a ValueError that names the message."""
    with pytest.raises(ValueError, match="snapshot"):
        parse(Snapshot, snapshot(1, 2).model_dump() | change)


def test_hostile_histogram_in_a_snapshot_is_refused(fleet):
    """A series whose counts do not add up is refused and the older snapshot stays."""
    fleet.snapshot("w0", snapshot(1, 3))
    bad = snapshot(2, 3)
    bad.series["response"]["n"] = 99
    assert "do not add up" in fleet.snapshot("w0", bad)
    assert fleet.members["w0"].snapshot.seq == 1


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1000)), max_size=4), st.integers(0, 10**6))
def test_divided_shares_are_disjoint_and_whole(n_slots, splits, seed):
    """However often shares are divided, every arrival after the instant is in exactly one part."""
    rng = np.random.default_rng(seed)
    ks = np.arange(2000)
    offsets = np.sort(rng.integers(0, 2000, 2000))
    shares = [Share(slot=slot, n_slots=n_slots) for slot in range(n_slots)]
    start = 0
    for parts, from_ns in splits:
        dead = shares.pop(int(rng.integers(len(shares))))
        after = dead.mask(ks, offsets) & (ks % n_slots == dead.slot) & (offsets >= from_ns)
        made = dead.divided(parts, from_ns)
        assert (sum(part.mask(ks, offsets) & (ks % n_slots == part.slot) for part in made) == after).all()
        shares += made
        start = max(start, from_ns)
    held = sum((share.mask(ks, offsets) & (ks % n_slots == share.slot)).astype(int) for share in shares)
    assert (held[offsets >= start] == 1).all()
    assert (held <= 1).all()


def test_lost_shares_go_to_the_living():
    """A dead worker's shares, and those it had taken over, are given to the living only; nobody living: to nobody."""
    fleet = Fleet(3)
    for name in ("w0", "w1", "w2"):
        fleet.hello(name, hello(name)).state = State.RUNNING
    fleet.lost("w0", 5)
    given = fleet.redistribute(fleet.members["w0"], 100, whole=False)
    assert set(given) == {"w1", "w2"}
    fleet.lost("w1", 200)
    given = fleet.redistribute(fleet.members["w1"], 300, whole=False)
    assert set(given) == {"w2"}
    assert len(given["w2"]) == 2
    assert fleet.generation == 2
    fleet.lost("w2", 400)
    assert fleet.redistribute(fleet.members["w2"], 500, whole=False) == {}


@pytest.mark.parametrize(
    "data", [None, [], "x", 5, {"name": "../../etc", "host": "h", "pid": 1, "boot_id": "b", "versions": {}}, {}]
)
def test_hostile_hellos_are_refused(data):
    """A worker's name becomes a file's name: only letters, digits, dot, dash and underscore."""
    with pytest.raises(ValueError, match="hello"):
        parse(Hello, data)


def test_a_late_worker_stands_by_for_the_next_generation(fleet):
    """Seated with an empty share and the next number; counted among the living when a slot is divided, and then it holds its part of it."""
    late = fleet.hello("late", hello("late"), late=True)
    assert (late.slot, late.joined, fleet.complete) == (2, True, True)
    assert late.shares[0].is_empty
    ks = np.arange(20)
    assert not late.shares[0].mask(ks, ks * 10**9).any()
    for member in fleet.members.values():
        member.state = State.RUNNING
    dead = fleet.lost("w1", 5 * 10**9)
    given = fleet.redistribute(dead, 8 * 10**9, whole=False)
    assert set(given) == {"w0", "late"}
    mine = ks[ks % 2 == dead.slot]
    taken = [mine[share.mask(mine, mine * 10**9)].tolist() for shares in given.values() for share in shares]
    assert sorted(k for part in taken for k in part) == [k for k in mine.tolist() if k >= 8]
    assert all(taken)


def test_names_of_the_late_differ_too(fleet):
    """Also from the lost: their records lie under that name."""
    fleet.lost("w1", 1)
    assert "already in the fleet" in fleet.hello("again", hello("w1"), late=True)
