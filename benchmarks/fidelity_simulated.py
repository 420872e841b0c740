"""The fidelity experiment without a machine's noise: a day of production, replayed by the real schedules into an exact queue.

    python benchmarks/fidelity_simulated.py [--hours 24]        (about 5 minutes)

A run of minutes cannot show p99 to 2 % where requests queue: too few independent busy periods. Here production's instants (from
benchmarks/fidelity_production.py) are written as a trace, `shapes` plans each mode's replay of it as it would for a run, and both
go through `analysis.batching.simulate`. So this shows what the choice of instants alone does to p99, and how long it takes to see.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))
from analysis.intervals import Interval
from benchmarks import fidelity_figures as figures
from benchmarks.fidelity import BATCH, FIFO, IDEAL_BATCH, IDEAL_FIFO, MODES, RATE_RPS
from benchmarks.fidelity_production import instants
from shapes.schedule import Schedule
from truetail.scenario import loads

LAWS = ("poisson", "gamma:2", "on-off")
SERVICES = {
    f"batches of {BATCH['a']} + {BATCH['c']} b": IDEAL_BATCH,
    f"one at a time, {FIFO['service_mean']} each": IDEAL_FIFO,
}


def replayed_s(trace: Path, mode: str, seconds: float) -> figures.Floats:
    """The instants that Truetail plans for a replay of the trace, in s."""
    scenario = {
        "name": "replay",
        "target": {"url": "http://127.0.0.1:1"},
        "requests": [{"name": "predict", "path": "/predict"}],
        "arrivals": {"trace": {"file": str(trace), "mode": mode}},
        "duration": f"{seconds + 1:g}s",
        "seed": 7,
        "slos": ["p99 < 10s"],
    }
    resolved = loads(json.dumps(scenario)).resolved()
    schedule = Schedule(resolved["arrivals"], seconds + 1, resolved["seed"]["schedule"])
    return np.concatenate([block.offsets_ns for block in schedule.blocks()]) / 1e9


def ratio_interval(ours: Interval, theirs: Interval) -> tuple[float, float]:
    """The ratio of two percentiles of independent runs: their intervals' half widths, on a log scale, added in quadrature."""
    if not (ours.two_sided and theirs.two_sided):
        return 0.0, math.inf
    value = math.log(ours.value / theirs.value)
    above = math.hypot(math.log(ours.high / ours.value), math.log(theirs.value / theirs.low))
    below = math.hypot(math.log(ours.value / ours.low), math.log(theirs.high / theirs.value))
    return math.exp(value - below), math.exp(value + above)


def _within(low: float, high: float, digits: int) -> str:
    """An interval as text; empty where none may be claimed."""
    return "" if math.isinf(high) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def main() -> None:
    """A table per law of arrivals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--laws", nargs="+", default=list(LAWS))
    args = parser.parse_args()
    seconds = args.hours * 3600
    for law in args.laws:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.parquet"
            times_s = np.array(instants(law, RATE_RPS, seconds, seed=1))
            pq.write_table(
                pa.table({"time": pa.array(np.rint((1.8e9 + times_s) * 1e9).astype(np.int64), pa.timestamp("ns", "UTC"))}), trace
            )
            runs = {"production": times_s - times_s[0], "again": np.array(instants(law, RATE_RPS, seconds, seed=2))}
            runs |= {mode: replayed_s(trace, mode, seconds) for mode in MODES}
        table = Table(title=f"{law} at {RATE_RPS:g}/s for {args.hours:g} h", title_justify="left")
        for column in ("service", "run", "requests", "p99 ms [95 %]", "p99 / production [95 %]", "dispersion 1 s", "gap CV"):
            table.add_column(column, justify="left" if column in ("service", "run") else "right")
        for title, ideal in SERVICES.items():
            intervals = {name: figures.interval(figures.ideal(arrived_s, *ideal), 99) for name, arrived_s in runs.items()}
            base = intervals["production"]
            for name, found in intervals.items():
                seen = figures.arrivals(figures.Served(runs[name] - runs[name][0], runs[name]), RATE_RPS)
                p99 = f"{1e3 * found.value:.2f}" + _within(1e3 * found.low, 1e3 * found.high, 2)
                ratio = "" if name == "production" else f"{found.value / base.value:.3f}"
                if name not in ("production", "exact"):  # exact is the same instants: nothing is left to chance
                    ratio += _within(*ratio_interval(found, base), 3)
                table.add_row(title, name, f"{found.n:,}", p99, ratio, f"{seen.dispersion_1s:.2f}", f"{seen.gap_cv:.2f}")
            table.add_section()
        Console(width=140).print(table)


if __name__ == "__main__":
    main()
