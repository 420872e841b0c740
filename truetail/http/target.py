"""From a scenario's target to a client; secrets come from this process's environment and go nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from truetail.errors import UsageError
from truetail.http.client import IDLE_LIMIT_S, MAX_RESPONSE_BYTES, HttpClient
from truetail.units import parse_duration_s, parse_size_bytes

KEYS = ("connect_timeout", "idle_limit", "max_response")
"""Settings of a scenario's ``protocol`` that are the client's own."""


def header_values(headers: Mapping[str, Any], place: str) -> dict[str, str]:
    """Headers as text, with secrets ``{env, prefix}`` read from the environment. Raises UsageError naming every variable that is not set."""
    texts, faults = {}, []
    for name, value in headers.items():
        if isinstance(value, Mapping):
            secret = os.environ.get(str(value["env"]))
            if secret is None:
                faults.append(f"{place}.{name}: environment variable {value['env']} is not set")
            else:
                texts[name] = f"{value.get('prefix') or ''}{secret}"
        else:
            texts[name] = str(value)
    if faults:
        raise UsageError(*faults)
    return texts


def client_of(scenario: Mapping[str, Any], url: str) -> HttpClient:
    """A client as the resolved ``scenario`` (or ``{}``) wants it, for the service at ``url``."""
    target: Mapping[str, Any] = scenario.get("target") or {}
    protocol: Mapping[str, Any] = scenario.get("protocol") or {}
    headers = header_values(target.get("headers") or {}, "target.headers")
    if target.get("auth"):
        headers |= header_values({"Authorization": target["auth"]}, "target.auth")
    return HttpClient(
        url,
        deadline_s=float(scenario.get("deadline_s") or 10.0),
        connect_timeout_s=_setting(protocol, "connect_timeout", parse_duration_s, 5.0),
        tls=target.get("tls"),
        proxy=target.get("proxy"),
        keep_alive=target.get("keep_alive") or "reuse",
        idle_limit_s=_setting(protocol, "idle_limit", parse_duration_s, IDLE_LIMIT_S),
        max_response_bytes=int(_setting(protocol, "max_response", parse_size_bytes, MAX_RESPONSE_BYTES)),
        headers=headers,
    )


def _setting(protocol: Mapping[str, Any], key: str, parse: Any, default: float) -> float:
    if key not in protocol:
        return default
    try:
        return float(parse(protocol[key]))
    except ValueError as error:
        raise UsageError(f"protocol.{key}: {error}") from None
