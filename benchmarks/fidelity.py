"""Does a replay show production's tail? Record a production stand-in, replay it in every mode, compare p99 at the server.

    make fidelity        (about 80 minutes; --seconds 60 for a look, --quick for a smoke of a minute)
    python benchmarks/fidelity.py --cases triton-poisson triton-bursty      (a real Triton: tests/real/install_triton.sh)

Per case (a service and a law of arrivals): an independent sender (benchmarks/fidelity_production.py) plays production on a fresh
reference service with an access log; `truetail trace record` turns the log into a trace; `truetail run` replays it as fixed,
poisson, exact and model, each on a fresh service with the same settings, on two workers. All are compared at the same place: the
durations in the servers' access logs (Triton's own trace of every request). "again" is production itself with another seed:
what two runs differ by that differ in nothing but chance, so no replay that draws its own arrivals can be shown to be closer than that.

Runs that lie in --out already are not run again, so an experiment can be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import fidelity_figures as figures
from benchmarks import record_files
from benchmarks.triton_server import triton, write_access_log

ROOT = Path(__file__).parent.parent
RATE_RPS = 60.0
WARMUP_S = 5
MODES = ("fixed", "poisson", "exact", "model")
RUNS = ("production", "again", *MODES)


@dataclass(frozen=True)
class Case:
    """A service (the target's options; None is Triton; the same as arguments of ``figures.ideal``) under a law of arrivals."""

    title: str
    service: dict[str, Any] | None
    ideal: tuple[float, float, int, float]
    law: str


BATCH = {"mode": "batch", "a": "10ms", "c": "0.5ms", "max_batch": 16, "max_delay": "2ms"}
FIFO = {"mode": "fifo", "service": "fixed", "service_mean": "12ms"}
IDEAL_BATCH, IDEAL_FIFO = (0.010, 0.0005, 16, 0.002), (0.012, 0.0, 1, 0.0)
CASES = {
    "batch-poisson": Case("batches of 10 + 0.5 b ms, Poisson at 60/s", BATCH, IDEAL_BATCH, "poisson"),
    "batch-bursty": Case("batches of 10 + 0.5 b ms, gamma gaps of CV 2 at 60/s", BATCH, IDEAL_BATCH, "gamma:2"),
    "fifo-poisson": Case("one at a time, 12 ms each, Poisson at 60/s", FIFO, IDEAL_FIFO, "poisson"),
    "fifo-bursty": Case("one at a time, 12 ms each, gamma gaps of CV 2 at 60/s", FIFO, IDEAL_FIFO, "gamma:2"),
    "triton-poisson": Case("a real Triton, batches of 10 + 0.5 b ms, Poisson at 60/s", None, IDEAL_BATCH, "poisson"),
    "triton-bursty": Case("a real Triton, batches of 10 + 0.5 b ms, gamma gaps of CV 2 at 60/s", None, IDEAL_BATCH, "gamma:2"),
}
OWN = [name for name, case in CASES.items() if case.service is not None]
TRITON = ROOT / "build" / "real" / "triton"
TRITON_MODEL, TRITON_PATH = "plain", "/v2/models/plain/infer"
TRITON_BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
TENSORS = [{"name": "x", "shape": [1, 4], "datatype": "FP32"}]


@contextmanager
def service(options: dict[str, Any], log: Path) -> Iterator[str]:
    """A fresh reference service with an access log, ready; its URL. The log is whole once this is left."""
    command = [sys.executable, "-m", "target", "--port", "0", "--config-json", json.dumps(options), "--access-log", str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = next((line.split()[-1] for line in process.stdout if line.startswith("ready on ")), "")
            if not url:
                sys.exit(f"the service did not start: {command}")
            yield url
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def triton_service(log: Path) -> Iterator[str]:
    """A fresh Triton with the batching model; its URL. Its trace becomes ``log``, whole once this is left."""
    if not (TRITON / ".ready").exists():
        sys.exit("Triton is not installed: tests/real/install_triton.sh")
    trace = log.with_name("triton_trace.json")
    with triton(TRITON, ROOT / "tests" / "real" / "triton_models", log.with_name("triton.log"), trace) as at:
        yield f"http://{at['http']}"
    write_access_log(trace, log, figures.PREDICT)
    trace.unlink()


def produce(case: Case, url: str, seconds: int, seed: int) -> None:
    """Production's traffic, from the independent sender. Exits when a request fails: such a run proves nothing."""
    script = Path(__file__).with_name("fidelity_production.py")
    path = TRITON_PATH if case.service is None else figures.PREDICT
    command = [sys.executable, str(script), "--url", f"{url}{path}", "--law", case.law, "--rate", str(RATE_RPS)]
    if case.service is None:
        command += ["--body", json.dumps(TRITON_BODY)]
    subprocess.run([*command, "--seconds", str(seconds + WARMUP_S), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)


def replay(case: Case, trace: Path, mode: str, url: str, seconds: int, folder: Path) -> None:
    """`truetail run` of the trace in one mode on two workers; the run folder comes under ``folder``. Exits when it sent nothing."""
    asks: dict[str, Any] = {"method": "POST", "path": figures.PREDICT, "json": {"t2m_k": 285.4, "rh": 72}}
    if case.service is None:
        asks = {"protocol": {"model": TRITON_MODEL}, "payload": {"tensors": TENSORS}}
    scenario = {
        "name": f"replay-{mode}",
        "target": {"url": url},
        "users": "kserve" if case.service is None else "rest",
        "requests": [{"name": "predict", **asks}],
        "arrivals": {"trace": {"file": str(trace), "mode": mode}},
        "duration": f"{seconds + WARMUP_S + 1}s",  # the trace ends by itself: a late last arrival shall not be cut off
        "warmup": f"{WARMUP_S}s",
        "seed": 7,
        "pool": 400,
        "fleet": {"workers": 2},
        "collectors": {"gpu": False},
        "slos": ["p99 < 10s", "error_rate < 0.1%"],
    }
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "truetail", "run", str(file), "--out", str(folder), "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"the replay failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def measure(case: Case, name: str, case_folder: Path, seconds: int) -> None:
    """One run of a case, kept in a folder of its name; the access log takes its final name only when the run is complete."""
    folder = case_folder / name
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left
    folder.mkdir(parents=True)
    raw = folder / "access.part.jsonl"
    serving = triton_service(raw) if case.service is None else service(case.service, raw)
    with serving as url:
        if name in MODES:
            replay(case, case_folder / "trace.csv", name, url, seconds, folder)
        else:
            produce(case, url, seconds, seed=1 if name == "production" else 2)
    figures.read_log(raw)
    if name == "production":
        command = [sys.executable, "-m", "truetail", "trace", "record", str(raw), "--out", str(case_folder / "trace.csv")]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    raw.rename(folder / "access.jsonl")


def row(case: Case, name: str, folder: Path, production: figures.Served) -> dict[str, Any]:
    """A run's figures, and how they stand to production's; times in ms."""
    whole = figures.read_log(folder / name / "access.jsonl")
    served, base = whole.after(WARMUP_S), production.after(WARMUP_S)
    seen = figures.arrivals(served, RATE_RPS)
    found: dict[str, Any] = {"run": name, "requests": len(served.duration_s)}
    found |= {f"p{percent}_ms": 1e3 * served.percentile_s(percent) for percent in figures.PERCENTILES}
    found["p99_interval"] = figures.interval(served, 99).text()
    found["ideal_p99_ms"] = 1e3 * figures.ideal(whole.arrived_s, *case.ideal).after(WARMUP_S).percentile_s(99)
    found |= {"dispersion_1s": seen.dispersion_1s, "gap_cv": seen.gap_cv, "six_tests": seen.verdict}
    if name != "production":
        ratio = figures.ratio(served, base, 99, paired=name == "exact")
        found["p99_ratio"] = [value if math.isfinite(value) else None for value in ratio]
    if name in MODES:
        found |= _client(folder / name)
    if name == "exact":
        strayed = figures.strayed_s(whole, production)
        found["strayed_ms"] = [1e3 * figures.nearest_rank(strayed, percent) for percent in (50, 99)]
    return found


def _client(folder: Path) -> dict[str, Any]:
    """What Truetail's own records and verdict say of a replay."""
    (run_folder,) = (path.parent for path in folder.glob("*/run.json"))
    rows = record_files.read(run_folder)
    rows = rows[rows["flags"] & 1 == 0]
    lateness = (rows["sent_ns"] - rows["intended_ns"]) / 1e6
    return {
        "client_p99_ms": figures.nearest_rank((rows["done_ns"] - rows["intended_ns"]) / 1e6, 99),
        "late_p99_ms": figures.nearest_rank(lateness, 99),
        "verdict": json.loads((run_folder / "summary.json").read_text())["verdict"]["status"],
    }


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A case as two tables, durations and arrivals, and the intervals of p99 below them."""
    times = Table("run", "requests", "p50 ms", "p95 ms", "p99 ms", "p99 / production [95 %]", "exact queue's p99", "client's p99",
                  title=f"{title}: durations inside the service", title_justify="left")  # fmt: skip
    seen = Table("run", "dispersion 1 s", "gap CV", "six tests", "sent late, p99 ms", "strayed p50, p99 ms", "verdict of the run",
                 title="arrivals at the service", title_justify="left")  # fmt: skip
    for found in rows:
        percentiles = [f"{found[f'p{percent}_ms']:.2f}" for percent in figures.PERCENTILES]
        ratio = _ratio_text(*found["p99_ratio"]) if "p99_ratio" in found else ""
        client = [f"{found[key]:.2f}" if key in found else "" for key in ("client_p99_ms", "late_p99_ms")]
        strayed = "{:.2f}, {:.2f}".format(*found["strayed_ms"]) if "strayed_ms" in found else ""
        times.add_row(found["run"], f"{found['requests']:,}", *percentiles, ratio, f"{found['ideal_p99_ms']:.2f}", client[0])
        shape = [f"{found['dispersion_1s']:.2f}", f"{found['gap_cv']:.2f}", found["six_tests"]]
        seen.add_row(found["run"], *shape, client[1], strayed, found.get("verdict", ""))
    console = Console(width=150)
    console.print(times, seen)
    for found in rows:
        console.print(f"  {found['run']}: {found['p99_interval']}", highlight=False)


def _ratio_text(value: float, low: float, high: float | None) -> str:
    return f"{value:.3f} (too short)" if high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Run what is missing, then print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=180, help="measured seconds per run (default: 180)")
    parser.add_argument("--quick", action="store_true", help="a smoke: one case, exact and fixed, 6 s each; figures mean nothing")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=OWN, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--runs", nargs="+", choices=RUNS, default=RUNS, metavar="RUN", help=f"of {', '.join(RUNS)} (default: all)"
    )
    parser.add_argument("--out", type=Path, help="where runs are kept, and found again (default: a new folder in runs/)")
    parser.add_argument("--most", type=int, default=10**6, metavar="N", help="start at most so many runs this time")
    args = parser.parse_args()
    seconds = 6 if args.quick else args.seconds
    cases = ["batch-poisson"] if args.quick else args.cases
    names = ("production", "fixed", "exact") if args.quick else [name for name in RUNS if name in ("production", *args.runs)]
    out = (args.out or ROOT / "runs" / time.strftime("fidelity-%Y%m%dT%H%M%S")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    settings = out / "seconds"
    if settings.exists() and settings.read_text() != str(seconds):
        sys.exit(f"{out} holds runs of {settings.read_text()} s, not of {seconds} s; choose another --out")
    settings.write_text(str(seconds))
    missing = [(case, name) for case in cases for name in names if not (out / case / name / "access.jsonl").exists()]
    for case, name in missing[: args.most]:
        print(f"{case}: {name}, {seconds + WARMUP_S} s", file=sys.stderr, flush=True)
        measure(CASES[case], name, out / case, seconds)
    told = {}
    for case in cases:
        done = [name for name in names if (out / case / name / "access.jsonl").exists()]
        if "production" in done:
            production = figures.read_log(out / case / "production" / "access.jsonl")
            told[case] = [row(CASES[case], name, out / case, production) for name in done]
            show(CASES[case].title, told[case])
    (out / "fidelity.json").write_text(json.dumps(told, indent=2, allow_nan=False), encoding="utf-8")
    print(f"{out}: runs and fidelity.json")


if __name__ == "__main__":
    main()
