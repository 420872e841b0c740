"""Warm-up requests: few at once, each entry of the mix in turn, counted apart, and never longer than they may."""

from __future__ import annotations

from truetail.arrival import Arrival
from truetail.exchange import Exchange
from truetail.records import FAILED
from truetail.warm_up import AT_ONCE, FIRST_K, WarmUp, arrivals

MIX = [{"name": "a"}, {"name": "b"}, {"name": "c"}]


class Clock:
    ns = 10**9

    def __call__(self):
        return self.ns


def warm_up(count, clock, for_s=5.0):
    return WarmUp(arrivals(0, 1, count, MIX, ()), for_s, clock)


def answered(work, arrival):
    work.note(arrival, Exchange(1, done_ns=2))
    work.finish(arrival)


def test_slots_share_them_and_the_mix_takes_turns():
    """Together the slots have every number once, each beyond any arrival's; entries and rows come in turn."""
    shares = [arrivals(slot, 3, 8, MIX, [{"n": 1}, {"n": 2}]) for slot in range(3)]
    assert [len(share) for share in shares] == [3, 3, 2]
    every = [arrival for share in shares for arrival in share]
    assert {arrival.k for arrival in every} == {FIRST_K - number for number in range(8)}
    assert sorted(arrival.request["name"] for arrival in every) == ["a", "a", "a", "b", "b", "b", "c", "c"]
    assert [arrival.row["n"] for arrival in shares[0]] == [1, 2, 1]
    assert arrivals(0, 1, 2, [], ())[1].request is None


def test_few_are_in_flight_and_all_are_sent():
    """A fifth waits for one of the first four; due is when it is taken."""
    clock = Clock()
    work = warm_up(6, clock)
    out = [work.take() for _ in range(AT_ONCE)]
    assert None not in out
    assert work.take() is None
    clock.ns += 7
    answered(work, out[0])
    fifth = work.take()
    assert (fifth.due_mono_ns, fifth.request["name"]) == (clock.ns, "b")
    answered(work, out[1])
    for arrival in [*out[2:], fifth, work.take()]:
        answered(work, arrival)
    assert work.take() is None
    assert work.told.model_dump() == {"done": 6, "failed": 0, "unsent": 0, "error": ""}


def test_failures_are_counted_once_with_the_first_error():
    """A task of two failed requests is one failure, so is one that sent nothing; nothing of it reaches the ledger."""
    work = warm_up(3, Clock())
    first, second, third = (work.take() for _ in range(3))
    for _ in range(2):
        work.note(first, Exchange(1, outcome=FAILED, error_class="http-5xx", error_detail="500"))
    work.finish(first)
    work.finish(second, "ValueError: no")
    answered(work, third)
    assert work.told.model_dump() == {"done": 3, "failed": 2, "unsent": 0, "error": "http-5xx: 500"}


def test_none_begins_when_time_is_up():
    """What is left is counted as unsent; the one in flight still ends."""
    clock = Clock()
    work = warm_up(6, clock, for_s=2.0)
    late = work.take()
    clock.ns += 2_000_000_000
    assert work.take() is None
    answered(work, late)
    assert work.told.model_dump() == {"done": 1, "failed": 0, "unsent": 5, "error": ""}
    stopped = warm_up(2, clock)
    stopped.stop()
    assert stopped.take() is None


def test_without_any_nothing_is_told():
    """The usual run."""
    work = warm_up(0, Clock())
    assert work.take() is None
    assert work.told is None
    work.finish(Arrival(FIRST_K, 0, 0))
    assert work.told is None
