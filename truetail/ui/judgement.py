"""What may be said of a run while it lasts: the validity light, and each SLO line so far. Pure; the report has the last word.

Percentiles come from merged histograms: at most 0.1 % above the exact value. A line that is met or missed within that margin is said to be close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truetail.slo import Slo, parse
from truetail.timeline import Merged

MARGIN = 0.001
"""Relative width of a histogram's cell: what a percentile read from it may be too high by."""
SETTLED_S = 5.0
"""A rate is not judged before that many seconds of the run have passed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """All that a judgement looks at. ``planned``: arrivals due until the newest snapshots; ``residual_ns``: the worst clock of the fleet."""

    scenario: Mapping[str, Any]
    merged: Mapping[str, Merged]
    ledger: Mapping[str, int]
    at_s: float
    planned: float
    lost: tuple[str, ...]
    residual_ns: int
    stop_reason: str


Said = tuple[str, str]
"""(green | amber | red, one sentence)."""


def light(standing: Standing) -> tuple[str, list[Said]]:
    """The worst colour of all rules, and what each says, the worst first."""
    order = ("red", "amber", "green")
    said = sorted((told for rule in RULES for told in rule(standing)), key=lambda told: order.index(told[0]))
    return (said[0][0] if said else "amber"), said


def _stopped(standing: Standing) -> Iterator[Said]:
    if standing.stop_reason:
        yield "red", f"the run was stopped: {standing.stop_reason}"


def _workers(standing: Standing) -> Iterator[Said]:
    if standing.lost:
        kept = standing.scenario["fleet"]["on_loss"] == "repartition"
        yield "amber" if kept else "red", f"{len(standing.lost)} workers lost: {', '.join(standing.lost[:5])}"
    else:
        yield "green", "no worker was lost"


def _lost(standing: Standing) -> Iterator[Said]:
    if standing.ledger["lost"]:
        yield "red", f"{standing.ledger['lost']:,} arrivals were lost with a worker"


def _dropped(standing: Standing) -> Iterator[Said]:
    dropped, allowed = standing.ledger["dropped"], standing.scenario["validity"]["dropped"]
    due = max(1.0, standing.planned)
    told = f"{dropped:,} arrivals dropped, " + (
        f"{dropped / due:.2%} of those due; {allowed:.2%} may be" if allowed else "none may be"
    )
    yield "red" if dropped > allowed * due else "green", told


def _lateness(standing: Standing) -> Iterator[Said]:
    found, rules = standing.merged.get("lateness"), standing.scenario["validity"]
    if found is None or not found.n:
        yield "amber", "nothing measured yet: the warm-up is not over"
        return
    p99_ns = found.percentiles_ns((990_000,))[0] or 0
    for name, value_ns, limit_s in (("p99", p99_ns, rules["lateness_p99_s"]), ("max", found.max_ns, rules["lateness_max_s"])):
        told = f"lateness {name} {value_ns / 1e6:.3g} ms, at most {limit_s * 1e3:g} ms is allowed"
        yield "red" if value_ns > limit_s * 1e9 else "amber" if value_ns > 0.8 * limit_s * 1e9 else "green", told


def _rate(standing: Standing) -> Iterator[Said]:
    if standing.at_s < SETTLED_S or standing.planned < 100:
        return
    gone = standing.ledger["sent"] + standing.ledger["dropped"] + standing.ledger["lost"]
    error, allowed = gone / standing.planned - 1, standing.scenario["validity"]["rate_error"]
    told = f"sent {gone:,} of {standing.planned:,.0f} arrivals due so far ({error:+.2%}; {allowed:.1%} is allowed)"
    yield "amber" if abs(error) > allowed else "green", told


def _clock(standing: Standing) -> Iterator[Said]:
    allowed_s = standing.scenario["fleet"].get("max_clock_residual_s")
    if allowed_s is not None:
        told = f"clocks agree within {standing.residual_ns / 1e6:.3g} ms, {allowed_s * 1e3:g} ms is allowed"
        yield "red" if standing.residual_ns > allowed_s * 1e9 else "green", told


RULES: tuple[Callable[[Standing], Iterator[Said]], ...] = (_stopped, _workers, _lost, _dropped, _lateness, _rate, _clock)


@dataclass(frozen=True, slots=True)
class SloState:
    """One line so far. ``state``: met, missed, close, few (too few requests to show it), none (no data), report (not measured live)."""

    text: str
    state: str
    measured: str
    n: int

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"text": self.text, "state": self.state, "measured": self.measured, "n": self.n}


def slo_states(standing: Standing) -> list[SloState]:
    """Every line of the scenario, on all arrivals after the warm-up that have ended: one that failed is infinitely slow."""
    return [_slo(parse(text), standing) for text in standing.scenario["slos"]]


def _slo(slo: Slo, standing: Standing) -> SloState:
    if slo.name is not None and slo.metric != "response":
        return SloState(slo.text, "report", "by name only the response is measured live", 0)
    if slo.metric not in ("response", "service", "lateness", "ttft"):
        return SloState(slo.text, "report", f"{slo.metric} is worked out in the report", 0)
    suffix = "" if slo.name is None else f"/{slo.name}"
    found = standing.merged.get(f"{slo.metric}{suffix}")
    failed = standing.merged.get(f"failed{suffix}")
    bad = failed.n if failed is not None else 0
    if slo.metric == "lateness":
        bad = standing.ledger["dropped"]
    n = (found.n if found is not None else 0) + bad
    if not n:
        return SloState(slo.text, "none", "no data yet", 0)
    value = _VALUES[slo.kind](slo, found, bad, n, standing)
    shown = _shown(slo, value)
    return SloState(slo.text, _state(slo, value, n), shown, n)


def _state(slo: Slo, value: float, n: int) -> str:
    met = slo.met_by(value)
    exact = slo.kind in ("error_rate", "mean", "max")
    if not exact and math.isfinite(value) and abs(value - slo.limit) <= MARGIN * slo.limit:
        return "close"
    if met and slo.kind == "percentile" and n < _fewest(slo):
        return "few"
    return "met" if met else "missed"


def _fewest(slo: Slo) -> int:
    """How many independent requests could show the percentile at all (no exceedance among them, 95 %)."""
    share = (slo.ppm or 0) / 1_000_000
    return math.ceil(math.log(0.05) / math.log(share)) if 0 < share < 1 else 0


def _shown(slo: Slo, value: float) -> str:
    if math.isinf(value):
        return "inf (failed)"
    if slo.unit == "s":
        return f"{value * 1e3:,.4g} ms"
    return f"{value:.3%}" if slo.unit == "share" else f"{value:,.4g}/s"


def _percentile(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    value_ns = found.percentiles_ns((slo.ppm or 0,), bad)[0] if found is not None else None
    return math.inf if value_ns is None else value_ns / 1e9


def _mean(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    return math.inf if bad or found is None else found.sum_ns / found.n / 1e9


def _max(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    return math.inf if bad or found is None else found.max_ns / 1e9


def _error_rate(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    return bad / n


def _goodput(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    return (found.at_most(round((slo.goodput_s or 0.0) * 1e9)) if found is not None else 0) / n


def _answers_per_s(slo: Slo, found: Merged | None, bad: int, n: int, standing: Standing) -> float:
    seconds = min(standing.at_s, standing.scenario["duration_s"]) - standing.scenario["warmup_s"]
    return (found.n if found is not None else 0) / seconds if seconds > 0 else 0.0


_VALUES: Mapping[str, Callable[[Slo, Merged | None, int, int, Standing], float]] = {
    "percentile": _percentile,
    "mean": _mean,
    "max": _max,
    "error_rate": _error_rate,
    "goodput": _goodput,
    "rate": _answers_per_s,
}
