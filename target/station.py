"""Stations: a queue and a simulated device in planned time. Pure; the same code runs on virtual and on real time.

A station takes jobs (``submit``), tells when it next has something to do (``next_ns``) and does everything that is due
(``advance``), returning the finished batches in order. :class:`BatchStation` serves a batch at a time (also of one: first in,
first out); :class:`SharedStation` lets the kernels of all requests interleave.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Protocol

from target.batcher import Batch, Batcher, Job
from target.busy import BusyTime
from target.service_time import ServiceTime
from target.units import NEVER_NS, to_ns


class Pace(Protocol):
    """What disturbs a device: its speed over time, and dearer work. ``faults.ReplicaPace`` is the one that is shipped."""

    def finish_ns(self, start_ns: int, work_ns: float) -> int:
        """The instant at which work begun at ``start_ns`` is done."""

    def work_ns(self, start_ns: int, end_ns: int) -> float:
        """Work done between two instants."""

    def dearer(self, jobs: int, at_ns: int) -> float:
        """Factor on the work of the next ``jobs`` jobs (a cold start counts them)."""

    def batch_limit(self, at_ns: int) -> int:
        """The largest batch that memory allows."""


class Station(Protocol):
    """A queue with a device behind it; see the module."""

    busy: BusyTime

    def submit(self, job: Job) -> bool:
        """Take the job in; False: the queue is full."""

    def next_ns(self) -> int | None:
        """The next instant at which something is due; None: only a new job can change anything."""

    def advance(self, now_ns: int) -> list[Batch]:
        """Do everything due until now; the batches finished by it, in order of their end."""

    def waiting(self) -> int:
        """Jobs that wait."""

    def running(self) -> int:
        """Instances in the device."""


class BatchStation:
    """One batch at a time; with max_batch 1 and no delay: first in, first out, one at a time.

    A batch whose end is less than ``lead_ns`` away counts as finished already, so that it can be on its way to whoever answers
    when its end comes; the device is free at its end and not before.
    """

    def __init__(self, batcher: Batcher, service_time: ServiceTime, pace: Pace, lead_ns: int = 0) -> None:
        self.batcher = batcher
        self.service_time = service_time
        self.pace = pace
        self.lead_ns = lead_ns
        self.busy = BusyTime()
        self.batch: Batch | None = None
        self._max_batch = batcher.max_batch

    def submit(self, job: Job) -> bool:
        """See :class:`Station`."""
        return self.batcher.submit(job)

    def next_ns(self) -> int | None:
        """See :class:`Station`."""
        return self.batch.end_ns - self.lead_ns if self.batch is not None else self.batcher.ready_ns()

    def advance(self, now_ns: int) -> list[Batch]:
        """See :class:`Station`. Successive batches follow each other in planned time, however late the call."""
        finished: list[Batch] = []
        while True:
            if self.batch is None:
                self.batcher.max_batch = min(self._max_batch, self.pace.batch_limit(max(self.batcher.free_ns, now_ns)))
                self.batch = self.batcher.take(now_ns)
                if self.batch is None:
                    return finished
                self._start(self.batch)
            if self.batch.end_ns - self.lead_ns > now_ns:
                return finished
            self.busy.end(self.batch.end_ns)
            self.batcher.release(self.batch.end_ns)
            finished.append(self.batch)
            self.batch = None

    def waiting(self) -> int:
        """See :class:`Station`."""
        return len(self.batcher.queue)

    def running(self) -> int:
        """See :class:`Station`."""
        batch = self.batch
        return 0 if batch is None else batch.items

    def _start(self, batch: Batch) -> None:
        work_s = self.service_time(batch.size) * self.pace.dearer(len(batch.jobs), batch.start_ns)
        batch.end_ns = self.pace.finish_ns(batch.start_ns, to_ns(work_s))
        self.busy.begin(batch.start_ns)


class SharedStation:
    """Processor sharing: n requests inside, each at 1/n of the device's speed. ``max_inside`` bounds their number.

    Virtual time (the work that each request inside has received) grows by work / n; a request that enters at V with work w is
    done when the virtual time reaches V + w, so a heap of these marks gives the order of the ends.
    """

    def __init__(self, service_time: ServiceTime, pace: Pace, max_inside: int) -> None:
        self.service_time = service_time
        self.pace = pace
        self.max_inside = max_inside
        self.busy = BusyTime()
        self._pending: deque[Job] = deque()
        self._inside: list[tuple[float, int, Job]] = []
        self._virtual = 0.0
        self._last_ns = 0
        self._number = itertools.count()

    def submit(self, job: Job) -> bool:
        """See :class:`Station`."""
        if len(self._pending) + len(self._inside) >= self.max_inside:
            return False
        self._pending.append(job)
        return True

    def next_ns(self) -> int | None:
        """See :class:`Station`."""
        arrival_ns = max(self._pending[0].arrived_ns, self._last_ns) if self._pending else NEVER_NS
        due_ns = min(arrival_ns, self._end_ns())
        return None if due_ns >= NEVER_NS else due_ns

    def advance(self, now_ns: int) -> list[Batch]:
        """See :class:`Station`. Each request is a batch of its own, from its arrival to its end."""
        finished: list[Batch] = []
        while (due_ns := self.next_ns()) is not None and due_ns <= now_ns:
            if self._end_ns() <= due_ns:
                finished.append(self._leave(due_ns))
            else:
                self._enter(due_ns)
        return finished

    def waiting(self) -> int:
        """See :class:`Station`: nobody waits, all are inside."""
        return len(self._pending)

    def running(self) -> int:
        """See :class:`Station`."""
        return len(self._inside)

    def _end_ns(self) -> int:
        """When the request that is nearest to its end will be done, if nobody enters before."""
        if not self._inside:
            return NEVER_NS
        return self.pace.finish_ns(self._last_ns, max(0.0, (self._inside[0][0] - self._virtual) * len(self._inside)))

    def _enter(self, at_ns: int) -> None:
        job = self._pending.popleft()
        if self._inside:
            self._virtual += self.pace.work_ns(self._last_ns, at_ns) / len(self._inside)
        else:
            self.busy.begin(at_ns)
        work_ns = to_ns(self.service_time(job.size) * self.pace.dearer(1, at_ns))
        heapq.heappush(self._inside, (self._virtual + work_ns, next(self._number), job))
        self._last_ns = at_ns

    def _leave(self, at_ns: int) -> Batch:
        self._virtual, _, job = heapq.heappop(self._inside)
        self._last_ns = at_ns
        if not self._inside:
            self.busy.end(at_ns)
        return Batch([job], min(job.arrived_ns, at_ns), at_ns)
