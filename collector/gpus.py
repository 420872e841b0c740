"""GPUs as sources: found at the start, attached, lost and attached again; Xid events beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from collector.events import Events
from collector.sampler import SourceFailed

if TYPE_CHECKING:
    from collector.attached import AttachedGpu
    from collector.nvml import Driver

    Attach = Callable[[int, Callable[[str, str], None]], AttachedGpu]

FOLDER = "gpu"
RETRY_S = 10.0


class Gpu:
    """One GPU by its index. After a driver reload the driver is started anew, once for all GPUs."""

    folder = FOLDER

    def __init__(self, index: int, driver: Driver, attach: Attach, events: Events) -> None:
        self.name = "nvml"
        self.key: Mapping[str, Any] = {"gpu": index}
        self.index, self.driver, self.attach, self.events = index, driver, attach, events
        self.generation = driver.generation
        self.uuid = ""
        self._attached: AttachedGpu | None = None

    def read(self, now_ns: int) -> Mapping[str, Any]:
        """One sample, attaching first where needed; raises SourceFailed (gpu-lost, driver-lost, gpu-silent, gpu-error)."""
        try:
            if self._attached is None or self.generation != self.driver.generation:
                self._attach()
            assert self._attached is not None
            return self._attached.read(now_ns)
        except SourceFailed as failure:
            self._attached = None
            if failure.kind == "driver-lost":
                self._restart_driver()
            raise

    def _attach(self) -> None:
        self.generation = self.driver.generation
        self._attached = self.attach(self.index, self._note)
        uuid = self._attached.about["uuid"]
        if self.uuid and uuid != self.uuid:
            self._note("gpu-changed", f"GPU {self.index} is now {uuid}, was {self.uuid}")
        self.uuid = uuid

    def _restart_driver(self) -> None:
        """Start NVML anew for the next attempt; while the driver is away this fails, and the loss stays the news."""
        with suppress(SourceFailed):
            self.driver.restart(self.generation)

    def _note(self, kind: str, text: str) -> None:
        self.events(FOLDER, self.name, kind, text, **self.key)


def discover(wanted: str, events: Events, found: Callable[[list[Gpu], str], None], stop: threading.Event) -> None:
    """Start NVML and hand its GPUs to ``found(gpus, driver version)``; runs in its own thread, since a driver may hang.

    Without a driver one event says so and that is all; a driver in trouble is tried again until ``stop``.
    Afterwards the thread stays to listen for Xid events.
    """
    reported = ""
    while not stop.is_set():
        try:
            from collector import attached, nvml  # lazily: with --gpu no neither is loaded

            driver = nvml.Driver()
            gpus = [Gpu(index, driver, attached.AttachedGpu, events) for index in range(driver.count())]
            if not gpus:
                raise SourceFailed("no-gpu", "the driver lists no GPU")
        except (SourceFailed, ImportError) as failure:
            kind = failure.kind if isinstance(failure, SourceFailed) else "no-gpu"
            if kind != reported:
                events(FOLDER, "nvml", kind, f"no GPU metrics (--gpu {wanted}): {failure}; everything else goes on")
            reported = kind
            if kind == "no-gpu":
                return
            stop.wait(RETRY_S)
            continue
        found(gpus, driver.version())
        listen(driver, len(gpus), events, stop)
        return


def listen(driver: Driver, count: int, events: Events, stop: threading.Event) -> None:
    """Report each GPU's Xid errors as events until ``stop``, or until they are no longer offered."""

    def report(gpu: int | None, xid: int) -> None:
        events(FOLDER, "nvml", "xid", f"Xid {xid} on GPU {'?' if gpu is None else gpu}", gpu=gpu, xid=xid)

    reported = ""
    while not stop.is_set():
        try:
            driver.wait_xids(list(range(count)), report, stop)
        except SourceFailed as failure:
            if failure.kind != reported:
                events(FOLDER, "nvml", failure.kind, str(failure))
            reported = failure.kind
            if failure.kind == "xid-not-offered":
                return
            stop.wait(RETRY_S)  # the driver was reloaded: listen again
