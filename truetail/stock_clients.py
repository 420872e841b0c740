"""Locust's own HTTP clients in a traced run: their requests carry the arrival's ``traceparent`` like ours."""

from __future__ import annotations

from typing import Any

from locust.clients import HttpSession
from locust.contrib.fasthttp import FastHttpSession

from truetail import plugin


def trace(user: Any) -> None:
    """Let ``user.client`` of HttpUser or FastHttpUser add the header by itself; any other client is left as it is."""
    client = getattr(user, "client", None)
    if plugin.engine_of(user.environment).tracer is None or not isinstance(client, HttpSession | FastHttpSession):
        return
    send: Any = client.request

    def request(*args: Any, **told: Any) -> Any:
        more = plugin.trace_headers(user)
        if more:
            told["headers"] = {**(told.get("headers") or {}), **more}
        return send(*args, **told)

    client.request = request  # type: ignore[method-assign]  # get, post and the others all end in it
