"""The report's section on GPUs, servers and hosts: what was sampled, energy, throttling, series under the latency.

Whatever shows a simulated device says so in its title; nothing simulated is ever added to what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import telemetry_figures as figures
from analysis import telemetry_panels as panels
from analysis import telemetry_plots as plots
from analysis.run_folder import Run
from analysis.telemetry import Source, Telemetry, read
from truetail.records import OK

TITLE = "GPU, server and host"
MOST_FIGURES = 24
MOST_EVENTS = 50
NOT_MARKED = {"fields-absent", "no-gpu", "xid-not-offered"}
"""Events that say what there is, rather than what happened at an instant."""
NONE = "GPU, server and host were not recorded: the run folder has no file of a collector."


def section(run: Run) -> Markup:
    """The section as an HTML fragment, self-contained; one sentence when no collector ran."""
    telemetry = read(run.path, run.manifest.epoch_wall_ns)
    if not telemetry.sources and not telemetry.events:
        return Markup('<p class="note">{}</p>').format(NONE)
    records = run.records
    counted = records.measured & (records["part"] == 0)
    intended_ns = records["intended_ns"][counted]
    answered = records["outcome"][counted] == OK
    response_s = np.where(answered, (records["done_ns"][counted] - intended_ns) / 1e9, np.inf)
    seconds = figures.latency_by_second(intended_ns, response_s, run.manifest.end_ns)
    done = records["outcome"] == OK
    energy = energies(telemetry, run.window_ns, records["done_ns"][done], records["tokens_out"][done].astype(np.float64))
    drawn = list(_figures(telemetry, seconds, run.manifest.warmup_ns))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return Markup(  # noqa: S704 - a template with autoescape
        environment.get_template("telemetry.html.j2").render(
            notes=[*telemetry.notes, *_clock_notes(telemetry, run), *_left_out(drawn)],
            sources=[_source_row(source) for source in telemetry.sources],
            energy=[_energy_row(part) for part in energy],
            throttled=list(_throttle_rows(telemetry)),
            figures=[Markup(text) for text in drawn[:MOST_FIGURES]],  # noqa: S704 - matplotlib's SVG, which escapes its text
            events=[_event_row(event) for event in telemetry.events[:MOST_EVENTS]],
            events_left_out=max(0, len(telemetry.events) - MOST_EVENTS),
        )
    )


def energies(telemetry: Telemetry, window_ns: tuple[int, int], done_ns: Any, tokens: Any) -> list[figures.Energy]:
    """Energy by device, then sums over devices of one kind."""
    found = [figures.energy(source, window_ns, done_ns, tokens) for source in telemetry.of("gpu")]
    parts = [part for part in found if part is not None]
    return [*parts, *figures.together(parts)]


def _figures(telemetry: Telemetry, seconds: figures.Seconds, warmup_ns: int) -> Iterator[str]:
    for source in telemetry.of("gpu"):
        shown = panels.gpu_panels(source)
        if shown:
            marks = plots.Marks(figures.throttled(source), _instants(telemetry, source), warmup_ns)
            yield plots.stack(plots.Stack(_headline(source), shown, marks), seconds)
        busy = figures.busy_percent(source)
        if busy:
            label, series = busy
            share, p99_s = figures.busy_against_latency(series, seconds)
            if len(share) >= 10:
                finite = np.isfinite(p99_s)
                rank = figures.spearman(share[finite], p99_s[finite])
                note = (
                    f"rank correlation {rank:+.2f} (says nothing of causes)" if rank is not None else "no correlation can be told"
                )
                yield plots.scatter(f"{source.title}: {label} against latency", share, p99_s, label, note)
    for folder, choose in (("server", panels.server_panels), ("host", panels.host_panels)):
        for source in telemetry.of(folder):
            shown = choose(source)
            if shown:
                marks = plots.Marks((), _instants(telemetry, source), warmup_ns)
                yield plots.stack(plots.Stack(_headline(source), shown, marks), seconds)


def _headline(source: Source) -> str:
    name = source.about.get("name", "")
    what = "SIMULATED, not measured on a GPU" if source.simulated else name
    return f"{source.title}{f': {what}' if what else ''} (n = {source.samples} samples)"


def _instants(telemetry: Telemetry, source: Source) -> list[tuple[int, str]]:
    """Events of this source, for vertical lines."""
    mine = [
        event
        for event in telemetry.events
        if event.at_ns is not None
        and event.kind not in NOT_MARKED
        and event.host == source.host
        and event.source in (source.name, source.kind)
        and event.device in ("", source.device)
    ]
    return [(event.at_ns, event.kind) for event in mine if event.at_ns is not None and event.at_ns >= 0]


def _clock_notes(telemetry: Telemetry, run: Run) -> Iterator[str]:
    """How far times may be wrong, in words."""
    if run.manifest.epoch_wall_ns is None:
        yield "run.json holds no epoch: times count from the first clock anchor of each host."
    told = run.manifest.raw.get("host")
    master = str(told.get("name", "")) if isinstance(told, dict) else ""
    for host in sorted({source.host for source in telemetry.sources if master and source.host != master}):
        yield (
            f"Host {host} is not the master's ({master}): its times rest on both hosts' wall clocks, "
            "whose difference is not measured here."
        )


def _left_out(drawn: list[str]) -> Iterator[str]:
    if len(drawn) > MOST_FIGURES:
        yield f"{len(drawn)} figures would be drawn; the first {MOST_FIGURES} are shown."


def _source_row(source: Source) -> dict[str, str]:
    kind = "simulated by the reference service" if source.simulated else source.kind
    error = f"{max(source.clock.error_ns / 1e6, 0.001):.3g} ms" if source.clock else "not known"
    every = f"{source.period_ns / 1e6:g} ms"
    return {
        "title": source.title,
        "kind": kind,
        "samples": str(source.samples),
        "every": every,
        "missed": str(source.missed),
        "error": error,
    }


def _energy_row(part: figures.Energy) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "no data" if value is None else f"{value:,.4g}"

    return {
        "title": part.title,
        "joules": number(part.joules),
        "watts": number(part.watts),
        "per_request": number(part.per_request_j),
        "requests": str(part.requests),
        "per_token": number(part.per_token_j),
        "tokens": str(part.tokens),
        "covered": f"{100 * part.covered:.0f} %",
        "how": part.how,
    }


def _throttle_rows(telemetry: Telemetry) -> Iterator[dict[str, str]]:
    for source in telemetry.of("gpu"):
        found = figures.throttled(source)
        for reason in sorted({reason for _, _, reason in found}):
            spans = [(low, high) for low, high, name in found if name == reason]
            total_s = sum(high - low for low, high in spans) / 1e9
            row = {"title": source.title, "reason": reason, "periods": str(len(spans))}
            yield {**row, "seconds": f"{total_s:.3g}", "first": f"{spans[0][0] / 1e9:.1f} s"}


def _event_row(event: Any) -> dict[str, str]:
    at = "" if event.at_ns is None else f"{event.at_ns / 1e9:.1f}"
    return {"at": at, "host": event.host, "source": event.source, "kind": event.kind, "text": event.text}
