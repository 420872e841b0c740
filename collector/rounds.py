"""Threads that sample. Sources of one kind share a round, since a wake-up costs more than a reading; a slow one leaves it.

While all answer promptly, one thread reads eight GPUs one after the other at each tick. A source whose call does not come back
keeps the thread to itself: ``rescue`` (called by the watchdog) gives the others a new one within some tenths of a second.
A source that is merely slow, twice in a row, is given a thread of its own by the round itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from collector.clocks import NANOSECONDS
from collector.sampler import Sampler

PATIENCE_NS = NANOSECONDS // 10
SLOW_SHARE = 4  # a reading over a quarter of the period is slow


class Round:
    """One thread and the samplers it ticks. ``start`` starts a thread for a new round (given as an argument for tests)."""

    def __init__(self, samplers: list[Sampler], stop: threading.Event, start: Callable[[Round], None]) -> None:
        self.samplers, self.stop, self.start = samplers, stop, start
        self.current: Sampler | None = None
        self._slow: set[int] = set()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Tick all samplers at their deadlines until ``stop``, or until none is left here."""
        while samplers := self.samplers:
            due_ns = min(sampler.ticks.due_ns for sampler in samplers)
            if self.stop.wait(max(0, due_ns - time.monotonic_ns()) / NANOSECONDS):
                return
            for sampler in samplers:
                if self._take(sampler):
                    took_ns = sampler.tick()
                    self._release(sampler, took_ns)

    def rescue(self, now_ns: int) -> None:
        """Start a new round for the others if the current call has lasted too long; whoever hangs keeps this thread."""
        with self._lock:
            current = self.current
            since_ns = current.progress.reading_since_ns if current else 0
            if not since_ns or now_ns - since_ns < PATIENCE_NS or len(self.samplers) < 2:
                return
            others = [sampler for sampler in self.samplers if sampler is not current]
            self.samplers = [current] if current else []
        self.start(Round(others, self.stop, self.start))

    def _take(self, sampler: Sampler) -> bool:
        """Whether the sampler is still this round's: a rescue may have moved it while another one hung."""
        with self._lock:
            mine = sampler in self.samplers
            self.current = sampler if mine else None
            return mine

    def _release(self, sampler: Sampler, took_ns: int) -> None:
        """After a tick: a sampler that was slow twice in a row moves to a round of its own."""
        with self._lock:
            self.current = None
            if took_ns * SLOW_SHARE < sampler.ticks.period_ns:
                self._slow.discard(id(sampler))
                return
            if id(sampler) not in self._slow or len(self.samplers) < 2:
                self._slow.add(id(sampler))
                return
            self.samplers = [other for other in self.samplers if other is not sampler]
        self.start(Round([sampler], self.stop, self.start))
