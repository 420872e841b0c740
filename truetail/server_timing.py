"""What a service tells of itself in the headers of an answer: stage times, replica and batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truetail.exchange import Exchange

STAGES = {
    "queue": "queue_us",
    "preprocess": "preprocess_us",
    "inference": "inference_us",
    "postprocess": "postprocess_us",
    "dependency": "dependency_us",
}
MAX_HEADER = 1000


def read(exchange: Exchange, header: Callable[[str], Any]) -> None:
    """Fill the exchange from ``Server-Timing`` (durations in ms), ``x-replica-id`` and ``x-batch-size``; what is malformed is passed over.

    ``header`` gives a header's value by its lower-case name, or None. Header values are the target's: untrusted.
    """
    timing = header("server-timing")
    if timing:
        for metric in str(timing)[:MAX_HEADER].split(","):
            name, _, rest = metric.strip().partition(";")
            field = STAGES.get(name)
            if field and rest.startswith("dur="):
                value_us = _number(rest[4:].partition(";")[0]) * 1000
                if 0 <= value_us < 1e12:
                    setattr(exchange, field, value_us)
    replica = header("x-replica-id")
    if replica:
        exchange.replica = str(replica)[:64]
    batch = header("x-batch-size")
    if batch and str(batch)[:6].isdecimal():
        exchange.batch = int(str(batch)[:6])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
