"""The service's state and its one path from rows to predictions; lives in the app object, never in a global."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from target import figures
from target.batcher import Batch, Job
from target.config import Config
from target.effects import Effects
from target.faults import ColdStart, Fault
from target.metrics import Metrics
from target.model import Model, Row, load
from target.replica import Replica, choose
from target.units import NS


class NotReady(Exception):
    """No replica takes requests; the text says why (503)."""


class QueueFull(Exception):
    """The chosen replica's queue is full (429)."""

    def __init__(self, waiting: int, retry_after_s: int) -> None:
        super().__init__(f"queue full: {waiting} requests wait")
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Ask:
    """A job's payload: the rows, and who waits for the predictions (nobody: another client's request)."""

    rows: Sequence[Row]
    replica: str
    future: asyncio.Future[Answer] | None = None


@dataclass(slots=True)
class Answer:
    """Predictions of one job, the replica and batch that made them, and when (planned device time, monotonic ns)."""

    predictions: Sequence[float]
    replica: str
    batch: int
    start_ns: int
    end_ns: int


class Service:
    """Model, replicas, faults and metrics of one app."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.effects = Effects(config.seed)
        self.metrics = Metrics(self.device)
        self.model: Model | None = None
        self.replicas: list[Replica] = []
        self.unready = "starting: the model is not loaded yet"
        self.failure = ""
        self.ready = asyncio.Event()
        self.changed = asyncio.Event()
        self.rng = random.Random(f"{config.seed}/overload")
        self._turn = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Load the model (off the event loop), start the devices, then be ready. A failure is kept in ``failure``."""
        self._loop = asyncio.get_running_loop()
        try:
            model: Model = await asyncio.to_thread(load, self.config.model, self.config.seed)
        except RuntimeError as error:
            self.unready = self.failure = str(error)
            self.ready.set()
            return
        self.model = model
        load_s = sum(f.load for f in self.config.faults if isinstance(f, ColdStart))
        if load_s:
            self.unready = f"starting: the model is loading (cold start, {load_s:g} s)"
            await asyncio.sleep(load_s)
        self.replicas = [
            Replica(self.config, self.effects, index, model, self._answered) for index in range(self.config.replicas)
        ]
        for replica in self.replicas:
            replica.start()
        for fault in self.config.all_faults():
            self.place(fault)
        self.unready = ""
        self.ready.set()

    def stop(self) -> None:
        """End the devices; whoever still waits is told so."""
        self.unready = "stopping"
        for replica in self.replicas:
            replica.stop()

    def place(self, fault: Fault) -> int:
        """Put a fault in force from now on; its id."""
        placed = self.effects.add(fault, time.monotonic_ns())
        self.changed.set()
        return placed.id

    def why_unready(self) -> str:
        """Empty when requests are taken; else the reason."""
        if self.unready:
            return self.unready
        now_ns = time.monotonic_ns()
        if self.effects.placed and all(self.effects.down(replica.index, now_ns) for replica in self.replicas):
            return "every replica is restarting (deploy)"
        return ""

    def pick(self, now_ns: int) -> Replica:
        """The replica for the next request. Raises NotReady."""
        if self.unready:
            raise NotReady(self.unready)
        up = self.replicas
        if self.effects.placed:
            up = [replica for replica in up if not self.effects.down(replica.index, now_ns)]
            if not up:
                raise NotReady("every replica is restarting (deploy)")
        turn, self._turn = self._turn, self._turn + 1
        return choose(up, self.config.balance, turn)

    async def infer(self, rows: Sequence[Row], size: float, now_ns: int) -> Answer:
        """Queue the rows as one job and wait for its batch. Raises NotReady, QueueFull, or what the model raised."""
        replica = self.pick(now_ns)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if not replica.submit(Job(now_ns, len(rows), size, Ask(rows, replica.name, future))):
            waiting = replica.station.waiting()
            raise QueueFull(waiting, retry_after_s=1)
        return await future

    def device(self) -> dict[str, Any]:
        """The devices' figures, their source and the instant (GET /device)."""
        now_ns = time.monotonic_ns()
        return {
            "source": figures.source_of(self.model is not None and self.model.measured),
            "ready": not self.why_unready(),
            "monotonic_ns": now_ns,
            "wall_ns": time.time_ns(),
            "window_s": 1.0,
            "devices": [figures.device_figures(replica, self.effects, now_ns) for replica in self.replicas],
        }

    def describe_faults(self) -> list[dict[str, Any]]:
        """The faults in force, whether each is active now, and the seconds since its origin."""
        now_ns = time.monotonic_ns()
        return [
            {"id": p.id, "active": p.active(now_ns), "age_s": (now_ns - p.origin_ns) / NS, **p.fault.model_dump()}
            for p in self.effects.placed
        ]

    def _answered(self, batch: Batch, predictions: list[float] | Exception) -> None:
        """On a device's thread: hand the batch over to the event loop, in one call."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._deliver, batch, predictions)

    def _deliver(self, batch: Batch, predictions: list[float] | Exception) -> None:
        """On the event loop: give every waiting request its part, at the batch's end and not before."""
        while time.monotonic_ns() < batch.end_ns:  # at most the lead by which the device hands batches over: no sleep is so short
            pass
        items, taken = batch.items, 0
        self.metrics.batch.observe(items)
        for job in batch.jobs:
            ask: Ask = job.payload
            future = ask.future
            if future is not None and not future.done():
                if isinstance(predictions, Exception):
                    future.set_exception(predictions)
                else:
                    mine = predictions[taken : taken + job.items]
                    future.set_result(Answer(mine, ask.replica, items, batch.start_ns, batch.end_ns))
            taken += job.items
