"""How often a two-sided p99 claim is false: coverage of analysis.intervals on queues whose true p99 is known.

    nice -n 5 python benchmarks/coverage_intervals.py [--replications 1000] [--seed 20261]

Prints the table of docs/statistics.md. The truth is M/M/1's closed form; for the batch server a simulation of 20 million requests.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from analysis.batching import BatchRule, BatchTime, poisson_arrivals_s, simulate
from analysis.intervals import independent_ranks, percentile_interval

P99 = 990_000
SERVER, RULE = BatchTime(0.010, 0.0005), BatchRule(16, 0.002)
Draw = Callable[[int, np.random.Generator], NDArray[np.float64]]


def mm1(rho: float) -> Draw:
    """Response times of a stationary M/M/1 queue with unit service, by Lindley's recursion."""

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        gaps, work = rng.exponential(1 / rho, n), rng.exponential(1.0, n)
        first = 0.0 if rng.random() < 1 - rho else rng.exponential(1 / (1 - rho))
        walk = np.concatenate([[0.0], np.cumsum(work[:-1] - gaps[1:])])
        return walk + np.maximum(first, -np.minimum.accumulate(walk)) + work

    return draw


def batcher(rate: float) -> Draw:
    """Response times of the lesson's batch server, its first 2,000 requests left out as the warm-up."""

    def draw(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        at = np.cumsum(rng.exponential(1 / rate, n + 2000))
        return simulate(at, SERVER, RULE).response_s[2000:]

    return draw


def settings() -> Iterator[tuple[str, Draw, float, int]]:
    """(name, sampler, true p99, n)."""
    for rho, sizes in ((0.5, (2_000, 20_000)), (0.7, (20_000, 50_000)), (0.9, (20_000, 50_000, 200_000))):
        for n in sizes:
            yield f"M/M/1 {rho:g}", mm1(rho), math.log(100) / (1 - rho), n
    for rate in (400.0, 800.0):
        truth = np.quantile(simulate(poisson_arrivals_s(rate, 20_000_000, 77), SERVER, RULE).response_s, 0.99)
        for n in (5_000, 20_000, 100_000):
            yield f"batch server {rate:g}/s", batcher(rate), float(truth), n


def measure(draw: Draw, truth: float, n: int, replications: int, seed: int) -> dict[str, float]:
    """Shares over replications: a claim is made, it is false (of all runs), the lower end is right, the binomial interval is false."""
    rng = np.random.default_rng([seed, n])
    low, high = independent_ranks(n, P99)
    counts = dict.fromkeys(("claims", "false", "lower", "binomial"), 0)
    for _ in range(replications):
        x = draw(n, rng)
        found = percentile_interval(x, P99)
        counts["claims"] += found.two_sided
        counts["false"] += found.two_sided and not found.low <= truth <= found.high
        counts["lower"] += found.low <= truth
        ends = np.partition(x, [low - 1, high - 1])
        counts["binomial"] += not ends[low - 1] <= truth <= ends[high - 1]
    return {name: count / replications for name, count in counts.items()}


def main() -> None:
    """Print one line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261)
    args = parser.parse_args()
    print(f"seed {args.seed}; replications {args.replications} (a third of that from 100,000 requests on)")
    print("| model | n | a claim is made | false claims, of all runs (se) | lower end right | binomial interval false |")
    print("|---|---|---|---|---|---|")
    for name, draw, truth, n in settings():
        replications = args.replications if n < 100_000 else args.replications // 3
        began = time.monotonic()
        found = measure(draw, truth, n, replications, args.seed)
        error = math.sqrt(max(found["false"], 1 / replications) * (1 - found["false"]) / replications)
        print(
            f"| {name} | {n:,} | {found['claims']:.3f} | {found['false']:.3f} ({error:.3f}) | {found['lower']:.3f} | {found['binomial']:.3f} |",
            f"  {time.monotonic() - began:.0f} s", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
