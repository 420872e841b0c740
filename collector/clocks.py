"""The two clocks: anchors that tie monotonic to wall time, and a fixed rate's absolute deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

NANOSECONDS = 1_000_000_000


class Anchor(NamedTuple):
    """One instant in both clocks (ns); the wall time is right within +-``uncertainty_ns`` of the monotonic one."""

    wall_ns: int
    mono_ns: int
    uncertainty_ns: int


def anchor(tries: int = 5, mono_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns) -> Anchor:
    """Read the wall clock between two readings of the monotonic one; the narrowest of ``tries`` pairs is kept."""
    best: Anchor | None = None
    for _ in range(tries):
        before, wall, after = mono_ns(), wall_ns(), mono_ns()
        half = (after - before + 1) // 2
        if best is None or half < best.uncertainty_ns:
            best = Anchor(wall, before + half, half)
    assert best is not None
    return best


class Ticks:
    """Absolute deadlines ``start + n * period``: being late never moves the next tick; ticks that went by are counted."""

    def __init__(self, start_ns: int, period_ns: int) -> None:
        if period_ns <= 0:
            raise ValueError("period must be positive")
        self.start_ns, self.period_ns = start_ns, period_ns
        self.n = 0

    @property
    def due_ns(self) -> int:
        """The next tick's deadline (monotonic ns)."""
        return self.start_ns + self.n * self.period_ns

    def advance(self, now_ns: int) -> int:
        """Take the tick that is due and move on to the first one after ``now_ns``; return how many were missed between."""
        following = max(self.n + 1, (now_ns - self.start_ns) // self.period_ns + 1)
        missed = following - self.n - 1
        self.n = following
        return missed
