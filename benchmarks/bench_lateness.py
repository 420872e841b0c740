"""How late arrivals go out at 1,000/s: one worker of ours against nginx on loopback, beside gevent.sleep waking at the same instants.

    python benchmarks/bench_lateness.py [--rate 1000] [--seconds 10] [--repeats 3]

The goal (issue of part A): p50 below 0.2 ms, p99 below 1.5 ms. gevent.sleep only wakes and sends nothing, so it has the easier task.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gevent
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import record_files
from shapes.schedule import Schedule

NGINX = """worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ok"; }} }} }}
"""


def asleep(rate_rps: float, seconds: float) -> np.ndarray[Any, Any]:
    """Lateness in ms of gevent.sleep to each instant of the same schedule."""
    schedule = Schedule({"rate": {"kind": "constant", "rate_rps": rate_rps}, "spacing": {"kind": "poisson"}}, seconds, 5)
    offsets = np.concatenate([block.offsets_ns for block in schedule.blocks()]).tolist()
    begun, late = time.monotonic_ns(), []
    for offset in offsets:
        gevent.sleep(max(0.0, (begun + offset - time.monotonic_ns()) / 1e9))
        late.append((time.monotonic_ns() - begun - offset) / 1e6)
    return np.array(late)


def ours(url: str, rate_rps: float, seconds: float, folder: Path) -> np.ndarray[Any, Any]:
    """Lateness in ms of a real run with one worker, after two seconds of warm-up. Exits when not every arrival was answered."""
    scenario = {
        "name": "lateness", "target": {"url": url}, "users": "http", "requests": [{"name": "get", "path": "/"}],
        "arrivals": {"rate": f"{rate_rps}/s", "spacing": "poisson"}, "duration": f"{seconds + 2}s", "warmup": "2s", "seed": 5,
        "collectors": {"gpu": False, "host": False}, "slos": ["p50 < 1s"],
    }  # fmt: skip
    (folder / "scenario.yaml").write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "truetail", "run", str(folder / "scenario.yaml"), "--out", str(folder / "runs"), "--quiet"]
    subprocess.run(command, capture_output=True, check=False)
    (run,) = (folder / "runs").iterdir()
    rows = record_files.read(run)
    if (rows["outcome"] != 0).any():
        sys.exit(f"not every arrival was answered: {np.bincount(rows['outcome'])}")
    shutil.rmtree(folder / "runs")
    rows = rows[rows["flags"] & 1 == 0]
    return (rows["sent_ns"] - rows["intended_ns"]) / 1e6


def main() -> None:
    """Interleave both and print each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        server = subprocess.Popen([nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")])
        try:
            time.sleep(0.5)
            for _ in range(args.repeats):
                for label, late in (
                    ("truetail, one worker", ours(f"http://127.0.0.1:{port}", args.rate, args.seconds, folder)),
                    ("gevent.sleep", asleep(args.rate, args.seconds)),
                ):
                    p50, p99, most = np.percentile(late, [50, 99, 100], method="inverted_cdf")
                    print(f"{label:22} n {len(late):6,}  p50 {p50:.3f}  p99 {p99:.3f}  max {most:.2f} ms", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
