"""Plots of where time goes: stages of answered requests, and replicas and workers beside the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.metrics import measure
from analysis.percentiles import Group, Percentiles, mean_of_p99s
from analysis.plots import COLOURS, GRID, HATCHES, INK, legend, nothing, plot
from analysis.run_folder import Run
from analysis.sections import Plot
from analysis.text import count, duration, plain
from truetail.records import OK

STAGES = ("queue", "preprocess", "inference", "postprocess", "dependency")
REST = "network, rest"
GROUPS_SHOWN = 24
SLOWEST = 0.01


def stage_means(run: Run) -> tuple[dict[str, tuple[float, float]], int, int]:
    """Mean ms by stage of (all answered requests, the slowest 1 %), how many told stages, how many the slowest are.

    lateness + the server's own stages + the rest (network, connection, queues that the server does not see) = response.
    """
    records = run.records
    mask = records.judged & (records["outcome"] == OK) & (records["sent_ns"] >= 0)
    told = np.zeros(len(mask), bool)
    of_stage = {}
    for stage in STAGES:
        column = records[f"{stage}_us"]
        here = np.isfinite(column) & mask
        if here.any():
            of_stage[stage] = column
            told |= here
    if not of_stage:
        return {}, 0, 0
    mask = told
    rest = measure(records, "response", mask) / 1e6
    cut = max(1, int(np.ceil(SLOWEST * len(rest))))
    slowest = np.argpartition(rest, len(rest) - cut)[-cut:].copy()
    parts: dict[str, tuple[float, float]] = {}

    def take(name: str, values_ms: NDArray[np.float64]) -> None:
        parts[name] = float(values_ms.mean()), float(values_ms[slowest].mean())
        if name != REST:
            np.subtract(rest, values_ms, out=rest)

    take("lateness", measure(records, "lateness", mask) / 1e6)
    for stage in list(of_stage):
        values = of_stage.pop(stage)[mask]
        values_ms = values / np.float64(1000)
        values_ms[~np.isfinite(values)] = 0.0
        take(stage, values_ms)
    take(REST, rest)
    return parts, len(rest), cut


def stages(run: Run) -> Plot:
    """Where the time of an answered request went: all of them, and the slowest 1 %."""
    means, n, slowest = stage_means(run)

    def draw(figure: Figure, on: Any) -> None:
        if not means:
            return nothing(on, "the server told no stages (Server-Timing)")
        left = np.zeros(2)
        for number, (name, pair) in enumerate(means.items()):
            width = np.maximum(np.array(pair), 0.0)
            on.barh(
                [1, 0],
                width,
                left=left,
                height=0.55,
                color=COLOURS[number % 8],
                hatch=HATCHES[number % 8],
                edgecolor=GRID,
                linewidth=0.4,
                label=name,
            )
            left = left + width
        on.set_yticks([1, 0], ["all", "slowest\n1 %"])
        on.set_xlabel("mean time (ms)")
        on.grid(visible=False, axis="y")
        legend(figure, on, 4)
        return None

    told = f"n = {count(n)} answers that told stages, the slowest {count(slowest)} below" if n else "n = 0"
    return plot(
        "stages",
        "Where the time goes",
        f"Answered requests after the warm-up; {told}. The parts add up to the mean response time.",
        draw,
        2.9,
    )


def groups(name: str, what: str, found: Sequence[Group], percentiles: Percentiles) -> Plot | None:
    """p99 of each replica or worker, the true p99 of all, and the mean of the p99s, which is wrong; None for fewer than two."""
    if len(found) < 2:
        return None
    shown = sorted(found, key=lambda group: -(group.response.successes_s["99"] or 0.0))[:GROUPS_SHOWN]
    true_s, mean_s = percentiles.response.successes_s["99"], mean_of_p99s(found)

    def draw(figure: Figure, on: Any) -> None:
        heights = [(group.response.successes_s["99"] or 0.0) * 1e3 for group in shown]
        on.bar(range(len(shown)), heights, 0.6, color=COLOURS[0], edgecolor=INK, linewidth=0.4, label=f"p99 of each {what}")
        if true_s is not None:
            on.axhline(true_s * 1e3, color=COLOURS[1], linestyle="-", label=f"true p99: {duration(true_s)}")
        if mean_s is not None:
            on.axhline(mean_s * 1e3, color=COLOURS[3], linestyle="--", label=f"mean of p99s (wrong): {duration(mean_s)}")
        labels = [f"{plain(group.label, 14)}\nn = {count(group.response.n - group.response.failed)}" for group in shown]
        on.set_xticks(range(len(shown)), labels, rotation=90 if len(shown) > 6 else 0, fontsize=8 if len(shown) > 6 else 10)
        on.grid(visible=False, axis="x")
        on.set_ylim(bottom=0, top=max([*heights, (true_s or 0) * 1e3, (mean_s or 0) * 1e3]) * 1.15 or 1)
        on.set_ylabel("response p99 (ms)")
        if len(shown) > 6:
            box = on.get_position()
            on.set_position((box.x0, box.y0 + 0.17, box.width, box.height - 0.17))
        legend(figure, on, 3)

    more = f"; the {GROUPS_SHOWN} slowest of {len(found)}" if len(found) > GROUPS_SHOWN else ""
    caption = f"Successes after the warm-up; n = {count(sum(group.response.n - group.response.failed for group in found))}{more}. Percentiles cannot be averaged."
    return plot(f"by-{name}", f"By {what}", caption, draw, 3.5 if len(shown) <= 6 else 4.6)
