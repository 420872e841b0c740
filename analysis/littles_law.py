"""Sanity laws that any right measurement obeys: Little's law, client time against server stages, offered against completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetail.records import FAILED, OK

STAGES = ("queue", "preprocess", "inference", "postprocess", "dependency")
"""The server's own stages; column ``<stage>_us`` of a record, NaN where the server did not tell."""
NS = 1e9


@dataclass(frozen=True, slots=True)
class Littles:
    """Time-average in flight L against rate times mean response. ``gap`` is |L - lambda W| / L.

    The two differ only by requests that cross the window's edges, at most ``edge_share`` of L; more means that records are
    missing, doubled or wrongly timed.
    """

    window_s: float
    n: int
    in_flight: float
    rate_rps: float
    response_mean_s: float
    gap: float
    edge_share: float

    @property
    def product(self) -> float:
        """lambda W."""
        return self.rate_rps * self.response_mean_s

    @property
    def holds(self) -> bool:
        """Whether the gap is explained by the edges (and 1 %)."""
        return self.gap <= self.edge_share + 0.01


def littles_law(begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64], window_ns: tuple[int, int]) -> Littles | None:
    """The law over requests that are inside from ``begin_ns`` to ``end_ns``. None when no request begins in the window."""
    low, high = window_ns
    window_s = (high - low) / NS
    begin, end = np.asarray(begin_ns, dtype=float), np.asarray(end_ns, dtype=float)
    mine = (begin >= low) & (begin < high)
    if not mine.any() or window_s <= 0:
        return None
    overlap_s = np.clip(np.minimum(end, high) - np.maximum(begin, low), 0, None).sum() / NS
    n = int(mine.sum())
    mean_s = float((end[mine] - begin[mine]).mean() / NS)
    in_flight, rate = overlap_s / window_s, n / window_s
    inside_at_edges_s = (np.clip(low - begin, 0, None)[end > low].sum() + np.clip(end - high, 0, None)[begin < high].sum()) / NS
    scale = max(in_flight, 1e-12)
    return Littles(
        window_s, n, in_flight, rate, mean_s, abs(in_flight - rate * mean_s) / scale, inside_at_edges_s / window_s / scale
    )


def in_flight_series(
    begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64], window_ns: tuple[int, int], step_ns: int = 1_000_000_000
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(starts of steps, mean number in flight within each step); exact, by integrating the count between its changes."""
    edges = np.arange(window_ns[0], window_ns[1] + step_ns, step_ns, dtype=np.int64)
    begin, end = np.sort(np.asarray(begin_ns)), np.sort(np.asarray(end_ns))

    def area(at: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum over times t <= at of (at - t)."""
        count = np.searchsorted(times, at, side="right")
        sums = np.concatenate([[0.0], np.cumsum((times - edges[0]).astype(float))])
        areas: NDArray[np.float64] = count * (at - edges[0]).astype(float) - sums[count]
        return areas

    total = area(edges, begin) - area(edges, end)
    return edges[:-1], np.diff(total) / step_ns


@dataclass(frozen=True, slots=True)
class StageAccount:
    """Client time (sent to done) against the sum of the server's stages, over the ``n`` answers that told any.

    ``mean_s`` has the mean of each stage told, ``outside_*`` the rest: network, connection and queueing outside the server.
    ``impossible_share`` is the share of answers whose stages exceed the client's time by more than 1 ms: clocks or headers wrong.
    """

    n: int
    told_share: float
    mean_s: Mapping[str, float]
    client_mean_s: float
    outside_mean_s: float
    outside_p50_s: float
    outside_p99_s: float
    impossible_share: float

    @property
    def holds(self) -> bool:
        """Whether hardly any answer claims more server time than the client saw."""
        return self.impossible_share <= 0.001


def stage_times_s(records: NDArray[np.void]) -> dict[str, NDArray[np.float64]]:
    """Seconds by stage, NaN where not told; only stages that at least one record tells."""
    times = {stage: records[f"{stage}_us"].astype(float) / 1e6 for stage in STAGES}
    return {stage: values for stage, values in times.items() if np.isfinite(values).any()}


def outside_s(records: NDArray[np.void]) -> NDArray[np.float64]:
    """Client time minus all stages told; NaN where none was told or the request was not answered."""
    stages = stage_times_s(records)
    if not stages:
        return np.full(len(records), np.nan)
    table = np.array(list(stages.values()))
    told = np.isfinite(table).any(axis=0) & (records["outcome"] == OK) & (records["sent_ns"] >= 0)
    client = (records["done_ns"] - records["sent_ns"]) / NS
    rest: NDArray[np.float64] = np.where(told, client - np.nansum(table, axis=0), np.nan)
    return rest


def stage_account(records: NDArray[np.void]) -> StageAccount | None:
    """The account over successful answers. None when the server told no stage at all."""
    rest = outside_s(records)
    told = np.isfinite(rest)
    if not told.any():
        return None
    stages = stage_times_s(records[told])
    client = (records["done_ns"] - records["sent_ns"])[told] / NS
    return StageAccount(
        int(told.sum()),
        float(told.sum() / max(1, (records["outcome"] == OK).sum())),
        {stage: float(np.nan_to_num(values).mean()) for stage, values in stages.items()},
        float(client.mean()), float(rest[told].mean()), float(np.median(rest[told])),
        float(np.quantile(rest[told], 0.99)), float((rest[told] < -1e-3).mean()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Throughput:
    """Offered (arrivals due) against completed (answered, well or not: a refusal leaves no backlog) per second; ``growth`` is the in-flight slope in 1/s."""

    offered_rps: float
    completed_rps: float
    growth_per_s: float

    @property
    def keeps_up(self) -> bool:
        """Whether the service completes what is offered: at least 98 %, and the backlog grows by less than 1 % of the offer."""
        return self.completed_rps >= 0.98 * self.offered_rps and self.growth_per_s <= 0.01 * self.offered_rps


def throughput(records: NDArray[np.void], window_ns: tuple[int, int]) -> Throughput | None:
    """Offered against completed within the window; None for a window without arrivals or of less than two seconds."""
    low, high = window_ns
    window_s = (high - low) / NS
    due = records[(records["intended_ns"] >= low) & (records["intended_ns"] < high)]
    if not len(due) or window_s < 2:
        return None
    answered = (records["outcome"] == OK) | ((records["outcome"] == FAILED) & (records["done_ns"] >= 0))
    done = records[answered & (records["done_ns"] >= low) & (records["done_ns"] < high)]
    finished = records[records["done_ns"] >= 0]
    starts, inside = in_flight_series(finished["intended_ns"], finished["done_ns"], window_ns)
    slope = float(np.polyfit((starts - low) / NS, inside, 1)[0]) if len(starts) >= 2 else 0.0
    return Throughput(len(due) / window_s, len(done) / window_s, slope)
