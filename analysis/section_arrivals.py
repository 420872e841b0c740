"""Chapter "Arrivals certified": the schedule against its declared law, what was sent against the schedule, and the generator itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analysis import certify
from analysis.planned import operational_time
from analysis.run_folder import Run
from analysis.sections import Section, Table
from analysis.text import count, duration
from shapes.schedule import Schedule

MOST_CERTIFIED = 4_000_000
"""Beyond this planning again and testing takes longer than a report may; the ledger and the digests stand for it."""


def section(run: Run) -> Section | None:
    """The certificate; None when nothing was planned."""
    plan, scenario = run.manifest.schedule, run.scenario
    if plan is None:
        return None
    if plan.count > MOST_CERTIFIED:
        return Section(
            [f"{count(plan.count)} arrivals: not certified one by one here; the ledger and the digests are in the verdict."]
        )
    schedule = Schedule(scenario.arrivals, scenario.duration_s, scenario.seed.schedule, plan.epoch_wall_s)
    offsets = [block.offsets_ns for block in schedule.blocks()]
    scheduled = np.concatenate(offsets) if offsets else np.empty(0, np.int64)
    due = scheduled < run.manifest.end_ns
    records = run.records
    sent = records.arrivals & (records["sent_ns"] >= 0)
    cumulative = operational_time(run)[0]
    poisson = _is_poisson(run)
    limits = scenario.validity
    allowed = certify.Tolerances(limits.rate_error, lateness_p99_s=limits.lateness_p99_s, lateness_max_s=limits.lateness_max_s)
    end_s = run.manifest.end_ns / 1e9
    found = certify.certify(
        scheduled[due], (records["k"][sent], records["sent_ns"][sent]), cumulative, end_s,
        certify.poisson_tests if poisson else None, allowed,
    )  # fmt: skip
    words = (
        "Certified: what was sent is what the scenario declares, on time."
        if found.given
        else "Not certified: " + "; ".join(found.faults) + "."
    )
    law = (
        "Poisson arrivals at the declared rate"
        if poisson
        else "not Poisson by declaration: no test of a law, effects held against the schedule"
    )
    tables = [_matching(found, limits.lateness_p99_s, limits.lateness_max_s), _effects(found, law), *_generators(run)]
    if found.scheduled_tests:
        tables.insert(2, _tests(found))
    return Section([words], tables, data={"certified": found.given, "faults": list(found.faults)})


def _is_poisson(run: Run) -> bool:
    spacing = run.scenario.arrivals.get("spacing")
    return isinstance(spacing, dict) and spacing.get("kind") == "poisson" and "trace" not in run.scenario.arrivals


def _matching(found: certify.Certificate, p99_s: float, max_s: float) -> Table:
    m = found.reconciliation
    return Table(
        "Sent against scheduled, by number",
        ["scheduled", "sent", "missing", "doubled", "unknown", "lateness p50, whole run", "p99, whole run (allowed)", "max, whole run (allowed)"],
        [[
            count(m.scheduled), count(m.sent), count(m.missing), count(m.doubled), count(m.unknown), duration(m.lateness_p50_s),
            f"{duration(m.lateness_p99_s)} ({duration(p99_s)})", f"{duration(m.lateness_max_s)} ({duration(max_s)})",
        ]],
        "The whole run, its warm-up included; the rules 'lateness p99' and 'lateness max' look at what came after the warm-up. "
        "This is what certifies: tests of a distribution see neither a constant delay nor a few missing requests.",
    )  # fmt: skip


def _effects(found: certify.Certificate, law: str) -> Table:
    def cell(value: float) -> str:
        return "too few" if math.isnan(value) else f"{value:.3f}"

    rows = [
        [what, count(e.n), cell(e.rate_ratio), cell(e.scv), cell(e.idc)]
        for what, e in (("scheduled", found.scheduled), ("sent", found.achieved))
    ]
    header = ["", "arrivals", "count / declared", "squared CV of gaps", "dispersion (windows of 10)"]
    return Table("Effect sizes in operational time", header, rows, f"{law}. A Poisson process has 1.000 everywhere.")


def _tests(found: certify.Certificate) -> Table:
    rows = [
        [a.name, f"{a.p_value:.3g}", "passes" if a.passed else "rejects", f"{b.p_value:.3g}", "passes" if b.passed else "rejects"]
        for a, b in zip(found.scheduled_tests, found.achieved_tests, strict=False)
    ]
    note = (
        "1 % for the six together. A rejection alone does not refuse the certificate: an effect must be beyond its tolerance too."
    )
    return Table("Six tests for Poisson arrivals", ["test", "p, scheduled", "", "p, sent", ""], rows, note)


def _generators(run: Run) -> list[Table]:
    told = [(w.name, w.generator) for w in run.manifest.workers if w.generator is not None]
    if not told:
        return []
    number: Callable[[float], str] = lambda value: f"{value:.3g}"  # noqa: E731
    rows = [[name, f"{g.cpu_share_max:.0%}", number(g.loop_stall_p99_ms), number(g.loop_stall_max_ms)] for name, g in told]
    header = ["worker", "CPU at most", "event loop held up p99 (ms)", "max (ms)"]
    return [
        Table("The generator itself", header, rows, "A worker near 100 % of a core, or one that was held up, measures itself.")
    ]
