"""Trace context of sampled requests: which arrivals are sampled, their ids, and the W3C ``traceparent`` that goes to the service.

Everything is a pure function of the run and of the arrival's number, so workers need not agree on anything: the sampled arrivals of a fleet are those
that one worker would have sampled, no record needs a column for an id, and the report finds a request's trace from its number alone.
The decision is the one of OpenTelemetry's ``TraceIdRatioBased`` sampler (the low 64 bits of the trace id against share times 2^64), so that a service which
samples by the same rule keeps the same traces. Nothing here costs the event loop more than two hashes a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

HEADER = "traceparent"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_ROOM = 1 << 64


class Tracer:
    """Ids and decisions of one run. ``key`` names the run (:func:`key_of`), ``share`` is the sampled share of its arrivals (0 to 1)."""

    def __init__(self, key: str, share: float) -> None:
        self._key = hashlib.sha256(key.encode()).digest()
        self._below = round(share * _ROOM)

    def trace_id(self, k: int) -> int:
        """The arrival's trace, 128 bits; the same whether it is sampled or not."""
        return self._id(k, 0, 16, b"trace")

    def span_id(self, k: int, part: int = 0) -> int:
        """The span (64 bits) of an arrival's first request (``part`` 0) or of a further one of its task."""
        return self._id(k, part, 8, b"span")

    def sampled(self, k: int) -> bool:
        """Whether the arrival's requests are traced. What belongs to no arrival (negative ``k``) never is."""
        return k >= 0 and self._below > 0 and self.trace_id(k) & (_ROOM - 1) < self._below

    def headers(self, k: int, part: int = 0) -> dict[str, str]:
        """``{"traceparent": ...}`` (W3C Trace Context, version 00, sampled) for a sampled arrival, else nothing."""
        return {HEADER: f"00-{self.trace_id(k):032x}-{self.span_id(k, part):016x}-01"} if self.sampled(k) else {}

    def _id(self, k: int, part: int, size: int, person: bytes) -> int:
        told = k.to_bytes(8, "little", signed=True) + part.to_bytes(4, "little")
        found = int.from_bytes(hashlib.blake2b(told, digest_size=size, key=self._key, person=person).digest(), "big")
        return found or 1  # an id of zeros is no id


def key_of(manifest: Mapping[str, Any]) -> str:
    """What makes a run's ids its own: name and start, both in its manifest. Two runs of one scenario share no trace."""
    return f"{manifest['run_id']}/{manifest['started_wall_ns']}"


def tracer_of(scenario: Mapping[str, Any], key: str) -> Tracer | None:
    """The run's tracer; None where the resolved scenario asks for no tracing."""
    wanted = scenario.get("tracing")
    return Tracer(key, float(wanted["sample"])) if wanted else None


def has_endpoint(environment: Mapping[str, str]) -> bool:
    """Whether the environment says where spans go."""
    return any(environment.get(name) for name in ENDPOINTS)
