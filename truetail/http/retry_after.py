"""The Retry-After header (RFC 9110, section 10.2.3): seconds or a date; and the scenario's leave to heed it."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from truetail.errors import UsageError
from truetail.units import parse_duration_s


def settings(spec: Any) -> tuple[int, float]:
    """``protocol.retry_after: {most: 2, longest: 5s}``: so many further tries, each after at most so many seconds. Raises UsageError."""
    if isinstance(spec, Mapping) and spec.keys() <= {"most", "longest"}:
        most, longest = spec.get("most", 1), spec.get("longest", "10s")
        if isinstance(most, int) and not isinstance(most, bool) and 0 < most <= 100:
            try:
                return most, parse_duration_s(longest)
            except ValueError as error:
                raise UsageError(f"protocol.retry_after.longest: {error}") from None
    raise UsageError(f"protocol.retry_after: found {spec!r}; allowed is {{most: 1, longest: 10s}}")


def seconds(value: str, now_wall_s: float) -> float | None:
    """How long the server asks to wait; None when it does not say, or says nothing sensible."""
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_wall_s)
    except (TypeError, ValueError, OverflowError):
        return None
