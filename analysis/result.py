"""Everything that is worked out of a run, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis import ledger, percentiles, sections, series, slo_lines, validity, verdict
from analysis.ledger import LedgerCheck
from analysis.percentiles import Percentiles
from analysis.run_folder import Run
from analysis.sections import Chapter
from analysis.series import Series
from analysis.slo_lines import SloResult
from analysis.validity import Rule
from analysis.verdict import Verdict


@dataclass
class Result:
    """The analysis of one run."""

    run: Run
    percentiles: Percentiles
    ledger: LedgerCheck
    slos: list[SloResult]
    rules: list[Rule]
    verdict: Verdict
    series: Series
    chapters: list[Chapter]


def analyse(run: Run, chapters: Callable[[], list[Chapter]] | None = None) -> Result:
    """Percentiles, ledger, SLO lines, rules, verdict; then what only explains: ``chapters`` gives the further chapters where they are being
    worked out already."""
    latency = percentiles.of_run(run)
    balance = ledger.check(run)
    slos = slo_lines.judge(run)
    rules = validity.judge(validity.Evidence(run, balance, latency, slos))
    decided = verdict.decide(rules, slos, run.manifest.stop_reason)
    over_time = series.over_time(run)
    return Result(run, latency, balance, slos, rules, decided, over_time, chapters() if chapters else sections.compute(run))
