"""How fast schedules are planned, on one core: ns per arrival and as a ratio to numpy's standard_exponential alone.

``python benchmarks/bench_schedule.py [--arrivals 4000000] [--repeats 3]``; the best of the repeats is shown. The ratio is what to compare between machines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shapes.schedule import Schedule
from shapes.spacings import BLOCK

RATE_RPS = 1000.0
CONSTANT = {"kind": "constant", "rate_rps": RATE_RPS}
POISSON = {"kind": "poisson"}


def burst(law: str) -> dict[str, Any]:
    """1,000/s in the mean, of which 90 % in bursts once a minute."""
    jitter = {"kind": law, "width_s": 2.0}
    return {
        "kind": "hour_burst",
        "base_rps": 100.0,
        "clients": 54_000,
        "period_s": 60.0,
        "jitter": jitter,
        "align": "start",
        "offset_s": 0.0,
    }


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "constant, fixed": (CONSTANT, {"kind": "fixed"}),
    "constant, poisson": (CONSTANT, POISSON),
    "constant, groups of 4": (CONSTANT, {"kind": "groups", "size": 4, "spacing": POISSON}),
    "constant, gamma cv 0.5": (CONSTANT, {"kind": "gamma", "cv": 0.5}),
    "constant, gamma cv 2": (CONSTANT, {"kind": "gamma", "cv": 2.0}),
    "ramp, poisson": ({"kind": "ramp", "from_rps": 500.0, "to_rps": 1500.0, "over_s": 4000.0}, POISSON),
    "steps, poisson": (
        {"kind": "steps", "steps": [{"rate_rps": 500.0 + 1000 * (i % 2), "for_s": 5.0} for i in range(100)]},
        POISSON,
    ),
    "diurnal, poisson": (
        {"kind": "diurnal", "mean_rps": RATE_RPS, "amplitude": 0.9, "period_s": 600.0, "peak_at_s": 0.0},
        POISSON,
    ),
    **{f"hour burst {law}, poisson": (burst(law), POISSON) for law in ("uniform", "exponential", "normal")},
}


def best_ns(step: Callable[[], int], repeats: int) -> float:
    """ns per arrival of the fastest repeat; ``step`` returns how many it made."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        made = step()
        found.append((time.perf_counter_ns() - start) / made)
    return min(found)


def numpy_alone(arrivals: int) -> int:
    """The random numbers of a Poisson process and nothing else, in blocks like ours."""
    generator = np.random.Generator(np.random.Philox(1))
    for _ in range(0, arrivals, BLOCK):
        generator.standard_exponential(BLOCK)
    return arrivals


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=4_000_000, help="arrivals per case (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats, of which the best counts (default: %(default)s)")
    options = parser.parse_args()
    base = best_ns(lambda: numpy_alone(options.arrivals), options.repeats)
    print(
        f"{'':34}{'ns/arrival':>12}{'million/s':>12}{'ratio':>8}\n{'numpy standard_exponential alone':34}{base:12.1f}{1e3 / base:12.1f}{1:8.1f}"
    )
    for name, (rate, spacing) in CASES.items():
        schedule = Schedule({"rate": rate, "spacing": spacing}, options.arrivals / RATE_RPS, 0)
        plans = {"": lambda s=schedule: sum(block.offsets_ns.size for block in s.blocks())}
        if name == "constant, poisson":
            plans[", slot 0 of 4"] = lambda s=schedule: 4 * sum(block.ks.size for block in s.slot_blocks(0, 4))
            plans[", digest"] = lambda a=(rate, spacing): Schedule(
                {"rate": a[0], "spacing": a[1]}, options.arrivals / RATE_RPS, 0
            ).count()
        for suffix, plan in plans.items():
            ns = best_ns(plan, options.repeats)
            print(f"{name + suffix:34}{ns:12.1f}{1e3 / ns:12.1f}{ns / base:8.1f}")


if __name__ == "__main__":
    main()
