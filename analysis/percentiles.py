"""Exact percentiles by nearest rank over merged records: successes, and all, where a failure is infinitely slow.

Percentiles are never averaged. ``mean_of_p99s`` exists to stand beside the true value and be seen to be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import INFINITE_NS, Values, measure
from analysis.record_columns import chosen, pieces
from analysis.run_folder import Run
from truetail.histogram import Histogram
from truetail.ranks import nearest_rank, to_ppm

SHOWN = ("50", "90", "95", "99", "99.9", "99.99")
CURVE_POINTS = 240
FEW_GROUPS = 8
"""So many groups are picked out one by one; more are sorted into."""
BOUND = 2.0**-10
"""How far above the true value a percentile from histograms may lie, as a share of it (one cell of the HDR layout)."""


OTHERS = ("connect", "first_byte", "itl", "ttft")
"""Metrics that are told where there is anything of them."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """``n`` values of which ``failed`` are infinite. Percentiles in s: of all, and of successes; None where there is no data."""

    n: int
    failed: int
    min_s: float | None
    mean_s: float | None
    max_s: float | None
    all_s: Mapping[str, float | None]
    successes_s: Mapping[str, float | None]
    bound: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: infinite percentiles are null and named in ``infinite``."""
        return {
            "n": self.n, "failed": self.failed, "min_s": self.min_s, "mean_of_successes_s": self.mean_s, "max_of_successes_s": self.max_s,
            "all_s": {f"p{q}": finite(value) for q, value in self.all_s.items()},
            "infinite": [f"p{q}" for q, value in self.all_s.items() if value is not None and math.isinf(value)],
            "successes_s": {f"p{q}": finite(value) for q, value in self.successes_s.items()},
            "relative_bound": self.bound,
        }  # fmt: skip


def finite(value: float | None) -> float | None:
    """The value for strict JSON: null when infinite or absent."""
    return value if value is not None and math.isfinite(value) else None


def at_rank_s(ordered: Values, percentile: str) -> float | None:
    """The nearest-rank percentile of sorted values, in s; None for no values, inf where the rank falls on a failure."""
    if not len(ordered):
        return None
    value = int(ordered[nearest_rank(len(ordered), to_ppm(percentile)) - 1])
    return math.inf if value == INFINITE_NS else value / 1e9


def distribution(values: Values, shown: Sequence[str] = SHOWN) -> Distribution:
    """Sort once, read everything off the order."""
    return of_sorted(np.sort(values), shown)


def of_sorted(ordered: Values, shown: Sequence[str] = SHOWN) -> Distribution:
    """The same of values that are sorted already."""
    answered = ordered[: int(np.searchsorted(ordered, INFINITE_NS))]
    some = len(answered) > 0
    return Distribution(
        n=len(ordered), failed=len(ordered) - len(answered),
        min_s=int(answered[0]) / 1e9 if some else None,
        mean_s=float(answered.mean()) / 1e9 if some else None,
        max_s=int(answered[-1]) / 1e9 if some else None,
        all_s={q: at_rank_s(ordered, q) for q in shown},
        successes_s={q: at_rank_s(answered, q) for q in shown},
    )  # fmt: skip


def grouped(values: Values, group: NDArray[Any], n_groups: int) -> Iterator[tuple[int, Values]]:
    """(group, its values sorted) for every group that has any."""
    for number, part in split(values, group, n_groups):
        yield number, np.sort(part)


def split(values: Values, group: NDArray[Any], n_groups: int) -> Iterator[tuple[int, Values]]:
    """(group, its values as they come) for every group that has any."""
    counts = tally(group, n_groups)
    ends = np.cumsum(counts)
    if (group[1:] >= group[:-1]).all():  # steps of time: rows are in their order, so each group is a stretch
        for number in np.flatnonzero(counts).tolist():
            yield number, values[ends[number] - counts[number] : ends[number]]
        return
    if np.count_nonzero(counts) <= FEW_GROUPS:
        for number in np.flatnonzero(counts).tolist():
            yield number, values[group == number]
        return
    # 16-bit keys are sorted by radix, in linear time.
    order = np.argsort(group.astype(np.uint16, copy=False) if n_groups <= 1 << 16 else group, kind="stable")
    for number in np.flatnonzero(counts).tolist():
        yield number, values[order[ends[number] - counts[number] : ends[number]]]


def tally(group: NDArray[Any], n_groups: int) -> NDArray[np.int64]:
    """How many of each group there are."""
    counts = np.zeros(n_groups, np.int64)
    for piece in pieces(len(group)):
        counts += np.bincount(group[piece], minlength=n_groups)
    return counts


@dataclass(frozen=True, slots=True)
class Curve:
    """Latency (ms) by the share of requests beyond it, at ranks evenly spaced in its logarithm; infinite ones left out."""

    rarity: NDArray[np.float64]
    latency_ms: NDArray[np.float64]


def curve(ordered: Values) -> Curve:
    """The curve of sorted values."""
    n = len(ordered)
    if not n:
        return Curve(np.empty(0), np.empty(0))
    rarity = np.unique(np.concatenate([np.geomspace(1.0 / n, 1.0, CURVE_POINTS), [0.5, 0.1, 0.05, 0.01, 0.001]]))[::-1]
    ranks = np.unique(np.clip(n - np.floor(rarity * n).astype(np.int64), 1, n))
    values = ordered[ranks - 1]
    good = values != INFINITE_NS
    return Curve(((n - ranks + 1) / n)[good], values[good] / 1e6)


@dataclass(frozen=True, slots=True)
class Group:
    """One request name, replica or worker."""

    label: str
    response: Distribution
    further: bool = False


@dataclass
class Percentiles:
    """Everything that is told about latency. ``curves``: the fleet's response of all, of successes, and service, at some ranks; ``estimate``
    is from histograms where records lack."""

    curves: tuple[Curve, Curve, Curve]
    response: Distribution
    service: Distribution
    lateness: Distribution
    by_name: list[Group]
    by_replica: list[Group]
    by_worker: list[Group]
    estimate: Distribution | None = None
    others: dict[str, Distribution] = field(default_factory=dict)


def of_run(run: Run) -> Percentiles:
    """Percentiles after the warm-up: the fleet's (arrivals' first requests), and by name (further requests under their own)."""
    records = run.records
    first = records.judged
    # A measure drops rows only where the metric was not told, and response always is.
    response = measure(records, "response", first)
    groups = {}
    for kind in ("replica", "worker"):
        texts = records.workers if kind == "worker" else records.texts("replica")
        groups[kind] = _groups(response, chosen(records[kind], first), texts)
    names = _by_name(run, response)
    response.sort()
    found, all_curve = of_sorted(response), curve(response)
    successes_curve = curve(response[: int(np.searchsorted(response, INFINITE_NS))])
    del response
    service, service_curve = _of_metric(run, "service")
    return Percentiles(
        (all_curve, successes_curve, service_curve), found, service, _of_metric(run, "lateness")[0],
        names, groups["replica"], groups["worker"], _estimate(run),
        {metric: other for metric in OTHERS if (other := _of_metric(run, metric)[0]).n},
    )  # fmt: skip


def _of_metric(run: Run, metric: str) -> tuple[Distribution, Curve]:
    values = measure(run.records, metric, run.records.judged)
    values.sort()
    return of_sorted(values), curve(values)


def _groups(values: Values, column: NDArray[Any], texts: Sequence[str]) -> list[Group]:
    return [Group(texts[number] or "(not told)", of_sorted(part)) for number, part in grouped(values, column, len(texts))]


def _by_name(run: Run, response: Values) -> list[Group]:
    """``response`` is that of first requests; it is measured again only where there are further ones."""
    records = run.records
    texts, every = records.texts("name"), records.measured
    names = chosen(records["name"], records.judged)
    firsts = set(np.flatnonzero(tally(names, len(texts))).tolist())
    if len(response) != int(every.sum()):
        response, names = measure(records, "response", every), chosen(records["name"], every)
    return [
        Group(texts[number] or "(no name)", of_sorted(part), further=number not in firsts)
        for number, part in grouped(response, names, len(texts))
    ]


def _estimate(run: Run) -> Distribution | None:
    """Fleet-wide percentiles with histograms in place of records that are missing; None when every worker's records are there.

    A snapshot counts only answers after the warm-up, its ledger everything: failures during the warm-up make this estimate too high.
    """
    rows = {file.worker: file.rows for file in run.files}
    lacking = [s for s in run.snapshots.values() if rows.get(s.worker, 0) < s.ledger.sent + s.ledger.dropped]
    if not lacking:
        return None
    records, merged = run.records, Histogram()
    mask = (
        records.measured
        & records.arrivals
        & ~np.isin(records["worker"], [i for i, w in enumerate(records.workers) if any(s.worker == w for s in lacking)])
    )
    values = measure(records, "response", mask)
    answered = values[values != INFINITE_NS]
    merged.record_many_ns(answered)
    failed = len(values) - len(answered)
    for snapshot in lacking:
        merged.merge(snapshot.series.get("response", Histogram()))
        failed += snapshot.ledger.failed + snapshot.ledger.timed_out + snapshot.ledger.abandoned + snapshot.ledger.dropped
    return _of_histogram(merged, failed)


def _of_histogram(histogram: Histogram, failed: int) -> Distribution:
    def read(q: str, infinite: int) -> float | None:
        if not histogram.n + infinite:
            return None
        found = histogram.percentile_ns(q, infinite)
        return math.inf if found is None else found / 1e9

    some = histogram.n > 0
    return Distribution(
        histogram.n + failed, failed, histogram.min_ns / 1e9 if some else None, histogram.sum_ns / histogram.n / 1e9 if some else None,
        histogram.max_ns / 1e9 if some else None, {q: read(q, failed) for q in SHOWN}, {q: read(q, 0) for q in SHOWN}, BOUND,
    )  # fmt: skip


def mean_of_p99s(groups: Sequence[Group]) -> float | None:
    """The mean of the groups' p99 of successes, in s: WRONG as a fleet's p99, shown beside the true one for that reason."""
    known = [value for group in groups if (value := group.response.successes_s["99"]) is not None]
    return sum(known) / len(known) if known else None
