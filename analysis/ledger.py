"""Does every arrival have exactly one fate? Counted from the records by number, and held against what the manifest says.

scheduled = sent + dropped + lost (with a dead worker) + unsent (stopped early); sent = ok + failed + timed out + abandoned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis.manifest_model import Ledger
from analysis.record_columns import chosen, pieces
from analysis.run_folder import Run
from truetail.records import OUTCOMES

COLUMNS = ("scheduled", "sent", "dropped", "lost", "unsent", "ok", "failed", "timed_out", "abandoned")
FATES = ("ok", "failed", "timed_out", "abandoned")
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One worker's ledger, or the fleet's, counted from records. ``missing``: arrivals that nothing explains."""

    label: str
    counts: Mapping[str, int]
    missing: int


@dataclass
class LedgerCheck:
    """The ledger from the records, and every way in which it does not balance. ``notes``: what a dead worker told of and never recorded."""

    fleet: Line
    workers: list[Line]
    missing: int
    doubled: int
    unknown: int
    missing_k: list[int] = field(default_factory=list)
    doubled_k: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Both laws hold, to the last request."""
        return not self.faults


def check(run: Run) -> LedgerCheck:
    """Count, then compare: laws, numbers (missing, doubled, unknown), worker by worker against the manifest."""
    records = run.records
    scheduled = run.manifest.schedule.count if run.manifest.schedule else 0
    ks = chosen(records["k"], records.arrivals)
    if not (ks[1:] >= ks[:-1]).all():  # arrivals are due in the order of their numbers
        ks = np.sort(ks)
    known = ks[np.searchsorted(ks, 0) : np.searchsorted(ks, scheduled)]
    again = known[1:] == known[:-1]
    doubled = known[1:][again]
    single = np.concatenate([known[:1], known[1:][~again]]) if len(doubled) else known
    fates = _fates(run)
    workers = [_worker_line(run, name, counts) for name, counts in zip(records.workers, fates, strict=True)]
    workers += _absent_lines(run, {line.label for line in workers})
    absent = scheduled - len(single)
    lost, unsent = _explained(run, absent, workers)
    totals = {name: sum(line.counts[name] for line in workers) for name in ("sent", "dropped", *FATES)}
    missing = absent - lost - unsent
    fleet = Line("fleet", {"scheduled": scheduled, **totals, "lost": lost, "unsent": unsent}, missing)
    found = LedgerCheck(
        fleet, workers, missing, len(doubled), len(ks) - len(known),
        _first_gaps(single, scheduled) if missing else [], np.unique(doubled)[:EXAMPLES].tolist(),
    )  # fmt: skip
    found.faults += _number_faults(found) or _law_faults(found.fleet)
    found.faults += _manifest_faults(run, found)
    found.notes += _untold(run, found)
    return found


def _fates(run: Run) -> list[list[int]]:
    """Of each worker the number of arrivals by outcome."""
    records, kinds = run.records, len(OUTCOMES)
    worker, outcome = chosen(records["worker"], records.arrivals), chosen(records["outcome"], records.arrivals)
    counts = np.zeros(len(records.files) * kinds, np.int64)
    for piece in pieces(len(worker)):
        counts += np.bincount(worker[piece].astype(np.int64) * kinds + outcome[piece], minlength=len(counts))
    return [list(row) for row in counts.reshape(-1, kinds).tolist()]


def _worker_line(run: Run, name: str, counts: list[int]) -> Line:
    fates = dict(zip(OUTCOMES, counts, strict=True))
    sent = sum(fates[fate] for fate in FATES)
    worker = next((worker for worker in run.manifest.workers if worker.name == name), None)
    told = worker.ledger.scheduled if worker and worker.ledger else worker.scheduled if worker else None
    rows = sent + fates["dropped"]
    scheduled = rows if told is None else told
    rest = scheduled - rows
    state = worker.state if worker else "running"
    early = run.manifest.stopped_at_ns is not None
    lost, unsent = (max(rest, 0), 0) if _dead(state) else (0, max(rest, 0)) if early else (0, 0)
    return Line(name, {"scheduled": scheduled, "sent": sent, **fates, "lost": lost, "unsent": unsent}, rest - lost - unsent)


def _dead(state: str) -> bool:
    """Whether a worker in this state had begun and left no last word (lost, or running on when the master died)."""
    return state in ("lost", "running")


def _absent_lines(run: Run, have: set[str]) -> list[Line]:
    """Workers without any record: what they had to send is lost, or unsent if they never began."""
    lines = []
    for worker in run.manifest.workers:
        if worker.name in have:
            continue
        scheduled = worker.ledger.scheduled if worker.ledger else worker.scheduled or 0
        sent = worker.ledger.sent + worker.ledger.dropped if worker.ledger else 0
        unsent = 0 if sent or _dead(worker.state) else scheduled
        lost = scheduled if _dead(worker.state) else 0
        lines.append(
            Line(
                worker.name,
                dict.fromkeys(COLUMNS, 0) | {"scheduled": scheduled, "lost": lost, "unsent": unsent},
                scheduled - lost - unsent,
            )
        )
    return lines


def _explained(run: Run, absent: int, workers: list[Line]) -> tuple[int, int]:
    """(lost, unsent) of the fleet: what dead workers and an early stop explain, never more than is absent."""
    if not workers and run.manifest.state != "running":
        return 0, absent
    lost = min(absent, sum(line.counts["lost"] for line in workers))
    return lost, min(absent - lost, sum(line.counts["unsent"] for line in workers))


def _first_gaps(single: NDArray[np.int64], scheduled: int) -> list[int]:
    """The first few numbers that have no record; nothing is allocated for what the manifest merely claims."""
    edges = np.concatenate([[-1], single, [scheduled]])
    gaps: list[int] = []
    for at in np.flatnonzero(np.diff(edges) > 1)[:EXAMPLES].tolist():
        gaps += range(int(edges[at]) + 1, min(int(edges[at + 1]), int(edges[at]) + 1 + EXAMPLES))
    return gaps[:EXAMPLES]


def _number_faults(found: LedgerCheck) -> list[str]:
    checks = (
        (found.missing, f"{found.missing} arrivals have no record and nothing explains it (first: {found.missing_k})"),
        (found.doubled, f"{found.doubled} records repeat an arrival that has one already (first: {found.doubled_k})"),
        (found.unknown, f"{found.unknown} records belong to no arrival of the schedule"),
    )
    return [text for number, text in checks if number]


def _law_faults(line: Line) -> list[str]:
    c = line.counts
    faults = []
    parts = c["sent"] + c["dropped"] + c["lost"] + c["unsent"]
    if c["scheduled"] != parts:
        faults.append(f"{line.label}: scheduled {c['scheduled']} is not sent + dropped + lost + unsent = {parts}")
    fates = sum(c[fate] for fate in FATES)
    if c["sent"] != fates:
        faults.append(f"{line.label}: sent {c['sent']} is not ok + failed + timed out + abandoned = {fates}")
    return faults


def _manifest_faults(run: Run, found: LedgerCheck) -> list[str]:
    """What the manifest says against the records, of workers that left a last word."""
    faults: list[str] = []
    lines = {line.label: line for line in found.workers}
    total = run.manifest.ledger
    if total is not None:
        faults += _law_faults(Line("run.json", total.model_dump(), 0))
    for worker in run.manifest.workers:
        if worker.ledger is not None and worker.name in lines and worker.state in ("drained", "stopped"):
            faults += [f"{worker.name}: {fault}" for fault in _differences(worker.ledger, lines[worker.name].counts)]
    if (
        total is not None
        and run.manifest.state == "ended"
        and all(w.state in ("drained", "stopped") for w in run.manifest.workers)
    ):
        faults += [f"fleet: {fault}" for fault in _differences(total, found.fleet.counts)]
    return faults


def _untold(run: Run, found: LedgerCheck) -> list[str]:
    """A dead worker was heard of more requests than it has records: it died with them in flight, or before they were on disk or shipped.

    They count as lost, so the ledger balances; here they are named.
    """
    lines = {line.label: line for line in found.workers}
    notes = []
    for worker in run.manifest.workers:
        if worker.ledger is None or worker.name not in lines or not _dead(worker.state):
            continue
        short = (
            worker.ledger.sent + worker.ledger.dropped - lines[worker.name].counts["sent"] - lines[worker.name].counts["dropped"]
        )
        if short > 0:
            notes.append(f"{worker.name}: its last word told of {short} requests sent that have no record; they count as lost")
    return notes


def _differences(told: Ledger, counted: Mapping[str, int]) -> list[str]:
    return [
        f"run.json says {name} {value}, the records say {counted[name]}"
        for name in COLUMNS
        if (value := getattr(told, name)) != counted[name]
    ]
