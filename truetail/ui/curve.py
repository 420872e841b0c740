"""The planned rate of a scenario, drawn before anything is sent; bounded, so that a form may ask for it at every keystroke."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shapes.schedule import Schedule

POINTS = 200
MOST_ARRIVALS = 3_000_000
MOST_SECONDS = 2.0


def planned_curve(
    resolved: Mapping[str, Any],
    wall_s: float,
    most_arrivals: int = MOST_ARRIVALS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Arrivals per second over the run in at most ``POINTS`` stretches, counted from the schedule itself.

    Planning ends at ``most_arrivals`` or after two seconds; ``until_s`` then says how far it came. Raises ValueError or OSError where
    the arrivals cannot be planned (a trace that is missing or malformed).
    """
    duration_s = float(resolved["duration_s"])
    schedule = Schedule(resolved["arrivals"], duration_s, resolved["seed"]["schedule"], wall_s)
    width_s = max(1.0, float(np.ceil(duration_s / POINTS))) if duration_s > 1 else duration_s
    edges = np.append(np.arange(0.0, duration_s, width_s), duration_s)
    counts = np.zeros(len(edges) - 1, np.int64)
    count, until_s, deadline = 0, duration_s, clock() + MOST_SECONDS
    for block in schedule.blocks():
        bins = np.minimum((block.offsets_ns / (width_s * 1e9)).astype(np.int64), len(counts) - 1)
        counts += np.bincount(bins, minlength=len(counts))
        count += len(block.offsets_ns)
        if count >= most_arrivals or clock() > deadline:
            until_s = float(block.offsets_ns[-1] / 1e9)
            break
    whole = int(np.searchsorted(edges, until_s, side="right")) - 1  # a stretch that was planned in part would look like a dip
    rates = counts[:whole] / np.diff(edges)[:whole]
    return {
        "from_s": edges[:whole].tolist(),
        "rate": [round(float(rate), 3) for rate in rates],
        "width_s": width_s,
        "duration_s": duration_s,
        "until_s": until_s,
        "count": count,
        "expected": float(schedule.expected_count),
        "peak": round(float(rates.max()), 3) if whole else 0.0,
    }
