"""The diagnosis against the real reference service: each fault injected in a real run, and clean runs; prints a confusion table.

    python benchmarks/confusion_target.py [--replications 5] [--duration 40] [--only pause --only clean]

Every case is a `truetail run` of its own on this machine (about the duration plus 15 s), so a full table takes an hour or so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from analysis.diagnosis import diagnose
from analysis.run_folder import open_run
from analysis.section_diagnosis import evidence_of

BATCH = {"mode": "batch", "a": "10ms", "c": "0.5ms", "max_batch": 16, "max_delay": "2ms"}
CASES: dict[str, tuple[str, float, dict[str, Any], list[dict[str, Any]]]] = {
    "cold_start": ("cold-start", 100, {"replicas": 2}, [{"kind": "cold_start", "requests": 100, "factor": 5}]),
    "pause": ("runtime-pause", 100, {}, [{"kind": "pause", "start": "4s", "duration": "200ms", "period": "5s"}]),
    "throttle": ("throttling", 150, {}, [{"kind": "throttle", "factor": 2, "start": "15s", "duration": "10s"}]),
    "memory_pressure": ("memory-pressure", 150, {}, [{"kind": "memory_pressure", "factor": 1.8, "start": "15s", "duration": "10s"}]),
    "slow_replica": ("slow-replica", 100, {"replicas": 3}, [{"kind": "slow_replica", "replica": 1, "factor": 3}]),
    "queue_delay": ("batching-delay", 60, {}, [{"kind": "queue_delay", "delay": "20ms"}]),
    "slow_preprocess": ("cpu-bound", 60, {}, [{"kind": "slow_preprocess", "delay": "20ms"}]),
    "slow_preprocess, cpu": ("cpu-bound", 25, {}, [{"kind": "slow_preprocess", "delay": "20ms", "cpu": True}]),
    "network_delay": ("network", 60, {}, [{"kind": "network_delay", "delay": "50ms", "jitter": "20ms"}]),
    "dependency_stall": ("dependency", 60, {}, [{"kind": "dependency_stall", "delay": "100ms", "start": "15s", "duration": "5s"}]),
    "oversized_inputs": ("input-variability", 60, {}, [{"kind": "oversized_inputs", "share": 0.05, "size": 60}]),
    "overload": ("queueing", 100, {}, [{"kind": "overload", "rate": "500/s"}]),
    "deploy": ("deploy", 100, {"replicas": 2, "c": "3ms", "max_batch": 2}, [{"kind": "deploy", "start": "12s", "duration": "4s"}]),
    "shared mode": ("gpu-contention", 25, {"mode": "shared", "service": "fixed", "service_mean": "20ms"}, []),
    **{f"clean {rate}/s": ("none", rate, {}, []) for rate in (20, 60, 150, 300, 450)},
}  # fmt: skip


def scenario(
    name: str, rate: float, options: dict[str, Any], faults: list[dict[str, Any]], duration_s: float, seed: int
) -> dict[str, Any]:
    """A scenario as JSON, which is YAML too. Cold starts only show without a warm-up."""
    warmup_s = 0 if name == "cold_start" else 2
    return {
        "name": "confusion", "description": name, "target": {"embedded": BATCH | options | {"faults": faults}},
        "requests": [{"name": "predict", "path": "/predict", "json": {"t2m_k": 285.4, "rh": 72}}],
        "arrivals": {"rate": f"{rate}/s", "spacing": "poisson"}, "duration": f"{duration_s}s", "warmup": f"{warmup_s}s", "seed": seed,
        "pool": 200, "slos": ["p99 < 10s"],
    }  # fmt: skip


def found_in(name: str, duration_s: float, seed: int, where: Path) -> str:
    """Run one case; the first cause found, "none", or why there was no run."""
    _, rate, options, faults = CASES[name]
    path = where / "confusion.yaml"
    path.write_text(json.dumps(scenario(name, rate, options, faults, duration_s, seed)))
    out = where / f"{len(list(where.iterdir()))}"
    command = [sys.executable, "-m", "truetail", "run", str(path), "--quiet", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + 120, check=False)
    runs = list(out.glob("*/run.json"))
    if not runs:
        return f"no run: {done.stderr.strip().splitlines()[-1:]}"
    found = diagnose(evidence_of(open_run(runs[0].parent))[0])
    if found.reason:
        return found.reason
    return ", ".join(f"{f.cause} {f.share:.0%}" for f in found.findings) or "none"


def main() -> None:
    """Run the cases and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=5)
    parser.add_argument("--duration", type=float, default=40.0)
    parser.add_argument("--only", action="append", help="cases whose name begins so")
    args = parser.parse_args()
    print("| injected | expected first | first finding (runs) | all findings of the last run |\n|---|---|---|---|", flush=True)
    right = total = 0
    for name, (expected, *_) in CASES.items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            told = [found_in(name, args.duration, 500 + seed, Path(folder)) for seed in range(args.replications)]
        firsts = Counter(text.split(",")[0].rsplit(" ", 1)[0] if text != "none" else "none" for text in told)
        right, total = right + firsts[expected], total + len(told)
        print(f"| {name} | {expected} | {', '.join(f'{c} {n}' for c, n in firsts.most_common())} | {told[-1]} |", flush=True)
    print(f"\n{right} of {total} as expected")


if __name__ == "__main__":
    main()
