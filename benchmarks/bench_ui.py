"""What the Fleet page costs: bytes a poll and the master's CPU at the end of a run of two hours, and lateness with the page open and closed.

    python benchmarks/bench_ui.py [--only share|lateness] [--seconds 60] [--run-s 200] [--workers 2] [--rate 200]

share: real snapshot messages (msgpack) of 4 workers with 20 series each bring a master to the last minute of two hours, where windows are
64 s wide; then they come once a second in real time, half of the time with nobody looking, half with a client in another process that polls as
the page does, over HTTP from Locust's own web UI. The CPU is this process's. (Locust's sockets to its workers are not in it.)
lateness: one real `truetail run --ui`, the page polled in every second stretch of it. Its master's CPU is read at each border.

Goals (issue of the live view): below 100 kB a poll, below 10 % of a core, p99 of lateness moved by at most 0.2 ms. Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import msgpack
import numpy as np
import psutil
from locust import User, task
from locust.argument_parser import get_parser
from locust.env import Environment

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import record_files
from truetail import manifest, messages
from truetail.fleet import Fleet, State
from truetail.histogram import Histogram
from truetail.inbox import Inbox
from truetail.live import Live, progress_line
from truetail.messages import Hello, Planned
from truetail.scenario import loads
from truetail.ui import pages

SERIES = (
    "response",
    "service",
    "lateness",
    "ttft",
    *(f"response/name-{i}" for i in range(8)),
    *(f"replica/replica-{i}" for i in range(8)),
)
TWO_HOURS_S = 7200
WORKERS = 4
RATE_RPS = 200
STRIDE_S = 16
"""Seconds of a message before the last minutes: the windows there are 64 s wide in the end, however often they were told."""
DIGEST = "a" * 64
POLL_S = 1.0
"""As in fleet.js: so long after an answer has come the page asks again."""
SCENARIO: dict[str, Any] = {
    "name": "bench-ui", "target": {"url": "http://127.0.0.1:9"}, "users": "http", "requests": [{"name": "name-0", "path": "/"}],
    "arrivals": {"rate": f"{RATE_RPS}/s", "spacing": "poisson"}, "duration": "2h", "warmup": "0s", "fleet": {"workers": WORKERS},
    "slos": ["p50 < 1s", "p90 < 1s", "p99 < 1s", "error_rate < 1%"],
}  # fmt: skip
REAL: dict[str, Any] = {
    "name": "bench-ui", "users": "http",
    "target": {"embedded": {"mode": "batch", "a": "4ms", "c": "0.2ms", "max_batch": 16, "max_delay": "1ms", "replicas": 8}},
    "requests": [{"name": f"name-{i}", "method": "POST", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}} for i in range(8)],
    "warmup": "5s", "seed": 7, "collectors": {"gpu": False}, "slos": ["p50 < 1s"],
}  # fmt: skip


class Nobody(User):
    """A user, since Locust wants one."""

    @task
    def nothing(self) -> None:
        """Never run."""


def snapshots(seconds: list[int]) -> Iterator[tuple[int, list[bytes]]]:
    """At each of the seconds, every worker's cumulative snapshot as it comes over the wire."""
    rng = np.random.default_rng(3)
    histograms = [{name: Histogram() for name in SERIES} for _ in range(WORKERS)]
    before = 0
    for second in seconds:
        n = RATE_RPS * (second - before) // WORKERS
        before, packed = second, []
        for worker in histograms:
            for name, histogram in worker.items():
                histogram.record_many_ns(rng.lognormal(16.5, 0.6, n // 8 if "/" in name else n).astype(np.int64))
            sent = worker["response"].n
            ledger = dict.fromkeys(("dropped", "failed", "timed_out", "abandoned"), 0)
            ledger |= {"scheduled": 360_000, "sent": sent, "ok": sent, "unsent": 360_000 - sent}
            generator = {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5}
            told = {"seq": second, "at_ns": second * 10**9, "ledger": ledger, "in_flight": 3, "idle": 97, "backlog": 0, "trouble": "",
                    "last_handed_k": sent, "generator": generator, "series": {name: h.to_wire() for name, h in worker.items()}}  # fmt: skip
            packed.append(msgpack.packb(told))
        yield second, packed


class LateMaster:
    """A master near the end of its two hours, with Locust's web UI and our page in this process; ``hear`` gives it a second's messages."""

    def __init__(self, folder: Path) -> None:
        environment = Environment(user_classes=[Nobody], parsed_options=get_parser().parse_args([]))
        self.environment = environment
        runner = environment.create_master_runner("127.0.0.1", 0)
        listeners: dict[str, Any] = {}
        inbound = SimpleNamespace(
            register_message=lambda kind, listener, concurrent=False: listeners.update({kind: listener}),
            send_message=lambda *_: None,
        )
        scenario = loads(json.dumps(SCENARIO)).resolved()
        self.role: Any = SimpleNamespace(
            scenario=scenario, folder=folder, fleet=Fleet(WORKERS), finished=False, stop_reason="", waits_for_start=False, takes_in=False,
            planned_per_s=[RATE_RPS] * TWO_HOURS_S, count=RATE_RPS * TWO_HOURS_S, digest=DIGEST, epoch_mono_ns=0, clock=None,
            document={"state": "running", "epoch_wall_ns": time.time_ns(), "target": {"url": scenario["target"]["url"]}},
            event=print, stop=print,
        )  # fmt: skip
        for i in range(WORKERS):
            member = self.role.fleet.hello(f"id{i}", Hello(name=f"w{i}", host="host", pid=1, boot_id="b", versions={}))
            self.role.fleet.planned(
                f"id{i}",
                Planned(digest=DIGEST, count=self.role.count, slot_count=self.role.count // WORKERS),
                DIGEST,
                self.role.count,
            )
            member.state = State.RUNNING
        self.role.live = Live(self.role)
        Inbox(self.role, inbound).register()
        self._hears = listeners[messages.SNAPSHOT]
        self._progress = manifest.Log(folder / "progress.jsonl")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        web_ui = environment.create_web_ui("127.0.0.1", port, delayed_start=True)
        pages.attach(self.role.live, environment)
        web_ui.start()
        self.url = f"http://127.0.0.1:{port}/fleet/data"
        self._runner = runner

    def hear(self, second: int, packed: list[bytes]) -> None:
        """Four messages of one second, and the line of progress that the master writes in it."""
        self.role.epoch_mono_ns = time.monotonic_ns() - second * 10**9
        for i, message in enumerate(packed):
            data = msgpack.unpackb(message, strict_map_key=False)
            self._hears(environment=None, msg=SimpleNamespace(data=data, node_id=f"id{i}"))
        self._progress.add(**progress_line(self.role, float(second)))


def collected(folder: Path) -> None:
    """Two hours of a collector: two series of each of 8 devices, a line a second."""
    (folder / "gpu").mkdir()
    begun = time.time_ns()
    with (folder / "gpu" / "host.jsonl").open("w") as file:
        for second in range(TWO_HOURS_S):
            values = {f"devices.{i}.{name}": 71.25 + second % 9 for i in range(8) for name in ("busy_share", "power_w")}
            file.write(
                json.dumps({"wall_ns": begun + second * 10**9, "mono_ns": second, "simulated": True, "values": values}) + "\n"
            )


def share(seconds: int) -> bool:
    """Bytes a poll, and the share of a core without and with a page; whether both goals are met."""
    first = TWO_HOURS_S - 2 * seconds
    early = [*range(STRIDE_S, first - 120, STRIDE_S), *range(first - 120, first)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collected(folder)
        master = LateMaster(folder)
        source = snapshots([*early, *range(first, TWO_HOURS_S)])
        for _ in early:
            master.hear(*next(source))
        for _ in range(8):  # the collector's past is read a piece at a time
            size = len(poll(master.url))
        ready = list(source)
        message_b = len(ready[-1][1][0])
        shares, sizes = [], [size]
        for looks in (False, True):
            command = [sys.executable, __file__, "--poll", master.url, str(seconds)]
            client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True) if looks else None
            begun, cpu = time.monotonic(), time.process_time()
            for i in range(seconds):
                master.hear(*ready.pop(0))
                gevent.sleep(max(0.0, begun + i + 1 - time.monotonic()))
            shares.append((time.process_time() - cpu) / (time.monotonic() - begun))
            if client is not None:
                polls, most = map(int, client.communicate()[0].split())
                sizes.append(most)
        width_s = master.role.live.timeline.width_s
        master.environment.runner.quit()
        master.environment.web_ui.stop()
    print(
        f"after 2 h, {WORKERS} workers, {len(SERIES)} series, 16 of the collector's; points of {width_s:g} s; {message_b / 1000:.0f} kB a message"
    )
    print(f"  a poll: {max(sizes) / 1000:.1f} kB (goal: below 100)")
    print(
        f"  master's CPU: {shares[0]:.2%} of a core without a page, {shares[1]:.2%} with {polls / seconds:.2f} polls a second (goal: below 10 %)"
    )
    return max(sizes) < 100_000 and shares[1] < 0.10


def poll(url: str) -> bytes:
    """What the page gets."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    json.loads(body)
    return body


def poll_for(url: str, seconds: float) -> tuple[int, int]:
    """Poll as the page does for so long: (polls, bytes of the largest answer)."""
    ends, polls, most = time.monotonic() + seconds, 0, 0
    while time.monotonic() < ends:
        polls, most = polls + 1, max(most, len(poll(url)))
        time.sleep(max(0.0, min(POLL_S, ends - time.monotonic())))
    return polls, most


def lateness(run_s: float, stretch_s: float, workers: int, rate_rps: float) -> bool:
    """p99 of lateness with the page open and closed, in turn in one run; whether they differ by at most 0.2 ms."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        changes = {
            "arrivals": {"rate": f"{rate_rps}/s", "spacing": "poisson"},
            "duration": f"{run_s}s",
            "fleet": {"workers": workers},
        }
        (folder / "scenario.yaml").write_text(json.dumps(REAL | changes))
        command = [
            sys.executable,
            "-m",
            "truetail",
            "run",
            str(folder / "scenario.yaml"),
            "--out",
            str(folder / "runs"),
            "--quiet",
        ]
        child = subprocess.Popen(
            [*command, "--ui", "--ui-port", str(port)], stdout=subprocess.DEVNULL, cwd=Path(__file__).parent.parent
        )
        try:
            run, epoch_ns = wait_for_epoch(folder / "runs", child)
            master = next(p for p in psutil.Process(child.pid).children() if "--master" in p.cmdline())
            cpu: dict[bool, list[float]] = {False: [], True: []}
            most = 0
            for i in range(int(run_s // stretch_s)):
                sleep_until(epoch_ns + int(i * stretch_s * 1e9))
                before, begun = sum(master.cpu_times()[:2]), time.monotonic()
                left_s = stretch_s - (time.time_ns() - epoch_ns) / 1e9 + i * stretch_s
                if i % 2:
                    most = max(most, poll_for(f"http://127.0.0.1:{port}/fleet/data", left_s - 0.05)[1])
                else:
                    time.sleep(max(0.0, left_s - 0.05))
                cpu[bool(i % 2)].append((sum(master.cpu_times()[:2]) - before) / (time.monotonic() - begun))
            child.wait(120)
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait(60)
        rows = record_files.read(run)
        series = len({key for file in (run / "snapshots").glob("*.jsonl") for key in json.loads(file.read_text())["series"]})
    return compare(
        rows, run_s, stretch_s, cpu, f"{workers} workers, {rate_rps:g}/s, {series} series, {most / 1000:.1f} kB a poll at most"
    )


def compare(rows: np.ndarray[Any, Any], run_s: float, stretch_s: float, cpu: dict[bool, list[float]], what: str) -> bool:
    """Print both halves; whether p99 with the page open is at most 0.2 ms above that with it closed.

    A second after each border belongs to neither. The interval is from 2,000 resamplings of the stretches, since a second's lateness is like the next's.
    """
    at_s, late_ms = rows["intended_ns"] / 1e9, (rows["sent_ns"] - rows["intended_ns"]) / 1e6
    stretches: dict[bool, list[np.ndarray[Any, Any]]] = {False: [], True: []}
    for i in range(2, int(run_s // stretch_s)):  # the first two are the warm-up
        stretches[bool(i % 2)].append(late_ms[(at_s >= i * stretch_s + 1) & (at_s < (i + 1) * stretch_s) & (rows["sent_ns"] > 0)])
    rng = np.random.default_rng(1)
    p99s, resampled = {}, {}
    print(what)
    for looks, parts in stretches.items():
        whole = np.concatenate(parts)
        p50, p99s[looks], p999 = np.percentile(whole, [50, 99, 99.9], method="inverted_cdf")
        picks = rng.integers(0, len(parts), (2000, len(parts)))
        resampled[looks] = np.array([np.percentile(np.concatenate([parts[k] for k in pick]), 99) for pick in picks])
        print(
            f"  page {'open  ' if looks else 'closed'} n {len(whole):7,}  lateness p50 {p50:.3f}  p99 {p99s[looks]:.3f}  p99.9 {p999:.3f} ms  "
            f"master {np.mean(cpu[looks][1:]):.2%} of a core"
        )
    low, high = np.percentile(resampled[True] - resampled[False], [2.5, 97.5])
    print(
        f"  open minus closed: p99 {p99s[True] - p99s[False]:+.3f} ms (95 % interval {low:+.3f} to {high:+.3f}; goal: at most 0.2)"
    )
    return bool(p99s[True] - p99s[False] <= 0.2) and float(np.mean(cpu[True][1:])) < 0.10


def wait_for_epoch(runs: Path, child: subprocess.Popen[bytes]) -> tuple[Path, int]:
    """The run's folder and the wall time of its epoch."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        for file in runs.glob("*/run.json"):
            document = json.loads(file.read_text())
            if document["state"] == "running":
                return file.parent, int(document["epoch_wall_ns"])
        time.sleep(0.1)
    sys.exit("the run did not begin")


def sleep_until(wall_ns: int) -> None:
    """Until an instant of the wall clock."""
    time.sleep(max(0.0, (wall_ns - time.time_ns()) / 1e9))


def main() -> None:
    """Print both, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("share", "lateness"))
    parser.add_argument("--seconds", type=int, default=60, help="share: seconds without a page, and as many with one")
    parser.add_argument("--run-s", type=float, default=200)
    parser.add_argument("--stretch-s", type=float, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--poll", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.poll:
        print(*poll_for(args.poll[0], float(args.poll[1])))
        return
    sys.argv = ["locust"]  # which Locust's page parses once more
    met = args.only == "lateness" or share(args.seconds)
    if args.only != "share":
        met = lateness(args.run_s, args.stretch_s, args.workers, args.rate) and met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
