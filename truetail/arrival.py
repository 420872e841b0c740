"""One planned request, as the user's task sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Arrival:
    """An arrival of the schedule on this worker.

    ``k`` is its number in the whole schedule, ``intended_ns`` its offset from the epoch, ``due_mono_ns`` the same instant on this
    host's CLOCK_MONOTONIC, ``request`` the entry of the scenario's mix, ``row`` what a trace says of it (columns by name).
    ``parts`` counts the requests that its task has made so far.
    """

    k: int
    intended_ns: int
    due_mono_ns: int
    request: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    parts: int = 0
