"""How much of the time a device was busy: an exact counter and the share of the last second."""

from __future__ import annotations

from collections import deque

from target.units import NS


class BusyTime:
    """Busy intervals in planned time. ``begin`` and ``end`` alternate and never go back in time."""

    __slots__ = ("_recent", "since_ns", "total_ns", "window_ns")

    def __init__(self, window_ns: int = NS) -> None:
        self.total_ns = 0
        self.since_ns: int | None = None
        self.window_ns = window_ns
        self._recent: deque[tuple[int, int]] = deque()

    def begin(self, at_ns: int) -> None:
        """The device starts to work."""
        self.since_ns = at_ns

    def end(self, at_ns: int) -> None:
        """The device stops working."""
        if self.since_ns is None:
            raise ValueError("the device was not busy")
        self.total_ns += at_ns - self.since_ns
        self._recent.append((self.since_ns, at_ns))
        self.since_ns = None
        # Twice the window is kept: a reader may ask about an instant a little before the newest one.
        while self._recent[0][1] < at_ns - 2 * self.window_ns:
            self._recent.popleft()

    def busy_ns(self, now_ns: int) -> int:
        """Nanoseconds busy from the start until now."""
        running = 0 if self.since_ns is None else max(0, now_ns - self.since_ns)
        return self.total_ns + running

    def share(self, now_ns: int) -> float:
        """Busy share of the window that ends now, in [0, 1]."""
        start_ns = now_ns - self.window_ns
        busy = sum(max(0, min(end, now_ns) - max(begin, start_ns)) for begin, end in self._recent)
        if self.since_ns is not None:
            busy += max(0, now_ns - max(self.since_ns, start_ns))
        return min(1.0, busy / self.window_ns)
