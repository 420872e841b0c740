"""Why a task failed before its first request: kept from Locust's event until the arrival's record is written."""

from __future__ import annotations

from typing import Any

from truetail.arrival import Arrival

_ERRORS: dict[int, str] = {}


def note(user_instance: Any, exception: BaseException, **_: Any) -> None:
    """Listener of Locust's ``user_error``; the user or one of its TaskSets raised."""
    arrival = getattr(getattr(user_instance, "user", user_instance), "arrival", None)
    if arrival is not None and arrival.parts == 0:
        _ERRORS[id(arrival)] = f"{type(exception).__name__}: {exception}"[:200]


def of(arrival: Arrival) -> str:
    """What was noted for the arrival, once; "" for nothing."""
    return _ERRORS.pop(id(arrival), "")
