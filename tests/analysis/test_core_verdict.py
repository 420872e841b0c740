"""Every rule is reached, INVALID beats FAIL, no data never passes, and the exit codes are the documented ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import ledger, percentiles, slo_lines, validity, verdict
from analysis.run_folder import open_run
from analysis.validity import Evidence, Rule
from analysis.verdict import Verdict
from tests.analysis.run_folders import MS, Plan, edit_manifest, fail, rows_of, write_run
from truetail.records import ABANDONED, DROPPED, FAILED, RECORD, TIMED_OUT

Damage = Callable[[Path], None]


def judged(folder: Path) -> tuple[Verdict, dict[str, Rule]]:
    run = open_run(folder)
    slos = slo_lines.judge(run)
    rules = validity.judge(Evidence(run, ledger.check(run), percentiles.of_run(run), slos))
    return verdict.decide(rules, slos, run.manifest.stop_reason), {rule.name: rule for rule in rules}


def made(
    folder: Path, change: Callable[[Any], None] | None = None, plan: Plan | None = None, service_ms: Any = 10.0, **manifest: Any
) -> Path:
    plan = plan or Plan(duration_s=10)
    rows = rows_of(plan, service_ms)
    if change:
        change(rows)
    return write_run(folder, plan, rows, **manifest)


def test_a_good_run_passes(tmp_path: Path) -> None:
    """All rules met, all SLO lines met: PASS, exit code 0, and the reasons say what was measured."""
    found, rules = judged(
        made(tmp_path / "run", plan=Plan(duration_s=30))
    )  # 3,000 requests: enough to claim p99 with none beyond
    assert (found.status, int(found.exit_code)) == ("PASS", 0)
    assert all(rule.met for rule in rules.values()), rules
    assert "10.05 ms" in found.reasons[0]


def test_a_missed_line_fails(tmp_path: Path) -> None:
    """One SLO line is missed: FAIL, exit code 1, with the figure."""
    found, _ = judged(made(tmp_path / "run", service_ms=60.0))
    assert (found.status, int(found.exit_code)) == ("FAIL", 1)
    assert "60.05 ms" in found.reasons[0]


def _state(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / "run.json").read_text())
    document["workers"][1] |= changes
    edit_manifest(folder, workers=document["workers"])


def _records(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / "records" / "worker-1.rec"
    change(np.fromfile(path, RECORD)).tofile(path)


def _set(column: str, value: Any, which: Any = slice(0, 10)) -> Callable[[Any], Any]:
    def change(rows: Any) -> Any:
        rows[column][which] = value
        return rows

    return change


RULE_BREAKERS: list[tuple[str, Damage]] = [
    ("run completed", lambda folder: edit_manifest(folder, state="running", stop_reason=None)),
    ("run completed", lambda folder: edit_manifest(folder, stop_reason="schedule-mismatch")),
    ("run completed", lambda folder: edit_manifest(folder, stop_reason="error")),
    ("workers", lambda folder: _state(folder, state="lost")),
    ("workers", lambda folder: edit_manifest(folder, workers=[])),
    ("requests", lambda folder: _all_warmup(folder)),
    ("ledger", lambda folder: _records(folder, lambda rows: rows[:-3])),
    ("ledger", lambda folder: _records(folder, lambda rows: np.concatenate([rows, rows[:1]]))),
    ("ledger", lambda folder: _records(folder, _set("k", 10**6))),
    ("ledger", lambda folder: _records(folder, _set("outcome", FAILED))),
    ("lost arrivals", lambda folder: (_state(folder, state="lost"), _records(folder, lambda rows: rows[:-3]))[0]),
    ("records", lambda folder: (folder / "records" / "worker-1.rec").unlink()),
    ("records", lambda folder: _records(folder, _set("outcome", 9, slice(0, 1)))),
    (
        "schedule",
        lambda folder: edit_manifest(
            folder, schedule=json.loads((folder / "run.json").read_text())["schedule"] | {"digest": "0" * 64}
        ),
    ),
    ("schedule", lambda folder: _records(folder, _set("intended_ns", 5 * MS))),
    ("order of times", lambda folder: _records(folder, _set("done_ns", 1))),
    ("lateness p99", lambda folder: _records(folder, _late(6 * MS, 20))),
    ("lateness max", lambda folder: _records(folder, _late(300 * MS, 1))),
    ("dropped", lambda folder: _records(folder, _set("outcome", DROPPED, slice(0, 1)))),
    ("rate", lambda folder: _records(folder, _late(11_000 * MS, 30))),
    ("clocks", lambda folder: _state(folder, clock_residual_ns=6 * MS)),
]


def _all_warmup(folder: Path) -> None:
    for path in (folder / "records").glob("*.rec"):
        rows = np.fromfile(path, RECORD)
        rows["flags"] = 1
        rows.tofile(path)


def _late(by_ns: int, number: int) -> Callable[[Any], Any]:
    def change(rows: Any) -> Any:
        rows["sent_ns"][:number] += by_ns
        rows["done_ns"][:number] += by_ns
        return rows

    return change


@pytest.mark.parametrize(("name", "damage"), RULE_BREAKERS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(RULE_BREAKERS)])
def test_every_rule_can_void_the_run(tmp_path: Path, name: str, damage: Damage) -> None:
    """A run that would pass breaks one rule: INVALID, exit code 3, that rule among the reasons."""
    folder = made(tmp_path / "run")
    damage(folder)
    found, rules = judged(folder)
    assert (found.status, int(found.exit_code)) == ("INVALID", 3)
    assert rules[name].met is False, rules
    assert any(reason.startswith(f"{name}: ") for reason in found.reasons)


def test_every_rule_has_a_breaker() -> None:
    """No rule is without a test that breaks it."""
    tested = {name for name, _ in RULE_BREAKERS} | {"SLO stated", "long enough"}
    assert tested == set(validity.RULES)


@pytest.mark.parametrize(
    "slos", [[], ["p99[nobody] < 1s"], ["p99(ttft) < 1s"], ["p99(queue) < 1s"], ["mean(tokens_per_s) > 1/s"], ["no line"]]
)
def test_no_claim_or_no_data_is_invalid(tmp_path: Path, slos: list[str]) -> None:
    """No SLO line, one about requests that were not, or about a metric that nobody told: never green."""
    found, rules = judged(made(tmp_path / "run", plan=Plan(duration_s=10, slos=slos)))
    assert (found.status, int(found.exit_code)) == ("INVALID", 3)
    assert rules["SLO stated"].met is False


def test_too_few_requests_for_the_percentile(tmp_path: Path) -> None:
    """100 requests show no p99, however fast; the number told is the one that `truetail check` tells."""
    found, rules = judged(made(tmp_path / "run", plan=Plan(rate_rps=100, duration_s=1)))
    assert found.status == "INVALID"
    assert "at least 2,937" in rules["long enough"].text


def test_invalid_beats_fail_and_both_are_told(tmp_path: Path) -> None:
    """A missed SLO in a run that cannot be believed: INVALID, and the miss stays visible."""
    folder = made(tmp_path / "run", service_ms=60.0)
    _state(folder, clock_residual_ns=6 * MS)
    found, _ = judged(folder)
    assert found.status == "INVALID"
    assert "clocks" in found.reasons[0]
    assert "is missed" in found.reasons[-1]


@pytest.mark.parametrize(("reason", "code"), [("interrupted", 130), ("target-not-ready", 4), ("worker-lost", 3), ("muster", 3)])
def test_stop_reasons_have_their_exit_codes(tmp_path: Path, reason: str, code: int) -> None:
    """Interrupted 130, target never ready 4; others are INVALID."""
    folder = made(tmp_path / "run", stop_reason=reason)
    if reason == "worker-lost":
        _state(folder, state="lost")
    found, _ = judged(folder)
    assert (found.status, int(found.exit_code)) == ("INVALID", code)


def test_an_interrupted_run_balances_with_unsent(tmp_path: Path) -> None:
    """Stopped half way: what was not due any more is unsent, the ledger balances, the verdict is INVALID."""
    plan = Plan(rate_rps=100, duration_s=10)
    rows = rows_of(plan, 10.0)
    folder = write_run(
        tmp_path / "run", plan, rows[rows["intended_ns"] < 5e9], stop_reason="interrupted", stopped_at_ns=5 * 10**9
    )
    found, rules = judged(folder)
    assert int(found.exit_code) == 130
    assert rules["ledger"].met
    assert ledger.check(open_run(folder)).fleet.counts["unsent"] == 500


@pytest.mark.parametrize("outcome", [FAILED, TIMED_OUT, ABANDONED])
def test_failures_count_as_infinitely_slow(tmp_path: Path, outcome: int) -> None:
    """2 % of failures miss a p99 line that every success meets, whatever the kind of failure."""
    found, _ = judged(made(tmp_path / "run", lambda rows: fail(rows, slice(0, 20), outcome)))
    assert found.status == "FAIL"
    assert "inf (failed)" in found.reasons[0]


KINDS = [
    ("p98 < 50ms", True), ("p98.1 < 50ms", False), ("error_rate <= 2%", True), ("error_rate < 2%", False), ("goodput(10ms) >= 49%", True),
    ("goodput(10ms) > 49%", False), ("goodput(100ms) >= 98%", True), ("mean < 10s", False), ("max < 10s", False), ("rate > 97/s", True), ("rate > 99/s", False),
    ("p50(service) <= 20ms", True), ("p99(lateness) < 1ms", True), ("p50[predict] < 21ms", True),
    ("p10(tokens_per_s) >= 500/s", True), ("p10(tokens_per_s) > 501/s", False),
]  # fmt: skip


@pytest.mark.parametrize(("line", "met"), KINDS)
def test_each_kind_of_line(tmp_path: Path, line: str, met: bool) -> None:
    """1000 arrivals: 490 of 9 ms, 490 of 20 ms with 10 tokens, 20 failures; each line by hand."""
    plan = Plan(duration_s=10, slos=[line])

    def change(rows: Any) -> None:
        rows["tokens_out"] = 10
        fail(rows, slice(0, 1000, 50), FAILED)

    service = np.where(np.arange(1000) % 2, 20.0, 9.0)
    service[np.arange(0, 1000, 50)] = 9.0
    # the failures lie on even numbers: 480 of 9 ms are left, so ten more of the odd ones are made fast
    service[np.arange(1, 21, 2)] = 9.0
    rows = rows_of(plan, service, lateness_us=0)
    change(rows)
    run = open_run(write_run(tmp_path / "run", plan, rows))
    (found,) = slo_lines.judge(run)
    assert found.met is met, found


def test_what_a_dead_worker_told_of_and_never_recorded_is_named_and_balances(tmp_path: Path) -> None:
    """Killed with requests in flight, its last word counts more sent than there are records: lost, in the ledger and in a note."""
    folder = made(tmp_path / "run")
    _state(folder, state="lost")
    _records(folder, lambda rows: rows[:-3])
    found = ledger.check(open_run(folder))
    assert found.balanced, found.faults
    assert found.fleet.counts["lost"] == 3
    (note,) = found.notes
    assert "3 requests" in note
    _state(folder, state="drained")
    assert not ledger.check(open_run(folder)).balanced, "a worker that drained cannot lose a record"
