"""May the run be believed at all? One rule each; a rule that is not met makes the run INVALID, with what was found and allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.ledger import LedgerCheck
from analysis.percentiles import Percentiles
from analysis.planned import check_plan
from analysis.record_columns import chosen
from analysis.run_folder import Run
from analysis.slo_lines import SloResult
from analysis.text import count, duration, share
from truetail.records import DROPPED, OK

LISTED = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at."""

    run: Run
    ledger: LedgerCheck
    percentiles: Percentiles
    slos: list[SloResult]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's outcome; ``met`` is None where it could not be checked (which voids nothing, and is said)."""

    name: str
    met: bool | None
    text: str


Outcome = tuple[bool | None, str]


def judge(evidence: Evidence) -> list[Rule]:
    """All rules, in the order in which a reader wants them."""
    return [Rule(name, *rule(evidence)) for name, rule in RULES.items()]


def _completed(evidence: Evidence) -> Outcome:
    manifest = evidence.run.manifest
    if manifest.state != "ended":
        return False, f"the run did not end: run.json still says '{manifest.state}' (did the master die?)"
    if manifest.stop_reason == "completed":
        return True, "the run went to its planned end"
    if manifest.stop_reason == "worker-lost":
        return True, "the run went to its planned end, without a worker that was lost"
    at = "" if manifest.stopped_at_ns is None else f" after {duration(manifest.stopped_at_ns / 1e9)}"
    why = manifest.stop_text or manifest.stop_reason
    return False, f"the run was stopped{at}: {why}"


def _workers(evidence: Evidence) -> Outcome:
    run = evidence.run
    if not run.manifest.workers:
        return False, "no worker took part"
    gone = [f"{worker.name} ({worker.state})" for worker in run.manifest.workers if worker.state not in ("drained", "stopped")]
    if not gone:
        return True, f"all {len(run.manifest.workers)} workers gave their last word"
    text = f"{len(gone)} of {len(run.manifest.workers)} workers gave no last word: {', '.join(gone[:LISTED])}"
    return run.scenario.fleet.on_loss == "repartition" and run.manifest.state == "ended", text


def _requests(evidence: Evidence) -> Outcome:
    response = evidence.percentiles.response
    if not response.n:
        return False, "no arrival after the warm-up: there is nothing to judge"
    return True, f"{count(response.n)} arrivals after the warm-up, {count(response.n - response.failed)} answered"


def _ledger(evidence: Evidence) -> Outcome:
    faults = evidence.ledger.faults
    if faults:
        return False, "; ".join(faults[:LISTED]) + (f"; and {len(faults) - LISTED} more" if len(faults) > LISTED else "")
    return True, "scheduled = sent + dropped + lost + unsent, and sent = ok + failed + timed out + abandoned, to the last request"


def _lost(evidence: Evidence) -> Outcome:
    counts = evidence.ledger.fleet.counts
    if not counts["lost"]:
        return True, "no arrival was lost with a worker"
    scenario = evidence.run.scenario
    allowed = scenario.validity.lost if scenario.fleet.on_loss == "repartition" else 0.0
    text = (
        f"{count(counts['lost'])} of {count(counts['scheduled'])} arrivals were lost with a worker; {allowed:.3g} of them may be"
    )
    return counts["lost"] <= allowed * counts["scheduled"], text


def _records(evidence: Evidence) -> Outcome:
    run = evidence.run
    faults = list(run.damage)
    if run.records.lost_texts:
        faults.append(f"{run.records.lost_texts} texts of records are lost")
    if faults:
        return False, "; ".join(faults[:LISTED])
    return True, f"{count(len(run.records))} records of {len(run.files)} workers, all readable"


def _times(evidence: Evidence) -> Outcome:
    records = evidence.run.records
    sent_ns, done_ns = records["sent_ns"], records["done_ns"]
    sent = sent_ns >= 0
    ok = (records["outcome"] == OK) & records.measured
    wrong = int((ok & ((done_ns < sent_ns) | ~sent)).sum())
    early = int((records.arrivals & sent & (sent_ns < records["intended_ns"] - 1_000_000)).sum())
    if wrong or early:
        return (
            False,
            f"{count(wrong)} answers end before they begin, {count(early)} requests were sent over 1 ms before their instant",
        )
    return True, "every request begins at or after its instant and ends after it began"


def _lateness_p99(evidence: Evidence) -> Outcome:
    limit_s = evidence.run.scenario.validity.lateness_p99_s
    return _within(evidence.percentiles.lateness.successes_s["99"], limit_s)


def _lateness_max(evidence: Evidence) -> Outcome:
    return _within(evidence.percentiles.lateness.max_s, evidence.run.scenario.validity.lateness_max_s)


def _within(found_s: float | None, limit_s: float) -> Outcome:
    if found_s is None:
        return None, "nothing was sent after the warm-up"
    return found_s <= limit_s, f"{duration(found_s)} after the warm-up, at most {duration(limit_s)} is allowed"


def _dropped(evidence: Evidence) -> Outcome:
    records = evidence.run.records
    first = records.arrivals
    dropped, total = int((records["outcome"][first] == DROPPED).sum()), int(first.sum())
    allowed = evidence.run.scenario.validity.dropped
    text = f"{count(dropped)} of {count(total)} arrivals found no free user in time; {share(allowed)} may be dropped"
    return (dropped <= allowed * total if total else None), text


def _rate(evidence: Evidence) -> Outcome:
    """Requests sent against arrivals due, both within the measured window."""
    low, high = evidence.run.window_ns
    records = evidence.run.records
    first = records.arrivals
    intended, sent = chosen(records["intended_ns"], first), chosen(records["sent_ns"], first)
    due = int(((intended >= low) & (intended < high)).sum())
    if not due or high <= low:
        return None, "no arrival was due in the measured window"
    went = int(((sent >= low) & (sent < high)).sum())
    error, allowed = abs(went / due - 1), evidence.run.scenario.validity.rate_error
    seconds = (high - low) / 1e9
    return (
        error <= allowed,
        f"sent {went / seconds:,.4g}/s of {due / seconds:,.4g}/s due: off by {share(error)}, {share(allowed)} is allowed",
    )


def _clocks(evidence: Evidence) -> Outcome:
    workers = evidence.run.manifest.workers
    if not workers:
        return None, "no worker took part"
    worst = max(workers, key=lambda worker: worker.clock_residual_ns)
    limit_s = evidence.run.scenario.fleet.max_clock_residual_s
    found_s = worst.clock_residual_ns / 1e9
    return found_s <= limit_s, f"clocks are known within {duration(found_s)} ({worst.name}), {duration(limit_s)} is allowed"


def _claim(evidence: Evidence) -> Outcome:
    slos = evidence.slos
    if not slos:
        return False, "the scenario states no SLO line (slos): nothing was claimed, so nothing can be signed"
    empty = [slo.text for slo in slos if slo.met is None]
    if empty:
        return False, f"no data for {', '.join(empty[:LISTED])}"
    return True, f"{len(slos)} SLO lines, each with data"


def _long_enough(evidence: Evidence) -> Outcome:
    short = [f"{slo.text} ({slo.sure})" for slo in evidence.slos if slo.met is not None and not slo.supported]
    if short:
        return False, f"too short a run for {'; '.join(short[:LISTED])}"
    if not any(slo.met is not None for slo in evidence.slos):
        return None, "no SLO line has data"
    return True, "the run supports a claim about every percentile that an SLO line names"


RULES: dict[str, Callable[[Evidence], Outcome]] = {
    "run completed": _completed,
    "workers": _workers,
    "requests": _requests,
    "SLO stated": _claim,
    "long enough": _long_enough,
    "ledger": _ledger,
    "lost arrivals": _lost,
    "records": _records,
    "schedule": lambda evidence: check_plan(evidence.run),
    "order of times": _times,
    "lateness p99": _lateness_p99,
    "lateness max": _lateness_max,
    "dropped": _dropped,
    "rate": _rate,
    "clocks": _clocks,
}


def unmet(rules: list[Rule]) -> list[Rule]:
    """The rules that make the run INVALID."""
    return [rule for rule in rules if rule.met is False]
