"""The mix, made ready before the run: what can be built once is built once, what differs by arrival is a template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from truetail.arrival import Arrival
from truetail.errors import UsageError
from truetail.http.checks import Check
from truetail.http.client import HttpClient
from truetail.http.request import PreparedRequest
from truetail.http.target import header_values
from truetail.payloads import template
from truetail.payloads.payload import Payload


class Entry:
    """One request of the mix: its bytes for an arrival, its deadline and its check.

    ``json``, ``body``, ``method``, ``path`` and ``headers`` may hold ``${names}``. With ``payload.items`` a JSON body becomes a list of so many copies of itself.
    """

    def __init__(self, spec: Mapping[str, Any], client: HttpClient, payload: Payload) -> None:
        self.name = str(spec.get("name") or spec.get("path") or "request")
        self.method = str(spec.get("method") or ("GET" if spec.get("json") is None and not spec.get("body") else "POST"))
        self.deadline_s = float(spec.get("deadline_s") or client.deadline_s)
        self.check = Check(spec.get("expect"))
        self.protocol: Mapping[str, Any] = spec.get("protocol") or {}
        self.payload = payload
        self.spec = spec
        self.client = client
        self._path = str(spec.get("path") or "/")
        self._json, self._body = spec.get("json"), spec.get("body")
        self._headers = header_values(spec.get("headers") or {}, f"requests {self.name}: headers")
        if self._json is not None and not any(name.lower() == "content-type" for name in self._headers):
            self._headers["Content-Type"] = "application/json"
        self._head_varies = bool(template.names([self.method, self._path, self._headers]))
        self._body_varies = bool(template.names([self._json, self._body])) or payload.has("items")
        self._fixed: PreparedRequest | None = None
        if not self._head_varies:
            self._fixed = self.build("" if self._body_varies else None, None)

    def request(self, arrival: Arrival | None) -> PreparedRequest:
        """The bytes to send for this arrival. Raises UsageError for a ``${name}`` that it has no value for."""
        if self._fixed is not None:
            return self._fixed.with_body(self._body_of(arrival)) if self._body_varies else self._fixed
        return self.build(None, arrival)

    def build(self, body: str | bytes | None, arrival: Arrival | None, path: str | None = None) -> PreparedRequest:
        """A request with this body (None: the entry's own) and path (None: the entry's own)."""
        if body is None:
            body = self._body_of(arrival)
        method, path, headers = self.method, path or self._path, self._headers
        if self._head_varies:
            value = self.payload.values(arrival)
            # A log's broken line tells when a request came, but not which: it is the plainest one.
            method, path = template.fill_text(method, value) or "GET", template.fill_text(path, value) or "/"
            headers = {name: template.fill_text(text, value) for name, text in headers.items()}
        return self.client.prepare(method, path, headers, body.encode() if isinstance(body, str) else body)

    def _body_of(self, arrival: Arrival | None) -> bytes:
        value = self.payload.values(arrival)
        if self._json is None:
            return template.fill_text(self._body or "", value).encode()
        document = template.fill(self._json, value)
        if self.payload.has("items"):
            document = [document] * max(1, value("items"))
        return as_json(document)


def as_json(document: Any) -> bytes:
    """Compact JSON. Raises UsageError for NaN and infinities, which no server must accept."""
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise UsageError(f"json: {error}") from None
