"""From a finished run's folder to a point of the sweep: the SLO's percentile with its interval, and what the run says at its rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.intervals import Interval, percentile_interval
from analysis.likeness import values_s
from analysis.run_folder import Run
from analysis.sample_size import plan
from analysis.sweep_outcome import growing, judge, log_error
from analysis.sweep_result import SHOWN, Point, Quantile
from analysis.sweep_search import Length, Outcome
from analysis.text import plain
from truetail.ranks import to_ppm
from truetail.slo import Slo

OURS = ("long enough", "SLO stated")
"""Rules about what a run claims by itself: a sweep judges its percentile by the interval."""
EXPECTED_UTILISATION = 0.8
HALF_WIDTH = 0.2
FEWEST_S, MOST_S = 20.0, 120.0
SHORTEST_S, SHORT_SHARE = 5.0, 1 / 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What a point was to be."""

    number: int
    rate_rps: float
    length: Length
    seconds: float
    seed: int


def full_seconds(slo: Slo, rate_rps: float, wall_rps: float | None) -> float:
    """How long a full run measures: for a percentile within 20 % at the expected utilisation (80 % where no capacity is known),
    but 20 s to 120 s."""
    load = EXPECTED_UTILISATION if wall_rps is None else min(rate_rps / wall_rps, 0.95)
    n = plan(float(slo.percentile or 0), load, HALF_WIDTH).n
    return float(math.ceil(min(max(n / rate_rps, FEWEST_S), MOST_S)))


def short_seconds(full_s: float) -> float:
    """How long a short try measures: an eighth of a full run, at least 5 s."""
    return float(math.ceil(min(max(full_s * SHORT_SHARE, SHORTEST_S), full_s)))


def measure(run: Run, summary: Mapping[str, Any], slo: Slo, asked: Asked) -> Point:
    """Judge a run; ``summary`` is its summary.json."""
    values = values_s(run, slo.metric, slo.name)
    low, high = run.window_ns
    completed = int(np.isfinite(values).sum()) / max((high - low) / 1e9, 1e-9)
    outcome, reason, quantile = _outcome(run, summary, slo, values, asked.length)
    shown = [_quantile(percentile_interval(values, to_ppm(q))) for q in SHOWN] if len(values) else []
    return Point(
        number=asked.number, rate_rps=asked.rate_rps, length=asked.length, seconds=asked.seconds, seed=asked.seed, run=run.path.name,
        verdict=str(summary["verdict"]["status"]), outcome=outcome, reason=plain(reason, 600), n=len(values),
        failed=int(np.isinf(values).sum()), completed_rps=completed, slo=quantile, percentiles=shown,
    )  # fmt: skip


def _outcome(
    run: Run, summary: Mapping[str, Any], slo: Slo, values: np.ndarray[Any, np.dtype[np.float64]], length: Length
) -> tuple[Outcome, str, Quantile | None]:
    if not len(values):
        return Outcome.INVALID, "; ".join(_unmet(summary)) or "no request told it", None
    judged = judge(values, slo, full=length is Length.FULL)
    quantile, unmet = _quantile(judged.interval), _unmet(summary)
    if unmet:
        # A late generator makes everything slow from the intended instant; the service is to blame only if it was slow itself.
        service = values_s(run, "service", slo.name)
        if growing(service[np.isfinite(service)], slo):
            return Outcome.GROWING, f"the service itself was slower than the limit most of the time ({unmet[0]})", quantile
        return Outcome.INVALID, "; ".join(unmet), quantile
    others = [
        f"{line['text']} is missed: {line['measured']}"
        for line in summary["slos"]
        if line["met"] is False and line["text"] != slo.text
    ]
    if others and length is Length.FULL and judged.outcome in (Outcome.MEETS, Outcome.UNSURE):
        return Outcome.MISSES, "; ".join(others), quantile
    return judged.outcome, judged.interval.text(), quantile


def _unmet(summary: Mapping[str, Any]) -> Sequence[str]:
    return [f"{rule['name']}: {rule['text']}" for rule in summary["rules"] if rule["met"] is False and rule["name"] not in OURS]


def _quantile(found: Interval) -> Quantile:
    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return Quantile(
        percentile=found.percentile, value_s=known(found.value), low_s=known(max(found.low, 0.0)), high_s=known(found.high),
        log_error=known(log_error(found)),
    )  # fmt: skip
