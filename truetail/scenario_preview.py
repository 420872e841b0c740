"""What a scenario will send, found by planning it: counts, gaps, dispersion, shares. Nothing is sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shapes.schedule import Schedule
from truetail.ranks import PPM
from truetail.slo import Slo

Counts = NDArray[np.int64]
MOST_BINS = 200_000
CONFIDENCE = 0.95
NOTHING_PLANNED = "arrivals: not a single one is planned: raise the rate or the duration"


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan in figures. ``counts`` are arrivals per ``bin_s``; a figure that too few arrivals leave undefined is None."""

    count: int
    expected_count: float
    measured: int
    digest: str
    bin_s: float
    counts: Counts
    mean_gap_s: float | None
    gap_scv: float | None
    at_once_share: float | None
    dispersion: dict[str, float]
    worker_counts: list[int]

    @property
    def peak(self) -> tuple[float, int]:
        """(start in s, arrivals) of the fullest bin, the first of equals."""
        index = int(np.argmax(self.counts))
        return index * self.bin_s, int(self.counts[index])

    @property
    def peak_rps(self) -> float:
        """Rate in the fullest bin."""
        return self.peak[1] / self.bin_s


def preview(resolved: Mapping[str, Any], epoch_wall_s: float) -> Preview:
    """Plan a resolved scenario. One pass over the schedule at constant memory, and one for its digest."""
    duration_s, n_workers = resolved["duration_s"], resolved["fleet"]["workers"]
    schedule = Schedule(resolved["arrivals"], duration_s, resolved["seed"]["schedule"], epoch_wall_s)
    bin_s = max(1.0, math.ceil(duration_s / MOST_BINS))
    counts = np.zeros(max(1, math.ceil(duration_s / bin_s)), dtype=np.int64)
    gaps = Gaps()
    measured = 0
    for block in schedule.blocks():
        bins = np.minimum((block.offsets_ns / (bin_s * 1e9)).astype(np.int64), len(counts) - 1)
        counts += np.bincount(bins, minlength=len(counts))
        measured += int(np.count_nonzero(block.offsets_ns >= resolved["warmup_s"] * 1e9))
        gaps.add(block.offsets_ns)
    count = int(counts.sum())
    return Preview(
        count=count,
        expected_count=float(schedule.expected_count),
        measured=measured,
        digest=schedule.digest(),
        bin_s=bin_s,
        counts=counts,
        mean_gap_s=gaps.mean_s,
        gap_scv=gaps.scv,
        at_once_share=gaps.at_once_share,
        dispersion=dispersion(counts, bin_s, duration_s),
        worker_counts=_worker_counts(schedule, resolved, count, n_workers),
    )


class Gaps:
    """Mean and squared coefficient of variation of the gaps between arrivals, over a stream of blocks (ns)."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._n = 0
        self._at_once = 0
        self._mean_s = 0.0
        self._squares = 0.0  # sum of squared deviations; merged block by block (the pairwise update of Chan et al., 1983)

    def add(self, offsets_ns: NDArray[np.int64]) -> None:
        """Take in the next block, in order of time."""
        if not len(offsets_ns):
            return
        before = offsets_ns[:1] if self._last is None else np.array([self._last], dtype=np.int64)
        gaps_s = np.diff(offsets_ns, prepend=before)[int(self._last is None) :] / 1e9
        self._last = int(offsets_ns[-1])
        if not len(gaps_s):
            return
        n, mean_s = len(gaps_s), float(gaps_s.mean())
        delta, total = mean_s - self._mean_s, self._n + n
        self._squares += float(((gaps_s - mean_s) ** 2).sum()) + delta**2 * self._n * n / total
        self._mean_s += delta * n / total
        self._n = total
        self._at_once += int(np.count_nonzero(gaps_s == 0))

    @property
    def mean_s(self) -> float | None:
        """Mean gap."""
        return self._mean_s if self._n else None

    @property
    def scv(self) -> float | None:
        """Variance over squared mean: 0 for fixed gaps, 1 for Poisson at a constant rate."""
        return self._squares / self._n / self._mean_s**2 if self._n and self._mean_s else None

    @property
    def at_once_share(self) -> float | None:
        """Share of the gaps that are 0."""
        return self._at_once / self._n if self._n else None


def dispersion(counts: Counts, bin_s: float, duration_s: float) -> dict[str, float]:
    """Index of dispersion of counts (variance over mean) in windows of 1, 10 and 60 bins, where 10 whole ones fit."""
    whole = counts[: int(duration_s / bin_s)]
    found = {}
    for width in (1, 10, 60):
        windows = whole[: len(whole) // width * width].reshape(-1, width).sum(axis=1)
        if len(windows) >= 10 and windows.mean() > 0:
            found[f"{width * bin_s:g}s"] = float(windows.var(ddof=1) / windows.mean())
    return found


def _worker_counts(schedule: Schedule, resolved: Mapping[str, Any], count: int, n_workers: int) -> list[int]:
    if "trace" in resolved["arrivals"]:  # sessions stay on one worker: only planning tells
        return [sum(len(block.ks) for block in schedule.slot_blocks(slot, n_workers)) for slot in range(n_workers)]
    return [(count - slot + n_workers - 1) // n_workers for slot in range(n_workers)]


@dataclass(frozen=True, slots=True)
class Need:
    """How many requests an SLO line will be judged on, and how many it takes; None where no such number is known beforehand.

    ``bound``: for the verdict to claim the line when no request breaks it. ``interval``: to say a percentile from both sides.
    """

    slo: str
    planned: int
    bound: int | None
    interval: int | None


def need_of(slo: Slo, planned: int, utilisation: float) -> Need:
    """What ``slo`` needs on a server busy for the share ``utilisation``: neighbours in a queue are alike and count for less."""
    from analysis import sample_size

    if slo.kind == "percentile" and slo.ppm is not None and slo.ppm < PPM:
        percentile = slo.ppm / 10_000
        plan = sample_size.plan(percentile, utilisation)
        least = sample_size.fewest_n(percentile, plan.vif)
        return Need(slo.text, planned, least, max(least, plan.claim_n))
    failing = {"error_rate": slo.limit, "goodput": 1 - slo.limit}.get(slo.kind, 0.0)
    # Not one failure in n shows less than the share p of failures when (1 - p)^n <= 5 %.
    bound = math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-failing)) if 0 < failing < 1 else None
    return Need(slo.text, planned, bound, None)


def share_of(name: str | None, requests: Iterable[Mapping[str, Any]]) -> float:
    """The share of the arrivals that are requests called ``name``; 1 for None, 0 when the mix has none."""
    if name is None:
        return 1.0
    weights = {request["name"]: request["weight"] for request in requests}
    return float(weights.get(name, 0.0) / sum(weights.values())) if weights else 0.0
