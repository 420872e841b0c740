"""Chapter "Diagnosis": where the tail's time went, when it spiked, and which causes the evidence supports."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis import telemetry
from analysis.diagnosis import Diagnosis, diagnose
from analysis.diagnosis_evidence import Evidence, Finding
from analysis.diagnosis_spikes import Spike, p99_series
from analysis.plots import COLOURS, INK, legend, plot
from analysis.record_rows import declared, rows_of
from analysis.run_folder import Run
from analysis.sections import Plot, Section, Table
from analysis.text import count, duration, plain

MOST_SPIKES = 20


def evidence_of(run: Run) -> tuple[Evidence, str]:
    """(the run as the rules see it, which stretch of it)."""
    rows, which = rows_of(run)
    series = telemetry.read(run.path, run.manifest.epoch_wall_ns).named()
    known = declared(run)
    names = dict(enumerate(run.records.texts("replica")))
    workers = [worker.generator.model_dump() for worker in run.manifest.workers if worker.generator]
    return Evidence(rows, names, series, run.events, workers, known[0] if known else None), which


def section(run: Run) -> Section | None:
    """Findings ranked by the share of the tail's time they explain."""
    evidence, which = evidence_of(run)
    found = diagnose(evidence)
    if found.reason:
        return Section([f"No diagnosis: {found.reason}."])
    findings = [f"{number}. {_in_words(finding)}" for number, finding in enumerate(found.findings, 1)]
    if not findings:
        findings = ["No cause stands out: nothing explains as much as 15 % of the tail's time beyond what random arrivals bring."]
    if which:
        findings.append(f"Looked at {which}.")
    tables = [_stages(found), _causes(found), _spikes(found), _unmeasured(found)]
    data: dict[str, Any] = {
        "findings": [
            {"cause": f.cause, "title": f.title, "share": f.share, "evidence": list(f.evidence), "action": f.action}
            for f in found.findings
        ],
        "not_measured": [{"cause": u.cause, "needs": u.needs} for u in found.unmeasured],
    }
    return Section(findings, [table for table in tables if table.rows], [_spike_plot(evidence, found)], data)


def _in_words(finding: Finding) -> str:
    return f"{plain(finding.title)} (explains {finding.share:.0%} of the tail's time). {finding.action}"


def _stages(found: Diagnosis) -> Table:
    rows = [
        [stage, f"{tail:.1%}", f"{everyone:.1%}"]
        for stage, (tail, everyone) in sorted(found.stages.items(), key=lambda i: -i[1][0])
    ]
    note = "Shares of response time, intended to done. Lateness is the generator's; outside is network and queueing outside the server."
    return Table("Where the time goes, above p99 and in general", ["stage", "above p99", "all requests"], rows, note)


def _causes(found: Diagnosis) -> Table:
    rows = []
    for f in found.findings:
        seen = [*(plain(text) for text in f.evidence), f"look at: {', '.join(plain(series, 80) for series in f.plot[:4])}"]
        rows += [[f.cause if not i else "", f"{f.share:.0%}" if not i else "", text] for i, text in enumerate(seen)]
    return Table("Evidence", ["cause", "explains", "what was seen"], rows)


def _spikes(found: Diagnosis) -> Table:
    rows = [_spike_row(spike) for spike in found.spikes[:MOST_SPIKES]]
    note = f"{len(found.spikes)} windows whose p99 stands out from the median of all; the largest {MOST_SPIKES} are shown."
    return Table("Spike windows", ["from (s)", "to (s)", "requests", "p99", "usual p99", "mostly spent in"], rows, note)


def _spike_row(spike: Spike) -> list[str]:
    return [
        f"{spike.begin_ns / 1e9:.1f}", f"{spike.end_ns / 1e9:.1f}", count(spike.n), duration(spike.p99_s), duration(spike.baseline_s),
        f"{spike.stage} (+{duration(spike.stages[spike.stage])})" if spike.stage else "not told",
    ]  # fmt: skip


def _unmeasured(found: Diagnosis) -> Table:
    return Table(
        "Not measured", ["cause", "would need"], [[u.cause, u.needs] for u in found.unmeasured], "Neither found nor ruled out."
    )


def _spike_plot(evidence: Evidence, found: Diagnosis) -> Plot:
    starts, p99, width_ns = p99_series(evidence)

    def draw(figure: Any, on: Any) -> None:
        on.step(starts / 1e9, 1e3 * p99, where="post", color=COLOURS[0], label="p99")
        on.axhline(1e3 * float(np.nanmedian(p99)), color=INK, linewidth=0.8, linestyle=":", label="median of the windows")
        for spike in found.spikes[:MOST_SPIKES]:
            on.axvspan(spike.begin_ns / 1e9, spike.end_ns / 1e9, color=COLOURS[1], alpha=0.15, hatch="//", linewidth=0)
        on.set_xlabel("intended instant (s)")
        on.set_ylabel("response p99 (ms)")
        on.set_ylim(bottom=0)
        legend(figure, on, 2)

    drawn = "A failure is drawn at the p99 of the run's successes, or later if it was."
    caption = f"Requests after the warm-up; n = {len(evidence.rows):,}, in windows of {width_ns / 1e9:g} s; spike windows hatched. {drawn}"
    return plot("spikes", "p99 over time, spike windows marked", caption, draw)
