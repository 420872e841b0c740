"""The dynamic batcher: when does which batch go to the device. Pure: no clock, no threads; time is an argument.

Rule: a batch is sent when the device is free and either ``max_batch`` instances wait or the oldest has waited ``max_delay``.
Everything happens in *planned* time. A batch starts at the instant at which the rule is met, with the jobs that had arrived by
then, however late somebody comes to ask; so late wake-ups of the caller cost no capacity and change no batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Job:
    """``items`` instances (1 for /predict) whose sizes sum to ``size``, which came to the queue at ``arrived_ns``."""

    arrived_ns: int
    items: int = 1
    size: float = 1.0
    payload: Any = None


@dataclass(slots=True)
class Batch:
    """Jobs that the device runs in one call, from ``start_ns`` to ``end_ns`` (-1 = not known yet), planned time."""

    jobs: list[Job]
    start_ns: int
    end_ns: int = -1

    @property
    def items(self) -> int:
        """Instances in the call."""
        return sum(job.items for job in self.jobs)

    @property
    def size(self) -> float:
        """Sum of the instances' sizes; equal to ``items`` when every input is of size 1."""
        return sum(job.size for job in self.jobs)


class Batcher:
    """A bounded first-in-first-out queue with the rule above; one batch in the device at a time.

    ``submit`` jobs in the order of arrival, ``take`` the batch that is due, ``release`` the device at the batch's end.
    """

    __slots__ = ("busy", "free_ns", "max_batch", "max_delay_ns", "max_queue", "queue")

    def __init__(self, max_batch: int, max_delay_ns: int, max_queue: int) -> None:
        self.max_batch = max_batch
        self.max_delay_ns = max_delay_ns
        self.max_queue = max_queue
        self.queue: deque[Job] = deque()
        self.free_ns = 0
        self.busy = False

    def submit(self, job: Job) -> bool:
        """Queue the job; False (and nothing kept) when ``max_queue`` jobs wait already."""
        if len(self.queue) >= self.max_queue:
            return False
        self.queue.append(job)
        return True

    def ready_ns(self) -> int | None:
        """The instant at which the next batch starts, as far as is known now; None: nothing waits or the device is busy."""
        if self.busy or not self.queue:
            return None
        rule_ns = self.queue[0].arrived_ns + self.max_delay_ns
        items = 0
        for job in self.queue:
            if job.arrived_ns >= rule_ns:
                break
            items += job.items
            if items >= self.max_batch:
                rule_ns = job.arrived_ns
                break
        return max(self.free_ns, rule_ns)

    def take(self, now_ns: int) -> Batch | None:
        """The batch that is due at ``now_ns``, the device then being busy; None if none is.

        A job of more than ``max_batch`` instances goes alone.
        """
        start_ns = self.ready_ns()
        if start_ns is None or start_ns > now_ns:
            return None
        queue = self.queue
        jobs = [queue.popleft()]
        items = jobs[0].items
        while queue and queue[0].arrived_ns <= start_ns and items + queue[0].items <= self.max_batch:
            job = queue.popleft()
            items += job.items
            jobs.append(job)
        self.busy = True
        return Batch(jobs, start_ns)

    def release(self, end_ns: int) -> None:
        """The device is free from ``end_ns`` on."""
        self.busy = False
        self.free_ns = end_ns
