"""How near `truetail sweep` comes to the capacity of the lesson's batch server, whose truth a simulator of its exact rule knows.

    python benchmarks/sweep_capacity.py [--sweeps 1] [--slower 2] [--seconds 30] [--seed 31]

Each sweep is the real command with real workers against the embedded service, t(b) = 10 + 0.5 b ms, at most 16 a batch, delay 2 ms, all
times ``--slower`` times as long (the same queue in slow motion, so that two cores can hold its rate), and asks for the largest rate with
p99 < 80 ms times that. The goal (issue of part E): within 3 % of the simulator's. The limit lies where the curve is steep: there a
millisecond of HTTP moves the capacity by 0.1 % or less. A sweep takes about six minutes; nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from analysis.batching import BatchRule, BatchTime, poisson_arrivals_s, simulate

TIME, RULE = BatchTime(0.010, 0.0005), BatchRule(16, 0.002)
Q, LIMIT_S = 0.99, 0.080
LOW_RPS, HIGH_RPS = 700, 950
"""Where the sweep looks; the wall is 889/s."""
SIMULATED, SIMULATIONS = 1_000_000, 5
HALVINGS = 14
SCENARIO = Path(__file__).parent.parent / "scenarios" / "batch.yaml"


def p99_s(rate_rps: float, seed: int) -> float:
    """p99 (s) of the exact rule at a rate, of SIMULATED requests, the first tenth left out."""
    response = simulate(poisson_arrivals_s(rate_rps, SIMULATED, seed), TIME, RULE).response_s
    return float(np.quantile(response[SIMULATED // 10 :], Q, method="inverted_cdf"))


def simulated_capacity_rps(seed: int, extra_s: float = 0.0) -> float:
    """The rate at which the simulated p99 and ``extra_s`` are the limit: bisection, equal random numbers at every rate."""
    low, high = 0.5 * TIME.capacity_rps(RULE.max_batch), TIME.capacity_rps(RULE.max_batch)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if p99_s(middle, seed) + extra_s <= LIMIT_S else (low, middle)
    return (low + high) / 2


def measured(args: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """sweep.json of one real sweep. Exits when it did not find a capacity."""
    slo, slower = f"p99 < {1000 * LIMIT_S * args.slower:g}ms", args.slower
    target = {
        "mode": "batch", "a": f"{10 * slower:g}ms", "c": f"{0.5 * slower:g}ms", "max_batch": 16, "max_delay": f"{2 * slower:g}ms",
    }  # fmt: skip
    settings = (f"target.embedded={json.dumps(target)}", f"slos=['{slo}', error_rate < 1%]", f"seed={seed}", "warmup=2s")
    command = [
        sys.executable, "-m", "truetail", "sweep", str(SCENARIO), "--rates", f"{LOW_RPS / slower:g}..{HIGH_RPS / slower:g}",
        "--slo", slo, "--seconds", f"{args.seconds}s", "--workers", "2", "--out", str(folder), "--json",
        *(word for setting in settings for word in ("--set", setting)),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"the sweep ended with exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the simulator's capacity with its error, then a line for each sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=1)
    parser.add_argument("--slower", type=float, default=2, help="factor of all times of the service")
    parser.add_argument("--seconds", type=int, default=30, help="measured time of a full run")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--out", type=Path, help="keep the sweeps here")
    args = parser.parse_args()
    each = [simulated_capacity_rps(seed) for seed in range(SIMULATIONS)]
    truth, error = statistics.fmean(each) / args.slower, statistics.stdev(each) / math.sqrt(SIMULATIONS) / args.slower
    print(f"simulator: {truth:.1f}/s (standard error {error:.1f}, {SIMULATIONS} x {SIMULATED:,} requests a rate)")
    moved = (simulated_capacity_rps(0, 0.001 / args.slower) - each[0]) / args.slower
    print(f"1 ms more in every response would move that by {moved:.1f}/s", flush=True)
    print("| sweep | capacity found | surely met | surely missed | over the simulator's | runs | time |\n|" + "---|" * 7)
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(args.sweeps):
            began = time.monotonic()
            sweep = measured(args, args.seed + 1000 * number, args.out or Path(scratch))
            answer = sweep["answer"]
            print(
                f"| {number + 1} | {answer['text'].split(' meets')[0]} | {answer['lower_rps']:g}/s | {answer['upper_rps']:g}/s | "
                f"{answer['estimate_rps'] / truth:.3f} | {len(sweep['points'])} | {time.monotonic() - began:.0f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
