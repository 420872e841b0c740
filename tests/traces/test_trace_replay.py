"""Replays: windows, scaling, loops, alignment, what arrivals carry; and that a schedule of a trace is split over workers
without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapes.schedule import Block, Schedule
from shapes.traces.drops import TraceError
from shapes.traces.replay import open_trace

S = 10**9


@pytest.fixture
def poisson_trace(tmp_path: Path) -> Path:
    """20,000 Poisson arrivals in about 1,000 s, with sessions and tokens; made by numpy, not by the product."""
    random = np.random.default_rng(5)
    times = np.cumsum(random.exponential(0.05, 20_000))
    sessions = random.integers(0, 4000, 20_000)
    path = tmp_path / "poisson.csv"
    rows = (f"{time:.9f},{k},s{session}" for k, (time, session) in enumerate(zip(times, sessions, strict=True)))
    path.write_text("offset_s,prompt_tokens,session\n" + "\n".join(rows) + "\n")
    return path


def planned(path: Path, duration_s: float = 1e5, seed: int = 1, epoch_wall_s: float = 0.0, **said: Any) -> list[Block]:
    return list(open_trace({"file": str(path), **said}, duration_s, seed, epoch_wall_s).blocks())


def offsets(blocks: list[Block]) -> np.ndarray[Any, Any]:
    return np.concatenate([block.offsets_ns for block in blocks]) if blocks else np.zeros(0, np.int64)


def column(blocks: list[Block], name: str) -> list[Any]:
    return [value for block in blocks for value in block.columns[name].tolist()]


def csv(tmp_path: Path, seconds: list[float], name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text("offset_s\n" + "\n".join(f"{second:.9f}" for second in seconds) + "\n")
    return path


def test_exact_blocks_are_numbered_sorted_and_complete(poisson_trace: Path) -> None:
    """Arrival k is row k, counted from the first; numbers run on from block to block."""
    blocks = planned(poisson_trace)
    assert [block.first_k for block in blocks] == np.cumsum([0] + [len(block.offsets_ns) for block in blocks])[:-1].tolist()
    assert offsets(blocks)[0] == 0
    assert (np.diff(offsets(blocks)) >= 0).all()
    assert column(blocks, "prompt_tokens") == list(range(20_000))


def test_a_window_is_counted_from_the_first_arrival(tmp_path: Path) -> None:
    """from <= t < to, offsets from the window's start, cut again by the run's duration, shifted by the offset."""
    path = csv(tmp_path, [5, 6, 7.5, 8, 9, 12])
    assert offsets(planned(path, window_from_s=1.0, window_to_s=4.0)).tolist() == [0, 1_500_000_000, 2 * S]
    assert offsets(planned(path, duration_s=2.0, window_from_s=1.0)).tolist() == [0, 1_500_000_000]
    assert offsets(planned(path, duration_s=4.0, offset_s=2.0)).tolist() == [2 * S, 3 * S]


def test_loop_repeats_with_the_window_s_period(tmp_path: Path) -> None:
    """A stated window repeats after its length; an open one a mean gap after its last arrival, so that the seam is no burst
    and no gap.
    """
    path = csv(tmp_path, [0, 1, 2, 4])
    assert offsets(planned(path, duration_s=8.0, loop=True, window_to_s=3.0)).tolist() == [
        s * S for s in (0, 1, 2, 3, 4, 5, 6, 7)
    ]
    looped = offsets(planned(path, duration_s=8.0, loop=True))
    assert looped.tolist() == [0, S, 2 * S, 4 * S, 4 * S + 4 * S // 3, 5 * S + 4 * S // 3, 6 * S + 4 * S // 3]


def test_a_loop_of_nothing_long_is_refused(tmp_path: Path) -> None:
    """10 ns looped for a minute would never end in useful time; all at one instant is a second long."""
    with pytest.raises(TraceError, match="looped more than"):
        planned(csv(tmp_path, [0, 0.00000001]), duration_s=60.0, loop=True)
    assert offsets(planned(csv(tmp_path, [3, 3, 3]), duration_s=2.0, loop=True)).tolist() == [0] * 3 + [S] * 3


def test_thinning_keeps_a_share_and_whole_sessions(poisson_trace: Path) -> None:
    """Sessions stay or go as a whole; their share is the asked one within 5 standard deviations; other seeds keep others."""
    kept = column(planned(poisson_trace, thin=0.25), "session")
    whole = column(planned(poisson_trace), "session")
    chosen = set(kept)
    assert kept == [session for session in whole if session in chosen]
    assert abs(len(chosen) - 0.25 * len(set(whole))) < 5 * (len(set(whole)) * 0.25 * 0.75) ** 0.5
    assert set(column(planned(poisson_trace, thin=0.25, seed=2), "session")) != chosen


def test_thinning_without_sessions_brings_bursts_nearer_to_poisson(tmp_path: Path) -> None:
    """Groups of 10 at once every 2 s have dispersion I; thinned to p it is 1 + p (I - 1) (theory of thinning), within 15 %."""
    random = np.random.default_rng(3)
    groups = np.repeat(np.cumsum(random.exponential(2.0, 6000)), 10)
    path = csv(tmp_path, groups.tolist())

    def dispersion(times_ns: np.ndarray[Any, Any]) -> float:
        counts = np.bincount(times_ns // (20 * S))[:-1]
        return float(counts.var(ddof=1) / counts.mean())

    whole, thinned = offsets(planned(path)), offsets(planned(path, thin=0.3))
    assert abs(len(thinned) - 0.3 * len(whole)) < 5 * (len(whole) * 0.21) ** 0.5
    assert dispersion(thinned) == pytest.approx(1 + 0.3 * (dispersion(whole) - 1), rel=0.15)


@pytest.mark.parametrize("loop", [False, True])
def test_copies_lose_nothing_and_do_not_stand_on_each_other(loop: bool, poisson_trace: Path) -> None:
    """n copies of a window are n times its arrivals, each copy's sessions its own, and no instant is shared as it would be
    undisplaced.
    """
    one = planned(poisson_trace, window_to_s=500.0)
    four = planned(poisson_trace, window_to_s=500.0, copies=4, loop=loop, duration_s=500.0)
    assert len(offsets(four)) == 4 * len(offsets(one))
    assert (np.diff(offsets(four)) >= 0).all()
    names = {session.split("~")[0] for session in column(four, "session")}
    assert len(names) == 4 * len(set(column(one, "session")))
    assert np.unique(offsets(four)).size > 0.99 * len(offsets(four))


def test_copies_of_bursts_overlap_and_tend_to_poisson(tmp_path: Path) -> None:
    """10 arrivals within 2 s every 20 s (gap CV 2.6): of 40 copies, 4 bursts overlap at any time, and gaps have a CV within
    15 % of 1.
    """
    bursts = (np.arange(0, 2000, 20.0)[:, None] + np.arange(10) * 0.2).ravel()
    path = csv(tmp_path, bursts.tolist())
    one, forty = np.diff(offsets(planned(path))), np.diff(offsets(planned(path, copies=40)))
    assert one.std() / one.mean() > 2.5
    assert forty.std() / forty.mean() == pytest.approx(1, abs=0.15)


def test_copies_do_not_multiply_herds(tmp_path: Path) -> None:
    """Ten at the same instant, copied 8 times, stay ten at an instant, 8 times as often; undisplaced they would be 80."""
    path = csv(tmp_path, np.repeat(np.arange(0, 2000, 2.0), 10).tolist())
    found, sizes = np.unique(offsets(planned(path, copies=8)), return_counts=True)
    assert (len(found), set(sizes.tolist())) == (8000, {10})


@pytest.mark.parametrize("mode", ["exact", "poisson", "fixed", "model"])
@pytest.mark.parametrize(
    "said", [{}, {"speed": 4.0}, {"thin": 0.5}, {"copies": 3}, {"loop": True, "window_to_s": 100.0}, {"offset_s": 50.0}]
)
def test_every_mode_meets_the_same_expected_count(mode: str, said: dict[str, Any], poisson_trace: Path) -> None:
    """Rate times what was asked, whichever mode: counts within 6 standard deviations of a Poisson count."""
    duration_s = 200.0
    cycles = 1.0
    factor = said.get("speed", 1.0) * said.get("thin", 1.0) * said.get("copies", 1) * cycles
    expected = 20 * (duration_s - said.get("offset_s", 0.0)) * factor
    count = len(offsets(planned(poisson_trace, duration_s=duration_s, mode=mode, **said)))
    assert abs(count - expected) < 6 * expected**0.5 + 0.03 * expected


def test_fitted_arrivals_carry_the_trace_s_rows_in_order(poisson_trace: Path) -> None:
    """Row k on arrival k; when the rows run out they start again, and sessions of the second round are others."""
    blocks = planned(poisson_trace, mode="poisson", copies=2, duration_s=2000.0)
    tokens = column(blocks, "prompt_tokens")
    assert tokens[:20_000] == list(range(20_000))
    assert tokens[20_000:20_100] == list(range(100))
    sessions = column(blocks, "session")
    assert not set(sessions[:20_000]) & set(sessions[20_000:])


def test_bootstrap_draws_rows_by_k_and_seed(poisson_trace: Path) -> None:
    """The draw repeats with the seed, differs with another, is uniform (mean within 5 standard errors), and leaves sessions
    out.
    """
    first, again = (planned(poisson_trace, mode="poisson", rows="bootstrap") for _ in range(2))
    other = planned(poisson_trace, mode="poisson", rows="bootstrap", seed=2)
    tokens = np.array(column(first, "prompt_tokens"))
    assert tokens.tolist() == column(again, "prompt_tokens") != column(other, "prompt_tokens")
    assert abs(tokens.mean() - 9999.5) < 5 * 20_000 / 12**0.5 / len(tokens) ** 0.5
    assert "session" not in first[0].columns


@pytest.mark.parametrize("mode", ["exact", "poisson", "model"])
@pytest.mark.parametrize("n_slots", [1, 3, 4])
def test_slots_are_the_whole_and_sessions_stay_in_order(mode: str, n_slots: int, poisson_trace: Path) -> None:
    """Over the workers no arrival is missing or doubled, and every session is on one worker, in its order."""
    schedule = Schedule({"trace": {"file": str(poisson_trace), "mode": mode}}, 100.0, seed=9)
    owners: dict[str, int] = {}
    ks: list[int] = []
    for slot in range(n_slots):
        last = -1
        for block in schedule.slot_blocks(slot, n_slots):
            ks += block.ks.tolist()
            for session in block.columns["session"].tolist():
                assert owners.setdefault(session, slot) == slot
            if len(block.ks):
                assert block.ks[0] > last
                last = int(block.ks[-1])
    assert sorted(ks) == list(range(schedule.count()))


def test_the_digest_is_the_trace_s_content_and_the_seed_s(poisson_trace: Path, tmp_path: Path) -> None:
    """The same file elsewhere has the same digest; one changed time has another."""
    elsewhere, changed = tmp_path / "elsewhere.csv", tmp_path / "changed.csv"
    text = poisson_trace.read_text()
    elsewhere.write_text(text)
    changed.write_text(text.replace(",19,", ",20,", 1))
    digests = [Schedule({"trace": {"file": str(path)}}, 1e5, seed=1).digest() for path in (poisson_trace, elsewhere, changed)]
    assert digests[0] == digests[1] != digests[2]


def iso(tmp_path: Path, rows: list[str]) -> Path:
    path = tmp_path / "wall.csv"
    path.write_text("time\n" + "\n".join(rows) + "\n")
    return path


def test_wall_clock_short_traces_keep_minute_and_second(tmp_path: Path) -> None:
    """A run that begins at 10:50:00 sends the request of 14:05:30 at 11:05:30: 15 min 30 s on."""
    path = iso(tmp_path, ["2024-05-10T14:05:30Z", "2024-05-10T14:06:00Z"])
    epoch = 1764586200.0  # 2025-12-01T10:50:00Z
    assert offsets(planned(path, align="wall-clock", epoch_wall_s=epoch)).tolist() == [930 * S, 960 * S]


def test_wall_clock_long_traces_are_joined_in_the_middle(tmp_path: Path) -> None:
    """A trace of three hours on the half hour, joined at 10:50: what was before is left out, the rest falls on the half hour."""
    path = iso(tmp_path, [f"2024-05-10T{hour:02d}:30:00Z" for hour in (9, 10, 11, 12)])
    found = offsets(planned(path, align="wall-clock", epoch_wall_s=1764586200.0))
    assert found.tolist() == [2400 * S, 6000 * S, 9600 * S]


def test_wall_clock_needs_a_trace_that_knows_it(tmp_path: Path) -> None:
    """Seconds from a trace's own start have no time of day; a first arrival beyond the run's end is an error as well."""
    with pytest.raises(TraceError, match="no wall clock"):
        planned(csv(tmp_path, [0, 1]), align="wall-clock")
    with pytest.raises(TraceError, match="beyond the duration"):
        planned(iso(tmp_path, ["2024-05-10T14:05:30Z"]), align="wall-clock", epoch_wall_s=1764586200.0, duration_s=60.0)


@pytest.mark.parametrize("said", [{"speed": 2.0}, {"thin": 0.5}, {"copies": 2}])
def test_scaling_says_what_it_does_to_burstiness(said: Mapping[str, Any], poisson_trace: Path) -> None:
    """describe() has a sentence for what was asked, and the drops."""
    told = open_trace({"file": str(poisson_trace), **said}, 10.0, 1, 0.0).describe()
    assert len(told["effects"]) == 1
    assert told["drops"]["dropped"] == {}


def test_unordered_rows_come_out_in_order(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Shuffled within the window: the sorted trace. Shuffled beyond it: only the stated sort has all, the window counts what
    it lost.
    """
    random = np.random.default_rng(2)
    times = np.arange(0, 5000, 0.5)
    near = csv(tmp_path, (times[np.argsort(times + random.uniform(0, 50, times.size))]).tolist(), "near.csv")
    far = csv(tmp_path, random.permutation(times).tolist(), "far.csv")
    expected = (times * S).astype(np.int64)
    assert np.array_equal(read_whole(near)[0].times_ns, expected)
    assert np.array_equal(read_whole(far, order="sort")[0].times_ns, expected)
    rows, recording = read_whole(far)
    assert len(rows.times_ns) + recording.drops.lost == times.size
    assert recording.drops.lost > 0
    assert (np.diff(rows.times_ns) >= 0).all()
