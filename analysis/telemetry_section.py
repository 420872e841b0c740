"""The report's chapter on GPUs, servers and hosts: what was sampled, energy, throttling, series under the latency.

Whatever shows a simulated device says so in its title; nothing simulated is ever added to what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis import telemetry_figures as figures
from analysis import telemetry_panels as panels
from analysis import telemetry_plots as plots
from analysis.run_folder import Run
from analysis.sections import Plot, Section, Table
from analysis.telemetry import Event, Source, Telemetry, read
from truetail.records import OK

MOST_PLOTS = 24
MOST_EVENTS = 50
NOT_MARKED = {"fields-absent", "no-gpu", "xid-not-offered"}
"""Events that say what there is, rather than what happened at an instant."""
NONE = "GPU, server and host were not recorded: the run folder has no file of a collector."


def section(run: Run) -> Section:
    """The chapter; one sentence when no collector ran."""
    telemetry = read(run.path, run.manifest.epoch_wall_ns)
    if not telemetry.sources and not telemetry.events:
        return Section(findings=[NONE])
    records = run.records
    counted = records.measured & (records["part"] == 0)
    intended_ns = records["intended_ns"][counted]
    answered = records["outcome"][counted] == OK
    response_s = np.where(answered, (records["done_ns"][counted] - intended_ns) / 1e9, np.inf)
    seconds = figures.latency_by_second(intended_ns, response_s, run.manifest.end_ns)
    done = records["outcome"] == OK
    energy = energies(telemetry, run.window_ns, records["done_ns"][done], records["tokens_out"][done].astype(np.float64))
    drawn = list(_plots(telemetry, seconds, run.manifest.warmup_ns))
    findings = [*_energy_findings(energy), *_no_gpu(telemetry), *telemetry.notes, *_clock_notes(telemetry, run)]
    if len(drawn) > MOST_PLOTS:
        findings.append(f"{len(drawn)} plots would be drawn; the first {MOST_PLOTS} are shown.")
    return Section(findings, list(_tables(telemetry, energy)), drawn[:MOST_PLOTS], _data(telemetry, energy))


def energies(telemetry: Telemetry, window_ns: tuple[int, int], done_ns: Any, tokens: Any) -> list[figures.Energy]:
    """Energy by device, then sums over devices of one kind."""
    found = [figures.energy(source, window_ns, done_ns, tokens) for source in telemetry.of("gpu")]
    parts = [part for part in found if part is not None]
    return [*parts, *figures.together(parts)]


def _plots(telemetry: Telemetry, seconds: figures.Seconds, warmup_ns: int) -> Iterator[Plot]:
    for number, source in enumerate(telemetry.of("gpu")):
        shown = panels.gpu_panels(source)
        if shown:
            marks = plots.Marks(figures.throttled(source), _instants(telemetry, source), warmup_ns)
            yield plots.stack(f"gpu{number}", plots.Stack(source.title, _caption(source, marks), shown, marks), seconds)
        busy = figures.busy_percent(source)
        if busy:
            label, series = busy
            share, p99_s = figures.busy_against_latency(series, seconds)
            if len(share) >= 10:
                finite = np.isfinite(p99_s)
                rank = figures.spearman(share[finite], p99_s[finite])
                told = (
                    f"rank correlation {rank:+.2f}, which says nothing of causes"
                    if rank is not None
                    else "no correlation can be told"
                )
                caption = f"After the warm-up; n = {len(share)} seconds with both; {told}.{_simulated(source)}"
                yield plots.scatter(f"busy{number}", f"{source.title}: {label} against latency", (share, p99_s), label, caption)
    for folder, choose in (("server", panels.server_panels), ("host", panels.host_panels)):
        for number, source in enumerate(telemetry.of(folder)):
            shown = choose(source)
            if shown:
                marks = plots.Marks((), _instants(telemetry, source), warmup_ns)
                yield plots.stack(f"{folder}{number}", plots.Stack(source.title, _caption(source, marks), shown, marks), seconds)


def _caption(source: Source, marks: plots.Marks) -> str:
    name = source.about.get("name", "")
    shaded = "shaded: throttled; " if marks.shaded else ""
    dotted = "dotted: events; " if marks.instants else ""
    window = "Whole run, warm-up grey, response after it; " if marks.warmup_ns > 0 else "Whole run; "
    return f"{name + '; ' if name else ''}{window}{shaded}{dotted}n = {source.samples} samples.{_simulated(source)}"


def _simulated(source: Source) -> str:
    return " Simulated by the reference service, not measured on a GPU." if source.simulated else ""


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


def _energy_findings(energy: list[figures.Energy]) -> Iterator[str]:
    for part in energy:
        if part.per_request_j is not None:
            tokens = f", {part.per_token_j:.3g} J per output token" if part.per_token_j is not None else ""
            yield f"{part.title}: {part.per_request_j:.3g} J per request{tokens} (n = {part.requests}), idle power included."


def _no_gpu(telemetry: Telemetry) -> Iterator[str]:
    yield from (f"{event.host}: {event.text}" for event in telemetry.events if event.kind == "no-gpu")


def _tables(telemetry: Telemetry, energy: list[figures.Energy]) -> Iterator[Table]:
    header = ("source", "is", "samples", "every, ms", "ticks missed", "times right within, ms")
    yield Table("What was sampled", header, [_source_row(source) for source in telemetry.sources])
    if energy:
        header_energy = (
            "device",
            "energy, J",
            "mean power, W",
            "J per request",
            "requests",
            "J per output token",
            "tokens",
            "window covered",
            "from",
        )
        yield Table("Energy in the measured window, idle power included", header_energy, [_energy_row(part) for part in energy])
    throttled = list(_throttle_rows(telemetry))
    if throttled:
        yield Table(
            "Throttling (shaded in the plots)", ("device", "reason", "periods", "seconds in all", "first at, s"), throttled
        )
    if telemetry.events:
        shown = [_event_row(event) for event in telemetry.events[:MOST_EVENTS]]
        left_out = len(telemetry.events) - len(shown)
        note = f"{left_out} more are in the run folder" if left_out else ""
        yield Table("What happened to the sources", ("at, s", "host", "source", "device", "kind", "text"), shown, note)


def _source_row(source: Source) -> list[Any]:
    kind = "simulated by the reference service" if source.simulated else source.kind
    error_ms = round(max(source.clock.error_ns / 1e6, 0.001), 3) if source.clock else "not known"
    return [source.title, kind, source.samples, source.period_ns / 1e6, source.missed, error_ms]


def _energy_row(part: figures.Energy) -> list[Any]:
    def number(value: float | None) -> str:
        return "no data" if value is None else f"{value:,.4g}"

    figures_told = [number(part.joules), number(part.watts), number(part.per_request_j), part.requests, number(part.per_token_j)]
    return [part.title, *figures_told, part.tokens, f"{100 * part.covered:.0f} %", part.how]


def _throttle_rows(telemetry: Telemetry) -> Iterator[list[Any]]:
    for source in telemetry.of("gpu"):
        found = figures.throttled(source)
        for reason in sorted({reason for _, _, reason in found}):
            spans = [(low, high) for low, high, name in found if name == reason]
            total_s = sum(high - low for low, high in spans) / 1e9
            yield [source.title, reason, len(spans), round(total_s, 3), round(spans[0][0] / 1e9, 1)]


def _event_row(event: Event) -> list[Any]:
    at = "" if event.at_ns is None else round(event.at_ns / 1e9, 1)
    return [at, event.host, event.source, event.device, event.kind, event.text]


def _data(telemetry: Telemetry, energy: list[figures.Energy]) -> dict[str, Any]:
    """What goes into summary.json: sources and energy, simulated ones marked."""
    return {
        "sources": [
            {"title": s.title, "folder": s.folder, "simulated": s.simulated, "samples": s.samples, "missed": s.missed}
            for s in telemetry.sources
        ],
        "energy": [
            {
                "title": e.title, "simulated": e.simulated, "joules": e.joules, "seconds": e.seconds, "requests": e.requests,
                "tokens": e.tokens, "joules_per_request": e.per_request_j, "joules_per_token": e.per_token_j,
            }
            for e in energy
        ],
    }  # fmt: skip
