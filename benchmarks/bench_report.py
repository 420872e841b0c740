"""What a report costs: the whole process ``truetail report RUN`` (time, processor time, largest memory), beside DuckDB alone.

``python benchmarks/bench_report.py [--records 100000 1000000 10000000] [--repeats 1] [--folder F] [--keep]``

A run folder of each size is made (112 bytes a record, the real format: four workers, rows in the order in which requests ended, four request names of which
one streams, three replicas, a server that tells its stages, a few failures, queues in front). ``truetail report`` is then run on it twice: on the raw records,
which it first turns into checked Parquet, and again on that Parquet. DuckDB alone reads the same Parquet files and works out the same
exact percentiles of all arrivals and by name and replica: no ledger, no schedule, no intervals, no diagnosis, no page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shapes.schedule import Schedule
from truetail.records import DROPPED, FLAG_WARMUP, OUTCOMES, RECORD, TIMED_OUT

ROOT = Path(__file__).resolve().parent.parent
RATE_RPS, WORKERS, REPLICAS = 10_000.0, 4, 3
WARMUP_SHARE = 0.05
SERVICE_MEAN_S, NETWORK_S = 0.7 * REPLICAS / RATE_RPS, 0.002
"""Each replica is busy for 70 % of the time; the network takes about 2 ms."""
NAMES = ("predict", "embed", "rank", "generate")
ERRORS = ("timeout: deadline", "dropped: no free user")
STAGES = ("queue", "preprocess", "inference", "postprocess")
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)
EPOCH_WALL_NS = 1_796_100_735_000_000_000

DUCKDB = """
import json, sys
import duckdb
folder, quantiles = sys.argv[1], json.loads(sys.argv[2])
db = duckdb.connect()
db.execute("SET threads = 2")
rows = f'''(SELECT name, replica, sent_ns, CASE WHEN outcome = 0 THEN done_ns - intended_ns ELSE 9223372036854775807 END AS response,
    CASE WHEN outcome = 0 THEN done_ns - sent_ns ELSE 9223372036854775807 END AS service, sent_ns - intended_ns AS lateness
    FROM '{folder}/records/*.parquet' WHERE k >= 0 AND part = 0 AND flags & 1 = 0)'''
of = lambda column: f"quantile_disc({column}, {quantiles})"
fleet = db.execute(f"SELECT count(*), {of('response')}, {of('service')}, {of('lateness')} FROM {rows}").fetchone()
groups = [db.execute(f"SELECT {by}, count(*), {of('response')} FROM {rows} GROUP BY 1 ORDER BY 1").fetchall() for by in ("name", "replica")]
print(json.dumps([fleet[1], groups]))
"""


@dataclass(frozen=True)
class Cost:
    """One process from start to end: seconds on the clock, seconds of processor time, largest resident memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float


class Service:
    """First in, first out at each replica; remembers across pieces until when each is busy."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.free_s = np.zeros(REPLICAS)

    def serve(self, at_s: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        """(replica, waiting, service), in s, of sorted arrivals: Lindley's recursion as running maxima."""
        replica = np.arange(len(at_s)) % REPLICAS
        service = self.random.gamma(4.0, SERVICE_MEAN_S / 4, len(at_s))
        waiting = np.empty(len(at_s))
        for r in range(REPLICAS):
            mine = slice(r, None, REPLICAS)
            total = np.cumsum(service[mine])
            begun = np.maximum.accumulate(np.maximum(at_s[mine], self.free_s[r]) - (total - service[mine]))
            waiting[mine] = begun + (total - service[mine]) - at_s[mine]
            self.free_s[r] = begun[-1] + total[-1]
        return replica, np.maximum(waiting, 0.0), service


def piece(ks: np.ndarray[Any, Any], offsets_ns: np.ndarray[Any, Any], service: Service, warmup_ns: int) -> np.ndarray[Any, Any]:
    """Rows of consecutive arrivals, in the order of the schedule."""
    random, n = service.random, len(ks)
    rows = np.zeros(n, RECORD)
    rows["k"], rows["intended_ns"] = ks, offsets_ns
    rows["sent_ns"] = offsets_ns + random.gamma(2.0, 40_000, n).astype(np.int64)
    replica, waiting_s, service_s = service.serve(offsets_ns / 1e9)
    network_s = NETWORK_S * random.lognormal(0, 0.3, n)
    stage_s = {"queue": waiting_s, "preprocess": np.full(n, 1e-4), "inference": service_s, "postprocess": np.full(n, 5e-5)}
    rows["done_ns"] = rows["sent_ns"] + ((sum(stage_s.values()) + network_s) * 1e9).astype(np.int64)
    for stage in STAGES:
        rows[f"{stage}_us"] = stage_s[stage] * 1e6
    rows["connect_us"] = rows["dependency_us"] = rows["itl_max_us"] = np.nan
    rows["first_byte_ns"] = rows["done_ns"] - 50_000
    rows["name"], rows["replica"], rows["status"], rows["batch"] = 1 + random.integers(0, len(NAMES), n), 1 + replica, 200, 1
    streams = rows["name"] == len(NAMES)
    rows["first_token_ns"] = np.where(streams, rows["first_byte_ns"], -1)
    rows["itl_max_us"][streams] = random.gamma(2.0, 300.0, int(streams.sum()))
    rows["tokens_in"], rows["tokens_out"] = np.where(streams, random.integers(20, 2000, n), 0), np.where(streams, 32, 0)
    rows["request_bytes"], rows["response_bytes"] = random.integers(200, 4000, n), random.integers(100, 900, n)
    rows["flags"] = np.where(offsets_ns < warmup_ns, FLAG_WARMUP, 0)
    luck = random.random(n)
    late, dropped = luck < 2e-3, luck > 1 - 1e-4
    rows["outcome"][late], rows["error"][late], rows["status"][late] = TIMED_OUT, 1, 0
    rows["outcome"][dropped], rows["error"][dropped], rows["status"][dropped], rows["replica"][dropped] = DROPPED, 2, 0, 0
    for column in ("sent_ns", "done_ns", "first_byte_ns", "first_token_ns"):
        rows[column][dropped] = -1
    for column in (*(f"{stage}_us" for stage in STAGES), "itl_max_us"):
        rows[column][late | dropped] = np.nan
    return rows


def make(folder: Path, records: int, seed: int = 1) -> None:
    """A whole, balanced run folder of about ``records`` records."""
    duration_s = records / RATE_RPS
    arrivals = {"rate": {"kind": "constant", "rate_rps": RATE_RPS}, "spacing": {"kind": "poisson"}}
    schedule = Schedule(arrivals, duration_s, seed)
    (folder / "records").mkdir(parents=True)
    service, warmup_ns = Service(np.random.default_rng(seed)), round(WARMUP_SHARE * duration_s * 1e9)
    counts = np.zeros((WORKERS, len(OUTCOMES)), np.int64)
    files = [(folder / "records" / f"worker-{slot}.rec").open("wb") for slot in range(WORKERS)]
    for block in schedule.blocks():
        rows = piece(block.first_k + np.arange(len(block.offsets_ns)), block.offsets_ns, service, warmup_ns)
        rows = rows[np.argsort(np.where(rows["done_ns"] < 0, rows["intended_ns"], rows["done_ns"]), kind="stable")]
        for slot, file in enumerate(files):
            mine = rows[rows["k"] % WORKERS == slot]
            counts[slot] += np.bincount(mine["outcome"], minlength=len(OUTCOMES))
            mine.tofile(file)
    tables = {"name": NAMES, "replica": [f"replica-{r}" for r in range(REPLICAS)], "error": ERRORS}
    lines = [
        json.dumps({"table": t, "id": i, "text": text}) + "\n" for t, texts in tables.items() for i, text in enumerate(texts, 1)
    ]
    for slot, file in enumerate(files):
        file.close()
        (folder / "records" / f"worker-{slot}.names.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "run.json").write_text(
        json.dumps(_manifest(folder, schedule, counts, duration_s, arrivals, seed)), encoding="utf-8"
    )


def _ledger(counts: np.ndarray[Any, Any]) -> dict[str, int]:
    told = dict(zip(OUTCOMES, counts.tolist(), strict=True))
    total, dropped = int(counts.sum()), told.pop("dropped")
    return {"scheduled": total, "sent": total - dropped, "dropped": dropped, "lost": 0, "unsent": 0, **told}


def _manifest(
    folder: Path, schedule: Schedule, counts: np.ndarray[Any, Any], duration_s: float, arrivals: dict[str, Any], seed: int
) -> dict[str, Any]:
    workers = [
        {
            "name": f"worker-{slot}", "slot": slot, "n_slots": WORKERS, "from_k": 0, "host": "bench", "pid": 1, "state": "drained", "clock_offset_ns": 0,
            "clock_residual_ns": 20_000, "scheduled": int(mine.sum()), "ledger": _ledger(mine), "last_handed_k": 0, "rows": int(mine.sum()),
            "generator": {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 3.0, "loop_stall_p99_ms": 0.5},
        }
        for slot, mine in enumerate(counts)
    ]  # fmt: skip
    return {
        "format": 1, "run_id": folder.name, "scenario": {
            "name": "bench-report", "arrivals": arrivals, "duration_s": duration_s, "warmup_s": WARMUP_SHARE * duration_s, "drain_s": 15.0,
            "seed": {"schedule": seed, "payload": 1, "mix": 1}, "slos": ["p99 < 50ms", "error_rate < 1%"],
            "requests": [{"name": name} for name in NAMES], "fleet": {"workers": WORKERS, "on_loss": "invalid", "max_clock_residual_s": 0.005},
            "validity": {"lateness_p99_s": 0.005, "lateness_max_s": 0.25, "dropped": 0.001, "rate_error": 0.02},
        },
        "scenario_sha256": "0" * 64, "scenario_file": "bench.yaml", "schedule": {
            "digest": schedule.digest(), "count": int(counts.sum()), "expected_count": schedule.expected_count, "duration_s": duration_s, "epoch_wall_s": 0.0,
        },
        "state": "ended", "stop_reason": "completed", "stopped_at_ns": None, "epoch_wall_ns": EPOCH_WALL_NS, "started_wall_ns": EPOCH_WALL_NS - 10**9,
        "ended_wall_ns": EPOCH_WALL_NS + round((duration_s + 1) * 1e9), "versions": {"truetail": "0"}, "git_commit": "", "host": {"name": "bench", "cpus": 2},
        "target": {"url": "http://127.0.0.1:1", "version": None, "embedded": False}, "workers": workers, "ledger": _ledger(counts.sum(axis=0)),
    }  # fmt: skip


def cost(command: Sequence[str], allowed: Sequence[int] = (0,)) -> tuple[Cost, str]:
    """Run a process and its children to the end: what it cost, and its standard output. RuntimeError for another exit code."""
    with tempfile.TemporaryFile("w+") as out:
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=out)
        # wait4 tells of this process and the children it waited for, not of every child before it.
        status, usage = os.wait4(process.pid, 0)[1:]
        wall_s = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode not in allowed:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, _peak_mb(usage)), text


def _peak_mb(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 1e3 if sys.platform == "linux" else usage.ru_maxrss / 1e6


def median(costs: Sequence[Cost]) -> Cost:
    """The repeat in the middle by time."""
    return sorted(costs, key=lambda found: found.wall_s)[(len(costs) - 1) // 2]


def measure(records: int, folder: Path, repeats: int) -> dict[str, Cost]:
    """Report from raw records, report again from Parquet, DuckDB alone."""
    found: dict[str, list[Cost]] = {}
    make(folder / "made", records)
    for _ in range(repeats):
        run = folder / "run"
        shutil.copytree(folder / "made", run)
        report = [sys.executable, "-m", "truetail", "report", str(run)]
        # PASS, FAIL and INVALID are all reports.
        for kind in ("report, raw records", "report, Parquet"):
            found.setdefault(kind, []).append(cost(report, (0, 1, 3))[0])
        alone, text = cost([sys.executable, "-c", DUCKDB, str(run), json.dumps(QUANTILES)])
        found.setdefault("DuckDB alone", []).append(alone)
        _compare(json.loads((run / "summary.json").read_text(encoding="utf-8")), json.loads(text))
        shutil.rmtree(run)
    shutil.rmtree(folder / "made")
    return {kind: median(costs) for kind, costs in found.items()}


def _compare(summary: dict[str, Any], alone: list[Any]) -> None:
    """The report and DuckDB must tell the same percentiles, to the nanosecond."""
    ours = summary["response"]["all_s"].values()
    theirs = [None if value == np.iinfo(np.int64).max else value / 1e9 for value in alone[0]]
    if list(ours) != theirs:
        raise RuntimeError(f"DuckDB has other percentiles: {theirs}, the report {list(ours)}")


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000], help="sizes (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=1, help="repeats, of which the median counts (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=None, help="where to make the run folders (default: a temporary one)")
    parser.add_argument("--make-only", action="store_true", help="make FOLDER/RECORDS and measure nothing")
    options = parser.parse_args()
    if options.make_only:
        for records in options.records:
            make(options.folder / str(records), records)
        return
    results: dict[int, dict[str, Cost]] = {}
    print(f"{'records':>12}  {'':22}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}{'to DuckDB':>11}")
    for records in options.records:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            results[records] = measure(records, Path(scratch), options.repeats)
        for kind, found in results[records].items():
            ratio = found.wall_s / results[records]["DuckDB alone"].wall_s
            print(f"{records:12,}  {kind:22}{found.wall_s:9.2f}{found.cpu_s:9.2f}{found.peak_mb:9.0f}{ratio:11.1f}", flush=True)
    if len(results) > 1:
        small, large = min(results), max(results)
        for kind in results[small]:
            growth = math.log(results[large][kind].wall_s / results[small][kind].wall_s) / math.log(large / small)
            print(f"growth of {kind} from {small:,} to {large:,}: time ~ n^{growth:.2f}")


if __name__ == "__main__":
    main()
