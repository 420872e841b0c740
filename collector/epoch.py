"""The run's epoch on this host: read from run.json once the master has written it, and set against this host's clocks."""

from __future__ import annotations

import json
from pathlib import Path

from collector.clocks import Anchor

MAX_BYTES = 16 << 20


def read_epoch(path: Path) -> int | None:
    """``epoch_wall_ns`` of a run.json (or any JSON object that has it), None while it is not there yet or not whole."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        told = json.loads(path.read_bytes())
        epoch = told.get("epoch_wall_ns") if isinstance(told, dict) else None
    except (OSError, ValueError, RecursionError):
        return None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None


def describe(epoch_wall_ns: int, now: Anchor) -> dict[str, int]:
    """The epoch in this host's monotonic clock, right within ``uncertainty_ns`` if this host's wall clock is the master's."""
    return {
        "epoch_wall_ns": epoch_wall_ns,
        "epoch_mono_ns": now.mono_ns + epoch_wall_ns - now.wall_ns,
        "uncertainty_ns": now.uncertainty_ns,
    }
