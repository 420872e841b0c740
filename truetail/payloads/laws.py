"""How a size varies from request to request: a number, a range, a law, or a column of the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

from truetail.errors import UsageError

MOST = 10_000_000
ALLOWED = (
    "a whole number, {uniform: [low, high]}, {choice: [a, b]}, {exponential: {mean: m}}, {lognormal: {median: m, cv: c}} "
    "(the laws also with min and max), {row: column}, or {row: {column: c, min: 1, max: 4096}}"
)

Law = Callable[[float, Mapping[str, Any] | None], int]
"""A whole number from a uniform one in (0, 1) and the arrival's row of the trace."""


def parse(spec: Any, place: str) -> Law:
    """The law that a scenario's ``payload`` names at ``place``. Raises UsageError."""
    if _whole(spec):
        return lambda uniform, row: int(spec)
    if isinstance(spec, Mapping) and len(spec) == 1:
        (kind, of), *_ = spec.items()
        make = _KINDS.get(kind)
        law = make(of) if make else None
        if law is not None:
            return law
    raise UsageError(f"{place}: found {spec!r}; allowed is {ALLOWED}, from 0 to {MOST}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= MOST


def _uniform(of: Any) -> Law | None:
    if not (isinstance(of, list) and len(of) == 2 and all(map(_whole, of)) and of[0] <= of[1]):
        return None
    low, count = of[0], of[1] - of[0] + 1
    return lambda uniform, row: low + int(uniform * count)


def _choice(of: Any) -> Law | None:
    if not (isinstance(of, list) and of and all(map(_whole, of))):
        return None
    return lambda uniform, row: int(of[int(uniform * len(of))])


def _bounds(of: Mapping[str, Any]) -> tuple[int, int] | None:
    low, high = of.get("min", 0), of.get("max", MOST)
    return (low, high) if _whole(low) and _whole(high) and low <= high else None


def _exponential(of: Any) -> Law | None:
    if not (isinstance(of, Mapping) and of.keys() <= {"mean", "min", "max"} and _positive(of.get("mean"))):
        return None
    bounds, mean = _bounds(of), of["mean"]
    return _bounded(lambda uniform: -mean * math.log1p(-uniform), bounds) if bounds else None


def _lognormal(of: Any) -> Law | None:
    if not (isinstance(of, Mapping) and of.keys() <= {"median", "cv", "min", "max"}):
        return None
    bounds, median, cv = _bounds(of), of.get("median"), of.get("cv")
    if not (bounds and _positive(median) and _positive(cv)):
        return None
    normal = NormalDist(math.log(float(of["median"])), math.sqrt(math.log1p(float(of["cv"]) ** 2)))
    return _bounded(lambda uniform: math.exp(min(normal.inv_cdf(uniform), 700.0)), bounds)


def _bounded(inverse: Callable[[float], float], bounds: tuple[int, int]) -> Law:
    low, high = bounds
    return lambda uniform, row: round(min(max(inverse(uniform), low), high))


def _row(of: Any) -> Law | None:
    """A column's number, within its bounds; a row that does not tell it (below 0, or not finite) takes ``min`` where that is given."""
    spec = {"column": of} if isinstance(of, str) else of
    if not (isinstance(spec, Mapping) and spec.keys() <= {"column", "min", "max"} and isinstance(spec.get("column"), str)):
        return None
    column, bounds, lenient = spec["column"], _bounds(spec), "min" in spec
    if bounds is None:
        return None
    low, high = bounds

    def from_row(uniform: float, row: Mapping[str, Any] | None) -> int:
        value = (row or {}).get(column)
        told = isinstance(value, int | float) and math.isfinite(value) and value >= 0
        if told and value <= MOST:  # type: ignore[operator]
            return min(max(int(value), low), high)  # type: ignore[arg-type]
        if lenient and not told:
            return low
        raise UsageError(f"payload: the arrival's row has no number from 0 to {MOST} in column {column!r}")

    return from_row


_KINDS: dict[str, Callable[[Any], Law | None]] = {
    "uniform": _uniform, "choice": _choice, "exponential": _exponential, "lognormal": _lognormal, "row": _row,
}  # fmt: skip
