"""The device: one thread per replica that keeps time. Late wake-ups delay answers, never the device's own timeline."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

from target.batcher import Batch, Batcher, Job
from target.busy import BusyTime
from target.station import Station
from target.units import NEVER_NS, NS

Finish = Callable[[list[Batch]], None]
"""Called on the device's thread, without its lock, with batches that are done."""

LONGEST_WAIT_NS = NS // 2
"""A thread looks around at least this often: a fault that was taken out may bring the end of a batch nearer."""


def sharpen_timers() -> None:
    """Ask Linux to wake this thread without its usual 50 us of slack; elsewhere nothing happens."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_timerslack, 1, 0, 0, 0)


class Device(threading.Thread):
    """Drives a station on the real clock. ``submit`` from the event loop; ``finish`` gets the batches."""

    def __init__(self, station: Station, finish: Finish, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.station = station
        self.finish = finish
        self.changed = threading.Condition(threading.Lock())
        self._wake_ns = NEVER_NS
        self._stopping = False

    def submit(self, job: Job) -> bool:
        """Queue the job; False: the queue is full. Wakes the thread only if it would sleep past what is due now."""
        with self.changed:
            if not self.station.submit(job):
                return False
            due_ns = self.station.next_ns()
            if due_ns is not None and due_ns < self._wake_ns:
                self._wake_ns = due_ns
                self.changed.notify()
        return True

    def stop(self) -> None:
        """End the thread; what waits stays unserved."""
        with self.changed:
            self._stopping = True
            self.changed.notify()
        self.join(timeout=2)

    def run(self) -> None:
        """The thread: do what is due, hand over what is done, sleep until the next instant (absolute, so nothing adds up)."""
        sharpen_timers()
        while not self._stopping:
            with self.changed:
                finished = self.station.advance(time.monotonic_ns())
                if not finished:
                    self._sleep(self.station.next_ns())
            if finished:
                self.finish(finished)

    def _sleep(self, due_ns: int | None) -> None:
        self._wake_ns = NEVER_NS if due_ns is None else due_ns
        wait_ns = min(self._wake_ns - time.monotonic_ns(), LONGEST_WAIT_NS)
        if wait_ns > 0 and not self._stopping:
            self.changed.wait(wait_ns / NS)
        self._wake_ns = 0


class ModelStation:
    """A batcher before a device whose times are real: the model's call itself says when a batch ends."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.busy = BusyTime()
        self.batch: Batch | None = None

    def submit(self, job: Job) -> bool:
        """See ``station.Station``."""
        return self.batcher.submit(job)

    def next_ns(self) -> int | None:
        """See ``station.Station``."""
        return self.batcher.ready_ns()

    def advance(self, now_ns: int) -> list[Batch]:
        """The batch to run now, if one is due; it ends with :meth:`done`."""
        self.batch = self.batcher.take(now_ns)
        if self.batch is None:
            return []
        self.batch.start_ns = now_ns
        self.busy.begin(now_ns)
        return [self.batch]

    def done(self, now_ns: int) -> None:
        """The call has returned."""
        if self.batch is not None:
            self.batch.end_ns = now_ns
        self.batch = None
        self.busy.end(now_ns)
        self.batcher.release(now_ns)

    def waiting(self) -> int:
        """See ``station.Station``."""
        return len(self.batcher.queue)

    def running(self) -> int:
        """See ``station.Station``."""
        batch = self.batch
        return 0 if batch is None else batch.items
