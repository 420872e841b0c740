"""Durations, factors and rates as people write them: "10ms", "3x", "200/s"."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

NS = 1_000_000_000
NEVER_NS = 1 << 62
"""An instant that no run reaches (146 years)."""

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*(\S*)\s*")


def _quantity(value: Any, units: dict[str, float], wanted: str) -> float:
    """A number, or text "number unit" with one of the units; ValueError says what is wanted."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r:.40} is not {wanted}")
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in units:
            raise ValueError(f"{value!r:.40} is not {wanted}")
        value = float(match[1]) * units[match[2]]
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.40} is not {wanted}: it must be finite and not negative")
    return float(value)


def parse_duration(value: Any) -> float:
    """Seconds from "10ms", "0.5 s", "1m" or a plain number of seconds."""
    return _quantity(value, SECONDS | {"": 1.0}, 'a duration such as "10ms", "2s" or a number of seconds')


def parse_factor(value: Any) -> float:
    """A factor from "3x" or 3."""
    return _quantity(value, {"": 1.0, "x": 1.0}, 'a factor such as "3x" or 3')


def parse_rate(value: Any) -> float:
    """Events per second from "200/s", "600/min" or a number."""
    return _quantity(value, {"": 1.0, "/s": 1.0, "/m": 1 / 60, "/min": 1 / 60, "/h": 1 / 3600}, 'a rate such as "200/s"')


def parse_share(value: Any) -> float:
    """A fraction from "5%" or 0.05."""
    share = _quantity(value, {"": 1.0, "%": 0.01}, 'a share such as "5%" or 0.05')
    if share > 1:
        raise ValueError(f"{value!r:.40} is more than the whole (100%)")
    return share


Duration = Annotated[float, BeforeValidator(parse_duration)]
Factor = Annotated[float, BeforeValidator(parse_factor)]
Rate = Annotated[float, BeforeValidator(parse_rate)]
Share = Annotated[float, BeforeValidator(parse_share)]


def to_ns(seconds: float) -> int:
    """Whole nanoseconds, never past NEVER_NS."""
    return min(round(seconds * NS), NEVER_NS)
