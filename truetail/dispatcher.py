"""Open-loop dispatch on one worker: every arrival is handed to an idle user at its own absolute instant.

Being late never moves the next arrival. When no user is idle an arrival waits in a backlog, in order; once it is later
than the lateness deadline it is dropped and counted, so that an overloaded pool cannot quietly turn the open loop into a closed one.

The timer calls back in gevent's hub and the arrival is passed by switching straight into the user's greenlet, which
runs until it first blocks (its request is then on the wire). No queue and no extra turn of the loop lie between.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from gevent import getcurrent

from truetail.arrival import Arrival
from truetail.feed import Feed, Feeds
from truetail.timer import Timer, best_timer

POLL_NS = 1_000_000
"""How soon to look again when the feed has not planned far enough ahead."""
NO_LEASE = 1 << 63
"""An instant that never comes: a dispatcher without a master needs no lease."""


class Dispatcher:
    """Hands the arrivals of ``feed`` to users that call :meth:`take`; calls ``on_drop`` for those it could not hand over."""

    def __init__(
        self,
        feed: Feed,
        lateness_deadline_ns: int,
        on_drop: Callable[[Arrival], None],
        make_timer: Callable[[Callable[[], None]], Timer] = best_timer,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._feed = Feeds(feed)
        self._deadline_ns = lateness_deadline_ns
        self._on_drop = on_drop
        self._clock_ns = clock_ns
        self._timer = make_timer(self._due)
        self._hub: Any = gevent.get_hub()
        self._idle: list[Any] = []
        self._backlog: deque[Arrival] = deque()
        self._next: Arrival | None = None
        self.in_flight: dict[int, Arrival] = {}
        self.handed = 0
        self.last_handed_k = -1
        self.started = False
        self.stopped = False
        self.lease_until_ns = NO_LEASE
        self.lapsed = False

    @property
    def idle(self) -> int:
        """Users waiting for an arrival."""
        return len(self._idle)

    @property
    def backlog(self) -> int:
        """Arrivals that are due and wait for a user."""
        return len(self._backlog)

    @property
    def exhausted(self) -> bool:
        """Nothing is left to hand over: the schedule has ended or was stopped, and the backlog is empty."""
        return self.stopped or (self.started and self._next is None and self._feed.exhausted and not self._backlog)

    def start(self, epoch_mono_ns: int) -> None:
        """Begin: offset 0 of the schedule is this instant of CLOCK_MONOTONIC."""
        self._feed.epoch_mono_ns = epoch_mono_ns
        self._next = self._feed.next()
        self.started = True
        self._arm()

    def add(self, feed: Feed) -> None:
        """Hand over another feed's arrivals too (those of a lost worker), each at its own instant."""
        self._feed.add(feed, self._next)
        self._next = None
        if self.started and not self.stopped:
            self._next = self._feed.next()
            self._arm()

    def stop(self) -> list[Arrival]:
        """Hand over nothing more. Returns what was due and still waited (never sent)."""
        self.stopped = True
        self._timer.close()
        waiting = list(self._backlog)
        self._backlog.clear()
        self._next = None
        return waiting

    def take(self) -> Arrival:
        """Block the calling user's greenlet until an arrival is handed to it."""
        while self._backlog and self._may_send():
            arrival = self._backlog.popleft()
            if self._clock_ns() - arrival.due_mono_ns <= self._deadline_ns:
                return self._note(arrival)
            self._on_drop(arrival)
        user = getcurrent()
        self._idle.append(user)
        try:
            while True:
                handed = self._hub.switch()
                if isinstance(handed, Arrival):
                    return handed
        except BaseException:  # killed while idle
            if user in self._idle:
                self._idle.remove(user)
            raise

    def finish(self, arrival: Arrival) -> bool:
        """The arrival's task is over. False if it was no longer in flight (abandoned at the drain deadline)."""
        return self.in_flight.pop(arrival.k, None) is not None

    def _may_send(self) -> bool:
        """Whether the lease still holds. Asked before every hand-over: a process that was frozen must not wake up and send what others took over."""
        if not self.stopped and self._clock_ns() >= self.lease_until_ns:
            self.lapsed = True
            self.stop()
        return not self.stopped

    def _note(self, arrival: Arrival) -> Arrival:
        self.in_flight[arrival.k] = arrival
        self.handed += 1
        self.last_handed_k = arrival.k
        return arrival

    def _due(self) -> None:
        """Timer callback, in the hub: hand over everything that is due, then wait for the next instant."""
        while self._may_send():
            if self._next is None:
                self._next = self._feed.next()
            arrival = self._next
            if arrival is None or arrival.due_mono_ns > self._clock_ns():
                break
            self._next = None
            if self._idle and not self._backlog:
                user = self._idle.pop()  # the last to come has the warmest connection
                user.switch(self._note(arrival))
            else:
                self._backlog.append(arrival)
        if not self.stopped:
            self._drop_overdue()
            self._arm()

    def _drop_overdue(self) -> None:
        now_ns = self._clock_ns()
        while self._backlog and now_ns - self._backlog[0].due_mono_ns > self._deadline_ns:
            self._on_drop(self._backlog.popleft())

    def check_lease(self) -> None:
        """Stop when the lease has run out, also where no arrival is due for long."""
        self._may_send()

    def _arm(self) -> None:
        instants = []
        if self._next is not None:
            instants.append(self._next.due_mono_ns)
        elif not self._feed.exhausted:
            instants.append(self._clock_ns() + POLL_NS)
        if self._backlog:
            instants.append(self._backlog[0].due_mono_ns + self._deadline_ns + 1)
        if instants:
            self._timer.arm(min(instants))
