"""The report's tables, once: the page, the Markdown, the CSV files and the terminal show the same cells."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from analysis.ledger import COLUMNS
from analysis.manifest_model import Worker
from analysis.percentiles import SHOWN, Distribution, Group
from analysis.result import Result
from analysis.sections import Table
from analysis.text import count, duration, plain, share

HEADER = ("", "n", "failed", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "mean", "max")
MANY_FAILED = 0.01
"""Beyond this share of failures even p99 differs between all and successes."""
NO_ROOM = 40
"""Rows of one kind that a page shows; summary.json has all."""


def row(label: str, found: Distribution, *, successes: bool) -> list[str]:
    """One line of a percentile table. Mean and maximum are of successes; with failures those of all are infinite."""
    shown = found.successes_s if successes else found.all_s
    n, failed = (found.n - found.failed, 0) if successes else (found.n, found.failed)
    broken = failed > 0
    mean, largest = ("inf (failed)", "inf (failed)") if broken else (duration(found.mean_s), duration(found.max_s))
    return [label, count(n), count(failed), *(duration(shown[q]) for q in SHOWN), mean, largest]


def key_percentiles(result: Result) -> Table:
    """Response of all and of successes side by side, then service and lateness."""
    latency = result.percentiles
    rows = [
        row("response, all", latency.response, successes=False),
        row("response, successes", latency.response, successes=True),
        row("service, successes", latency.service, successes=True),
        row("lateness, sent", latency.lateness, successes=True),
    ]
    rows += [row(f"{name}, successes", found, successes=True) for name, found in latency.others.items()]
    if latency.estimate:
        rows.append(row("response, all, with histograms for lost records", latency.estimate, successes=False))
    low, high = result.run.window_ns
    note = (
        f"Arrivals intended from {low / 1e9:g} to {high / 1e9:g} s, all workers merged; nearest rank, exact. In 'all' a failure counts as infinitely slow. "
        "Response: intended to last byte. Service: sent to last byte. Lateness: intended to sent."
    )
    if latency.estimate:
        note += f" The line with histograms is exact within {share(latency.estimate.bound)} upwards."
    return Table("Percentiles", HEADER, rows, note)


def failures(result: Result) -> str:
    """What failures do to the percentiles, in words; empty where fewer than one in a hundred failed."""
    response = result.percentiles.response
    if not response.n or response.failed <= MANY_FAILED * response.n:
        return ""
    infinite = [q for q in SHOWN if math.isinf(response.all_s[q] or 0.0)]
    first = f"p{infinite[0]} and everything beyond it is infinite" if infinite else "they take the places of the slowest"
    return (
        f"{count(response.failed)} of {count(response.n)} arrivals after the warm-up failed ({share(response.failed / response.n)}). Of all arrivals {first}; "
        f"the lines of successes leave the failed ones out and say nothing about them. SLO lines are judged on all."
    )


def groups(title: str, found: Sequence[Group], note: str = "") -> Table | None:
    """By name, replica or worker: all, and successes; None when there is nothing."""
    if not found:
        return None
    rows: list[list[str]] = []
    for group in sorted(found, key=lambda group: -group.response.n)[: NO_ROOM // 2]:
        label = f"{group.label} (further request)" if group.further else group.label
        rows += [
            row(f"{label}, all", group.response, successes=False),
            row(f"{label}, successes", group.response, successes=True),
        ]
    left = len(found) - NO_ROOM // 2
    return Table(title, HEADER, rows, note + (f" {left} more are in summary.json." if left > 0 else ""))


def slos(result: Result) -> Table:
    """Each SLO line with what was measured."""
    rows = [(slo.word, slo.text, slo.measured, slo.limit, count(slo.n), count(slo.failed), slo.sure) for slo in result.slos]
    return Table(
        "SLO lines",
        ("", "line", "measured", "limit", "n", "failed", "how sure"),
        rows,
        "Judged on all arrivals after the warm-up.",
    )


def rules(result: Result) -> Table:
    """Each validity rule."""
    word = {True: "met", False: "NOT MET", None: "not checked"}
    return Table("May it be believed?", ("", "rule", "found"), [(word[rule.met], rule.name, rule.text) for rule in result.rules])


def ledger(result: Result) -> Table:
    """The ledger: fleet first, then the workers."""
    found = result.ledger
    lines = [found.fleet, *found.workers[: NO_ROOM - 1]]
    rows = [[line.label, *(count(line.counts[name]) for name in COLUMNS), count(line.missing)] for line in lines]
    note = "scheduled = sent + dropped + lost + unsent; sent = ok + failed + timed out + abandoned. Counted from the records, by arrival number; whole run."
    return Table("Ledger", ("", *(name.replace("_", " ") for name in COLUMNS), "missing"), rows, note)


def events(result: Result) -> Table | None:
    """What happened during the run; None when nothing did."""
    found = result.run.events
    rows = [
        ("" if event["at_ns"] is None else f"{event['at_ns'] / 1e9:.3f}", event["kind"], event["text"]) for event in found[:200]
    ]
    return (
        Table("Events", ("at (s)", "kind", "what"), rows, f"{len(found)} in all." if len(found) > 200 else "") if rows else None
    )


def environment(result: Result) -> Table:
    """Where the figures come from."""
    manifest = result.run.manifest
    raw, seeds = manifest.raw, manifest.scenario.seed
    rows: list[tuple[str, str]] = [
        ("run", manifest.run_id),
        ("scenario", f"{manifest.scenario.name} ({manifest.scenario_file or 'no file'}, sha256 {manifest.scenario_sha256[:16]})"),
        (
            "schedule",
            f"{count(manifest.schedule.count)} arrivals, digest {manifest.schedule.digest[:16]}" if manifest.schedule else "none",
        ),
        ("seeds", f"schedule {seeds.schedule}, payload {seeds.payload}, mix {seeds.mix}"),
    ]
    for name in ("target", "host", "versions", "git_commit"):
        value = raw.get(name)
        text = (
            ", ".join(f"{key} {_as_text(item)}" for key, item in value.items() if item not in (None, ""))
            if isinstance(value, dict)
            else str(value or "")
        )
        rows.append((name.replace("_", " "), plain(text, 600)))
    rows += [(worker.name, _worker(worker)) for worker in manifest.workers[:NO_ROOM]]
    return Table("Environment and seeds", ("", ""), rows)


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _worker(worker: Worker) -> str:
    """A worker's state, place, clock, and how it fared itself."""
    place = f"{worker.state}, slot {worker.slot} of {worker.n_slots} on {worker.host}, clock within {duration(worker.clock_residual_ns / 1e9)}"
    own = worker.generator
    if own is None:
        return f"{place}; no figures of its own"
    stalls = f"loop stalls p99 {own.loop_stall_p99_ms:.3g} ms, max {own.loop_stall_max_ms:.4g} ms"
    return f"{place}; busiest {share(own.cpu_share_max)} of a core, {stalls}"
