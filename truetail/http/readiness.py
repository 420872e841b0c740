"""What answers us: a model is asked for before the load begins, and a run without it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gevent

from truetail.errors import TargetNotReady
from truetail.http.checks import parse_json
from truetail.http.client import HttpClient
from truetail.http.errors import Failure

STEP_S = 0.2
ATTEMPT_S = 5.0


def wait_for(client: HttpClient, path: str, deadline_s: float, what: str) -> None:
    """Until ``GET path`` answers 2xx. Raises TargetNotReady that says what was waited for and what was seen last."""
    request = client.prepare("GET", path)
    last = ""
    for _ in range(max(1, int(deadline_s / STEP_S))):
        answer = client.send(request, ATTEMPT_S)
        if not answer.failed and 200 <= answer.status < 300:
            return
        last = (
            f"{answer.exchange.error_class} {answer.exchange.error_detail}".strip() if answer.failed
            else f"it answered {answer.status}: {answer.body[:200].decode(errors='replace')!r}"
        )  # fmt: skip
        if not answer.failed and answer.status in (400, 404):
            break  # the server is there and does not know it: waiting longer does not load it
        gevent.sleep(STEP_S)
    raise TargetNotReady(f"{what}: GET {path} did not say so within {deadline_s:g} s; last attempt: {last}")


def document(client: HttpClient, path: str) -> Mapping[str, Any]:
    """A JSON object that the server tells about itself; {} where it has none."""
    answer = client.send(client.prepare("GET", path), ATTEMPT_S)
    if answer.failed or answer.status != 200:
        return {}
    try:
        told = parse_json(answer.body)
    except Failure:
        return {}
    return told if isinstance(told, dict) else {}


def ready_deadline_s(scenario: Mapping[str, Any]) -> float:
    """``target.ready.deadline`` of the resolved scenario; 30 s without one."""
    ready = (scenario.get("target") or {}).get("ready") or {}
    return float(ready.get("deadline_s") or 30.0)
