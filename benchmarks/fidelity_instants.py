"""Are a trace's instants kept? Replays a stretch of it at 1x and at 10x over 4 workers, and accounts for every arrival three times.

    python benchmarks/fidelity_instants.py ../shared/traces/azure_llm_2023_conv.csv --seconds 60

The file is read here with the csv module, so what should arrive is not Truetail's own word: the arrivals in the file, in
Truetail's records (intended to the nanosecond), and in the server's access log by the number that each request carries must be
the same. "late" is sent minus intended.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import record_files
from benchmarks.fidelity import ROOT, service
from benchmarks.fidelity_figures import nearest_rank

WORKERS = 4
QUICK_SERVICE = {"mode": "batch", "a": "1ms", "c": "0.1ms", "max_batch": 16, "max_delay": "0ms"}


def instants_ns(trace: Path, seconds: float, speed: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Offsets in ns of the arrivals that ``seconds`` at ``speed`` should have, by the first column of an Azure LLM trace (ISO times)."""
    with trace.open(encoding="utf-8-sig", newline="") as file:
        texts = [row[0] for row in csv.reader(file)][1:]
    # Seven digits of a second: datetime knows six, so the fraction is kept apart.
    whole = [datetime.fromisoformat(text[:19]) for text in texts]
    ns = [
        round((at - whole[0]).total_seconds()) * 10**9 + int(text[20:].ljust(9, "0"))
        for at, text in zip(whole, texts, strict=True)
    ]
    times = np.sort(np.array(ns, dtype=np.int64))
    offsets = np.rint((times - times[0]) / speed).astype(np.int64)
    return offsets[(times - times[0] < seconds * speed * 1e9)]


def replayed(trace: Path, seconds: float, speed: float) -> dict[str, Any]:
    """Replay it and account for every arrival; late in ms."""
    expected = instants_ns(trace, seconds, speed)
    scenario = {
        "name": "instants",
        "target": {"url": "http://127.0.0.1:1"},
        "requests": [
            {
                "name": "predict",
                "method": "POST",
                "path": "/predict",
                "json": {"t2m_k": 285.4, "rh": 72},
                "headers": {"x-truetail-arrival": "${k}"},
            }
        ],
        "arrivals": {
            "trace": {"file": str(trace.resolve()), "mode": "exact", "speed": speed, "window": {"to": f"{seconds * speed:g}s"}}
        },
        "duration": f"{seconds + 1:g}s",
        "seed": 1,
        "pool": 400,
        "lateness_deadline": "30s",
        "fleet": {"workers": WORKERS},
        "collectors": {"gpu": False},
        "slos": ["p99 < 10s"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, log = folder / "scenario.yaml", folder / "access.jsonl"
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        with service(QUICK_SERVICE, log) as url:
            command = [sys.executable, "-m", "truetail", "run", str(file), "--host", url, "--out", name, "--quiet"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1, 3):
                sys.exit(f"the replay failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        (run_folder,) = (path.parent for path in folder.glob("*/run.json"))
        rows = record_files.read(run_folder)
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return {"speed": speed} | accounted(expected, rows, [line["arrival"] for line in lines if line["path"] == "/predict"])


def accounted(expected: np.ndarray[Any, Any], rows: np.ndarray[Any, Any], at_server: list[str]) -> dict[str, Any]:
    """Missing and doubled arrivals among the records and at the server, how far intended instants are off, how late sends were."""
    numbers = [str(k) for k in range(len(expected))]
    rows = rows[np.argsort(rows["k"], kind="stable")]
    found = {"arrivals": len(expected)}
    for place, seen in (("records", [str(k) for k in rows["k"].tolist()]), ("server", at_server)):
        times = Counter(seen)
        found[f"{place}_missing"] = sum(number not in times for number in numbers)
        found[f"{place}_doubled"] = sum(n - 1 for n in times.values())
        found[f"{place}_strange"] = len(times.keys() - set(numbers))
    late = (rows["sent_ns"] - rows["intended_ns"]) / 1e6
    same = len(rows) == len(expected)
    off = int(np.abs(rows["intended_ns"] - expected).max()) if same else None
    return (
        found
        | {"intended_off_max_ns": off}
        | {f"late_{p}_ms": nearest_rank(late, q) for p, q in (("p50", 50), ("p99", 99), ("max", 100))}
    )


def main() -> int:
    """Both speeds as a table; exit code 1 when an arrival is missing, doubled or intended at another instant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="an Azure LLM inference trace (CSV)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of each run; at 10x it holds ten times as much of the trace"
    )
    parser.add_argument("--speeds", type=float, nargs="+", default=[1.0, 10.0])
    args = parser.parse_args()
    results = [replayed(args.trace, args.seconds, speed) for speed in args.speeds]
    names = list(results[0])
    table = Table(*(name.replace("_", " ") for name in names), title=f"{args.trace.name}, {args.seconds:g} s, {WORKERS} workers")
    for result in results:
        table.add_row(*(f"{result[name]:.3f}" if name.startswith("late") else str(result[name]) for name in names))
    Console(width=170).print(table)
    wrong = [
        result
        for result in results
        if result["intended_off_max_ns"] != 0 or any(result[name] for name in names if "server_" in name or "records_" in name)
    ]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
