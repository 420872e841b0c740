"""``sweep.html``: the answer first, the latency-load curve with intervals and theory, every run with a link. Self-contained."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from analysis import plots
from analysis.page import TEMPLATES
from analysis.sections import Plot
from analysis.sweep_result import SHOWN, Point, Quantile, Sweep, best_points
from analysis.sweep_search import Kind, Length, Outcome
from analysis.text import duration, plain, without_controls

TONES = {Kind.FOUND: "PASS", Kind.ABOVE: "PASS", Kind.BELOW: "FAIL", Kind.CANNOT_SAY: "INVALID"}
HEADER = (
    "rate",
    "outcome",
    "seconds",
    "requests",
    "failed",
    "completed",
    "p50",
    "p95",
    "p99",
    "SLO's percentile",
    "95 % interval",
)


def render(sweep: Sweep) -> str:
    """The page; text that is not ours is escaped, and links are relative to the sweep's folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        finalize=lambda value: without_controls(value) if type(value) is str else value,
    )  # fmt: skip
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    asked = sweep.settings
    where = f"{len(asked.grid)} rates from" if asked.grid else "from"
    return environment.get_template("sweep.html").render(
        sweep=sweep, asked=f"{asked.slo}, {where} {asked.low_rps:g} to {asked.high_rps:g}/s, {len(sweep.points)} runs", tone=_tone(sweep), word=word(sweep),
        meaning=_meaning(sweep), lines=findings(sweep), facts=_facts(sweep), plots=[_curve(sweep), _throughput(sweep)], header=HEADER,
        rows=[(row(point), point) for point in sorted(sweep.points, key=lambda p: (p.rate_rps, p.number))],
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")), script=Markup(script),  # noqa: S704 - our own files
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(), trusted=Markup,
    )  # fmt: skip


def _tone(sweep: Sweep) -> str:
    return TONES[sweep.answer.kind] if sweep.answer else "INVALID"


def word(sweep: Sweep) -> str:
    """The answer in a word or a number."""
    if sweep.answer is None:
        return "unfinished"
    best = sweep.answer.estimate_rps
    return (
        f"{best:.4g}/s"
        if best is not None
        else {Kind.ABOVE: "at least " + f"{sweep.answer.lower_rps or 0:.4g}/s"}.get(sweep.answer.kind, sweep.answer.kind.value)
    )


def _meaning(sweep: Sweep) -> str:
    return "The largest rate that meets " + plain(sweep.settings.slo)


def findings(sweep: Sweep) -> list[str]:
    """The answer in sentences: bracket, theory, knee."""
    lines = [sweep.answer.text if sweep.answer else "the sweep has not ended; --resume continues it"]
    theory = sweep.theory
    if theory is None:
        lines += [f"no theory curve: {sweep.theory_note}"] if sweep.theory_note else []
    elif theory.capacity_rps is None:
        lines.append(f"by theory no rate meets it ({theory.label})")
    else:
        lines.append(f"by theory {theory.capacity_rps:.4g}/s meets it, and the wall is {theory.wall_rps:.4g}/s ({theory.label})")
        if sweep.answer and sweep.answer.estimate_rps:
            lines.append(f"measured over theory: {sweep.answer.estimate_rps / theory.capacity_rps:.3f}")
    if sweep.knee_rps:
        lines.append(f"the knee (the most load for the latency, Kleinrock's power) is near {sweep.knee_rps:.4g}/s")
    return lines


def _facts(sweep: Sweep) -> list[tuple[str, str]]:
    def rate(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}/s"

    answer, theory = sweep.answer, sweep.theory
    return [
        ("surely met", rate(answer.lower_rps if answer else None)),
        ("surely missed", rate(answer.upper_rps if answer else None)),
        ("by theory", rate(theory.capacity_rps if theory else None)),
        ("knee", rate(sweep.knee_rps)),
        ("runs", str(len(sweep.points))),
    ]


def row(point: Point) -> list[str]:
    """A point's cells, as HEADER names them."""
    by_name = {q.percentile: q for q in point.percentiles}
    shown = [_value(by_name.get(p)) for p in SHOWN]
    outcome = point.outcome.value + (" (short)" if point.length is Length.SHORT else "")
    return [
        f"{point.rate_rps:g}/s", outcome, f"{point.seconds:g}", f"{point.n:,}", f"{point.failed:,}", f"{point.completed_rps:.4g}/s", *shown,
        _value(point.slo), _interval(point.slo),
    ]  # fmt: skip


def _value(found: Quantile | None) -> str:
    return "no data" if found is None else "inf (failed)" if found.value_s is None else duration(found.value_s)


def _interval(found: Quantile | None) -> str:
    if found is None:
        return "-"
    if found.low_s is None:
        return "inf (failed)"
    low = duration(found.low_s)
    return f"at least {low}" if found.high_s is None else f"{low} to {duration(found.high_s)}"


def _good(sweep: Sweep) -> list[Point]:
    return [p for p in best_points(sweep.points) if p.outcome is not Outcome.INVALID]


def _curve(sweep: Sweep) -> Plot:
    """p50, p95, p99 of every rate on a logarithmic axis, intervals as bars; theory dotted; SLO, bracket and knee."""
    points, theory, limit_ms = _good(sweep), sweep.theory, 1e3 * sweep.settings.objective().limit
    short = [p for p in points if p.length is Length.SHORT]

    def draw(figure: Any, on: Any) -> None:
        if not points:
            plots.nothing(on, "no valid run yet")
            return
        heights = [np.array([limit_ms])]
        for number, q in enumerate(SHOWN):
            heights.append(_measured(on, points, q, number))
            if theory is not None and q in theory.quantiles_s:
                y = np.array([plotted_ms(v) for v in theory.quantiles_s[q]])
                on.plot(theory.rates_rps, y, color=plots.COLOURS[number], linestyle=":", linewidth=1.3, label=f"p{q}, theory")
        for p in short:
            on.annotate("short", (p.rate_rps, limit_ms), textcoords="offset points", xytext=(2, 4), fontsize=7)
        _marks(on, sweep, limit_ms)
        low, high = plots.log_limits(heights)
        on.set_yscale("log")
        on.set_ylim(low * 0.9, high * 1.1)
        plots.log_ms(on.yaxis, low * 0.9, high * 1.1)
        on.set_xlabel("offered rate (1/s)")
        on.set_ylabel("response (ms)")
        plots.legend(figure, on, 4)

    total = sum(p.n for p in points)
    beside = f" Dotted: {theory.label}." if theory else ""
    caption = (
        f"{len(points)} rates, {total:,} requests after the warm-ups; bars are 95 % intervals, an arrow has no upper end.{beside}"
    )
    return plots.plot("sweep-curve", "Response against offered rate", plain(caption, 600), draw, 4.4)


def plotted_ms(seconds: float | None) -> float:
    """ms for a plot; NaN is not drawn."""
    return np.nan if seconds is None else 1e3 * seconds


def _measured(on: Any, points: Sequence[Point], q: str, number: int) -> Any:
    """One percentile with its intervals; the values drawn."""
    known = [
        (p.rate_rps, found) for p in points for found in p.percentiles if found.percentile == q and found.value_s is not None
    ]
    if not known:
        return np.empty(0)
    rates = np.array([rate for rate, _ in known])
    y = np.array([plotted_ms(found.value_s) for _, found in known])
    below = np.array(
        [
            v - plotted_ms(found.low_s if found.low_s is not None else found.value_s)
            for v, (_, found) in zip(y, known, strict=True)
        ]
    )
    above = np.array([plotted_ms(found.high_s) - v for v, (_, found) in zip(y, known, strict=True)])
    open_ended = np.isnan(above)
    on.errorbar(
        rates, y, yerr=[np.maximum(below, 0), np.where(open_ended, 0.25 * y, np.maximum(above, 0))], color=plots.COLOURS[number], label=f"p{q}",
        linestyle=plots.DASHES[number], marker=plots.MARKERS[number], markersize=4, capsize=2.5, elinewidth=1.0, lolims=open_ended,
    )  # fmt: skip
    return y


def _marks(on: Any, sweep: Sweep, limit_ms: float) -> None:
    on.axhline(limit_ms, color=plots.INK, linestyle="-.", linewidth=1.0)
    on.annotate(
        plain(sweep.settings.slo, 40), (1.0, limit_ms), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=9
    )
    answer = sweep.answer
    if answer and answer.lower_rps and answer.upper_rps:
        on.axvspan(answer.lower_rps, answer.upper_rps, color=plots.COLOURS[7], alpha=0.18, label="bracket")
    if sweep.knee_rps:
        on.axvline(sweep.knee_rps, color=plots.INK, linestyle=":", linewidth=1.0)
        on.annotate(
            "knee", (sweep.knee_rps, 0.02), xycoords=("data", "axes fraction"), ha="right", va="bottom", fontsize=9, rotation=90
        )


def _throughput(sweep: Sweep) -> Plot:
    """Completed against offered: the wall is where they part."""
    points, theory = _good(sweep), sweep.theory

    def draw(figure: Any, on: Any) -> None:
        if not points:
            plots.nothing(on, "no valid run yet")
            return
        rates = np.array([p.rate_rps for p in points])
        on.plot(rates, rates, color=plots.INK, linestyle=":", linewidth=1.0, label="offered")
        plots.line(on, rates, np.array([p.completed_rps for p in points]), 0, "completed")
        if theory is not None:
            on.axhline(theory.wall_rps, color=plots.COLOURS[1], linestyle="--", linewidth=1.0, label="wall by theory")
        on.set_xlabel("offered rate (1/s)")
        on.set_ylabel("answers (1/s)")
        on.set_ylim(bottom=0)
        plots.legend(figure, on, 3)

    caption = "Successes among the arrivals of the measured window, per second; those still in flight at its end are counted when they are answered."
    return plots.plot("sweep-rate", "Answers against offered rate", caption, draw)
