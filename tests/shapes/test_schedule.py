"""The schedule: pinned streams, slots whose union is the whole, theory of its counts, constant memory, clear errors."""

import sys
import tracemalloc
import types
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes.schedule import Block, Schedule

CONSTANT = {"kind": "constant", "rate_rps": 50.0}
BURST = {"kind": "hour_burst", "base_rps": 5.0, "clients": 300, "period_s": 30.0, "align": "start", "offset_s": 10.0}
RATES: dict[str, dict[str, Any]] = {
    "constant": CONSTANT,
    "ramp": {"kind": "ramp", "from_rps": 1.0, "to_rps": 100.0, "over_s": 60.0},
    "steps": {
        "kind": "steps",
        "steps": [{"rate_rps": 10.0, "for_s": 20.0}, {"rate_rps": 0.0, "for_s": 20.0}, {"rate_rps": 80.0, "for_s": 1.0}],
    },
    "diurnal": {"kind": "diurnal", "mean_rps": 40.0, "amplitude": 0.8, "period_s": 60.0, "peak_at_s": 20.0},
    "burst uniform": BURST | {"jitter": {"kind": "uniform", "width_s": 2.0}},
    "burst exponential": BURST | {"jitter": {"kind": "exponential", "width_s": 2.0}},
    "burst normal": BURST | {"jitter": {"kind": "normal", "width_s": 2.0}},
}
SPACINGS: dict[str, dict[str, Any]] = {
    "fixed": {"kind": "fixed"},
    "poisson": {"kind": "poisson"},
    "gamma": {"kind": "gamma", "cv": 2.0},
    "gamma steady": {"kind": "gamma", "cv": 0.5},
    "groups": {"kind": "groups", "size": 4, "spacing": {"kind": "poisson"}},
}
GOLD = {
    "constant, fixed": "88dc83d34f6ea599",
    "constant, poisson": "6d8c548521ad746b",
    "constant, gamma": "88513b00d9ec4c42",
    "constant, gamma steady": "7884763952f7be3e",
    "constant, groups": "3dbb8234a4ee4f48",
    "ramp, fixed": "b28a705a52f06258",
    "ramp, poisson": "812ae0022e23a350",
    "ramp, gamma": "5636709752c07d26",
    "ramp, gamma steady": "014cdff3c3d710b4",
    "ramp, groups": "5a69084767fda2f5",
    "steps, fixed": "68903ee545f78f39",
    "steps, poisson": "5a9ce5bf979c8424",
    "steps, gamma": "fe8e2a923eeefeec",
    "steps, gamma steady": "c68074a1a9193ba8",
    "steps, groups": "e9f2fbb312d7b067",
    "diurnal, fixed": "1bf1dc4dcc7bc866",
    "diurnal, poisson": "253d4295ae5881d7",
    "diurnal, gamma": "cdb3bbe2e0620369",
    "diurnal, gamma steady": "3be710cb8d34c410",
    "diurnal, groups": "a49e900c18a1ca57",
    "burst uniform, fixed": "bb091d1488f257c4",
    "burst uniform, poisson": "ea08682058c6ab68",
    "burst uniform, gamma": "12f17706185871c3",
    "burst uniform, gamma steady": "67a764d0f92fabf7",
    "burst uniform, groups": "8308fdc8f35a704e",
    "burst exponential, fixed": "a15c030f9c18faf4",
    "burst exponential, poisson": "51a926ac2919a49b",
    "burst exponential, gamma": "b50c73431103e75f",
    "burst exponential, gamma steady": "50063c5f17b79c42",
    "burst exponential, groups": "218cb65c61e6782a",
    "burst normal, fixed": "742572dde4a8c252",
    "burst normal, poisson": "d70919edae940b34",
    "burst normal, gamma": "db0ae7b36325faac",
    "burst normal, gamma steady": "40a99ef91ce78070",
    "burst normal, groups": "4324b5bf326bf280",
}


def plan(rate: str = "constant", spacing: str = "poisson", duration_s: float = 60.0, seed: int = 42) -> Schedule:
    """A schedule of the named rate and spacing."""
    return Schedule({"rate": RATES[rate], "spacing": SPACINGS[spacing]}, duration_s, seed)


def offsets(schedule: Schedule) -> np.ndarray:
    """All offsets."""
    return np.concatenate([block.offsets_ns for block in schedule.blocks()] or [np.empty(0, np.int64)])


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("spacing", SPACINGS)
def test_pinned_digests(rate: str, spacing: str) -> None:
    """A seed means the same arrivals on every machine and in every release; change STREAM in shapes.schedule when these must change."""
    assert plan(rate, spacing).digest()[:16] == GOLD[f"{rate}, {spacing}"]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("spacing", SPACINGS)
def test_blocks_are_ordered_and_within(rate: str, spacing: str) -> None:
    """Offsets are int64 ns, rising, from 0 to below the duration; numbers follow on; count and digest agree with the stream."""
    schedule, k, last = plan(rate, spacing, 500.0), 0, 0
    for block in schedule.blocks():
        assert block.first_k == k
        assert block.offsets_ns.dtype == np.int64
        assert block.offsets_ns[0] >= last
        assert (np.diff(block.offsets_ns) >= 0).all()
        k, last = k + block.offsets_ns.size, int(block.offsets_ns[-1])
    assert 0 < last < 500 * 10**9
    assert schedule.count() == k
    assert k == pytest.approx(schedule.expected_count, abs=6 * 4 * schedule.expected_count**0.5)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(RATES)), st.sampled_from(sorted(SPACINGS)), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_slots_unite_to_the_whole(rate: str, spacing: str, n_slots: int, seed: int) -> None:
    """For any rate, spacing, seed and number of slots, every arrival is in exactly one slot, at the same instant."""
    schedule = plan(rate, spacing, 40.0, seed)
    parts = [part for slot in range(n_slots) for part in schedule.slot_blocks(slot, n_slots)]
    ks = np.concatenate([part.ks for part in parts])
    order = np.argsort(ks)
    assert np.array_equal(ks[order], np.arange(schedule.count()))
    assert np.array_equal(np.concatenate([part.offsets_ns for part in parts])[order], offsets(schedule))
    slot = next(iter(parts)).ks
    assert (slot % n_slots == 0).all()


def test_many_blocks_and_their_slots() -> None:
    """The same over many blocks, where numbers run on from one to the next."""
    schedule = plan(duration_s=4000.0)
    ks = [np.concatenate([part.ks for part in schedule.slot_blocks(slot, 7)]) for slot in range(7)]
    assert sum(part.size for part in ks) == schedule.count() > 10 * 16_384
    assert all((np.diff(part) == 7).all() and part[0] == slot for slot, part in enumerate(ks))


def test_fixed_against_fractions() -> None:
    """Arrival k at rate 7/s is due at exactly (k + 1/2) / 7, rounded to ns: a second derivation in whole numbers, to the last of 1.4e6."""
    found = offsets(Schedule({"rate": {"kind": "constant", "rate_rps": 7.0}, "spacing": {"kind": "fixed"}}, 200_000.0, 0))
    assert found.size == 1_400_000
    for k in [*range(50), 123_456, 999_999, 1_399_999]:
        assert abs(int(found[k]) - Fraction(2 * k + 1, 14) * 10**9) <= Fraction(1, 2) + Fraction(1, 10)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("spacing", SPACINGS)
def test_mean_count_is_the_integral(rate: str, spacing: str) -> None:
    """Over 30 seeds the mean count is Lambda(duration) within 5 standard errors, for every rate with every spacing."""
    counts = np.array([plan(rate, spacing, 45.0, seed).count() for seed in range(30)])
    expected = plan(rate, spacing, 45.0).expected_count
    assert abs(counts.mean() - expected) <= 5 * counts.std() / 30**0.5 + 0.5


def test_digest_says_what_differs() -> None:
    """Another seed, duration, rate or spacing is another digest, also when the arrivals happen to be the same."""
    digests = {
        plan().digest(), plan(seed=43).digest(), plan(seed=0).digest(), plan(duration_s=60.5).digest(), plan("ramp").digest(),
        plan(spacing="fixed").digest(), plan(spacing="fixed", seed=43).digest(),
    }  # fmt: skip
    assert len(digests) == 7
    assert plan().digest() == plan().digest()


def test_wall_clock_moves_only_the_aligned() -> None:
    """The wall time of the epoch matters to bursts on the wall clock, and to nothing else."""
    aligned = {"rate": RATES["burst uniform"] | {"align": "wall-clock"}, "spacing": {"kind": "fixed"}}
    first, second = (Schedule(aligned, 60.0, 1, epoch_wall_s) for epoch_wall_s in (1e9, 1e9 + 7))
    assert first.digest() != second.digest()
    shifted = {"rate": RATES["burst uniform"], "spacing": {"kind": "fixed"}}
    assert Schedule(shifted, 60.0, 1, 1e9).digest() == Schedule(shifted, 60.0, 1, 0.0).digest()


def test_a_billion_arrivals_in_constant_memory() -> None:
    """The first 3e6 arrivals of 1e9 are planned with less than 16 MB at the peak: what is held does not grow."""
    schedule = Schedule({"rate": {"kind": "constant", "rate_rps": 1e5}, "spacing": {"kind": "poisson"}}, 1e4, 0)
    assert schedule.expected_count == 1e9
    blocks, seen, peaks = schedule.slot_blocks(0, 4), 0, []
    tracemalloc.start()
    try:
        for limit in (300_000, 3_000_000):
            while seen < limit / 4:
                seen += next(blocks).ks.size
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[1] < 16e6
    assert peaks[1] < peaks[0] * 1.05


def test_nothing_due() -> None:
    """A run that ends before the rate starts has no arrivals, a count of 0 and a digest."""
    schedule = Schedule(
        {"rate": {"kind": "piecewise", "times_s": [100.0], "rates_rps": [5.0]}, "spacing": {"kind": "poisson"}}, 60.0, 1
    )
    assert (schedule.count(), schedule.expected_count, list(schedule.blocks())) == (0, 0.0, [])
    assert len(schedule.digest()) == 64


class FakeReplay:
    """What shapes.traces.replay.open_trace returns: arrivals with columns."""

    count_hint = None

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def blocks(self) -> Iterator[Block]:
        """Blocks of the given sizes; each third arrival has no session."""
        k = 0
        for size in self.sizes:
            ks = np.arange(k, k + size)
            sessions = np.array([None if i % 3 == 2 else f"chat-{i % 11}" for i in ks.tolist()], dtype=object)
            yield Block(k, ks * 1000, {"session": sessions, "tokens": ks.astype(np.int32)})
            k += size


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a trace reader in the place of the real one, which has tests of its own."""
    module = types.ModuleType("shapes.traces.replay")
    module.open_trace = lambda spec, duration_s, seed, epoch_wall_s: FakeReplay(spec["sizes"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shapes.traces.replay", module)


@pytest.mark.usefixtures("replay")
@pytest.mark.parametrize("n_slots", [1, 2, 5])
def test_sessions_stay_whole(n_slots: int) -> None:
    """All arrivals of a session are in one slot, those without one are spread by number, and nothing is lost or doubled."""
    schedule = Schedule({"trace": {"file": "a.csv", "sizes": [100, 150, 83]}}, 1.0, 0)
    homes: dict[str, set[int]] = {}
    ks = []
    for slot in range(n_slots):
        for part in schedule.slot_blocks(slot, n_slots):
            ks += part.ks.tolist()
            assert np.array_equal(part.columns["tokens"], part.ks)
            assert np.array_equal(part.offsets_ns, part.ks * 1000)
            for k, session in zip(part.ks.tolist(), part.columns["session"], strict=True):
                assert session is not None or k % n_slots == slot
                homes.setdefault(session, set()).add(slot)
    assert sorted(ks) == list(range(333))
    assert all(len(slots) == 1 for session, slots in homes.items() if session is not None)
    if n_slots > 1:
        assert len({next(iter(slots)) for session, slots in homes.items() if session is not None}) > 1


@pytest.mark.usefixtures("replay")
def test_digest_of_a_trace() -> None:
    """It covers what arrivals carry, but neither how they are cut into blocks nor where the file lies on this host."""

    def digest(file: str, sizes: list[int], **more: Any) -> str:
        header = Schedule({"trace": {"file": file, "sizes": sizes} | more}, 1.0, 0)
        header._header["arrivals"]["trace"].pop("sizes")
        return header.digest()

    assert digest("a.csv", [100, 50]) == digest("/elsewhere/a.csv", [30, 120])
    assert len({digest("a.csv", [100]), digest("a.csv", [101]), digest("a.csv", [100], speed=2)}) == 3
    assert Schedule({"trace": {"sizes": [7]}}, 1.0, 0).expected_count == 7


@pytest.mark.parametrize(
    ("arrivals", "duration_s", "words"),
    [
        ({"rate": CONSTANT}, 1.0, "spacing missing"),
        ({}, 1.0, "rate and spacing missing"),
        ({"rate": CONSTANT, "spacing": {"kind": "poisson"}}, 0.0, "duration_s: found 0"),
        ({"rate": CONSTANT, "spacing": {"kind": "poisson"}}, float("inf"), "duration_s: found inf"),
    ],
)
def test_clear_errors(arrivals: dict[str, Any], duration_s: float, words: str) -> None:
    """What is wrong is named, before anything is planned."""
    with pytest.raises(ValueError, match=words):
        Schedule(arrivals, duration_s, 0)


def test_slot_must_exist() -> None:
    """Slot 3 of 3 is refused."""
    with pytest.raises(ValueError, match="slot: found 3 of 3"):
        next(plan().slot_blocks(3, 3))
