"""Chapter "How sure": intervals of the percentiles, whether the run was long enough, and whether the warm-up was."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from analysis import intervals, warmup
from analysis.likeness import values_s
from analysis.percentiles import finite
from analysis.run_folder import Run
from analysis.sections import Section, Table
from analysis.text import count, duration
from truetail.ranks import to_ppm

SHOWN = ("50", "95", "99", "99.9")
MOST = 10_000_000
"""Of a longer run the first ones stand for all: no interval that anyone reads is narrower."""


def section(run: Run) -> Section | None:
    """Intervals for the response of all arrivals after the warm-up; None without any."""
    values = values_s(run, "response", None)[:MOST]
    if len(values) < 2:
        return None
    ordered = np.sort(values)
    found = [intervals.percentile_interval(values, to_ppm(q), ordered=ordered) for q in SHOWN]
    alarm = warmup.alarm(values)
    findings = [_in_words(i) for i in found if i.percentile == "99"]
    findings.append(_warm_up(run, alarm))
    table = Table(
        "Percentiles of the response time with 95 % intervals",
        ["percentile", "value", "from", "to", "two-sided", "variance inflation", "effective requests beyond", "why not"],
        [_row(i) for i in found],
        f"{count(len(values))} arrivals after the warm-up, failures infinitely slow. Rank inversion with the Heidelberger-Welch variance: "
        "neighbouring requests are alike, so n of them are worth n / inflation. A one-sided line says at least.",
    )
    naive = Table(
        "What an interval for independent requests would have said (too narrow; for comparison only)",
        ["percentile", "from", "to"],
        [_naive(ordered, q) for q in SHOWN],
    )
    return Section(findings, [table, naive], data={"intervals": [_json(i) for i in found], "warmup_alarm": alarm.alarm})


def _in_words(i: intervals.Interval) -> str:
    if i.two_sided:
        return f"The p{i.percentile} is {duration(i.value)}; with 95 % confidence it lies between {duration(i.low)} and {duration(i.high)}."
    low = "not known" if math.isinf(i.low) else f"at least {duration(i.low)}"
    return (
        f"This run is too short to bound its p{i.percentile} from above ({i.reason}). It is {low}; about {count(i.needed_n)} requests "
        f"are needed, the run had {count(i.n)}. Fix the length beforehand; do not repeat the run until it happens to pass."
    )


def _warm_up(run: Run, alarm: warmup.WarmupAlarm) -> str:
    if alarm.alarm:
        return (
            f"Alarm: the warm-up of {duration(run.scenario.warmup_s)} looks too short. The first {count(alarm.cut)} requests after it were "
            f"{alarm.excess:.0%} slower in the median than the rest (MSER-5). Nothing was cut; lengthen `warmup` and run again."
        )
    return (
        f"The warm-up of {duration(run.scenario.warmup_s)} was fixed beforehand, and MSER-5 finds no sign that it was too short."
    )


def _row(i: intervals.Interval) -> list[str]:
    return [
        f"p{i.percentile}", duration(i.value), "-" if math.isinf(i.low) and i.low < 0 else duration(i.low),
        duration(i.high) if i.two_sided else "not bounded", "yes" if i.two_sided else "no", f"{i.vif:.3g}", f"{i.tail_ess:.3g}", i.reason or "-",
    ]  # fmt: skip


def _naive(ordered: NDArray[np.float64], q: str) -> list[str]:
    low, high = intervals.independent_ranks(len(ordered), to_ppm(q))
    return [
        f"p{q}", duration(float(ordered[low - 1])) if low else "-",
        duration(float(ordered[high - 1])) if high <= len(ordered) else "not bounded",
    ]  # fmt: skip


def _json(i: intervals.Interval) -> dict[str, object]:
    return {
        "percentile": i.percentile, "n": i.n, "value_s": finite(i.value), "low_s": finite(i.low), "high_s": finite(i.high),
        "two_sided": i.two_sided, "vif": i.vif, "tail_ess": i.tail_ess, "needed_n": i.needed_n, "reason": i.reason,
    }  # fmt: skip
