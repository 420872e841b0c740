"""The plan again, from the manifest's scenario and seed: is what was recorded what was planned?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from analysis.record_columns import chosen
from analysis.run_folder import Run
from analysis.text import count, plain
from shapes.rates import build_rate
from shapes.schedule import Schedule

MOST = 100_000_000
"""Arrivals that are planned again (about 10 s); beyond that the workers' own comparison of digests has to do."""
Cumulative = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def check_plan(run: Run) -> tuple[bool | None, str]:
    """(whether the plan's digest comes out again and every record has its planned instant, what to say); None: cannot be planned here."""
    plan, scenario = run.manifest.schedule, run.scenario
    if plan is None:
        return None, "there is no schedule"
    if plan.count > MOST:
        return None, f"{count(plan.count)} arrivals are not planned again here; the workers' digests agreed before the start"
    try:
        schedule = Schedule(scenario.arrivals, scenario.duration_s, scenario.seed.schedule, plan.epoch_wall_s)
        digest = schedule.digest()
    except (ValueError, KeyError, TypeError, OSError, ArithmeticError, ImportError) as error:
        return None, f"the schedule cannot be planned again here ({plain(error, 120)})"
    if digest != plan.digest:
        return (
            False,
            f"planned again from the manifest, the schedule is another: digest {digest[:12]}, run.json has {plan.digest[:12]}",
        )
    wrong = _strayed(run, schedule)
    if wrong:
        return False, f"{count(wrong)} records have another intended instant than the plan gives their number"
    return True, f"planned again: {count(plan.count)} arrivals, digest {digest[:12]}, every record at its planned instant"


def _strayed(run: Run, schedule: Schedule) -> int:
    """Records whose intended instant is not the plan's."""
    records = run.records
    first = records.arrivals
    ks, intended = chosen(records["k"], first), chosen(records["intended_ns"], first)
    if not (ks[1:] > ks[:-1]).all():
        order = np.argsort(ks, kind="stable")
        ks, intended = ks[order], intended[order]
    wrong = 0
    for block in schedule.blocks():
        low, high = np.searchsorted(ks, [block.first_k, block.first_k + len(block.offsets_ns)])
        wrong += int((block.offsets_ns[ks[low:high] - block.first_k] != intended[low:high]).sum())
    return wrong


def operational_time(run: Run) -> tuple[Cumulative, str]:
    """(Lambda: seconds to expected arrivals, what to call it). Where the rate is not declared (a trace) time is scaled by the mean rate."""
    arrivals, plan = run.scenario.arrivals, run.manifest.schedule
    try:
        rate = build_rate(arrivals["rate"], plan.epoch_wall_s if plan else 0.0)
        return rate.cumulative, "operational time (the declared rate divided out)"
    except (ValueError, KeyError, TypeError, ArithmeticError):
        mean_rps = (plan.count if plan else len(run.records)) / run.scenario.duration_s
        return (lambda seconds: np.asarray(seconds) * mean_rps), "time over the mean gap"
