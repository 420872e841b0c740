"""Plots of latency: the percentile curve, latency over time, and the generator's lateness."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from analysis.percentiles import Percentiles
from analysis.plots import COLOURS, INK, legend, line, log_limits, log_ms, nothing, plot
from analysis.run_folder import Run
from analysis.sections import Plot
from analysis.series import Series
from analysis.text import count


def percentile_curve(run: Run, percentiles: Percentiles) -> Plot:
    """Latency against how rare it is: (1 - q) on a log axis, so that the tail has room."""
    n, labels = percentiles.response.n, ("response, all", "response, successes", "service only (from sending)")

    def draw(figure: Figure, on: Any) -> None:
        drawn = [(found.rarity, found.latency_ms, label) for found, label in zip(percentiles.curves, labels, strict=True)]
        if not any(len(x) for x, _, _ in drawn):
            return nothing(on, "no answer after the warm-up")
        for number, (x, y, label) in enumerate(drawn):
            line(on, x, y, number, label)
        _rarity_axis(on, n)
        on.set_yscale("log")
        low, high = log_limits([y for _, y, _ in drawn])
        on.set_ylim(low, high)
        log_ms(on.yaxis, low, high)
        on.set_ylabel("latency (ms, log)")
        legend(figure, on, 3)
        return None

    failed = f"; {count(percentiles.response.failed)} failures end the curve of all" if percentiles.response.failed else ""
    caption = f"{_window(run)}; n = {count(n)}{failed}. Nearest rank over all workers' records."
    return plot("curve", "Latency by percentile", caption, draw, 3.8)


def _rarity_axis(on: Any, n: int) -> None:
    marks = [
        (1.0, "p0"),
        (0.5, "p50"),
        (0.1, "p90"),
        (0.05, "p95"),
        (0.01, "p99"),
        (1e-3, "p99.9"),
        (1e-4, "p99.99"),
        (1e-5, "p99.999"),
        (1e-6, "p99.9999"),
    ]
    shown = [(x, text) for x, text in marks if x >= 0.5 / n]
    on.set_xscale("log")
    on.set_xlim(1.05, max(0.7 / n, 1e-8))
    on.xaxis.set_major_locator(FixedLocator([x for x, _ in shown]))
    on.xaxis.set_minor_locator(NullLocator())
    on.set_xticklabels([text for _, text in shown])
    on.set_xlabel("percentile (log axis of the share beyond it)")


def latency_over_time(run: Run, series: Series) -> Plot:
    """p50, p95 and p99 of all, by the instant at which requests were due."""
    return _over_time(
        run, series, series.response_s, ("over-time", "Response time over time", "response time (ms, log)"),
        f"Whole run, warm-up shaded; {series.step_s:g} s steps of intended time; n = {count(series.offered.sum())}. "
        "A triangle at the top: the rank falls on a failure.",
    )  # fmt: skip


def lateness_over_time(run: Run, series: Series) -> Plot:
    """How late the generator itself was: p50, p99 and the largest."""
    return _over_time(
        run, series, series.lateness_s, ("lateness", "Lateness of the generator", "lateness (ms, log)"),
        f"Intended to sent; whole run, warm-up shaded; {series.step_s:g} s steps; n = {count(series.sent.sum())}. "
        "The generator's own delay: it is part of response, never of service.",
    )  # fmt: skip


def _over_time(
    run: Run, series: Series, curves: dict[str, NDArray[np.float64]], words: tuple[str, str, str], caption: str
) -> Plot:
    name, title, unit = words
    middle = series.starts_s + series.step_s / 2

    def draw(figure: Figure, on: Any) -> None:
        finite = {q: np.where(np.isfinite(values), np.maximum(values * 1e3, 1e-3), np.nan) for q, values in curves.items()}
        if not any(np.isfinite(values).any() for values in finite.values()):
            return nothing(on, "no data")
        low, high = log_limits(list(finite.values()))
        for number, (q, values) in enumerate(finite.items()):
            line(on, middle, values, number, "max" if q == "100" else f"p{q}")
        infinite = np.isinf(curves[list(curves)[-1]])
        if infinite.any():
            on.plot(
                middle[infinite],
                np.full(int(infinite.sum()), high),
                "^",
                color=COLOURS[len(curves) - 1],
                markersize=5,
                clip_on=False,
            )
        on.set_yscale("log")
        on.set_ylim(low, high)
        log_ms(on.yaxis, low, high)
        on.set_ylabel(unit)
        time_axis(run, series, on)
        legend(figure, on)
        return None

    return plot(name, title, caption, draw)


def time_axis(run: Run, series: Series, on: Any) -> None:
    """Seconds since the epoch, the warm-up shaded, events as thin lines."""
    on.set_xlim(0, series.starts_s[-1] + series.step_s)
    on.set_xlabel("time since the start (s)")
    warmup_s = run.manifest.warmup_ns / 1e9
    if warmup_s:
        on.axvspan(0, warmup_s, color=INK, alpha=0.08, linewidth=0)
    for event in run.events[:40]:
        if (
            event["at_ns"] is not None
            and event["kind"] != "epoch"
            and 0 <= event["at_ns"] / 1e9 <= series.starts_s[-1] + series.step_s
        ):
            on.axvline(event["at_ns"] / 1e9, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), alpha=0.6)


def _window(run: Run) -> str:
    low, high = run.window_ns
    return f"Arrivals intended from {low / 1e9:g} to {high / 1e9:g} s"
