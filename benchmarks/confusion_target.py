"""The diagnosis against the real reference service: each fault injected in real runs, and clean runs; prints a confusion table.

    python benchmarks/confusion_target.py --out /tmp/confusion [--replications 5] [--clean 4] [--only pause --only clean]
    python benchmarks/confusion_target.py --out /tmp/confusion --table --write-docs

Every case is a `truetail run` of its own on this machine, 18 s long and 10 s beside, one after another (two at once would disturb
each other): 5 runs of 14 cases and 4 of 5 clean loads take 41 minutes. The run folders stay in `--out`: what is there is not run
again, so an interrupted table goes on where it stopped, and `--table` judges the folders anew with the rules as they are now.
The replications are the outer loop: a table of what has been run so far is balanced. A run that its own verdict calls INVALID (the
generator was late: something else kept this machine busy) proves nothing and is made again once, whatever its diagnosis said; the
table counts those, and the first one stays beside the other as `*.invalid-1`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.diagnosis import Diagnosis, diagnose
from analysis.run_folder import Run, open_run
from analysis.section_diagnosis import evidence_of

BATCH = {"mode": "batch", "a": "10ms", "c": "0.5ms", "max_batch": 16, "max_delay": "2ms"}
NONE = "none"
FIRST_SEED = 510
OVERHEAD_S = 10.0
"""Of a run beside its duration: start, muster, pool, report."""
DOCS = Path(__file__).parents[1] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- confusion_target: begin -->", "<!-- confusion_target: end -->"


@dataclass(frozen=True)
class Case:
    """What is injected, at which rate (1/s), and which cause is to be named first. Windows count from the target's readiness, some
    3 s before the first arrival; the first 2 s of arrivals are warm-up."""

    expected: str
    rate_rps: float
    faults: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] | None = None
    warmup_s: float = 2.0


CASES: Mapping[str, Case] = {
    # Cold starts only show without a warm-up.
    "cold_start": Case("cold-start", 100, [{"kind": "cold_start", "requests": 100, "factor": 5}], {"replicas": 2}, 0.0),
    "pause": Case("runtime-pause", 100, [{"kind": "pause", "start": "4s", "duration": "200ms", "period": "5s"}]),
    "throttle": Case("throttling", 150, [{"kind": "throttle", "factor": 2, "start": "9s", "duration": "6s"}]),
    "memory_pressure": Case("memory-pressure", 150, [{"kind": "memory_pressure", "factor": 1.8, "start": "9s", "duration": "6s"}]),
    "slow_replica": Case("slow-replica", 100, [{"kind": "slow_replica", "replica": 1, "factor": 3}], {"replicas": 3}),
    "queue_delay": Case("batching-delay", 60, [{"kind": "queue_delay", "delay": "20ms"}]),
    "slow_preprocess": Case("cpu-bound", 60, [{"kind": "slow_preprocess", "delay": "20ms"}]),
    "slow_preprocess, on the event loop": Case("cpu-bound", 25, [{"kind": "slow_preprocess", "delay": "20ms", "cpu": True}]),
    "network_delay": Case("network", 60, [{"kind": "network_delay", "delay": "50ms", "jitter": "20ms"}]),
    "dependency_stall": Case("dependency", 60, [{"kind": "dependency_stall", "delay": "100ms", "start": "10s", "duration": "4s"}]),
    "oversized_inputs": Case("input-variability", 60, [{"kind": "oversized_inputs", "share": 0.05, "size": 60}]),
    "overload (500/s of others)": Case("queueing", 100, [{"kind": "overload", "rate": "500/s"}]),
    "deploy": Case("deploy", 100, [{"kind": "deploy", "start": "9s", "duration": "3s"}], {"replicas": 2, "c": "3ms", "max_batch": 2}),
    "no fault, kernels interleave (shared mode)": Case(
        "gpu-contention", 25, options={"mode": "shared", "service": "fixed", "service_mean": "20ms"}
    ),
    **{f"clean, {rate}/s": Case(NONE, rate) for rate in (20, 60, 150, 300, 450)},
}  # fmt: skip


def scenario(name: str, duration_s: float, seed: int) -> dict[str, Any]:
    """A scenario as JSON, which is YAML too."""
    case = CASES[name]
    return {
        "name": "confusion", "description": name, "target": {"embedded": BATCH | dict(case.options or {}) | {"faults": list(case.faults)}},
        "requests": [{"name": "predict", "path": "/predict", "json": {"t2m_k": 285.4, "rh": 72}}],
        "arrivals": {"rate": f"{case.rate_rps}/s", "spacing": "poisson"}, "duration": f"{duration_s}s", "warmup": f"{case.warmup_s}s",
        "seed": seed, "pool": 200, "slos": ["p50 < 10s"],
    }  # fmt: skip


def folder_of(name: str, seed: int, out: Path) -> Path:
    """Where a case's run folder lies."""
    plain = "-".join("".join(c if c.isalnum() else " " for c in name).split())
    return out / f"{plain}-{seed}"


def ended(folder: Path) -> Run | None:
    """The run in a case's folder; None if there is none that ended."""
    for path in sorted(folder.glob("*/run.json")):
        run = open_run(path.parent)
        if run.manifest.state == "ended" and run.manifest.epoch_wall_ns is not None:
            return run
    return None


def execute(name: str, seed: int, duration_s: float, folder: Path) -> str:
    """One `truetail run`; why there is no run, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "confusion.yaml"
    path.write_text(json.dumps(scenario(name, duration_s, seed)))
    command = [sys.executable, "-m", "truetail", "run", str(path), "--quiet", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + 120, check=False)
    return "" if ended(folder) else f"no run (exit {done.returncode}): {done.stderr.strip().splitlines()[-1:]}"


def invalid(run: Run) -> bool:
    """Whether the run's verdict is INVALID."""
    try:
        return str(json.loads((run.path / "summary.json").read_text())["verdict"]["status"]) == "INVALID"
    except (OSError, ValueError, KeyError, TypeError):
        return True


def set_aside(folder: Path) -> int:
    """How many INVALID runs of this case were set aside."""
    return len(list(folder.parent.glob(f"{folder.name}.invalid-*")))


def executed(name: str, seed: int, args: argparse.Namespace) -> str:
    """Run a case, once more for an INVALID one; what was found, or why there is no run."""
    folder = folder_of(name, seed, args.out)
    while True:
        problem = execute(name, seed, args.duration, folder)
        run = ended(folder)
        if run is None:
            return problem
        told = judge(run)
        if not told.invalid or set_aside(folder) >= args.again:
            return told.all + (" (INVALID)" if told.invalid else "")
        folder.rename(folder.with_name(f"{folder.name}.invalid-{set_aside(folder) + 1}"))


@dataclass(frozen=True)
class Told:
    """What the diagnosis told of a run, whether its verdict is INVALID, and how many before it were, and set aside."""

    found: Diagnosis
    invalid: bool
    set_aside: int

    @property
    def first(self) -> str:
        """The first cause, or none; where there was no diagnosis, why."""
        return self.found.reason or (self.found.findings[0].cause if self.found.findings else NONE)

    @property
    def all(self) -> str:
        """Every finding with its share of the tail's time."""
        return self.found.reason or ", ".join(f"{f.cause} {f.share:.0%}" for f in self.found.findings) or NONE


def judge(run: Run) -> Told:
    """Diagnose a run anew, with the rules as they are."""
    return Told(diagnose(evidence_of(run)[0]), invalid(run), set_aside(run.path.parent))


def planned(args: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """(case, seed) of every run, replications outermost."""
    for replication in range(max(args.replications, args.clean)):
        for name, case in CASES.items():
            chosen = not args.only or name.startswith(tuple(args.only))
            if chosen and replication < (args.clean if case.expected == NONE else args.replications):
                yield name, FIRST_SEED + replication


def table(told: Mapping[str, Sequence[Told]]) -> str:
    """The confusion table and its sums, in Markdown."""
    lines = [
        "| injected | expected first | first finding (runs) | all findings of each run | INVALID, made again |",
        "|---|---|---|---|---|",
    ]
    right: Counter[bool] = Counter()
    total: Counter[bool] = Counter()
    for name, runs in told.items():
        expected = CASES[name].expected
        firsts = Counter(t.first for t in runs)
        right[expected == NONE] += firsts[expected]
        total[expected == NONE] += len(runs)
        shown = ", ".join(f"{cause} {n}" for cause, n in firsts.most_common())
        void = f"{sum(t.invalid for t in runs)}, {sum(t.set_aside for t in runs)}"
        lines.append(f"| {name} | {expected} | {shown} | {'; '.join(t.all for t in runs)} | {void} |")
    lines += ["", f"The injected cause was named first in **{right[False]} of {total[False]}** runs; "
                  f"of the clean runs **{total[True] - right[True]} of {total[True]}** accused anyone."]  # fmt: skip
    return "\n".join(lines)


def write_docs(text: str) -> None:
    """Put the table between its marks in docs/diagnosis.md."""
    page = DOCS.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{DOCS.name}: the marks {BEGIN} and {END} are missing")
    DOCS.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    """Run what is missing, a line each; then the table. 1 if fewer than nine in ten are right, or a clean run accuses anyone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where run folders are kept; what is there is not run again")
    parser.add_argument("--replications", type=int, default=5, help="runs of each fault (default: 5)")
    parser.add_argument("--clean", type=int, default=4, help="runs of each clean load (default: 4)")
    parser.add_argument("--duration", type=float, default=18.0, help="seconds of each run (default: 18)")
    parser.add_argument("--again", type=int, default=1, help="how often an INVALID run is made again (default: 1)")
    parser.add_argument("--only", action="append", help="cases whose name begins so; repeatable")
    parser.add_argument("--table", action="store_true", help="run nothing, judge what is there")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/diagnosis.md")
    args = parser.parse_args()
    todo = [] if args.table else [(n, s) for n, s in planned(args) if ended(folder_of(n, s, args.out)) is None]
    print(f"{len(todo)} runs, about {len(todo) * (args.duration + OVERHEAD_S) / 60:.0f} minutes", file=sys.stderr)
    for i, (name, seed) in enumerate(todo, 1):
        began = time.monotonic()
        seen = executed(name, seed, args)
        print(f"{i}/{len(todo)} {name}, seed {seed}: {seen} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    told, aside = found(args)
    text = table(told) + aside
    print(text)
    if args.write_docs:
        write_docs(text)
    firsts = [(CASES[name].expected, t.first) for name, runs in told.items() for t in runs]
    wrong = [first != expected for expected, first in firsts if expected != NONE]
    return int(sum(wrong) > 0.1 * len(wrong) or any(first != NONE for expected, first in firsts if expected == NONE))


def found(args: argparse.Namespace) -> tuple[dict[str, list[Told]], str]:
    """(what was told of the runs that are there, by case; a line about those that were set aside)."""
    told: dict[str, list[Told]] = {name: [] for name in CASES}
    aside: list[bool] = []
    for name, seed in planned(args):
        folder = folder_of(name, seed, args.out)
        if (run := ended(folder)) is not None:
            told[name].append(judge(run))
        others = (ended(path) for path in sorted(folder.parent.glob(f"{folder.name}.invalid-*")))
        aside += [judge(run).first == CASES[name].expected for run in others if run is not None]
    line = f" {len(aside)} INVALID runs were set aside and made again; {sum(aside)} of them would have been told as expected."
    return {name: runs for name, runs in told.items() if runs}, line if aside else ""


if __name__ == "__main__":
    sys.exit(main())
