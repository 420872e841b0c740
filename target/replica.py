"""A replica: queue, device and pace under a name; and the choice of the replica that takes a request."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from target.batcher import Batch, Batcher, Job
from target.config import Config
from target.device import Device, ModelStation
from target.effects import Effects, ReplicaPace
from target.model import Model
from target.service_time import affine, drawn
from target.station import BatchStation, SharedStation, Station
from target.units import to_ns

Answered = Callable[[Batch, list[float] | Exception], None]
"""Called on the device's thread: a finished batch and one prediction per instance in it, or what the model raised."""


LEAD_NS = 300_000
"""Between the end of a batch and its answers two threads have to be woken: 0.25 to 0.3 ms on a virtual machine."""


def build_station(config: Config, effects: Effects, index: int, measured: bool = False, lead_ns: int = 0) -> Station:
    """The queue and device of replica ``index``, as the options say; pure, so tests run it on virtual time."""
    one_at_a_time = config.mode == "fifo"
    batcher = Batcher(
        max_batch=1 if one_at_a_time else config.max_batch,
        max_delay_ns=0 if one_at_a_time else to_ns(config.max_delay),
        max_queue=config.max_queue,
    )
    if measured:
        return ModelStation(batcher)
    pace = ReplicaPace(effects, index)
    if config.mode == "batch":
        return BatchStation(batcher, affine(config.a, config.c), pace, lead_ns)
    rng = random.Random(f"{config.seed}/{index}/service")
    law = drawn(config.service, config.service_mean, config.service_cv, rng)
    if config.mode == "shared":
        return SharedStation(law, pace, config.max_queue)
    return BatchStation(batcher, law, pace, lead_ns)


class Replica:
    """One replica of the service. Its thread starts with :meth:`start`."""

    def __init__(self, config: Config, effects: Effects, index: int, model: Model, answered: Answered) -> None:
        self.index = index
        self.name = f"replica-{index}"
        self.model = model
        self.answered = answered
        self.station = build_station(config, effects, index, model.measured, LEAD_NS)
        self.device = Device(self.station, self._finish, self.name)

    def start(self) -> None:
        """Start the device's thread."""
        self.device.start()

    def stop(self) -> None:
        """End the device's thread."""
        self.device.stop()

    def submit(self, job: Job) -> bool:
        """Queue the job; False: the queue is full."""
        return self.device.submit(job)

    def in_system(self) -> int:
        """Jobs waiting and instances running, for balancing."""
        return self.station.waiting() + self.station.running()

    def _finish(self, batches: list[Batch]) -> None:
        """One vectorised call per batch, on the device's thread."""
        for batch in batches:
            answer: list[float] | Exception
            try:
                answer = self.model.predict([row for job in batch.jobs for row in job.payload.rows])
            except Exception as error:  # a model's failure is the batch's answer (500), not the thread's end
                answer = error
            if isinstance(self.station, ModelStation):
                with self.device.changed:
                    self.station.done(time.monotonic_ns())
            self.answered(batch, answer)


def choose(replicas: Sequence[Replica], balance: str, turn: int) -> Replica:
    """The replica that takes the next request: in turn, or the one with the fewest requests (the first of equals, in turn)."""
    if balance == "round-robin" or len(replicas) == 1:
        return replicas[turn % len(replicas)]
    start = turn % len(replicas)
    return min((*replicas[start:], *replicas[:start]), key=Replica.in_system)
