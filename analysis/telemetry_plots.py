"""Telemetry as inline SVG, stacked over the latency on one time axis."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.telemetry_figures import Seconds
from analysis.telemetry_series import Series, Values, mean_by_bin

MOST_POINTS = 1500
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774")
SHADED = "#e03e3e"


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
    """A figure: its title, its panels, its marks, and the latency on top."""

    title: str
    panels: list[Panel]
    marks: Marks = field(default_factory=Marks)


def literal(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


def stack(it: Stack, seconds: Seconds) -> str:
    """The figure as SVG: response time by second (p50, p99) above the panels, all on seconds from the epoch."""
    height = 1.2 + 1.5 * (len(it.panels) + 1)
    figure = Figure(figsize=(9.5, height), layout="constrained")
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(len(it.panels) + 1, 1, sharex=True)))
    figure.suptitle(literal(it.title), fontsize=11)
    end_s = float(seconds.edges_ns[-1]) / 1e9
    _latency(axes[0], seconds)
    for axis, panel in zip(axes[1:], it.panels, strict=True):
        for colour, (label, series) in zip(COLOURS * 20, panel.lines.items(), strict=False):
            shown = thin(series, seconds.edges_ns[-1])
            axis.plot(shown.at_ns / 1e9, shown.values, color=colour, linewidth=0.9, label=literal(f"{label} (n = {len(series)})"))
        _dress(axis, panel.title, panel.unit, panel.floor)
    for axis in axes:
        _mark(axis, it.marks, end_s)
    axes[-1].set_xlim(0, end_s)
    axes[-1].set_xlabel("seconds from the epoch")
    _name_marks(axes[0], it.marks)
    return svg(figure)


def scatter(title: str, busy: Values, p99_s: Values, label: str, note: str) -> str:
    """Busy share against p99 response time, a point a second; seconds whose p99 is a failure are drawn at the top."""
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axis = figure.subplots()
    finite = np.isfinite(p99_s)
    axis.plot(
        busy[finite],
        1000 * p99_s[finite],
        "o",
        markersize=3,
        alpha=0.6,
        color=COLOURS[0],
        label=f"seconds (n = {int(finite.sum())})",
    )
    if not finite.all():
        top = 1000 * (p99_s[finite].max() if finite.any() else 1.0)
        lost = busy[~finite]
        axis.plot(lost, np.full(len(lost), top), "x", color=SHADED, label=f"p99 not answered (n = {len(lost)})")
    axis.set_xlabel(f"{label}, mean of the second (%)")
    _dress(axis, literal(f"{title}\n{note}"), "p99 response, ms", 0.0)
    return svg(figure)


def thin(series: Series, end_ns: int) -> Series:
    """At most MOST_POINTS points: means of equal parts of the time axis."""
    if len(series) <= MOST_POINTS:
        return series
    edges = np.linspace(0, end_ns, MOST_POINTS + 1).astype(np.int64)
    means = mean_by_bin(series, edges)
    good = np.isfinite(means)
    return Series(((edges[:-1] + edges[1:]) // 2)[good], means[good])


def svg(figure: Figure) -> str:
    """The figure as an SVG element, without what differs between two equal builds."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "truetail", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    element = text[text.index("<svg") :]
    ids = f"t{abs(hash_of(element)):x}"  # several figures in one page must not share ids
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{ids}-", element)


def hash_of(text: str) -> int:
    """A number that depends on the text alone."""
    import zlib

    return zlib.crc32(text.encode())


def _latency(axis: Axes, seconds: Seconds) -> None:
    middle_s = (seconds.edges_ns[:-1] + seconds.edges_ns[1:]) / 2e9
    total = int(seconds.n.sum())
    for values, label, colour in ((seconds.median_s, "p50", COLOURS[5]), (seconds.p99_s, "p99", COLOURS[0])):
        axis.plot(middle_s, np.where(np.isfinite(values), 1000 * values, np.nan), color=colour, linewidth=0.9, label=label)
    lost = np.isinf(seconds.p99_s)
    if lost.any():
        axis.plot(middle_s[lost], np.full(int(lost.sum()), 0.0), "x", color=SHADED, markersize=4, label="p99 not answered")
    _dress(axis, f"Response time by second of intended time (n = {total})", "ms", 0.0)


def _dress(axis: Axes, title: str, unit: str, floor: float | None) -> None:
    axis.set_title(title, fontsize=8.5, loc="left")
    axis.set_ylabel(unit, fontsize=8)
    axis.tick_params(labelsize=7.5)
    axis.grid(alpha=0.25)
    if floor is not None:
        axis.set_ylim(bottom=floor)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=6.5, loc="upper left", ncols=3, framealpha=0.7)


def _mark(axis: Axes, marks: Marks, end_s: float) -> None:
    for low, high, _ in marks.shaded:
        axis.axvspan(max(0.0, low / 1e9), min(end_s, max(high, low + 10**7) / 1e9), color=SHADED, alpha=0.15, linewidth=0)
    for at, _ in marks.instants:
        axis.axvline(at / 1e9, color="#37352f", linestyle=":", linewidth=0.8)
    if marks.warmup_ns > 0:
        axis.axvspan(0, marks.warmup_ns / 1e9, color="#9b9a97", alpha=0.15, linewidth=0)


def _name_marks(axis: Axes, marks: Marks) -> None:
    for at, what in list(marks.instants)[:12]:
        axis.annotate(
            literal(what), (at / 1e9, 1.0), xycoords=("data", "axes fraction"), fontsize=6, rotation=90, va="top", ha="right"
        )
