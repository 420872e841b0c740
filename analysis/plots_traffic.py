"""Plots of traffic: offered, sent and completed; the gaps between arrivals against the exponential; errors by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from analysis.planned import operational_time
from analysis.plots import COLOURS, GRID, HATCHES, INK, legend, line, nothing, plot
from analysis.plots_latency import time_axis
from analysis.record_columns import chosen
from analysis.run_folder import Run
from analysis.sections import Plot
from analysis.series import Series
from analysis.text import count, plain

POINTS = 200


def rates(run: Run, series: Series) -> Plot:
    """Offered (due), sent and completed per second: an open loop sends what is due even while nothing completes."""
    middle = series.starts_s + series.step_s / 2
    # A last step that begins after the arrivals' end would be drawn as a fall to zero, which nothing fell to.
    over = len(middle) - int(len(middle) > 1 and series.starts_s[-1] >= run.manifest.end_ns / 1e9)

    def draw(figure: Figure, on: Any) -> None:
        for number, (values, label) in enumerate(
            ((series.offered, "offered"), (series.sent, "sent"), (series.completed, "completed"))
        ):
            line(on, middle[:over], values[:over] / series.step_s, number, label)
        on.set_ylim(bottom=0)
        on.set_ylabel("requests per second")
        time_axis(run, series, on)
        legend(figure, on)

    caption = (
        f"Whole run, warm-up shaded; {series.step_s:g} s steps; n = {count(series.offered.sum())} offered, {count(series.sent.sum())} sent, "
        f"{count(series.completed.sum())} completed. Each at the instant at which it happened."
    )
    return plot("rates", "Offered, sent and completed", caption, draw)


def errors(run: Run, series: Series) -> Plot | None:
    """Failures by class over time; None when nothing failed."""
    if not series.errors:
        return None

    def draw(figure: Figure, on: Any) -> None:
        base = np.zeros(len(series.starts_s))
        for number, (label, values) in enumerate(series.errors.items()):
            top = base + values / series.step_s
            on.fill_between(
                np.append(series.starts_s, series.starts_s[-1] + series.step_s), np.append(base, base[-1]), np.append(top, top[-1]), step="post",
                facecolor=COLOURS[number % 8], hatch=HATCHES[number % 8], edgecolor=GRID, linewidth=0.3, label=f"{plain(label, 30)} ({count(values.sum())})",
            )  # fmt: skip
            base = top
        on.set_ylim(bottom=0)
        on.set_ylabel("failures per second")
        time_axis(run, series, on)
        legend(figure, on, 3)

    caption = f"Whole run, warm-up shaded; {series.step_s:g} s steps; n = {count(series.failed.sum())} failures, at the instant at which each ended."
    return plot("errors", "Failures by class", caption, draw)


def gaps(run: Run) -> Plot:
    """Share of gaps longer than x, planned and sent, against exp(-x): a straight line on a log axis if arrivals are Poisson."""
    cumulative, name = operational_time(run)
    records = run.records
    first = records.arrivals
    intended, sent = chosen(records["intended_ns"], first), chosen(records["sent_ns"], first)
    sent = np.sort(sent[sent >= 0])
    curves = [(_survival(cumulative(times / 1e9)), label) for times, label in ((intended, "planned"), (sent, "sent"))]
    n = max((len(x) for (x, _), _ in curves), default=0)

    def draw(figure: Figure, on: Any) -> None:
        if not n:
            return nothing(on, "fewer than two arrivals")
        top = max(float(x[-1]) for (x, _), _ in curves if len(x))
        for number, ((x, y), label) in enumerate(curves):
            line(on, x, y, number, label)
        grid = np.linspace(0, max(top, 1.0), 50)
        on.plot(grid, np.exp(-grid), color=INK, linewidth=1, linestyle=(0, (1, 1.5)), label="exponential")
        on.set_yscale("log")
        lowest = min(float(y[y > 0].min()) for (_, y), _ in curves if (y > 0).any())
        on.set_ylim(lowest / 1.5, 1.3)
        on.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        on.set_xlim(0, max(top, 1.0) * 1.03)
        on.set_xlabel(f"gap in {name}; mean = 1")
        on.set_ylabel("share of gaps that are longer")
        legend(figure, on, 3)
        return None

    caption = f"Whole run; n = {count(int(first.sum()))} arrivals. A Poisson process lies on the dotted line; fixed intervals fall off a cliff at 1."
    return plot("gaps", "Gaps between arrivals", caption, draw)


def _survival(operational: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(gap, share of gaps that are longer) at up to POINTS ranks, dense in the tail."""
    ordered = np.diff(operational)
    ordered.sort()
    n = len(ordered)
    if not n:
        return np.empty(0), np.empty(0)
    ranks = np.unique(np.concatenate([np.linspace(1, n, POINTS // 2), n + 1 - np.geomspace(1, n, POINTS // 2)]).astype(np.int64))
    share = 1 - ranks / n
    # The largest gap has none longer; it is drawn half a rank below the one before it.
    return ordered[ranks - 1], np.where(share > 0, share, 0.5 / n)
