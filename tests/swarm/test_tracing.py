"""Traces of a real fleet: what the service was told, what the collector got, and what the report finds, all the same requests."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from truetail.tracing import Tracer, key_of

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(240)]
proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra otel is not installed")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
ANSWER = b'{"y": 1}'
SLOW_S = 0.3


class Server:
    """A threaded HTTP server on a free loopback port; ``handle(method, path, headers, body)`` gives (status, body)."""

    def __init__(self, handle):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one segment, or each answer waits 40 ms for an acknowledgement

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, answer = handle(self.path, self.headers, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                """Silent."""

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()


@pytest.fixture
def serve():
    """Makes servers; ends them after the test."""
    made = []

    def make(handle):
        made.append(Server(handle))
        return made[-1].url

    yield make
    for server in made:
        server.httpd.shutdown()
        server.httpd.server_close()


@pytest.fixture
def target(serve):
    """A service that notes each traceparent (None where there was none), and is slow at one in fifty."""
    seen = []

    def handle(path, headers, body):
        seen.append(headers.get("traceparent"))
        if len(seen) % 50 == 0:
            time.sleep(SLOW_S)
        return 200, ANSWER

    return serve(handle), seen


@pytest.fixture
def collector(serve):
    """An OTLP/HTTP receiver: spans as protobuf messages, with the attributes of their resource."""
    spans = []

    def handle(path, headers, body):
        assert (path, headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
        request = proto.ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            told = {item.key: item.value.string_value for item in of_resource.resource.attributes}
            spans.extend((span, told) for scope in of_resource.scope_spans for span in scope.spans)
        return 200, proto.ExportTraceServiceResponse().SerializeToString()

    return serve(handle), spans


def changes(url, sample="20%"):
    """The scenario against this target."""
    return {"target": {"url": url}, "tracing": {"sample": sample}, "duration": "6s", "pool": 20}


def said(span):
    """A span's attributes."""
    kinds = ("string_value", "int_value", "double_value", "bool_value")
    return {item.key: next(getattr(item.value, kind) for kind in kinds if item.value.HasField(kind)) for item in span.attributes}


def test_service_collector_and_report_agree(runs, target, collector, monkeypatch):
    """With two workers: the sampled arrivals are those that the tracer names, each with one span of its record's instants, and the report shows its trace."""
    (url, seen), (endpoint, spans) = target, collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    outcome = runs.run(**changes(url))
    assert outcome.code == 0, outcome.err
    tracer = Tracer(key_of(outcome.manifest), 0.2)
    rows = {int(row["k"]): row for row in outcome.rows()}
    expected = {k for k in rows if tracer.sampled(k)}
    assert len(seen) == len(rows) > 250
    assert sorted(filter(None, seen)) == sorted(tracer.headers(k)["traceparent"] for k in expected)
    by_k = {said(span)["truetail.arrival"]: span for span, _ in spans}
    assert len(spans) == len(by_k) == len(expected) > 20
    epoch_ns = outcome.manifest["epoch_wall_ns"]
    for k, span in by_k.items():
        assert f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" == tracer.headers(k)["traceparent"]
        assert span.start_time_unix_nano == epoch_ns + int(rows[k]["sent_ns"])
        assert span.end_time_unix_nano == epoch_ns + int(rows[k]["done_ns"])
        assert (span.name, said(span)["http.response.status_code"]) == ("POST /predict", 200)
    assert {said(span)["truetail.worker"] for span, _ in spans} == {"worker-0", "worker-1"}
    assert {resource["service.name"] for _, resource in spans} == {"truetail"}
    assert json.loads((outcome.folder / "traces.json").read_text()) == {
        "sampled": len(expected), "exported": len(expected), "dropped": 0, "waiting": 0, "last_error": "",
    }  # fmt: skip
    report = (outcome.folder / "report.html").read_text()
    slow = [k for k in expected if rows[k]["done_ns"] - rows[k]["intended_ns"] > 0.9e9 * SLOW_S and not rows[k]["flags"] & 1]
    assert all(f"{tracer.trace_id(k):032x}" in report for k in slow[:10])
    chapter = outcome.summary["sections"]["Slowest requests"]
    assert chapter["slowest"][0]["response_s"] > 0.9 * SLOW_S
    assert {entry["trace_id"] is not None for entry in chapter["slowest"]} <= {True, False}


def test_a_collector_that_never_answers_holds_up_nothing(runs, target, serve, monkeypatch):
    """Every request is sent and the verdict is the run's; only the end waits, for a bounded time, and says how many spans were lost."""
    hold = threading.Event()

    def never(path, headers, body):
        hold.wait(60)
        return 200, b""

    url, seen = target
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serve(never))
    begun = time.monotonic()
    outcome = runs.run(**changes(url, sample="100%"))
    hold.set()
    assert outcome.code == 0, outcome.err
    ledger = outcome.manifest["ledger"]
    assert ledger["ok"] == ledger["scheduled"] == len(seen)
    told = json.loads((outcome.folder / "traces.json").read_text())
    assert (told["sampled"], told["exported"], told["dropped"]) == (len(seen), 0, len(seen))
    assert f"{len(seen)} of {len(seen)} spans were not exported" in outcome.err
    assert "dropped" in (outcome.folder / "report.html").read_text()
    assert time.monotonic() - begun < 90


def test_no_endpoint_means_the_header_alone(runs, target, monkeypatch):
    """The service can trace without us: it gets the header, no exporter is started, and the report says so."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    url, seen = target
    outcome = runs.run(**changes(url, sample="100%"))
    assert outcome.code == 0, outcome.err
    assert None not in seen
    assert not (outcome.folder / "traces.json").exists()
    assert not (outcome.folder / "logs" / "traces.log").exists()
    assert "no exporter of spans left word" in (outcome.folder / "report.html").read_text()


def test_spans_asked_for_without_the_library_is_a_usage_error(runs, target, monkeypatch, tmp_path):
    """Before anything is sent: what is missing, and how to get it."""
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    url, seen = target
    outcome = runs.run(**changes(url))
    assert outcome.code == 2
    assert "pip install 'truetail[otel]'" in outcome.err
    assert not seen
