"""Service level objectives as people write them: ``p99[predict](ttft) < 200ms``. Pure: text in, numbers out.

measure [name] (metric) op limit
measure  a percentile (``p99``, ``p99.9``), mean, max, error_rate, goodput, rate
[name]   only the requests of this name of the mix; all when absent
(metric) what is measured, ``response`` when absent; for goodput the duration within which an answer counts as good
op       <, <=, >, >=
limit    a duration (latencies), a share (error_rate, goodput) or a rate (rate, tokens_per_s)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from truetail.ranks import to_ppm
from truetail.units import NUMBER, parse_duration_s, parse_rate_rps, parse_share, shown

EXAMPLES = "p99 < 50ms, p99[predict](ttft) < 200ms, error_rate < 0.1%, goodput(100ms) > 99%, rate > 95/s"

METRICS: Mapping[str, str] = {
    "response": "from the intended instant to the last byte: what a user feels (the default)",
    "service": "from the first byte sent to the last byte received",
    "lateness": "from the intended instant to the first byte sent: the generator's own delay",
    "connect": "setting up a connection",
    "first_byte": "from the intended instant to the first byte of the answer",
    "ttft": "from the intended instant to the first token of a stream",
    "itl": "the longest time between two tokens of a stream",
    "queue": "waiting in the server, as the server tells",
    "preprocess": "preprocessing in the server, as the server tells",
    "inference": "on the device, as the server tells",
    "postprocess": "postprocessing in the server, as the server tells",
    "dependency": "waiting for another service, as the server tells",
    "tokens_per_s": "output tokens per second of one request (not a time: more is better)",
}
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KINDS = ("percentile", "mean", "max", "error_rate", "goodput", "rate")
MOST_CHARACTERS = 300

_MEASURE = re.compile(r"\s*([A-Za-z_]+)([0-9][0-9.]*)?")
_NAME = re.compile(r"\s*\[([^\[\]]*)\]")
_METRIC = re.compile(r"\s*\(([^()]*)\)")
_OP = re.compile(r"\s*(<=|>=|<|>)")
_BARE_NUMBER = re.compile(NUMBER)


class SloError(ValueError):
    """A line that is no SLO; says the position and shows examples."""


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective. ``limit`` is in seconds, a fraction, or 1/s, as ``unit`` says; ``goodput_s`` only for kind goodput."""

    text: str
    kind: str
    ppm: int | None
    percentile: str | None
    metric: str
    name: str | None
    op: str
    limit: float
    goodput_s: float | None = None

    @property
    def unit(self) -> str:
        """What ``limit`` is in: ``s``, ``share`` or ``1/s``."""
        if self.kind in ("error_rate", "goodput"):
            return "share"
        return "1/s" if self.kind == "rate" or self.metric == "tokens_per_s" else "s"

    def met_by(self, value: float) -> bool:
        """Whether the objective holds for a measured ``value`` in the same unit; a NaN (no data) never meets it."""
        return OPERATORS[self.op](value, self.limit)


def parse(text: str) -> Slo:
    """The objective that ``text`` states. Raises SloError (a ValueError) naming the position and what is allowed there."""
    if not isinstance(text, str):
        raise SloError(f"an SLO is a line of text, found {shown(text)}; examples: {EXAMPLES}")
    if len(text) > MOST_CHARACTERS:
        raise SloError(f"SLO {shown(text)} is longer than {MOST_CHARACTERS} characters")
    kind, percentile, at = _measure(text)
    name, at = _name(text, at)
    metric, goodput_s, at = _metric(text, at, kind)
    op, at = _op(text, at)
    _check_direction(text, kind, metric, op)
    limit = _limit(text, at, kind, metric)
    ppm = to_ppm(percentile) if percentile is not None else None
    return Slo(text.strip(), kind, ppm, percentile, metric, name, op, limit, goodput_s)


def _measure(text: str) -> tuple[str, str | None, int]:
    match = _MEASURE.match(text)
    allowed = "a measure is a percentile (p50, p99.9), mean, max, error_rate, goodput or rate"
    if match is None:
        raise _wrong(text, len(text) - len(text.lstrip()), allowed)
    word, digits = match[1], match[2]
    if word == "p" and digits is not None:
        try:
            to_ppm(digits)
        except ValueError as error:
            raise _wrong(text, match.start(2), str(error)) from None
        return "percentile", digits, match.end()
    if word not in KINDS[1:] or digits is not None:
        raise _wrong(text, match.start(1), allowed)
    return word, None, match.end()


def _name(text: str, at: int) -> tuple[str | None, int]:
    if not text[at:].lstrip().startswith("["):
        return None, at
    match = _NAME.match(text, at)
    if match is None or not match[1].strip():
        raise _wrong(text, _next(text, at), "a request's name stands in brackets, like [predict]")
    return match[1].strip(), match.end()


def _metric(text: str, at: int, kind: str) -> tuple[str, float | None, int]:
    """(metric, goodput's duration, next position)."""
    has_one = text[at:].lstrip().startswith("(")
    if kind == "goodput":
        return _goodput(text, at)
    if not has_one:
        return "response", None, at
    if kind in ("error_rate", "rate"):
        raise _wrong(text, _next(text, at), f"{kind} takes no metric in parentheses")
    match = _METRIC.match(text, at)
    metric = match[1].strip() if match else ""
    if match is None or metric not in METRICS:
        raise _wrong(text, _next(text, at), f"a metric is one of {', '.join(METRICS)}")
    return metric, None, match.end()


def _goodput(text: str, at: int) -> tuple[str, float, int]:
    match = _METRIC.match(text, at)
    needs = "goodput needs the duration within which an answer is good, like goodput(100ms)"
    if match is None or _BARE_NUMBER.fullmatch(match[1].strip()):
        raise _wrong(text, _next(text, at), needs)
    try:
        good_s = parse_duration_s(match[1].strip())
    except ValueError as error:
        raise _wrong(text, match.start(1), f"{needs}; {error}") from None
    return "response", good_s, match.end()


def _op(text: str, at: int) -> tuple[str, int]:
    match = _OP.match(text, at)
    if match is None:
        raise _wrong(text, _next(text, at), "a comparison is <, <=, > or >=")
    return match[1], match.end()


def _check_direction(text: str, kind: str, metric: str, op: str) -> None:
    """A latency or an error rate bounded from below would be met by a service that is down: surely a slip."""
    if kind == "rate":
        return
    more_is_better = kind == "goodput" or metric == "tokens_per_s"
    if (op[0] == ">") != more_is_better:
        what = f"{kind}({metric})" if metric != "response" else kind
        side = "more is better: use > or >=" if more_is_better else "less is better: use < or <="
        raise _wrong(text, text.index(op), f"for {what} {side}")


def _limit(text: str, at: int, kind: str, metric: str) -> float:
    found, position = text[at:].strip(), _next(text, at)
    if not found:
        raise _wrong(text, position, "a limit is missing")
    try:
        if kind in ("error_rate", "goodput"):
            return parse_share(found)
        if kind == "rate" or metric == "tokens_per_s":
            return parse_rate_rps(found)
        if _BARE_NUMBER.fullmatch(found):
            raise ValueError(f"found {shown(found)} without a unit; write {found}ms or {found}s")
        return parse_duration_s(found)
    except ValueError as error:
        raise _wrong(text, position, f"the limit: {error}") from None


def _next(text: str, at: int) -> int:
    """The position of the next character that is no blank."""
    return at + len(text[at:]) - len(text[at:].lstrip())


def _wrong(text: str, at: int, why: str) -> SloError:
    here = shown(text[at : at + 20]) if text[at:].strip() else "the end"
    return SloError(f"SLO {shown(text)}, position {at + 1} ({here}): {why}; examples: {EXAMPLES}")
