"""Locust's ``request`` event, turned into a record and told the response time from the intended instant.

Every client, ours or anyone's, reports through this one event. The first request of an arrival is measured from the instant that the
schedule meant it to be sent; Locust's own statistics and UI then show what a user of the service would have waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from locust.event import EventHook

from truetail import classify, server_timing
from truetail.arrival import Arrival
from truetail.exchange import Exchange
from truetail.plugin import CURRENT
from truetail.recorder import Recorder


def wrap(
    event: EventHook, recorder: Callable[[], Recorder | None], warm_up: Callable[[Arrival, Exchange], None] = lambda *_: None
) -> None:
    """Put recording in front of the event's listeners. ``recorder`` gives the present one, or None outside a run.

    A request of the warm-up goes to ``warm_up`` and into the records, as one of no arrival, and to no listener: Locust's statistics are the run's.
    """
    tell: Callable[..., None] = event.fire

    def fire(*, reverse: bool = False, exchange: Exchange | None = None, **told: Any) -> None:
        done_ns = time.monotonic_ns()
        present = recorder()
        if present is not None:
            if exchange is None:
                exchange = exchange_from_event(told, done_ns)
            arrival = CURRENT.get()
            if arrival is not None and arrival.k < 0:
                present.exchange(None, str(told.get("name", "")), exchange)
                warm_up(arrival, exchange)
                return
            first = arrival is not None and arrival.parts == 0
            present.exchange(arrival, str(told.get("name", "")), exchange)
            if first and arrival is not None:
                told["response_time"] = response_ms(arrival, exchange, done_ns)
        tell(reverse=reverse, **told)

    event.fire = fire  # type: ignore[method-assign]


def response_ms(arrival: Arrival, exchange: Exchange, done_ns: int) -> float:
    """Intended instant to the end of the answer, in ms."""
    return ((exchange.done_ns if exchange.done_ns >= 0 else done_ns) - arrival.due_mono_ns) / 1e6


def exchange_from_event(told: dict[str, Any], done_ns: int) -> Exchange:
    """What can be known of a request from the event of a client that is not ours."""
    service_ns = int(float(told.get("response_time") or 0.0) * 1e6)
    response = told.get("response")
    status = getattr(response, "status_code", 0) or 0
    exception = told.get("exception")
    if exception:
        outcome, error_class, detail = classify.by_exception(exception, status)
    else:
        outcome, error_class, detail = classify.without_exception(status)
    exchange = Exchange(
        sent_ns=done_ns - service_ns,
        done_ns=done_ns,
        status=status,
        outcome=outcome,
        error_class=error_class,
        error_detail=detail,
        response_bytes=int(told.get("response_length") or 0),
    )
    headers = getattr(response, "headers", None)
    if headers is not None:
        server_timing.read(exchange, headers.get)
    return exchange
