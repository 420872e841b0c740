"""Offset between the master's and a worker's CLOCK_MONOTONIC, from the exchange with the shortest round trip.

The true offset lies within half of that round trip of the estimate (Cristian's method); that half is the stated residual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gevent

ROUNDS = 20
PATIENCE_S = 0.5


class ClockExchange:
    """Pings one worker at a time; :meth:`pong` is called by whoever receives the answers."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._seq = 0
        self._sent_ns = 0
        self._best: tuple[int, int] | None = None
        self._answered = True

    def measure(self, ping: Callable[[int], None], same_boot: str = "") -> tuple[int, int]:
        """(offset, residual) in ns: the worker's clock minus ours. (0, -1) when the worker never answered.

        Two processes of one boot of one kernel share the clock, unless one runs in a time namespace: when the boot id is ours
        and zero lies within the residual, the offset is exactly zero.
        """
        self._best = None
        for _ in range(ROUNDS):
            self._seq += 1
            self._answered = False
            self._sent_ns = self._clock_ns()
            ping(self._seq)
            deadline = time.monotonic() + PATIENCE_S
            while not self._answered and time.monotonic() < deadline:
                gevent.sleep(0.001)
        if self._best is None:
            return 0, -1
        round_trip_ns, offset_ns = self._best
        residual_ns = (round_trip_ns + 1) // 2
        if same_boot and same_boot == boot_id() and abs(offset_ns) <= residual_ns:
            return 0, 0
        return offset_ns, residual_ns

    def pong(self, seq: int, worker_mono_ns: int) -> None:
        """An answer has come; late ones of earlier rounds are ignored."""
        now_ns = self._clock_ns()
        if seq != self._seq:
            return
        self._answered = True
        round_trip_ns = now_ns - self._sent_ns
        if self._best is None or round_trip_ns < self._best[0]:
            self._best = (round_trip_ns, worker_mono_ns - (self._sent_ns + round_trip_ns // 2))


def boot_id() -> str:
    """The kernel's boot id: equal for processes that share CLOCK_MONOTONIC (time namespaces apart). '' where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
