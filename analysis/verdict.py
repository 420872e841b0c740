"""PASS, FAIL or INVALID, with reasons. Pure: rules and SLO lines in, verdict out.

INVALID beats FAIL: a run that cannot be believed shows no miss either. An interruption has its own exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.slo_lines import SloResult
from analysis.validity import Rule, unmet
from truetail.errors import ExitCode


class Status(StrEnum):
    """What may be said of the service."""

    PASS = "PASS"  # noqa: S105 - a verdict, no password
    FAIL = "FAIL"
    INVALID = "INVALID"


STOPPED = {"interrupted": ExitCode.INTERRUPTED, "target-not-ready": ExitCode.TARGET_NOT_READY}
"""Exit codes of runs that were stopped for a reason of its own."""
CODES = {Status.PASS: ExitCode.PASS, Status.FAIL: ExitCode.FAIL, Status.INVALID: ExitCode.INVALID}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status, the reasons (the weightiest first; never empty), and the exit code."""

    status: Status
    reasons: Sequence[str]
    exit_code: ExitCode


def decide(rules: Sequence[Rule], slos: Sequence[SloResult], stop_reason: str | None) -> Verdict:
    """The verdict of a run. No SLO line, or one without data, is INVALID by the rule 'SLO stated'."""
    invalid = [f"{rule.name}: {rule.text}" for rule in unmet(list(rules))]
    missed = [f"{slo.text} is missed: {slo.measured} ({slo.failed} of {slo.n} failed)" for slo in slos if slo.met is False]
    if invalid or not rules or not slos:
        status, reasons = Status.INVALID, [*(invalid or ["nothing was checked"]), *missed]
    elif missed:
        status, reasons = Status.FAIL, missed
    else:
        status = Status.PASS
        reasons = [f"{slo.text} is met: {slo.measured}" for slo in slos]
    code = STOPPED.get(stop_reason or "", CODES[status])
    return Verdict(status, reasons, code)
