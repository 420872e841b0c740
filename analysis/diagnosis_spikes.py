"""Where p99 is spent, by stage, and the windows in which latency spikes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.diagnosis_evidence import NS, Evidence, Floats

LEAST_PER_BIN = 20
EXCESS_MAD, EXCESS_RELATIVE = 6.0, 0.5
"""A spike exceeds the baseline by six robust standard deviations and by half of it."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A window (ns) whose p99 (s) stands out from ``baseline_s``; ``stages`` has the mean seconds that its slow requests spent in
    each stage beyond the run's median."""

    begin_ns: int
    end_ns: int
    p99_s: float
    baseline_s: float
    n: int
    stages: Mapping[str, float]

    @property
    def stage(self) -> str:
        """Where most of the excess was spent; empty where the server told nothing."""
        return max(self.stages, key=lambda name: self.stages[name], default="")


def p99_series(evidence: Evidence) -> tuple[Floats, Floats, int]:
    """(starts of bins in ns, p99 of each in s, bin width in ns): a second, or more where a second has fewer than 20 requests.

    Bins without requests are NaN.
    """
    at, response = evidence.rows["intended_ns"], evidence.cost_s
    span_s = max((at[-1] - at[0]) / NS, 1.0)
    width_ns = int(max(1.0, np.ceil(LEAST_PER_BIN * span_s / len(at))) * NS)
    index = (at - at[0]) // width_ns
    order = np.lexsort((response, index))
    edges = np.searchsorted(index[order], np.arange(index[-1] + 2))
    sizes = np.diff(edges)
    ranks = np.maximum(-(-99 * sizes // 100), 1) - 1
    p99 = np.where(sizes > 0, response[order][np.minimum(edges[:-1] + ranks, len(at) - 1)], np.nan)
    return at[0] + np.arange(len(sizes)) * float(width_ns), p99, width_ns


def spikes(evidence: Evidence) -> list[Spike]:
    """Windows of neighbouring bins whose p99 stands out from the median of all bins, largest first."""
    starts, p99, width_ns = p99_series(evidence)
    baseline = float(np.nanmedian(p99))
    spread = 1.4826 * float(np.nanmedian(np.abs(p99 - baseline)))
    hot = np.nan_to_num(p99) > baseline + max(EXCESS_MAD * spread, EXCESS_RELATIVE * baseline)
    found: list[Spike] = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hot.astype(int), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        begin, end = int(starts[first]), int(starts[last - 1]) + width_ns
        inside = (evidence.rows["intended_ns"] >= begin) & (evidence.rows["intended_ns"] < end)
        top = float(np.nanmax(p99[first:last]))
        slow = inside & (evidence.cost_s > baseline)
        stages = {
            name: float(np.nanmean(values[slow]) - np.nanmedian(values))
            for name, values in evidence.stage_s.items()
            if np.isfinite(values[slow]).any()
        }
        found.append(Spike(begin, end, top, baseline, int(inside.sum()), stages))
    return sorted(found, key=lambda spike: -spike.p99_s)


def decomposition(evidence: Evidence) -> dict[str, tuple[float, float]]:
    """By stage: (share of the time of requests above p99, share of all requests' time). ``unknown`` is what no stage accounts for."""
    ok = evidence.ok
    groups = (evidence.tail & ok, ok)
    totals = [evidence.response_s[mask].sum() for mask in groups]
    shares = {
        name: tuple(
            float(np.nan_to_num(values[mask]).sum() / max(total, 1e-12)) for mask, total in zip(groups, totals, strict=True)
        )
        for name, values in evidence.stage_s.items()
        if np.isfinite(values).any()
    }
    rest = [1 - sum(share[i] for share in shares.values()) for i in (0, 1)]
    return {name: (a, b) for name, (a, b) in shares.items()} | {"unknown": (rest[0], rest[1])}
