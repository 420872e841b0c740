"""A run folder whose records come from the simulated service on a real schedule: for tests of chapters and of compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from shapes.schedule import Schedule
from truetail.records import RECORD


def write_run(folder: Path, serve, rate: float = 100.0, duration_s: float = 60.0, seed: int = 1, **manifest) -> Path:
    """Serve the schedule with ``serve(arrivals_s) -> records`` and write the folder; ``manifest`` replaces top-level entries."""
    arrivals = {"rate": {"kind": "constant", "rate_rps": rate}, "spacing": {"kind": "poisson"}}
    schedule = Schedule(arrivals, duration_s, seed)
    offsets = np.concatenate([block.offsets_ns for block in schedule.blocks()])
    records = serve(offsets / 1e9)
    records["intended_ns"], records["k"] = offsets, np.arange(len(offsets))
    warmup_s, slos = manifest.pop("warmup_s", 5.0), manifest.pop("slos", ["p99 < 50ms"])
    records["flags"] = offsets < warmup_s * 1e9
    records["name"] = 1
    (folder / "records").mkdir(parents=True)
    (folder / "records" / "worker-0.rec").write_bytes(records.astype(RECORD).tobytes())
    names = [("name", 1, "predict"), *(("replica", i, f"replica-{i - 1}") for i in range(1, int(records["replica"].max()) + 1))]
    lines = [json.dumps({"table": table, "id": number, "text": text}) for table, number, text in names]
    (folder / "records" / "worker-0.names.jsonl").write_text("\n".join(lines) + "\n")
    ok = int((records["outcome"] == 0).sum())
    ledger = {"scheduled": len(offsets), "sent": len(offsets), "dropped": 0, "lost": 0, "unsent": 0, "ok": ok,
              "failed": len(offsets) - ok, "timed_out": 0, "abandoned": 0}  # fmt: skip
    document = {
        "format": 1, "run_id": folder.name, "scenario": {
            "name": "simulated", "arrivals": arrivals, "requests": [{"name": "predict", "weight": 1}], "duration_s": duration_s,
            "warmup_s": warmup_s, "drain_s": 15.0, "seed": {"schedule": seed, "payload": 1, "mix": 1}, "slos": slos,
        },
        "schedule": {"digest": schedule.digest(), "count": len(offsets), "expected_count": schedule.expected_count, "epoch_wall_s": 0.0},
        "state": "ended", "stop_reason": "completed", "stopped_at_ns": None, "epoch_wall_ns": 10**18,
        "started_wall_ns": 10**18 - 10**9, "ended_wall_ns": 10**18 + 10**11, "host": {"name": "here", "cpus": 2},
        "workers": [{"name": "worker-0", "slot": 0, "n_slots": 1, "state": "drained", "ledger": ledger,
                     "generator": {"cpu_share_max": 0.2, "loop_stall_max_ms": 3.0, "loop_stall_p99_ms": 0.4}}],
        "ledger": ledger,
    } | manifest  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document))
    return folder
