"""Records as OpenTelemetry spans: a client span from sent to done, on the run's clock, with the ids that the service was told.

Attributes follow the semantic conventions for HTTP client spans (https://opentelemetry.io/docs/specs/semconv/http/http-spans/), and ours begin with
``truetail.``. The service was asked at ``intended``; what lies between it and the span's start is the generator's lateness, not the service's time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, set_span_in_context

from truetail.record_follow import Row
from truetail.records import FLAG_WARMUP, OK, OUTCOMES
from truetail.tracing import Tracer

MAX_TEXT = 300
STAGES = ("queue", "preprocess", "inference", "postprocess", "dependency")
TEMPLATE = "${"


class _Told(IdGenerator):
    """The ids of the span that is made next: ours are known beforehand."""

    trace_id = span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return True


class _Ended(SpanProcessor):
    """Keeps the spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Spans:
    """Makes spans of one run's records. ``manifest`` is its run.json with the epoch in it."""

    def __init__(self, manifest: Mapping[str, Any], tracer: Tracer) -> None:
        self._epoch_ns = int(manifest["epoch_wall_ns"])
        self._ids = tracer
        self._run = str(manifest["run_id"])
        url = urlsplit(str(manifest["target"]["url"]))
        self._base = url.geturl().rstrip("/")
        self._is_http = url.scheme in ("http", "https")
        self._rpc = {"rpc.system": "grpc"} if url.scheme in ("grpc", "grpcs") else {}
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
        self._server = {"server.address": (url.hostname or url.path)[:MAX_TEXT]} | ({"server.port": port} if port else {})
        self._requests = {str(request["name"]): request for request in manifest["scenario"]["requests"]}
        self._told, self._ended = _Told(), _Ended()
        provider = TracerProvider(
            sampler=ALWAYS_ON, resource=_resource(manifest), id_generator=self._told, shutdown_on_exit=False
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("truetail", str(manifest["versions"].get("truetail", "")))

    def of(self, rows: list[Row], now_ns: int) -> list[ReadableSpan]:
        """A span each. ``now_ns`` (wall clock) is the end of one that had no end: abandoned at the drain deadline."""
        for row in rows:
            self._one(row, now_ns)
        made, self._ended.spans = self._ended.spans, []
        return made

    def _one(self, row: Row, now_ns: int) -> None:
        values = row.values
        k, part = int(values["k"]), int(values["part"])
        self._told.trace_id, self._told.span_id = self._ids.trace_id(k), self._ids.span_id(k, part)
        name, attributes = self._said(row)
        span = self._tracer.start_span(
            name,
            context=self._parent(k) if part else Context(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=self._epoch_ns + int(values["sent_ns"]),
        )
        for instant in ("first_byte", "first_token"):
            if values[f"{instant}_ns"] >= 0:
                span.add_event(instant.replace("_", " "), timestamp=self._epoch_ns + int(values[f"{instant}_ns"]))
        if values["outcome"] != OK:
            span.set_status(Status(StatusCode.ERROR, (row.error or OUTCOMES[values["outcome"]])[:MAX_TEXT]))
        span.end(self._epoch_ns + int(values["done_ns"]) if values["done_ns"] >= 0 else now_ns)

    def _parent(self, k: int) -> Context:
        """Further requests of a task lie under its first one."""
        first = SpanContext(
            self._ids.trace_id(k), self._ids.span_id(k), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )
        return set_span_in_context(NonRecordingSpan(first), Context())

    def _said(self, row: Row) -> tuple[str, dict[str, Any]]:
        """(the span's name, its attributes)."""
        values = row.values
        attributes: dict[str, Any] = {
            **self._server,
            **self._rpc,
            "truetail.run": self._run,
            "truetail.request": row.name[:MAX_TEXT],
            "truetail.arrival": int(values["k"]),
            "truetail.part": int(values["part"]),
            "truetail.worker": row.worker,
            "truetail.outcome": OUTCOMES[values["outcome"]],
            "truetail.warmup": bool(values["flags"] & FLAG_WARMUP),
            "truetail.intended_unix_ns": self._epoch_ns + int(values["intended_ns"]),
            "truetail.lateness_ms": int(values["sent_ns"] - values["intended_ns"]) / 1e6,
        }
        if values["done_ns"] >= 0:
            attributes["truetail.response_ms"] = int(values["done_ns"] - values["intended_ns"]) / 1e6
        if row.replica:
            attributes["truetail.replica"] = row.replica[:MAX_TEXT]
        if values["batch"]:
            attributes["truetail.batch_size"] = int(values["batch"])
        attributes |= {
            f"truetail.{stage}_ms": float(values[f"{stage}_us"]) / 1e3
            for stage in STAGES
            if not math.isnan(values[f"{stage}_us"])
        }
        for key, column in (("gen_ai.usage.input_tokens", "tokens_in"), ("gen_ai.usage.output_tokens", "tokens_out")):
            if values[column]:
                attributes[key] = int(values[column])
        if row.error:
            attributes["error.type"] = row.error.partition(":")[0][:MAX_TEXT]
        if not self._is_http:
            return row.name[:MAX_TEXT] or "request", attributes
        return self._http(row, attributes)

    def _http(self, row: Row, attributes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        values = row.values
        attributes |= {
            "http.request.size": int(values["request_bytes"]),
            "http.response.body.size": int(values["response_bytes"]),
        }
        if values["status"]:
            attributes["http.response.status_code"] = int(values["status"])
            if values["status"] >= 400:
                attributes["error.type"] = str(values["status"])
        request = self._requests.get(row.name)
        method, path = (str(request["method"]), str(request["path"])) if request else ("", "")
        if not path or TEMPLATE in method:
            return row.name[:MAX_TEXT] or "request", attributes
        attributes["http.request.method"] = method
        attributes["url.template" if TEMPLATE in path else "url.full"] = path if TEMPLATE in path else f"{self._base}{path}"
        return f"{method} {path.partition('?')[0]}"[:MAX_TEXT], attributes


def _resource(manifest: Mapping[str, Any]) -> Resource:
    """Who speaks: what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say wins over our name."""
    told = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    ours = {} if told else {"service.name": "truetail"}
    return Resource.create(
        {**ours, "truetail.run": str(manifest["run_id"]), "truetail.scenario": str(manifest["scenario"]["name"])}
    )
