"""Which requests are traced and under which ids: pure functions, against the W3C's grammar and OpenTelemetry's own sampler."""

from __future__ import annotations

import re

import pytest

from truetail.scenario import ScenarioError, loads
from truetail.scenario_rules import warnings
from truetail.tracing import Tracer, key_of, tracer_of

SCENARIO = "name: a\ntarget: {url: 'http://127.0.0.1:1', headers: %s}\nrequests: [{name: x}]\narrivals: {rate: 60/s}\nduration: 60s\ntracing: %s\n"
MANIFEST = {"run_id": "20261201T000000Z-a", "started_wall_ns": 7}


def test_the_header_is_the_w3cs():
    """Version 00, 32 and 16 lower-case hex digits that are not all zeros, flag sampled (W3C Trace Context, section 3.2)."""
    tracer = Tracer("run", 1.0)
    for k in range(200):
        (value,) = tracer.headers(k).values()
        assert re.fullmatch(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01", value)


def test_ids_are_a_function_of_run_and_number():
    """The same in every process; another run, arrival or part has others."""
    assert Tracer("run", 1.0).headers(7) == Tracer("run", 0.5).headers(7) or not Tracer("run", 0.5).sampled(7)
    tracer = Tracer("run", 1.0)
    assert len({tracer.trace_id(k) for k in range(10_000)} | {Tracer("other", 1.0).trace_id(k) for k in range(10_000)}) == 20_000
    assert len({tracer.span_id(k, part) for k in range(100) for part in range(10)}) == 1000
    assert tracer.headers(3, 1)["traceparent"][:36] == tracer.headers(3)["traceparent"][:36]
    assert key_of(MANIFEST) != key_of(MANIFEST | {"started_wall_ns": 8})


def test_the_fleets_sample_is_one_workers():
    """Over any number of slots the union is exactly what one worker would sample; requests of no arrival never are."""
    whole = {k for k in range(20_000) if Tracer("run", 0.01).sampled(k)}
    for slots in (2, 7):
        parts = [{k for k in range(slot, 20_000, slots) if Tracer("run", 0.01).sampled(k)} for slot in range(slots)]
        assert set().union(*parts) == whole
        assert sum(map(len, parts)) == len(whole)
    assert not Tracer("run", 1.0).sampled(-1)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 1.0])
def test_the_share_is_kept(share):
    """200,000 arrivals: within 4.5 standard deviations of the share (false alarm below 1e-5 for these fixed ids)."""
    n = 200_000
    tracer = Tracer("run", share)
    found = sum(tracer.sampled(k) for k in range(n))
    assert abs(found - share * n) <= 4.5 * (n * share * (1 - share)) ** 0.5


def test_decisions_are_opentelemetrys():
    """A service with TraceIdRatioBased at the same share keeps exactly the traces that we sample."""
    sampling = pytest.importorskip("opentelemetry.sdk.trace.sampling")
    sampler, tracer = sampling.TraceIdRatioBased(0.05), Tracer("run", 0.05)
    theirs = [sampler.should_sample(None, tracer.trace_id(k), "x").decision.is_sampled() for k in range(5000)]
    assert theirs == [tracer.sampled(k) for k in range(5000)]
    assert 150 < sum(theirs) < 350


def test_the_scenario_says_how_many():
    """``tracing`` absent: none. Present: its share, 1 % where it says nothing. A traceparent of one's own beside it is a fault."""
    resolved = loads(SCENARIO % ("{}", "{sample: 1.5%}")).resolved()
    assert resolved["tracing"] == {"sample": 0.015}
    assert loads(SCENARIO % ("{}", "{}")).resolved()["tracing"] == {"sample": 0.01}
    assert tracer_of(loads(SCENARIO % ("{}", "null")).resolved(), "run") is None
    assert tracer_of(resolved, "run").sampled(0) in (True, False)
    with pytest.raises(ScenarioError, match=r"2:.*target\.headers\.TraceParent: is written by tracing"):
        loads(SCENARIO % ("{TraceParent: x}", "{}"))
    loads(SCENARIO % ("{TraceParent: x}", "null"))
    with pytest.raises(ScenarioError, match=r"tracing\.sample"):
        loads(SCENARIO % ("{}", "{sample: 120%}"))


def test_check_says_where_spans_would_go(monkeypatch):
    """Without an endpoint in the environment a warning; with one none."""
    scenario = loads(SCENARIO % ("{}", "{}"))
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    assert [line for line in warnings(scenario) if line.startswith("tracing: OTEL_EXPORTER_OTLP_ENDPOINT is not set here")]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert not [line for line in warnings(scenario) if line.startswith("tracing")]
