"""Synthetic run folders: real schedules, real record rows, a manifest as the master writes it; any part can be damaged afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shapes.schedule import Schedule
from truetail.histogram import Histogram
from truetail.records import DROPPED, FLAG_WARMUP, OK, OUTCOMES, RECORD

EPOCH_WALL_NS = 1_796_100_735_000_000_000
MS = 1_000_000


@dataclass
class Plan:
    """What the run was: arrivals of ``rate_rps`` for ``duration_s`` over ``workers``; ``scenario`` overrides top-level fields."""

    rate_rps: float = 100.0
    duration_s: float = 10.0
    workers: int = 2
    spacing: Mapping[str, Any] = field(default_factory=lambda: {"kind": "fixed"})
    seed: int = 1
    warmup_s: float = 0.0
    slos: Sequence[str] = ("p99 < 50ms",)
    scenario: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrivals(self) -> dict[str, Any]:
        return {"rate": {"kind": "constant", "rate_rps": self.rate_rps}, "spacing": dict(self.spacing)}

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.arrivals, self.duration_s, self.seed)

    def resolved(self) -> dict[str, Any]:
        return {
            "name": "synthetic", "description": "made for a test", "arrivals": self.arrivals, "duration_s": self.duration_s, "warmup_s": self.warmup_s,
            "drain_s": 15.0, "seed": {"schedule": self.seed, "payload": 1, "mix": 1}, "slos": list(self.slos), "requests": [{"name": "predict"}],
            "fleet": {"workers": self.workers, "on_loss": "invalid", "max_clock_residual_s": 0.005},
            "validity": {"lateness_p99_s": 0.005, "lateness_max_s": 0.25, "dropped": 0.0, "rate_error": 0.02}, **self.scenario,
        }  # fmt: skip


def rows_of(plan: Plan, service_ms: Any, lateness_us: Any = 50) -> np.ndarray[Any, Any]:
    """One answered row per arrival, in the order of the schedule; ``service_ms`` is a number or one value per arrival."""
    offsets = np.concatenate([block.offsets_ns for block in plan.schedule.blocks()])
    rows = np.zeros(len(offsets), RECORD)
    rows["k"], rows["intended_ns"] = np.arange(len(offsets)), offsets
    rows["sent_ns"] = offsets + np.asarray(np.asarray(lateness_us) * 1000, np.int64)
    rows["done_ns"] = rows["sent_ns"] + np.rint(np.broadcast_to(np.asarray(service_ms, float), offsets.shape) * MS).astype(
        np.int64
    )
    rows["first_byte_ns"], rows["first_token_ns"] = rows["done_ns"], -1
    for column in ("connect_us", "queue_us", "preprocess_us", "inference_us", "postprocess_us", "dependency_us", "itl_max_us"):
        rows[column] = np.nan
    rows["status"], rows["name"] = 200, 1
    rows["flags"] = np.where(offsets < plan.warmup_s * 1e9, FLAG_WARMUP, 0)
    return rows


def fail(rows: np.ndarray[Any, Any], which: Any, outcome: int, error: int = 1) -> None:
    """Turn rows into failures: a dropped arrival was never sent."""
    rows["outcome"][which], rows["error"][which] = outcome, error
    if outcome == DROPPED:
        for column in ("sent_ns", "done_ns", "first_byte_ns"):
            rows[column][which] = -1


NAMES = {"name": ["predict"], "replica": [], "error": ["http-5xx: 503"]}


def write_run(
    folder: Path, plan: Plan, rows: np.ndarray[Any, Any], names: Mapping[str, Sequence[str]] = NAMES, **manifest: Any
) -> Path:
    """Write a whole, balanced run folder. ``manifest`` overrides top-level fields of run.json."""
    records = folder / "records"
    records.mkdir(parents=True)
    entries, total = (
        [],
        dict.fromkeys(("scheduled", "sent", "dropped", "lost", "unsent", "ok", "failed", "timed_out", "abandoned"), 0),
    )
    count = plan.schedule.count()
    for slot in range(plan.workers):
        mine = rows[(rows["k"] % plan.workers == slot)]
        mine.tofile(records / f"worker-{slot}.rec")
        lines = [{"table": table, "id": i, "text": text} for table, texts in names.items() for i, text in enumerate(texts, 1)]
        (records / f"worker-{slot}.names.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        ledger = ledger_of(mine, len(range(slot, count, plan.workers)))
        for name, value in ledger.items():
            total[name] += value
        entries.append(worker_entry(slot, plan.workers, ledger, len(mine)))
    schedule = {
        "digest": plan.schedule.digest(),
        "count": count,
        "expected_count": plan.schedule.expected_count,
        "duration_s": plan.duration_s,
        "epoch_wall_s": 0.0,
    }
    document = {
        "format": 1, "run_id": folder.name, "scenario": plan.resolved(), "scenario_sha256": "0" * 64, "scenario_file": "synthetic.yaml", "schedule": schedule,
        "state": "ended", "stop_reason": "completed", "stopped_at_ns": None, "epoch_wall_ns": EPOCH_WALL_NS, "started_wall_ns": EPOCH_WALL_NS - 10**9,
        "ended_wall_ns": EPOCH_WALL_NS + 20 * 10**9, "versions": {"truetail": "0"}, "git_commit": "", "host": {"name": "test", "cpus": 2},
        "target": {"url": "http://127.0.0.1:1", "version": None, "embedded": False}, "workers": entries, "ledger": total, **manifest,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "events.jsonl").write_text(
        json.dumps({"at_ns": 0, "wall_ns": EPOCH_WALL_NS, "kind": "epoch", "text": "begun"}) + "\n", encoding="utf-8"
    )
    return folder


def ledger_of(rows: np.ndarray[Any, Any], scheduled: int) -> dict[str, int]:
    """What the worker would have counted; what has no row is unsent."""
    mine = rows[(rows["k"] >= 0) & (rows["part"] == 0)]
    counts = dict(zip(OUTCOMES, np.bincount(mine["outcome"], minlength=len(OUTCOMES))[: len(OUTCOMES)].tolist(), strict=True))
    dropped = counts.pop("dropped")
    sent = sum(counts.values())
    return {"scheduled": scheduled, "sent": sent, "dropped": dropped, "unsent": scheduled - sent - dropped, **counts}


def worker_entry(slot: int, n_slots: int, ledger: Mapping[str, int], rows: int) -> dict[str, Any]:
    """A worker as run.json has it."""
    return {
        "name": f"worker-{slot}", "slot": slot, "n_slots": n_slots, "from_k": 0, "host": "test", "pid": 1, "state": "drained", "clock_offset_ns": 0,
        "clock_residual_ns": 20_000, "scheduled": ledger["scheduled"], "ledger": dict(ledger), "last_handed_k": 0, "rows": rows,
        "generator": {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 3.0, "loop_stall_p99_ms": 0.5},
    }  # fmt: skip


def snapshot_of(folder: Path, worker: str, rows: np.ndarray[Any, Any], scheduled: int) -> None:
    """The worker's snapshot of these rows, as the master keeps it."""
    response = Histogram()
    answered = rows[(rows["outcome"] == OK) & (rows["flags"] == 0)]
    response.record_many_ns(answered["done_ns"] - answered["intended_ns"])
    line = {"seq": 9, "at_ns": 10**9, "ledger": ledger_of(rows, scheduled), "series": {"response": response.to_json()}}
    (folder / "snapshots").mkdir(exist_ok=True)
    (folder / "snapshots" / f"{worker}.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Change top-level fields of run.json."""
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")
