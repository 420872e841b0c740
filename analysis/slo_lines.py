"""SLO lines judged on all arrivals after the warm-up: a failure counts as infinitely slow, and no data never passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis import claim
from analysis.intervals import percentile_interval
from analysis.metrics import INFINITE_NS, Values, measure, seconds, tokens_per_s
from analysis.run_folder import Run
from analysis.sample_size import fewest_n, zero_exceedance_n
from analysis.text import count, duration, plain, share
from truetail.ranks import nearest_rank
from truetail.records import OK
from truetail.slo import Slo, SloError, parse

FEWEST_FOR_INTERVAL = 100
MOST_FOR_INTERVAL = 2_000_000
"""Beyond this the interval is not worked out: it would be narrower than anyone reads, and take seconds."""


@dataclass(frozen=True, slots=True)
class SloResult:
    """One line's outcome. ``met`` is None where there was no data; ``supported`` is False where the run is too short to say."""

    text: str
    met: bool | None
    measured: str
    limit: str
    n: int
    failed: int
    supported: bool
    sure: str
    value: float | None

    @property
    def word(self) -> str:
        """How the line is shown."""
        if self.met is None:
            return "NO DATA"
        return ("met" if self.supported else "TOO SHORT") if self.met else "MISSED"


def judge(run: Run) -> list[SloResult]:
    """Every line of the scenario, in its order."""
    return [_judge(run, line) for line in run.scenario.slos]


def _judge(run: Run, line: str) -> SloResult:
    try:
        slo = parse(line)
    except SloError as error:
        return SloResult(plain(line), None, f"not an SLO line: {plain(error)}", "", 0, 0, False, "", None)
    records = run.records
    mask = records.measured
    if slo.name is None:
        mask = mask & records.arrivals
    else:
        texts = records.texts("name")
        mask = mask & (records["name"] == (texts.index(slo.name) if slo.name in texts else -1))
    if not mask.any():
        which = f"request named {slo.name!r}" if slo.name else "arrival"
        return SloResult(slo.text, None, plain(f"no {which} after the warm-up"), _limit(slo), 0, 0, False, "", None)
    return _KINDS[slo.kind](run, slo, mask)


def _limit(slo: Slo) -> str:
    return f"{slo.op} {_shown(slo, slo.limit)}"


def _shown(slo: Slo, value: float) -> str:
    if slo.unit == "1/s":
        return f"{value:,.4g}/s"
    return duration(value) if slo.unit == "s" else share(value)


def _result(slo: Slo, value: float, n: int, failed: int, sure: tuple[bool, str] = (True, "")) -> SloResult:
    known = value if math.isfinite(value) else None
    return SloResult(slo.text, slo.met_by(value), _shown(slo, value), _limit(slo), n, failed, sure[0], sure[1], known)


def _no_data(slo: Slo) -> SloResult:
    return SloResult(slo.text, None, f"no request told {slo.metric}", _limit(slo), 0, 0, False, "", None)


def _percentile(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    ppm = slo.ppm or 0
    if slo.metric == "tokens_per_s":
        rates = np.sort(tokens_per_s(run.records, mask))
        if not len(rates):
            return _no_data(slo)
        return _result(slo, float(rates[nearest_rank(len(rates), ppm) - 1]), len(rates), int((rates == 0).sum()))
    values = measure(run.records, slo.metric, mask)
    if not len(values):
        return _no_data(slo)
    n, rank = len(values), nearest_rank(len(values), ppm)
    found = int(np.partition(values, rank - 1)[rank - 1])
    value = math.inf if found == INFINITE_NS else found / 1e9
    failed = int((values == INFINITE_NS).sum())
    if math.isinf(value):
        return _result(
            slo,
            value,
            n,
            failed,
            (True, f"{count(failed)} of {count(n)} failed, more than the {100 - ppm / 1e4:g} % that lie beyond it"),
        )
    return _result(slo, value, n, failed, _how_sure(slo, values, n, met=slo.met_by(value)))


def _how_sure(slo: Slo, values: Values, n: int, *, met: bool) -> tuple[bool, str]:
    """(whether the run supports the line, what to say). A line that is missed needs no support: it is not green anyway."""
    percentile = float(slo.percentile or 0)
    if percentile >= 100:
        return True, "the largest of this run; it says nothing about the next"
    if n < zero_exceedance_n(percentile):  # not even independent requests would show it
        needs = count(fewest_n(percentile))
        return False, f"{count(n)} requests: a claim about p{slo.percentile} needs at least {needs}, with none beyond the limit"
    values_s = seconds(values)
    ppm = slo.ppm or 0
    told = [percentile_interval(values_s, ppm).text()] if FEWEST_FOR_INTERVAL <= n <= MOST_FOR_INTERVAL else [f"n = {count(n)}"]
    claimed = claim.below(values_s, slo.limit, ppm) if met and slo.unit == "s" else None
    if claimed is not None:
        told.append(claimed.text(slo.percentile or ""))
    return claimed is None or claimed.supported, "; ".join(told)


def _mean(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    return _moment(run, slo, mask, lambda values: float(values.mean()))


def _max(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    return _moment(run, slo, mask, lambda values: float(values.max()))


def _moment(run: Run, slo: Slo, mask: NDArray[np.bool_], take: Callable[[NDArray[np.float64]], float]) -> SloResult:
    if slo.metric == "tokens_per_s":
        rates = tokens_per_s(run.records, mask)
        return _result(slo, take(rates), len(rates), int((rates == 0).sum())) if len(rates) else _no_data(slo)
    values = measure(run.records, slo.metric, mask)
    if not len(values):
        return _no_data(slo)
    failed = int((values == INFINITE_NS).sum())
    answered = values[values != INFINITE_NS] / 1e9
    sure = (True, "" if not failed or not len(answered) else f"of the successes alone: {duration(take(answered))}")
    return _result(slo, math.inf if failed else take(answered), len(values), failed, sure)


def _error_rate(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    n, failed = int(mask.sum()), int((run.records["outcome"][mask] != OK).sum())
    return _result(slo, failed / n, n, failed, (True, f"{count(failed)} of {count(n)}"))


def _goodput(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    values = measure(run.records, "response", mask)
    good = int((values <= round((slo.goodput_s or 0.0) * 1e9)).sum())
    n, failed = len(values), int((values == INFINITE_NS).sum())
    return _result(slo, good / n, n, failed, (True, f"{count(good)} of {count(n)} answered within {duration(slo.goodput_s)}"))


def _rate(run: Run, slo: Slo, mask: NDArray[np.bool_]) -> SloResult:
    """Answers of success that were complete within the measured window, per second."""
    low, high = run.window_ns
    if high <= low:
        return SloResult(slo.text, None, "the measured window is empty", _limit(slo), 0, 0, False, "", None)
    records = run.records
    done_ns, ok = records["done_ns"], records["outcome"] == OK
    chosen = ok & records.numbered if slo.name is None else ok & (records["name"] == records.texts("name").index(slo.name))
    completed = int((chosen & (done_ns >= low) & (done_ns < high) & ((records["part"] == 0) | (slo.name is not None))).sum())
    return _result(slo, completed / ((high - low) / 1e9), int(mask.sum()), int((~ok & mask).sum()))


_KINDS: Mapping[str, Callable[[Run, Slo, NDArray[np.bool_]], SloResult]] = {
    "percentile": _percentile,
    "mean": _mean,
    "max": _max,
    "error_rate": _error_rate,
    "goodput": _goodput,
    "rate": _rate,
}
