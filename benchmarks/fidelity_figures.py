"""What the fidelity experiment compares: durations and arrivals as a server's access log tells them, and an exact queue beside them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.batching import BatchRule, BatchTime, simulate
from analysis.intervals import Interval, percentile_interval
from shapes.arrival_tests import Certificate, certify

Floats = np.ndarray[Any, np.dtype[np.float64]]
BLOCK_S = 5.0
LEAST_BLOCKS = 10
PERCENTILES = (50, 95, 99)
PREDICT = "/predict"


@dataclass(frozen=True)
class Served:
    """Requests in order of arrival: ``arrived_s`` from the first, and ``duration_s`` inside the service."""

    arrived_s: Floats
    duration_s: Floats

    def after(self, warmup_s: float) -> Served:
        """Without the first ``warmup_s``."""
        kept = self.arrived_s >= warmup_s
        return Served(self.arrived_s[kept], self.duration_s[kept])

    def percentile_s(self, percent: int) -> float:
        """The nearest-rank percentile of the durations."""
        return nearest_rank(self.duration_s, percent)


def nearest_rank(values: Floats, percent: int) -> float:
    """The percentile as its definition says."""
    rank = -(-percent * len(values) // 100) - 1
    return float(np.partition(values, rank)[rank])


def read_log(path: Path) -> Served:
    """The /predict requests of a target's access log. Raises ValueError when one was not answered: such a run proves nothing."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["path"] == PREDICT]  # a load test also asks for /version
    failed = [line for line in lines if line["status"] != 200]
    if failed or not lines:
        raise ValueError(f"{path}: {len(lines)} requests, {len(failed)} of them not answered with 200, like {failed[:1]}")
    arrived = np.array([line["arrived_wall_ns"] for line in lines], dtype=np.int64)
    duration = np.array([line["duration_us"] for line in lines]) / 1e6
    order = np.argsort(arrived, kind="stable")
    return Served((arrived[order] - arrived.min()) / 1e9, duration[order])


def interval(served: Served, percent: int) -> Interval:
    """The percentile with its interval under autocorrelation (:mod:`analysis.intervals`)."""
    return percentile_interval(served.duration_s, percent * 10_000)


def ratio(replay: Served, production: Served, percent: int, paired: bool, resamples: int = 2000) -> tuple[float, float, float]:
    """The replay's percentile over production's, and a 95 % interval by block bootstrap.

    Blocks of 5 s keep a queue's memory together. ``paired``: the same instants were replayed, so both sides draw the same blocks,
    and what the draw of arrivals adds cancels. Otherwise both draw for themselves.
    Fewer than 10 blocks support no interval: then it is (0, inf).
    """
    ours, theirs = _blocks(replay), _blocks(production)
    value = replay.percentile_s(percent) / production.percentile_s(percent)
    if min(len(ours), len(theirs)) < LEAST_BLOCKS:
        return value, 0.0, math.inf
    random = np.random.default_rng(0)
    if paired and len(ours) != len(theirs):
        most = min(len(ours), len(theirs))
        ours, theirs = ours[:most], theirs[:most]
    found = np.empty(resamples)
    for number in range(resamples):
        draw = random.integers(len(theirs), size=len(theirs))
        other = draw if paired else random.integers(len(ours), size=len(ours))
        above = nearest_rank(np.concatenate([ours[at] for at in other]), percent)
        found[number] = above / nearest_rank(np.concatenate([theirs[at] for at in draw]), percent)
    low, high = np.quantile(found, [0.025, 0.975])
    return value, float(low), float(high)


def _blocks(served: Served) -> list[Floats]:
    """The durations cut every 5 s of arrival time; a shorter rest at the end is left out."""
    whole = max(1, int((served.arrived_s[-1] - served.arrived_s[0] + 1e-3) // BLOCK_S))
    edges = served.arrived_s[0] + np.arange(1, whole + 1) * BLOCK_S
    cuts = np.searchsorted(served.arrived_s, edges, "left")
    return [part for part in np.split(served.duration_s, cuts)[:whole] if len(part)]


@dataclass(frozen=True)
class Arrivals:
    """How requests arrived: variance over mean of counts per second, CV of gaps, and the six tests against a Poisson process."""

    dispersion_1s: float
    gap_cv: float
    certificate: Certificate

    @property
    def verdict(self) -> str:
        """``Poisson`` when no test rejects, or how many do."""
        failures = self.certificate.failures
        return f"{len(failures)} of 6 reject" if failures else "Poisson"


def arrivals(served: Served, rate_rps: float) -> Arrivals:
    """Figures of the arrivals, tested at the declared rate over the span seen. Raises ValueError for fewer than 100."""
    times = served.arrived_s - served.arrived_s[0]
    whole = max(1, int(times[-1]))
    counts = np.bincount(times[times < whole].astype(np.intp), minlength=whole)
    gaps = np.diff(times)
    certificate = certify(times * rate_rps, float(times[-1] * rate_rps))
    return Arrivals(float(counts.var(ddof=1) / counts.mean()), float(gaps.std() / gaps.mean()), certificate)


def strayed_s(replay: Served, production: Served) -> Floats:
    """How far each arrival lies from production's of the same rank, in s, seen at the server; the median shift is taken out.

    Raises ValueError when the counts differ: then arrivals are missing or doubled, and ranks say nothing.
    """
    if len(replay.arrived_s) != len(production.arrived_s):
        raise ValueError(f"{len(replay.arrived_s)} arrivals were replayed of {len(production.arrived_s)}")
    shift = replay.arrived_s - production.arrived_s
    return np.abs(shift - np.median(shift))


def ideal(arrived_s: Floats, a_s: float, c_s: float, max_batch: int, max_delay_s: float) -> Served:
    """The same instants through an exact queue without any overhead (:mod:`analysis.batching`; max_batch 1 is first in, first out)."""
    batched = simulate(arrived_s, BatchTime(a_s, c_s), BatchRule(max_batch, max_delay_s))
    return Served(arrived_s, batched.response_s)
