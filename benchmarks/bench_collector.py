"""What the collector costs and how well it keeps time, on 8 fake GPUs: ``python benchmarks/bench_collector.py``.

Starts the real collector as a process against the tests' fake libnvidia-ml.so.1 (so NVML's own cost is not in it),
10 samples/s of each GPU, and prints CPU share, memory, lateness and interval jitter. Nothing is asserted: machines differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent


def shared() -> Any:
    """The tests' fake library and its state file."""
    spec = importlib.util.spec_from_file_location("collector_conftest", ROOT / "tests/collector/conftest.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(gpus: int, seconds: float, period_ms: int, folder: Path) -> dict[str, float]:
    """Run the collector for a while; CPU is counted after the first second, when it has started up."""
    conftest = shared()
    fake = conftest.FakeNvml(folder, conftest.build(folder / "lib"), gpus)
    out = folder / "run"
    command = [
        sys.executable,
        "-m",
        "collector",
        "--out",
        str(out),
        "--gpu",
        "yes",
        "--host-name",
        "h",
        "--period",
        f"{period_ms}ms",
    ]
    process = subprocess.Popen(command, env=fake.environment(), stderr=subprocess.DEVNULL, cwd=ROOT)
    watched = psutil.Process(process.pid)
    time.sleep(2)
    before, began = watched.cpu_times(), time.monotonic()
    rss_before = watched.memory_info().rss
    time.sleep(seconds)
    after, ended = watched.cpu_times(), time.monotonic()
    rss_after = watched.memory_info().rss
    process.terminate()
    process.wait(timeout=20)
    lines = [json.loads(line) for line in (out / "gpu/h.jsonl").read_text().splitlines()]
    starts = np.array([(s["gpu"], s["mono_ns"] - s["read_us"] * 500) for s in lines if "values" in s])
    period_ns = period_ms * 1_000_000
    late_ms = (starts[starts[:, 0] == 0, 1] % period_ns) / 1e6
    gaps_ms = np.concatenate([np.abs(np.diff(starts[starts[:, 0] == g, 1]) - period_ns) for g in range(gpus)]) / 1e6
    return {
        "cpu_share_percent": 100 * (after.user + after.system - before.user - before.system) / (ended - began),
        "rss_mb": rss_after / 1e6,
        "rss_growth_kb": (rss_after - rss_before) / 1e3,
        "samples": len(starts),
        "missed": sum(line["end"]["missed"] for line in lines if "end" in line and "gpu" in line["end"]),
        "read_us_p50": float(np.percentile([s["read_us"] for s in lines if "values" in s], 50)),
        "late_ms_p50": float(np.percentile(late_ms, 50)),
        "late_ms_p99": float(np.percentile(late_ms, 99)),
        "interval_error_ms_p99": float(np.percentile(gaps_ms, 99)),
        "bytes_per_sample": (out / "gpu/h.jsonl").stat().st_size / len(starts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--period-ms", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in measure(args.gpus, args.seconds, args.period_ms, Path(folder)).items():
            print(f"{name:24} {value:10.3f}")


if __name__ == "__main__":
    main()
