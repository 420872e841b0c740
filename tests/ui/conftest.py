"""A master without a network: a real Fleet filled with real snapshots, as the live view sees it."""

import time
from pathlib import Path

import numpy as np
import pytest

from truetail.fleet import Fleet, State
from truetail.histogram import Histogram
from truetail.live import Live
from truetail.messages import Generator, Hello, Ledger, Planned, Snapshot
from truetail.scenario import loads

SCENARIO = """
name: live-test
description: A scenario of the tests.
target: {url: http://127.0.0.1:9}
requests: [{name: predict, path: /predict}]
arrivals: {rate: 100/s, spacing: poisson}
duration: %s
warmup: 0s
fleet: {workers: %d}
slos: [%s]
"""


class Master:
    """What the live view uses of :class:`truetail.master.MasterRole`."""

    def __init__(self, folder: Path, workers: int = 2, duration: str = "60s", slos: str = '"p99 < 50ms"'):
        self.scenario = loads(SCENARIO % (duration, workers, slos)).resolved()
        self.folder = folder
        self.fleet = Fleet(workers)
        self.finished = False
        self.waits_for_start = False
        self.stop_reason = ""
        self.stopped: list[tuple[str, str]] = []
        self.planned_per_s = [100] * int(self.scenario["duration_s"])
        self.count = sum(self.planned_per_s)
        self.digest = "d" * 64
        self.epoch_mono_ns = time.monotonic_ns()
        self.document = {"state": "running", "epoch_wall_ns": time.time_ns(), "target": {"url": self.scenario["target"]["url"]}}
        for slot in range(workers):
            hello = Hello(name=f"worker-{slot}", host="here", pid=slot, boot_id="", versions={})
            member = self.fleet.hello(f"client-{slot}", hello)
            member.planned = Planned(digest=self.digest, count=self.count, slot_count=self.count // workers)
            member.state = State.RUNNING
        self.live = Live(self)
        self._seq = 0

    def stop(self, reason, text=""):
        self.stopped.append((reason, text))
        self.stop_reason = reason

    def say(self, slot, at_s, histograms, cpu_share=0.1, **ledger):
        """A snapshot of one worker."""
        self._seq += 1
        counts = dict.fromkeys(Ledger.model_fields, 0) | ledger
        snapshot = Snapshot(
            seq=self._seq,
            at_ns=int(at_s * 1e9),
            ledger=Ledger(**counts),
            in_flight=counts["sent"] - counts["ok"] - counts["failed"],
            idle=1,
            backlog=0,
            last_handed_k=0,
            generator=Generator(cpu_share=cpu_share, cpu_share_max=cpu_share, loop_stall_max_ms=1.0, loop_stall_p99_ms=0.5),
            series={name: histogram.to_wire() for name, histogram in histograms.items()},
        )
        assert self.fleet.snapshot(f"client-{slot}", snapshot) == ""


def histogram_of(values_ns):
    """A histogram of durations."""
    made = Histogram()
    made.record_many_ns(np.asarray(values_ns, dtype=np.int64))
    return made


@pytest.fixture
def make_master(tmp_path):
    """A function that makes a master in the test's own folder."""
    return lambda **options: Master(tmp_path, **options)
