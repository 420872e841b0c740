"""The story in one table: the same service at the same rate under fixed, Poisson and 4-at-once arrivals.

    make story        (about 7 minutes; --seconds 30 for a look)

Each row is a real run of `truetail run` on the embedded service; the figures are read straight from the records with numpy, not from
Truetail's own report. "of Poisson" is the row's p99 as a share of the Poisson row's: what a replay with that spacing would have told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import record_files

SPACINGS = {"fixed": "fixed", "poisson": "poisson", "4 at once": "{groups: {size: 4, spacing: fixed}}"}
SERVICES = {
    "one at a time, 12 ms each, 60/s": (
        "scenarios/fixed.yaml",
        ["target.embedded={mode: fifo, service: fixed, service_mean: 12ms}"],
    ),
    "batches, 10 + 0.5 b ms, 60/s": ("scenarios/fixed.yaml", []),
    "kernels interleave, 50 ms alone, 10/s": ("scenarios/interleave.yaml", []),
}


def run(scenario: str, overrides: list[str], seconds: int, workers: int) -> np.ndarray[Any, Any]:
    """One run; response times in ms of the answered requests after the warm-up. Exits when the run proves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [*overrides, f"duration={seconds + 4}s", "warmup=4s", "slos=[p99 < 10s]"]
        command = [sys.executable, "-m", "truetail", "run", scenario, "--out", folder, "--quiet", "--workers", str(workers)]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (run_folder,) = Path(folder).iterdir()
        ledger = json.loads((run_folder / "run.json").read_text())["ledger"]
        if not ledger or ledger["ok"] != ledger["scheduled"]:
            sys.exit(f"the run proves nothing: {ledger}\n{done.stdout}{done.stderr}")
        rows = record_files.read(run_folder)
        rows = rows[rows["flags"] & 1 == 0]
        return (rows["done_ns"] - rows["intended_ns"]) / 1e6


def nearest_rank(values: np.ndarray[Any, Any], percent: int) -> float:
    """The percentile as the lesson defines it."""
    return float(np.sort(values)[-(-percent * len(values) // 100) - 1])


def main() -> None:
    """Run every pair and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=40, help="measured seconds per run (default: 40)")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    table = Table(title="The same service at the same rate; only the instants differ")
    for column in ("service", "arrivals", "requests", "mean ms", "p50 ms", "p99 ms", "of Poisson"):
        table.add_column(column, justify="left" if column in ("service", "arrivals") else "right")
    for service, (scenario, overrides) in SERVICES.items():
        times = {
            name: run(scenario, [*overrides, f"arrivals.spacing={text}"], args.seconds, args.workers)
            for name, text in SPACINGS.items()
        }
        reference = nearest_rank(times["poisson"], 99)
        for name, values in times.items():
            p99 = nearest_rank(values, 99)
            figures = (
                f"{len(values):,}",
                f"{values.mean():.1f}",
                f"{nearest_rank(values, 50):.1f}",
                f"{p99:.1f}",
                f"{p99 / reference:.0%}",
            )
            table.add_row(service, name, *figures)
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
