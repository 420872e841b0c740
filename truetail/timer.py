"""Absolute one-shot timers on the gevent loop: the dispatcher's only way to wait.

A relative sleep adds the time spent since it was computed to every gap, and gevent's own timers have millisecond
granularity (0.5 ms late at the median). timerfd (Linux) sleeps to an absolute CLOCK_MONOTONIC instant and wakes the loop
through a file descriptor, tens of microseconds late.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import gevent

NS = 1_000_000_000
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class Timer(Protocol):
    """One pending instant; ``callback`` runs in the hub, so it must never block."""

    def arm(self, at_mono_ns: int) -> None:
        """Call back at this CLOCK_MONOTONIC instant (at once when it has passed); replaces the pending one."""

    def close(self) -> None:
        """Never call back again, and free what the timer holds."""


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class TimerFd:
    """A Linux timerfd watched by the gevent loop."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._callback = callback
        self._watcher: Any = gevent.get_hub().loop.io(self._fd, 1)
        self._watcher.start(self._fired)

    def arm(self, at_mono_ns: int) -> None:
        """See :class:`Timer`."""
        # An all-zero value would disarm the timer.
        self._spec.value_s, self._spec.value_ns = divmod(max(at_mono_ns, 1), NS)
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # re-armed since the loop saw it readable
            return
        self._callback()

    def close(self) -> None:
        """See :class:`Timer`."""
        if self._fd >= 0:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._fd)
            self._fd = -1


class LoopTimer:
    """The portable fallback: the loop's own timer, up to about a millisecond late, never early."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop: Any = gevent.get_hub().loop
        self._timer: Any = None

    def arm(self, at_mono_ns: int) -> None:
        """See :class:`Timer`."""
        self.close()
        delay_s = max(0.0, (at_mono_ns - time.monotonic_ns()) / NS)
        self._loop.update_now()
        self._timer = self._loop.timer(delay_s)
        self._timer.start(self._fired, at_mono_ns)

    def _fired(self, at_mono_ns: int) -> None:
        if time.monotonic_ns() < at_mono_ns:
            self.arm(at_mono_ns)
        else:
            self._callback()

    def close(self) -> None:
        """See :class:`Timer`."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None


TIMERS: dict[str, Callable[[Callable[[], None]], Timer]] = {"timerfd": TimerFd, "loop": LoopTimer}


def best_timer(callback: Callable[[], None]) -> Timer:
    """timerfd where the kernel has it, else the loop's timer. ``TRUETAIL_TIMER`` (timerfd or loop) decides otherwise."""
    kind = os.environ.get("TRUETAIL_TIMER") or ("timerfd" if sys.platform == "linux" else "loop")
    return TIMERS[kind](callback)
