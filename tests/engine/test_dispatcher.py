"""The dispatcher on virtual time: every decision about when, without a wall clock."""

from typing import ClassVar

import gevent
import numpy as np
import pytest

from truetail.dispatcher import Dispatcher
from truetail.feed import Feed

MS = 1_000_000


class Block:
    """A slot block without a schedule."""

    columns: ClassVar[dict] = {}

    def __init__(self, offsets_ms):
        self.ks = np.arange(len(offsets_ms))
        self.offsets_ns = np.array(offsets_ms, np.int64) * MS


class VirtualTimer:
    """A timer that the test fires; remembers what was asked for."""

    def __init__(self, callback):
        self.callback, self.armed, self.closed = callback, None, False

    def arm(self, at_mono_ns):
        self.armed = at_mono_ns

    def close(self):
        self.closed = True


class Bench:
    """A dispatcher with a clock that only the test moves, and users whose service time the test decides."""

    def __init__(self, offsets_ms, deadline_ms=50):
        self.now_ns, self.dropped, self.taken = 0, [], []
        feed = Feed(iter([Block(offsets_ms)]), [{"name": "a"}], 0)
        feed.plan_one()
        feed.plan_one()
        self.dispatcher = Dispatcher(feed, deadline_ms * MS, lambda a: self.dropped.append(a.k), self._timer, lambda: self.now_ns)
        self.timer: VirtualTimer

    def _timer(self, callback):
        self.timer = VirtualTimer(callback)
        return self.timer

    def user(self, busy=None):
        """A greenlet that takes arrivals; after each it waits for the event ``busy`` if there is one."""

        def live():
            while True:
                arrival = self.dispatcher.take()
                self.taken.append((arrival.k, self.now_ns // MS))
                if busy is not None:
                    busy.wait()
                self.dispatcher.finish(arrival)

        greenlet = gevent.spawn(live)
        gevent.sleep(0)
        return greenlet

    def to(self, now_ms):
        """Move the clock, then fire the timer in the hub as the loop would."""
        self.now_ns = now_ms * MS
        gevent.get_hub().loop.run_callback(self.timer.callback)
        gevent.sleep(0.001)


def test_each_arrival_goes_out_at_its_instant():
    """The timer is armed for each arrival's own absolute instant, whenever the one before was handed over."""
    bench = Bench([10, 20, 30])
    user = bench.user()
    bench.dispatcher.start(0)
    assert bench.timer.armed == 10 * MS
    bench.to(13)  # 3 ms late: the next instant does not move
    assert bench.timer.armed == 20 * MS
    bench.to(20)
    bench.to(30)
    assert bench.taken == [(0, 13), (1, 20), (2, 30)]
    assert bench.dispatcher.exhausted
    user.kill()


def test_everything_due_goes_out_at_once():
    """After a stall every overdue arrival within the deadline is handed over, each to a user of its own, in order."""
    bench = Bench([10, 11, 12, 40])
    users = [bench.user(gevent.event.Event()) for _ in range(4)]
    bench.dispatcher.start(0)
    bench.to(15)
    assert [k for k, _ in bench.taken] == [0, 1, 2]
    assert len(bench.dispatcher.in_flight) == 3
    gevent.killall(users)


def test_no_idle_user_waits_then_drops():
    """An arrival without a user waits in order up to the deadline, then it is dropped and counted, never sent late."""
    bench = Bench([10, 20, 30], deadline_ms=50)
    gate = gevent.event.Event()
    user = bench.user(gate)
    bench.dispatcher.start(0)
    bench.to(10)
    bench.to(20)
    bench.to(30)
    assert bench.dispatcher.backlog == 2
    assert bench.timer.armed == 70 * MS + 1  # when the first of the backlog is too late
    bench.to(71)
    assert bench.dropped == [1]
    gate.set()
    gevent.sleep(0.01)
    assert bench.taken == [(0, 10), (2, 71)]
    assert bench.dispatcher.exhausted
    user.kill()


def test_overdue_backlog_is_dropped_when_a_user_comes_free():
    """A user that comes free long after takes no arrival that is past the deadline."""
    bench = Bench([10, 20], deadline_ms=50)
    gate = gevent.event.Event()
    user = bench.user(gate)
    bench.dispatcher.start(0)
    bench.to(20)
    bench.now_ns = 500 * MS
    gate.set()
    gevent.sleep(0.01)
    assert (bench.taken, bench.dropped) == ([(0, 20)], [1])
    user.kill()


def test_killed_users_lose_no_arrival():
    """A user killed while idle is forgotten; the next arrival goes to a living one."""
    bench = Bench([10])
    first, second = bench.user(), bench.user()
    second.kill()
    assert bench.dispatcher.idle == 1
    bench.dispatcher.start(0)
    bench.to(10)
    assert bench.taken == [(0, 10)]
    first.kill()


def test_stop_hands_over_nothing_more():
    """After stop the timer is closed, and what was due but unsent is returned for the ledger."""
    bench = Bench([10, 20, 30])
    bench.dispatcher.start(0)
    bench.to(20)
    waiting = bench.dispatcher.stop()
    assert [arrival.k for arrival in waiting] == [0, 1]
    assert bench.timer.closed
    assert bench.dispatcher.exhausted
    bench.to(30)
    assert bench.taken == []


def test_ledger_balances_over_a_random_run():
    """handed + dropped + waiting = due, at every step of a random run (fixed seed)."""
    rng = np.random.default_rng(7)
    offsets = np.cumsum(rng.integers(0, 8, 300)).tolist()
    bench = Bench(offsets, deadline_ms=20)
    gates = [gevent.event.Event() for _ in range(5)]
    users = [bench.user(gate) for gate in gates]
    bench.dispatcher.start(0)
    for now in range(0, offsets[-1] + 40, 3):
        bench.to(now)
        gate = gates[int(rng.integers(len(gates)))]
        gate.set()
        gevent.sleep(0)
        gate.clear()
        due = sum(offset <= now for offset in offsets)
        assert bench.dispatcher.handed + len(bench.dropped) + bench.dispatcher.backlog == due
    gevent.killall(users)


@pytest.mark.parametrize("kind", ["timerfd", "loop"])
def test_real_timers_fire_and_never_early(kind, monkeypatch):
    """Both timers call back at or after the instant, also for one that has passed, and not at all once closed."""
    import time

    from truetail.timer import best_timer

    monkeypatch.setenv("TRUETAIL_TIMER", kind)
    fired: list[int] = []
    timer = best_timer(lambda: fired.append(time.monotonic_ns()))
    at = time.monotonic_ns() + 20 * MS
    timer.arm(at)
    gevent.sleep(0.1)
    assert len(fired) == 1
    assert fired[0] >= at
    timer.arm(time.monotonic_ns() - 5)
    gevent.sleep(0.05)
    assert len(fired) == 2
    timer.arm(time.monotonic_ns() + 20 * MS)
    timer.close()
    gevent.sleep(0.05)
    assert len(fired) == 2
