"""Which rate to try next, and when to stop: the sweep's decisions. Pure: what was tried goes in, a probe or an answer comes out.

A rate MEETS the SLO only if the percentile's interval lies at or below the limit, and MISSES it only if the interval lies above;
UNSURE is in between, within the noise of one run. The bracket runs from the largest rate that meets to the smallest that misses;
unsure rates inside it are walked around, never decided by the toss of one run. Short tries exist to stop early where the queue
plainly grows without bound: they can show a miss, never that a rate meets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.sweep_crossing import Crossing, crossing

MOST_INVALID = 3
"""Tries at a rate whose runs are INVALID before that rate counts as out of the generator's reach."""
MOST_UNSURE_LOWEST = 3
"""Full runs at the lowest rate before it counts as too noisy: without it there is nothing to bracket from."""
AROUND = (0.02, 0.03, 0.01, 0.04)
"""How far (relative) from the estimated crossing the runs lie that narrow it down, on each side in this order."""
MOST_WITHIN = 12
"""Full runs in and near the bracket after which more of them are no longer tried: runs so noisy should be longer."""
FARTHEST_CUT = 0.25
"""A probe stays this share of the gap away from its ends, wherever the curve points."""


class Outcome(StrEnum):
    """What one run says about the SLO at its rate. GROWING is a miss that is plain already in a short try."""

    MEETS = "meets"
    MISSES = "misses"
    GROWING = "queue grows"
    UNSURE = "unsure"
    INVALID = "invalid"


class Length(StrEnum):
    """How long a try is."""

    SHORT = "short"
    FULL = "full"


MISSED = (Outcome.MISSES, Outcome.GROWING)


@dataclass(frozen=True, slots=True)
class Tried:
    """One run at a rate: the SLO's percentile ``value_s`` (inf: failures), the standard error of its logarithm (inf: unknown),
    and how long it measured."""

    rate_rps: float
    length: Length
    outcome: Outcome
    value_s: float
    log_error: float
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked: the SLO's limit, the range, how narrow the bracket shall be, the most runs; or a fixed grid of rates."""

    limit_s: float
    low_rps: float
    high_rps: float
    tolerance: float = 0.03
    most: int = 30
    grid: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (0 < self.low_rps < self.high_rps < math.inf and self.limit_s > 0 and 0 < self.tolerance < 1 and self.most > 1):
            raise ValueError("a sweep needs 0 < A < B, a limit above 0, a tolerance between 0 and 1, and at least 2 runs")


@dataclass(frozen=True, slots=True)
class Probe:
    """Run this rate next."""

    rate_rps: float
    length: Length
    why: str


class Kind(StrEnum):
    """How a search ended."""

    FOUND = "found"
    ABOVE = "meets at every rate"
    BELOW = "missed at the lowest rate"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True, slots=True)
class Answer:
    """The largest rate that meets the SLO: between ``lower_rps`` (met) and ``upper_rps`` (missed), most likely ``estimate_rps``."""

    kind: Kind
    lower_rps: float | None
    upper_rps: float | None
    estimate_rps: float | None
    text: str


@dataclass(frozen=True, slots=True)
class _Known:
    """Settled rates, ascending: the bracket's ends (None where there is none), the unsure between them, a rate out of reach above."""

    met: float | None
    missed: float | None
    unsure: tuple[float, ...]
    beyond_reach: float | None


def settled(tried: Sequence[Tried], rate_rps: float) -> Outcome | None:
    """What all runs at a rate come to; None where another run at it is due."""
    here = [t for t in tried if t.rate_rps == rate_rps]
    if any(t.outcome in MISSED and t.length is Length.SHORT for t in here):
        return next(t.outcome for t in here if t.outcome in MISSED)
    valid = [t.outcome for t in here if t.outcome is not Outcome.INVALID and t.length is Length.FULL]
    if valid:
        return valid[-1]
    return Outcome.INVALID if sum(t.outcome is Outcome.INVALID for t in here) >= MOST_INVALID else None


def next_step(search: Search, tried: Sequence[Tried]) -> Probe | Answer:
    """The next run, or the answer."""
    step = _grid_step(search, tried) if search.grid else _bracket_step(search, tried)
    if isinstance(step, Probe) and len(tried) >= search.most:
        return _answer(search, tried, f"the {search.most} runs allowed are used up; more (--most) would narrow it")
    return step


def _bracket_step(search: Search, tried: Sequence[Tried]) -> Probe | Answer:
    lowest, highest = settled(tried, search.low_rps), settled(tried, search.high_rps)
    if lowest is None:
        return _probe(tried, search.low_rps, "the lowest rate")
    if (
        lowest is Outcome.UNSURE
        and sum(t.rate_rps == search.low_rps and t.length is Length.FULL for t in tried) < MOST_UNSURE_LOWEST
    ):
        return Probe(search.low_rps, Length.FULL, "the lowest rate again: the last run could not tell")
    if lowest is not Outcome.MEETS:
        return _answer(search, tried, "")
    if highest is None:
        return _probe(tried, search.high_rps, "the highest rate")
    # A rate that was begun is finished first: a short try that looked well, or a run that was INVALID.
    for begun in sorted({t.rate_rps for t in tried}):
        if settled(tried, begun) is None:
            return _probe(
                tried, begun, "the short try was not hopeless" if _short_done(tried, begun) else "the last run was INVALID"
            )
    gap = _widest_gap(search, tried)
    if gap is None:
        rate = _beside_crossing(search, tried)
        return _answer(search, tried, "") if rate is None else Probe(rate, Length.FULL, "near the crossing, to know it better")
    return _probe(tried, _cut(search, tried, *gap), f"between {gap[0]:.5g} and {gap[1]:.5g}/s")


def _grid_step(search: Search, tried: Sequence[Tried]) -> Probe | Answer:
    for rate in search.grid:
        found = settled(tried, rate)
        if found is None:
            return _probe(tried, rate, "the next rate of the grid")
        if found is Outcome.GROWING or found is Outcome.INVALID:
            break  # every higher rate is as hopeless
    return _answer(search, tried, "")


def _short_done(tried: Sequence[Tried], rate: float) -> bool:
    return any(t.rate_rps == rate and t.length is Length.SHORT and t.outcome is not Outcome.INVALID for t in tried)


def _probe(tried: Sequence[Tried], rate: float, why: str) -> Probe:
    """Short first, unless this rate passed a short try or a higher one was not hopeless."""
    bearable = any(
        t.rate_rps >= rate and t.outcome in (Outcome.MEETS, Outcome.UNSURE, Outcome.MISSES) and math.isfinite(t.value_s)
        for t in tried
    )
    return Probe(rate, Length.FULL if bearable else Length.SHORT, why)


def _known(tried: Sequence[Tried]) -> _Known:
    outcomes = {rate: settled(tried, rate) for rate in sorted({t.rate_rps for t in tried})}
    missed = min((r for r, found in outcomes.items() if found in MISSED), default=None)
    beyond = min((r for r, found in outcomes.items() if found is Outcome.INVALID), default=None)
    end = min(missed or math.inf, beyond or math.inf)
    met = max((r for r, found in outcomes.items() if found is Outcome.MEETS and r < end), default=None)
    unsure = tuple(r for r, found in outcomes.items() if found is Outcome.UNSURE and (met or 0.0) < r < end)
    return _Known(met, missed, unsure, beyond)


def _widest_gap(search: Search, tried: Sequence[Tried]) -> tuple[float, float] | None:
    """The gap to cut next; None when the bracket is narrow enough, or only noise is left in it."""
    known = _known(tried)
    end = min(known.missed or math.inf, known.beyond_reach or math.inf)
    if known.met is None or known.met >= search.high_rps:
        return None
    if math.isinf(end):
        end = search.high_rps
    if end / known.met - 1 <= search.tolerance:
        return None
    marks = [known.met, *known.unsure, end]
    # The stretch between unsure rates is noise, not a gap.
    gaps = [(marks[0], marks[1]), (marks[-2], marks[-1])] if known.unsure else [(marks[0], marks[-1])]
    wide = [gap for gap in gaps if gap[1] / gap[0] - 1 > search.tolerance]
    return max(wide, key=lambda gap: gap[1] / gap[0], default=None)


def _cut(search: Search, tried: Sequence[Tried], low: float, high: float) -> float:
    """Where 1 / percentile, which falls along a straight line in M/M/1, would cross the limit; the middle where an end is unknown."""
    ends = [_full_value(tried, low), _full_value(tried, high)]
    share = 0.5
    if all(math.isfinite(v) and v > 0 for v in ends) and ends[0] < search.limit_s < ends[1]:
        share = (1 / ends[0] - 1 / search.limit_s) / (1 / ends[0] - 1 / ends[1])
    share = min(max(share, FARTHEST_CUT), 1 - FARTHEST_CUT)
    return _round(low + share * (high - low), high - low)


def _round(rate: float, gap: float) -> float:
    """Rates that people can read, to about a twentieth of the gap."""
    digits = 1 - math.floor(math.log10(gap / 2))
    return round(rate, max(digits, 0))


def _full_value(tried: Sequence[Tried], rate: float) -> float:
    found = [t.value_s for t in tried if t.rate_rps == rate and t.length is Length.FULL and t.outcome is not Outcome.INVALID]
    return found[-1] if found else math.inf


def _answer(search: Search, tried: Sequence[Tried], note: str) -> Answer:
    known = _known(tried)
    note = f"; {note}" if note else ""
    if known.met is None:
        first = search.grid[0] if search.grid else search.low_rps
        if settled(tried, first) in MISSED:
            return Answer(Kind.BELOW, None, first, None, f"the SLO is missed already at {first:.5g}/s, the lowest rate{note}")
        why = "is INVALID" if settled(tried, first) is Outcome.INVALID else "is too noisy to say"
        return Answer(Kind.CANNOT_SAY, None, known.missed, None, f"{first:.5g}/s, the lowest rate, {why}{note}")
    if known.missed is None or (known.beyond_reach or math.inf) < known.missed:
        last = search.grid[-1] if search.grid else search.high_rps
        if known.met == last:
            return Answer(Kind.ABOVE, known.met, None, None, f"the SLO is met at every rate tried, up to {known.met:.5g}/s{note}")
        if known.beyond_reach is not None:
            text = f"the SLO is met up to {known.met:.5g}/s, but runs at {known.beyond_reach:.5g}/s are INVALID: the load itself was not right"
        else:
            text = f"the SLO is met up to {known.met:.5g}/s, and no rate tried above it is surely missed"
        return Answer(Kind.CANNOT_SAY, known.met, known.missed, None, text + note)
    at, width = _crossing(search, tried, known.met, known.missed), known.missed / known.met - 1
    sure = f" (+-{at.share:.1%})" if math.isfinite(at.share) else ""
    text = f"{at.rate_rps:.5g}/s{sure} meets the SLO; surely {known.met:.5g}/s, surely not {known.missed:.5g}/s"
    if width > search.tolerance and known.unsure and not note and not search.grid:
        text += "; between them one run of this length cannot tell: longer runs (--seconds) would"
    return Answer(Kind.FOUND, known.met, known.missed, at.rate_rps, text + note)


def _crossing(search: Search, tried: Sequence[Tried], low: float, high: float) -> Crossing:
    full = [t for t in tried if t.length is Length.FULL and t.outcome is not Outcome.INVALID and 0 < t.value_s < math.inf]
    return crossing([t.rate_rps for t in full], [t.value_s for t in full], [t.seconds for t in full], search.limit_s, low, high)


def _beside_crossing(search: Search, tried: Sequence[Tried]) -> float | None:
    """A rate near the estimated crossing, on the side where fewer runs are; None once the estimate is sure enough."""
    known = _known(tried)
    if known.met is None or known.missed is None or known.missed / known.met - 1 <= search.tolerance:
        return None
    at = _crossing(search, tried, known.met, known.missed)
    low, high = known.met * (1 - AROUND[-1]), known.missed * (1 + AROUND[-1])
    within = sum(t.length is Length.FULL and low <= t.rate_rps <= high for t in tried)
    if at.share <= search.tolerance or within >= MOST_WITHIN:
        return None
    below = sum(rate < at.rate_rps for rate in at.used)
    sides = (-1, 1) if 2 * below <= len(at.used) else (1, -1)
    seen = {t.rate_rps for t in tried}
    rates = (_round(at.rate_rps * (1 + side * share), search.tolerance * at.rate_rps) for side in sides for share in AROUND)
    return next((rate for rate in rates if rate not in seen), None)
