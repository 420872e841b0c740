"""What a diagnosis looks at: the records of a run, the series beside them, and what is derived from both.

Every rule is a function of Evidence. Causes are compared by one number, the share of the tail's time that a cause explains:
tail = the slowest 1 % of the requests (and all failures); their time beyond what unaffected requests take, over their whole time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import fit_batches
from analysis.batching import BatchTime
from analysis.littles_law import STAGES, outside_s
from analysis.telemetry_series import Series
from truetail.ranks import nearest_rank
from truetail.records import DROPPED, FLAG_WARMUP, OK

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Window = tuple[int, int]
NS = 1e9
FEWEST_REQUESTS = 200
TAIL_PPM = 990_000
LATE_SHARE = 0.2
"""Of a wait: a generator that was late by this part of it was held up as well, and the wait may be its own."""
SETTLING = 200
"""A replica's requests after which it is not cold any more."""
LEAST_LIFT = 1.3
"""How much more frequent a circumstance must be in the tail than in general to count as a cause."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its evidence. ``share`` of the tail's time is explained by it; ``windows`` are where to look (ns), ``plot`` names
    the series to look at; ``action`` says what to do."""

    cause: str
    title: str
    share: float
    evidence: Sequence[str]
    action: str
    windows: Sequence[Window] = ()
    plot: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A rule that could not be tried, and what it would need."""

    cause: str
    needs: str


@dataclass(frozen=True)
class Evidence:
    """A run as the rules see it. ``records`` are rows of ``truetail.records.RECORD``, in any order, warm-up and drops included;
    ``series`` by name (``gpu/<source>:<field>``, ``server/<source>:<series>``, ``host/<host>:<field>``); ``generators`` are the
    manifest's, one mapping a worker; ``declared`` is t(b) where the target was told it."""

    records: NDArray[np.void]
    replica_names: Mapping[int, str] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    generators: Sequence[Mapping[str, Any]] = ()
    declared: BatchTime | None = None

    @cached_property
    def every(self) -> NDArray[np.void]:
        """All requests that were sent and ended, sorted by intended time, warm-up included."""
        rows = self.records
        rows = rows[
            (rows["outcome"] != DROPPED)
            & (rows["part"] == 0)
            & (rows["k"] >= 0)
            & (rows["sent_ns"] >= 0)
            & (rows["done_ns"] >= 0)
        ]
        return rows[np.argsort(rows["intended_ns"], kind="stable")]

    @cached_property
    def rows(self) -> NDArray[np.void]:
        """The requests judged: those after the warm-up."""
        after = (self.every["flags"] & FLAG_WARMUP) == 0
        return self.every if after.all() else self.every[after]

    @cached_property
    def ok(self) -> Mask:
        """Which of ``rows`` succeeded."""
        return np.asarray(self.rows["outcome"] == OK)

    @cached_property
    def response_s(self) -> Floats:
        """Intended to done, of every row."""
        return np.asarray((self.rows["done_ns"] - self.rows["intended_ns"]) / NS)

    @cached_property
    def p99_s(self) -> float:
        """The nearest-rank p99 of successful responses."""
        values = np.sort(self.response_s[self.ok])
        return float(values[nearest_rank(len(values), TAIL_PPM) - 1])

    @cached_property
    def median_s(self) -> float:
        """The median successful response."""
        return float(np.median(self.response_s[self.ok]))

    @cached_property
    def cost_s(self) -> Floats:
        """Response; of a failure at least the p99, so that a quick refusal does not look good."""
        return np.where(self.ok, self.response_s, np.maximum(self.response_s, self.p99_s))

    @cached_property
    def tail(self) -> Mask:
        """The slowest 1 % of the successes, and all failures."""
        return np.asarray(~self.ok | (self.response_s >= self.p99_s))

    @cached_property
    def stage_s(self) -> Mapping[str, Floats]:
        """Seconds by stage of each row: lateness, outside (network and queueing outside), and what the server told; NaN: not told."""
        told = {stage: self.rows[f"{stage}_us"].astype(float) / 1e6 for stage in STAGES}
        told = {stage: values for stage, values in told.items() if np.isfinite(values).any()}
        return {"lateness": (self.rows["sent_ns"] - self.rows["intended_ns"]) / NS, "outside": outside_s(self.rows), **told}

    @cached_property
    def tells_stages(self) -> bool:
        """Whether the server told its stages for at least half of the answers."""
        return bool(np.isfinite(self.stage_s["outside"][self.ok]).mean() >= 0.5) if self.ok.any() else False

    @cached_property
    def fit(self) -> fit_batches.BatchFit | None:
        """t(b) as measured in this run; None where it cannot be told.

        Learnt without each replica's first requests where enough others are left: cold ones make the large batches, and a line
        through them would take what is slow for what is usual.
        """
        if "inference" not in self.stage_s:
            return None
        settled = self.ok & (_turn(self.rows["replica"]) >= SETTLING)
        found = self._fit(settled) if settled.sum() >= 0.5 * self.ok.sum() else None
        return found or self._fit(self.ok)

    def _fit(self, mask: Mask) -> fit_batches.BatchFit | None:
        return fit_batches.fit(self.rows["batch"][mask], self.stage_s["inference"][mask])

    @cached_property
    def slowness(self) -> Floats:
        """Inference time over the usual one for this batch size, of each row; NaN where not told."""
        return self.slowness_of(self.rows)

    def slowness_of(self, rows: NDArray[np.void]) -> Floats:
        """The same for other rows of this run."""
        inference = rows["inference_us"].astype(float) / 1e6
        if self.fit is not None:
            usual = self.fit.time.a_s + self.fit.time.c_s * np.maximum(rows["batch"], 1)
        elif "inference" in self.stage_s:
            usual = np.full(len(rows), np.nanmedian(self.stage_s["inference"]))
        else:
            return np.full(len(rows), np.nan)
        return np.asarray(inference / np.maximum(usual, 1e-9))

    def slower_than(self, factor: float) -> Mask:
        """Rows whose inference took ``factor`` times the usual time for their batch, or more."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.slowness >= factor)

    def during(self, windows: Sequence[Window]) -> Mask:
        """Which rows were under way in one of the windows."""
        mask = np.zeros(len(self.rows), dtype=bool)
        for low, high in windows:
            mask |= (self.rows["intended_ns"] < high) & (self.rows["done_ns"] >= low)
        return mask

    def explained(self, mask: Mask, reference_s: float) -> float:
        """The share of the tail's time that rows in ``mask`` spend beyond ``reference_s``; 0 unless the mask is commoner in the tail."""
        in_tail = mask & self.tail
        if not in_tail.any() or in_tail.sum() / self.tail.sum() < LEAST_LIFT * min(mask.mean(), 0.7):
            return 0.0
        return float(np.maximum(self.cost_s[in_tail] - reference_s, 0).sum() / self.cost_s[self.tail].sum())

    def reference_s(self, mask: Mask) -> float:
        """The median response of successes outside ``mask``; the run's median where it leaves fewer than 20."""
        rest = self.ok & ~mask
        return float(np.median(self.response_s[rest])) if rest.sum() >= 20 else self.median_s

    def stage_share(self, stage: str) -> float:
        """The share of the tail's time that is spent in a stage."""
        if stage not in self.stage_s:
            return 0.0
        part = np.nan_to_num(self.stage_s[stage][self.tail & self.ok])
        return float(np.maximum(part, 0).sum() / max(self.response_s[self.tail & self.ok].sum(), 1e-12))

    def matching(self, *endings: str) -> Mapping[str, Series]:
        """The series whose field (what follows the last ``.`` or ``:`` of the name, labels apart) begins with one of these."""
        return {name: series for name, series in self.series.items() if field_of(name).startswith(endings)}


def _turn(ids: NDArray[np.integer]) -> NDArray[np.int64]:
    """Of each entry, how many equal ones stand before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    turn = np.empty(len(ids), dtype=np.int64)
    turn[order] = np.arange(len(ids)) - np.searchsorted(ordered, ordered)
    return turn


def field_of(name: str) -> str:
    """The field of a series' name: ``gpu/simulated-target:devices.0.throttling`` -> ``throttling``."""
    plain = name.split("{", 1)[0].replace(":", ".")
    return plain.rsplit(".", 1)[-1].removeprefix("target_device_")


def windows_where(at_ns: NDArray[np.int64], hot: Mask, join_ns: int) -> list[Window]:
    """Windows that cover the instants at which ``hot`` is true; those nearer than ``join_ns`` are one. Empty where none is."""
    times = at_ns[hot]
    if not len(times):
        return []
    breaks = np.flatnonzero(np.diff(times) > join_ns)
    starts = times[np.concatenate([[0], breaks + 1])]
    ends = times[np.concatenate([breaks, [len(times) - 1]])]
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def shown(windows: Sequence[Window], most: int = 3) -> str:
    """Windows for people: ``12.3-14.1 s, 20.0-21.5 s and 4 more``."""
    texts = [f"{a / NS:.1f}-{b / NS:.1f} s" for a, b in windows[:most]]
    more = f" and {len(windows) - most} more" if len(windows) > most else ""
    return ", ".join(texts) + more
