"""Telemetry as plots: panels stacked under the latency on one time axis, and busy share against latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis import plots
from analysis.sections import Plot
from analysis.telemetry_figures import Seconds
from analysis.telemetry_series import Series, Values, mean_by_bin
from analysis.text import plain

MOST_POINTS = 1500
SHADE = plots.COLOURS[3]
LABEL = 70
PANEL_IN, TOP_IN, BOTTOM_IN = 1.3, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a stack: lines by label, in one unit."""

    title: str
    unit: str
    lines: dict[str, Series]
    floor: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Marks:
    """What is drawn through all panels: shaded intervals (from, to, what), instants (at, what), the warm-up's end."""

    shaded: Sequence[tuple[int, int, str]] = ()
    instants: Sequence[tuple[int, str]] = ()
    warmup_ns: int = 0


@dataclass
class Stack:
    """A figure: its title and caption, its panels, its marks."""

    title: str
    caption: str
    panels: list[Panel]
    marks: Marks = field(default_factory=Marks)


def stack(name: str, it: Stack, seconds: Seconds) -> Plot:
    """Response time by second (p50, p99) above the panels, all on seconds from the epoch. ``name`` makes the SVG's ids unique."""
    height_in = PANEL_IN * (len(it.panels) + 1) + TOP_IN + BOTTOM_IN
    with plots.axes(height_in) as (figure, only):
        only.remove()
        # Room above each panel for its title and legend; the first one's is the top margin.
        figure.subplots_adjust(left=0.1, right=0.98, top=1 - TOP_IN / height_in, bottom=BOTTOM_IN / height_in, hspace=0.45)
        axes: list[Any] = list(np.atleast_1d(figure.subplots(len(it.panels) + 1, 1, sharex=True)))
        end_s = float(seconds.edges_ns[-1]) / 1e9
        _latency(axes[0], seconds)
        for axis, panel in zip(axes[1:], it.panels, strict=True):
            sizes = {len(series) for series in panel.lines.values()}
            for number, (label, series) in enumerate(panel.lines.items()):
                told = label if len(sizes) == 1 else f"{label} (n = {len(series)})"
                _line(axis, thin(series, int(seconds.edges_ns[-1])), number, told)
            title = f"{panel.title} (n = {next(iter(sizes))})" if len(sizes) == 1 else panel.title
            _dress(axis, title, panel.unit, panel.floor)
        for axis in axes:
            _mark(axis, it.marks, end_s)
        axes[-1].set_xlim(0, end_s)
        axes[-1].set_xlabel("seconds from the epoch")
        _name_marks(axes[0], it.marks)
        return Plot(it.title, plots.svg(figure, name, f"{it.title}. {it.caption}"), it.caption)


def scatter(name: str, title: str, points: tuple[Values, Values], label: str, caption: str) -> Plot:
    """(busy %, p99 s) a point a second; seconds whose p99 is a failure are crosses at the top."""
    busy, p99_s = points
    finite = np.isfinite(p99_s)

    def draw(_: Any, axis: Any) -> None:
        axis.plot(
            busy[finite],
            1000 * p99_s[finite],
            "o",
            markersize=3,
            color=plots.COLOURS[0],
            label=f"seconds (n = {int(finite.sum())})",
        )
        if not finite.all():
            top = 1000 * float(p99_s[finite].max()) if finite.any() else 1.0
            lost = busy[~finite]
            axis.plot(lost, np.full(len(lost), top), "x", color=SHADE, label=f"p99 not answered (n = {len(lost)})")
        axis.set_xlabel(f"{label}, mean of the second (%)")
        _dress(axis, "", "p99 response, ms", 0.0)

    return plots.plot(name, title, caption, draw)


def thin(series: Series, end_ns: int) -> Series:
    """At most MOST_POINTS points: means of equal parts of the time axis."""
    if len(series) <= MOST_POINTS:
        return series
    edges = np.linspace(0, end_ns, MOST_POINTS + 1).astype(np.int64)
    means = mean_by_bin(series, edges)
    good = np.isfinite(means)
    return Series(((edges[:-1] + edges[1:]) // 2)[good], means[good])


def _line(axis: Any, series: Series, number: int, label: str) -> None:
    colour, dashes = plots.COLOURS[number % 8], plots.DASHES[number % 8]
    axis.plot(series.at_ns / 1e9, series.values, color=colour, linestyle=dashes, linewidth=1.0, label=plain(label, LABEL))


def _latency(axis: Any, seconds: Seconds) -> None:
    middle_s = (seconds.edges_ns[:-1] + seconds.edges_ns[1:]) / 2e9
    for number, (values, label) in enumerate(((seconds.p99_s, "p99"), (seconds.median_s, "p50"))):
        shown = np.where(np.isfinite(values), 1000 * values, np.nan)
        axis.plot(middle_s, shown, color=plots.COLOURS[number], linestyle=plots.DASHES[number], linewidth=1.0, label=label)
    lost = np.isinf(seconds.p99_s)
    if lost.any():
        axis.plot(middle_s[lost], np.zeros(int(lost.sum())), "x", color=SHADE, markersize=4, label="p99 not answered")
    _dress(axis, f"Response time by second of intended time (n = {int(seconds.n.sum())})", "ms", 0.0)


def _dress(axis: Any, title: str, unit: str, floor: float | None) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_ylabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)
    if floor is not None:
        axis.set_ylim(bottom=floor)
    labels = axis.get_legend_handles_labels()[1]
    if labels and max(map(len, labels)) <= LABEL // 2:
        axis.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1, ncols=3)
    elif labels:
        axis.legend(fontsize=6.5, loc="upper left", ncols=1)


def _mark(axis: Any, marks: Marks, end_s: float) -> None:
    for low, high, _ in marks.shaded:
        axis.axvspan(max(0.0, low / 1e9), min(end_s, max(high, low + 10**7) / 1e9), color=SHADE, alpha=0.2, linewidth=0)
    for at, _ in marks.instants:
        axis.axvline(at / 1e9, color=plots.INK, linestyle=":", linewidth=0.8)
    if marks.warmup_ns > 0:
        axis.axvspan(0, marks.warmup_ns / 1e9, color=plots.GRID, alpha=0.5, linewidth=0)


def _name_marks(axis: Any, marks: Marks) -> None:
    for at, what in list(marks.instants)[:12]:
        where = {"xy": (at / 1e9, 1.0), "xycoords": ("data", "axes fraction"), "rotation": 90, "va": "top", "ha": "right"}
        axis.annotate(plain(what, 40), fontsize=7, **where)
