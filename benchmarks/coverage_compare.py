"""False alarms and power of analysis.compare: five runs an arm, equal tails and one 20 % slower.

    nice -n 5 python benchmarks/coverage_compare.py [--replications 1000] [--seed 20262]

Prints the table of docs/statistics.md. Runs are stationary M/M/1 response times; ``restart sd`` multiplies each run by a
lognormal factor, as restarts and placement do.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from coverage_intervals import mm1  # beside this file
from numpy.typing import NDArray

from analysis.compare import Comparison, compare

P99 = 990_000
RUNS = 5
SETTINGS = ((0.5, 20_000, 0.0), (0.5, 20_000, 0.05), (0.7, 20_000, 0.0), (0.7, 20_000, 0.05), (0.9, 20_000, 0.0))


def one(rho: float, n: int, sd: float, slower: float, rng: np.random.Generator) -> Comparison:
    """Compare two arms of RUNS runs each; the candidate's times are ``slower`` times the base's."""
    draw = mm1(rho)

    def arm(scale: float) -> list[NDArray[np.float64]]:
        return [draw(n, rng) * scale * np.exp(rng.normal(0, sd)) for _ in range(RUNS)]

    return compare(arm(1.0), arm(slower), P99)


def measure(rho: float, n: int, sd: float, slower: float, replications: int, seed: int) -> dict[str, float]:
    """Shares of verdicts, of Welch and exact permutation rejections at 5 %, and of intervals that hold the true ratio."""
    rng = np.random.default_rng([seed, n, round(100 * rho), round(1000 * sd), round(100 * slower)])
    found = [one(rho, n, sd, slower, rng) for _ in range(replications)]
    verdicts = [f.verdict for f in found]
    return {
        "welch": float(np.mean([f.p < 0.05 for f in found])),
        "permutation": float(np.mean([f.permutation_p <= 0.05 for f in found])),
        "covers": float(np.mean([f.low <= slower <= f.high for f in found])),
        **{word: verdicts.count(word) / replications for word in ("worse", "better", "same", "cannot say")},
    }


def main() -> None:
    """Print two lines a setting: equal tails, and +20 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20262)
    args = parser.parse_args()
    print(f"seed {args.seed}; replications {args.replications}; {RUNS} runs an arm; margin 10 %")
    print(
        "| M/M/1 rho | n a run | restart sd | candidate | Welch rejects | permutation rejects | interval covers | worse | better | same | cannot say |"
    )
    print("|" + "---|" * 11)
    for rho, n, sd in SETTINGS:
        for slower in (1.0, 1.2):
            began = time.monotonic()
            f = measure(rho, n, sd, slower, args.replications, args.seed)
            cells = [f"{f[k]:.3f}" for k in ("welch", "permutation", "covers", "worse", "better", "same", "cannot say")]
            label = "equal" if slower == 1 else "+20 %"
            print(
                f"| {rho:g} | {n:,} | {sd:.0%} | {label} | {' | '.join(cells)} |   {time.monotonic() - began:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
