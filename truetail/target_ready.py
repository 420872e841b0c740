"""Waiting for the target: a run begins only when the service says that it is ready."""

from __future__ import annotations

import http.client
import json
import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from truetail.errors import TargetNotReady

ATTEMPT_S = 2.0
STEP_S = 0.1
MAX_BODY = 65_536
MOST_ITEMS, LONGEST_TEXT, DEEPEST = 50, 300, 6
"""What of a /version page goes into the manifest: so many items at each level, so long a text, so many levels."""


def _get(url: str, path: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # Readiness only: the load's own client checks the certificate as the scenario says.
        connection = http.client.HTTPSConnection(host, port, timeout=ATTEMPT_S, context=ssl._create_unverified_context())  # noqa: S323
    else:
        connection = http.client.HTTPConnection(host, port, timeout=ATTEMPT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + path)
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_BODY)
    finally:
        connection.close()


def _connects(url: str) -> tuple[int, bytes]:
    """A service without a readiness page is taken to be ready when it accepts a connection."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        with socket.socket(socket.AF_UNIX) as unix:
            unix.settimeout(ATTEMPT_S)
            unix.connect(parts.path)
    else:
        port = parts.port or (443 if parts.scheme in ("https", "grpcs") else 80)
        socket.create_connection((parts.hostname or "", port), ATTEMPT_S).close()
    return 200, b""


def wait_ready(url: str, path: str | None, deadline_s: float, alive: Callable[[], bool] = lambda: True) -> float:
    """Seconds until ``GET path`` answered 2xx (without a path: until a connection was accepted). TargetNotReady with the last thing seen when the deadline passes.

    ``alive`` says whether the target's process still runs (always, for one that is not ours).
    """
    begun = time.monotonic()
    last = "nothing was tried"
    while time.monotonic() - begun < deadline_s:
        try:
            status, body = _get(url, path) if path else _connects(url)
            if 200 <= status < 300:
                return time.monotonic() - begun
            last = f"it answered {status}: {body[:200].decode(errors='replace')!r}"
        except (OSError, http.client.HTTPException) as error:
            last = f"{type(error).__name__}: {error}"
        if not alive():
            raise TargetNotReady(f"the target's process has ended before it was ready; last attempt: {last}")
        time.sleep(STEP_S)
    raise TargetNotReady(f"{url}{path or ''} was not ready within {deadline_s:g} s; last attempt: {last}")


def version(url: str) -> dict[str, Any] | None:
    """What ``GET /version`` tells, for the manifest; None where the target has no such page."""
    try:
        status, body = _get(url, "/version")
        told = json.loads(body, parse_constant=lambda _: None) if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    bounded: dict[str, Any] | None = _bounded(told) if isinstance(told, dict) else None
    return bounded


def _bounded(value: Any, level: int = 1) -> Any:
    """The same JSON, cut where it is too long or too deep: a page of a stranger must not fill run.json."""
    if isinstance(value, dict | list) and level > DEEPEST:
        return "..."
    if isinstance(value, dict):
        return {str(key)[:64]: _bounded(item, level + 1) for key, item in list(value.items())[:MOST_ITEMS]}
    if isinstance(value, list):
        return [_bounded(item, level + 1) for item in value[:MOST_ITEMS]]
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, float) and not math.isfinite(value):  # 1e999 is valid JSON
        return None
    return value if not isinstance(value, int) or abs(value) < 2**63 else str(value)[:LONGEST_TEXT]
