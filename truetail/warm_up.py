"""Requests before the epoch: what a server compiles, caches or opens at its first requests is then behind it, and is measured nowhere.

They are sent by the same users and tasks as the load, but belong to no arrival of the schedule: they are in neither the ledger, the percentiles
nor Locust's statistics. The pool counts as filled only when they are over, so the epoch waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truetail.arrival import Arrival
from truetail.exchange import Exchange
from truetail.messages import MAX_TEXT, WarmedUp
from truetail.records import OK

AT_ONCE = 4
"""Most warm-up requests of a worker in flight: enough to batch, too few to be shed."""
FIRST_K = -(1 << 50)
"""Their numbers go down from here: no text of theirs is one of an arrival's, so they fill no cache with what the run will send."""


class WarmUp:
    """Hands a worker's warm-up arrivals to the users that ask first. None begins later than ``for_s`` from now."""

    def __init__(self, arrivals: Sequence[Arrival], for_s: float, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._left = list(reversed(arrivals))
        self._until_ns = clock_ns() + int(for_s * 1e9)
        self._clock_ns = clock_ns
        self._out: dict[int, Arrival] = {}
        self._fails: set[int] = set()
        self._done = 0
        self._unsent = 0
        self._error = ""

    @property
    def told(self) -> WarmedUp | None:
        """What became of them; None where none were asked for."""
        if not self._done and not self._unsent:
            return None
        return WarmedUp(done=self._done, failed=len(self._fails), unsent=self._unsent, error=self._error[:MAX_TEXT])

    def take(self) -> Arrival | None:
        """One to send now; None when there is none left, time is up, or enough are in flight."""
        now_ns = self._clock_ns()
        if now_ns >= self._until_ns:
            self.stop()
        if not self._left or len(self._out) >= AT_ONCE:
            return None
        arrival = self._left.pop()
        arrival.due_mono_ns = now_ns
        self._out[arrival.k] = arrival
        return arrival

    def note(self, arrival: Arrival, exchange: Exchange) -> None:
        """A request of one of them has ended."""
        arrival.parts += 1
        if exchange.outcome != OK:
            self._fails.add(arrival.k)
            self._error = self._error or f"{exchange.error_class}: {exchange.error_detail}"

    def finish(self, arrival: Arrival, error: str = "") -> None:
        """The task of one of them is over; ``error`` is what stopped a task that made no request."""
        if self._out.pop(arrival.k, None) is None:
            return
        self._done += 1
        if arrival.parts == 0:
            self._fails.add(arrival.k)
            self._error = self._error or (f"task-error: {error}" if error else "no-request")

    def stop(self) -> None:
        """Send no more of them."""
        self._unsent += len(self._left)
        self._left.clear()


def arrivals(
    slot: int, n_slots: int, total: int, requests: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any] | None]
) -> list[Arrival]:
    """A slot's share of ``total`` warm-up requests: the entries of the mix in turn, and of a trace the given ``rows`` in turn."""
    return [
        Arrival(
            FIRST_K - number,
            0,
            0,
            requests[number % len(requests)] if requests else None,
            rows[i % len(rows)] if rows else None,
        )
        for i, number in enumerate(range(slot, total, n_slots))
    ]


def longest_s(scenario: Mapping[str, Any]) -> float:
    """How long the master waits for warm-ups beyond the muster: for so long they begin, and the last one may take its whole deadline."""
    return float(scenario["fleet"]["muster_s"] + scenario["drain_s"]) if scenario.get("warmup_requests") else 0.0
