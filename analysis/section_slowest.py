"""Chapter "Slowest requests": which they were, where each one's time went, and the trace of those that were sampled."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import measure
from analysis.run_folder import Run
from analysis.sections import Section, Table
from analysis.text import count, duration, plain, share
from truetail.records import OK, OUTCOMES, TABLES
from truetail.tracing import Tracer, key_of, tracer_of

SHOWN = 20
LOOKED_AT = 1_000_000
"""Requests asked whether they were sampled, slowest first, when the slowest traced ones are looked for."""
MOST_BYTES = 65_536
NUMBERS = ("k", "intended_ns", "sent_ns", "done_ns", "queue_us", "inference_us", "batch", "outcome")

Index = NDArray[np.intp]


def section(run: Run) -> Section | None:
    """The slowest answers after the warm-up; with tracing also the slowest traced ones, and traced failures. None without an answer."""
    records = run.records
    ok = records["outcome"] == OK
    failed = np.flatnonzero(records.judged & ~ok & (records["sent_ns"] >= 0))
    tracer = _tracer(run)
    slowest = _slowest(run, records.judged & ok, SHOWN if tracer is None else LOOKED_AT)
    if not len(slowest) and not len(failed):
        return None
    note = (
        "Response = lateness (ours, before it was sent) + service. An arrival is known by its number, which every record holds."
    )
    tables = [Table(f"The {SHOWN} slowest answers", *_table(run, slowest[:SHOWN], tracer), note)]
    findings = []
    if tracer is not None:
        findings.append(_exported(run))
        tables.append(Table("The slowest answers that were traced", *_table(run, _traced(run, slowest, tracer), tracer)))
        tables.append(Table("Failures that were traced", *_table(run, _traced(run, failed, tracer), tracer, failures=True)))
    data = {"slowest": _json(run, slowest[:SHOWN], tracer), "traces": _told(run)}
    return Section(findings, [table for table in tables if table.rows], data=data)


def _slowest(run: Run, mask: NDArray[np.bool_], most: int) -> Index:
    """The ``most`` rows of the mask with the longest response, longest first; equal ones as they come."""
    response = measure(run.records, "response", mask)
    rank = len(response) - min(most, len(response))
    among = np.flatnonzero(response >= np.partition(response, rank)[rank]) if len(response) else np.empty(0, np.intp)
    ranked = among[np.argsort(-response[among], kind="stable")][:most]
    return np.flatnonzero(mask)[ranked]


def _tracer(run: Run) -> Tracer | None:
    """The ids of the run, from its manifest; None where it was not traced, or the manifest does not say enough."""
    try:
        return tracer_of(run.manifest.raw["scenario"], key_of(run.manifest.raw))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _traced(run: Run, rows: Index, tracer: Tracer) -> Index:
    """The first of ``rows`` that were sampled."""
    found: list[int] = []
    for at, k in zip(rows[:LOOKED_AT].tolist(), run.records["k"][rows[:LOOKED_AT]].tolist(), strict=True):
        if tracer.sampled(k):
            found.append(at)
            if len(found) == SHOWN:
                break
    return np.array(found, np.intp)


def _table(run: Run, rows: Index, tracer: Tracer | None, *, failures: bool = False) -> tuple[list[str], list[list[str]]]:
    header = ["arrival", "intended at (s)", "request", "outcome" if failures else "response", "lateness", "service"]
    header += ["queue", "inference", "batch", "replica", "worker"] + (["trace id"] if tracer is not None else [])
    records = run.records
    columns = {name: column.tolist() for name, column in records.at(NUMBERS, rows).items()}
    columns |= {table: [records.texts(table)[i] for i in records[table][rows].tolist()] for table in TABLES}
    columns["worker"] = [records.workers[i] for i in records["worker"][rows].tolist()]
    each = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return header, [list(_cells(row, tracer, failures)) for row in each]


def _cells(row: dict[str, Any], tracer: Tracer | None, failures: bool) -> Iterable[str]:
    ended = row["done_ns"] >= 0
    yield str(row["k"])
    yield f"{row['intended_ns'] / 1e9:.3f}"
    yield row["name"]
    yield (row["error"] or OUTCOMES[row["outcome"]]) if failures else duration((row["done_ns"] - row["intended_ns"]) / 1e9)
    yield duration((row["sent_ns"] - row["intended_ns"]) / 1e9)
    yield duration((row["done_ns"] - row["sent_ns"]) / 1e9) if ended else "not ended"
    for stage in ("queue_us", "inference_us"):
        yield "" if math.isnan(row[stage]) else duration(row[stage] / 1e6)
    yield str(row["batch"] or "")
    yield row["replica"]
    yield row["worker"]
    if tracer is not None:
        yield _trace(row["k"], tracer)


def _trace(k: int, tracer: Tracer) -> str:
    return f"{tracer.trace_id(k):032x}" if tracer.sampled(k) else ""


def _json(run: Run, rows: Index, tracer: Tracer | None) -> list[dict[str, Any]]:
    records = run.records
    names = records.texts("name")
    columns = (records[name][rows].tolist() for name in ("k", "intended_ns", "done_ns", "name"))
    return [
        {
            "k": k,
            "intended_s": intended_ns / 1e9,
            "name": names[name],
            "response_s": (done_ns - intended_ns) / 1e9,
            "trace_id": (_trace(k, tracer) or None) if tracer is not None else None,
        }
        for k, intended_ns, done_ns, name in zip(*columns, strict=True)
    ]


def _told(run: Run) -> dict[str, Any] | None:
    """What the exporter said at its end; None where there was none, or it was killed."""
    try:
        with (run.path / "traces.json").open("rb") as file:
            told = json.loads(file.read(MOST_BYTES))
        counts = {name: int(told[name]) for name in ("sampled", "exported", "dropped")}
        return {**counts, "last_error": plain(told["last_error"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _exported(run: Run) -> str:
    sample = share(float(run.manifest.raw["scenario"]["tracing"]["sample"]))
    told = _told(run)
    if told is None:
        return f"{sample} of the arrivals were traced: the service was sent a traceparent; no exporter of spans left word."
    text = f"{sample} of the arrivals were traced: {count(told['exported'])} of {count(told['sampled'])} spans exported"
    return (
        f"{text}, {count(told['dropped'])} dropped ({told['last_error'] or 'no error told'})." if told["dropped"] else f"{text}."
    )
