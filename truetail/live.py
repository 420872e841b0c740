"""The figures of the moment, from the workers' newest snapshots: what progress, web UI and /metrics show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from truetail.fleet import Member
from truetail.messages import Snapshot
from truetail.telemetry import Telemetry
from truetail.timeline import PERCENTILES, Merged, Timeline

if TYPE_CHECKING:
    from truetail.master import MasterRole


class Live:
    """The run as it stands. ``look`` once a second keeps the time line; everything else reads the newest snapshots when it is asked."""

    def __init__(self, master: MasterRole) -> None:
        self.master = master
        self.timeline = Timeline()
        self.telemetry = Telemetry(master.folder)
        self._seen: tuple[tuple[str, int], ...] = ()
        self._merged: dict[str, Merged] = {}
        self._planned: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(1, np.int64)

    @property
    def members(self) -> list[Member]:
        """The workers in the order of their slots."""
        return self.master.fleet.by_slot

    @property
    def snapshots(self) -> list[Snapshot]:
        """The newest snapshot of each worker that has sent one."""
        return [member.snapshot for member in self.members if member.snapshot is not None]

    @property
    def merged(self) -> Mapping[str, Merged]:
        """Every series over all workers, from their newest snapshots; worked out once for each new snapshot."""
        seen = tuple((member.client_id, member.snapshot.seq) for member in self.members if member.snapshot is not None)
        if seen != self._seen:
            parts: dict[str, list[Any]] = {}
            for member in self.members:
                for series, histogram in member.histograms.items():
                    parts.setdefault(series, []).append(histogram)
            self._seen, self._merged = seen, {series: Merged.of(each) for series, each in parts.items()}
        return self._merged

    @property
    def at_s(self) -> float:
        """The instant that the newest snapshots speak of (s from the epoch); the workers send theirs at the same second."""
        return max((snapshot.at_ns / 1e9 for snapshot in self.snapshots), default=0.0)

    @property
    def now_s(self) -> float:
        """Seconds since the epoch: negative before it, 0 while it is not set."""
        epoch_ns = self.master.epoch_mono_ns
        return (time.monotonic_ns() - epoch_ns) / 1e9 if epoch_ns else 0.0

    @property
    def ledger(self) -> dict[str, int]:
        """The fleet's ledger of this moment."""
        return self.master.fleet.ledger(self.master.count)

    @property
    def state(self) -> str:
        """waiting (for Start on Locust's page), muster, running, draining or ended."""
        if self.master.finished or self.master.document["state"] == "ended":
            return "ended"
        if self.master.document["state"] != "running":
            return "waiting" if self.master.waits_for_start else "muster"
        return "draining" if self.master.stop_reason or self.now_s > self.master.scenario["duration_s"] else "running"

    def levels(self) -> dict[str, float]:
        """What goes up and down: in flight, waiting for a user, and the busiest worker's share of a core."""
        found = self.snapshots
        return {
            "in_flight": sum(snapshot.in_flight for snapshot in found),
            "backlog": sum(snapshot.backlog for snapshot in found),
            "cpu_share": max((snapshot.generator.cpu_share for snapshot in found), default=0.0),
        }

    def planned_until(self, at_s: float) -> float:
        """Arrivals planned before an instant; within a second as if they were even."""
        per_s = self.master.planned_per_s
        if len(self._planned) != len(per_s) + 1:
            self._planned = np.concatenate(([0], np.cumsum(per_s)))
        return float(np.interp(at_s, np.arange(len(self._planned)), self._planned))

    def look(self) -> None:
        """Take what the newest snapshots say into the time line."""
        ledger = self.ledger
        completed = ledger["ok"] + ledger["failed"] + ledger["timed_out"] + ledger["abandoned"]
        counts = {name: ledger[name] for name in ("sent", "dropped", "ok")} | {"completed": completed}
        self.timeline.look(self.at_s, counts, self.levels(), self.merged)


def progress_line(master: MasterRole, now_s: float) -> dict[str, Any]:
    """One line of ``progress.jsonl``. Percentiles are of all answered requests so far (cumulative), in ms; None = no data."""
    live = master.live
    live.look()
    ledger, levels, whole = live.ledger, live.levels(), int(now_s)
    per_s = master.planned_per_s
    return {
        "at_s": round(now_s, 3),
        "duration_s": master.scenario["duration_s"],
        "planned": sum(per_s[:whole]),
        "planned_last_s": per_s[whole - 1] if 0 < whole <= len(per_s) else 0,
        **{name: ledger[name] for name in ("scheduled", "sent", "dropped", "lost", "ok", "failed", "timed_out")},
        "in_flight": levels["in_flight"],
        "backlog": levels["backlog"],
        "workers": sum(not member.ended for member in live.members),
        "workers_lost": sum(member.lost_at_ns is not None for member in live.members),
        "response_ms": percentiles_ms(live.merged.get("response")),
        "lateness_ms": percentiles_ms(live.merged.get("lateness")),
        "cpu_share_max": levels["cpu_share"],
    }


def percentiles_ms(merged: Merged | None) -> dict[str, float | None]:
    """p50, p95, p99, p99.9 and max, in ms."""
    if merged is None or merged.n == 0:
        return dict.fromkeys((*(f"p{percentile}" for percentile in PERCENTILES), "max"))
    values = {f"p{percentile}": ms(ns) for percentile, ns in zip(PERCENTILES, merged.percentiles_ns(), strict=True)}
    return {**values, "max": ms(merged.max_ns)}


def ms(value_ns: int | None) -> float | None:
    """Nanoseconds as milliseconds, to the microsecond."""
    return None if value_ns is None else round(value_ns / 1e6, 3)
