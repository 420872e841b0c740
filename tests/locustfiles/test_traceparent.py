"""What a traced service sees: one traceparent on each request of a sampled arrival, a span of its own each, none on the others."""

from __future__ import annotations

import pytest

from truetail.plugin import engine_of
from truetail.tracing import Tracer

TRACER = Tracer("run", 0.5)
KS = range(40)
SPEC = {
    "name": "r",
    "weight": 1.0,
    "method": "POST",
    "path": "/predict",
    "json": {"x": 1},
    "body": None,
    "headers": {},
    "expect": {},
}


def traced(b, tracer=TRACER):
    """The bench with a tracer, and with the recorder's counting of an arrival's requests."""
    engine_of(b.environment).tracer = tracer

    def count(**_):
        b.user.arrival.parts += 1

    b.environment.events.request.add_listener(count)
    return b


def told(seen):
    """The traceparents of the requests, in order."""
    return [request.headers.get("traceparent") for request in seen]


@pytest.mark.parametrize("stem", ["rest_users", "http_users"])
def test_sampled_arrivals_and_only_they(bench, service, stem):
    """The header is exactly the tracer's for the arrival's number; body and length of the request are whole."""
    s = service({"/predict": {"y": 1}})
    b = traced(bench(stem, s.url, {"requests": [SPEC]}))
    for k in KS:
        (report,) = b.run(k=k)
        assert report.exception is None
    assert told(s.seen) == [TRACER.headers(k).get("traceparent") for k in KS]
    assert 5 < sum(value is not None for value in told(s.seen)) < 35
    assert {request.body for request in s.seen} == {b'{"x":1}'}


def test_without_tracing_nothing_is_added(bench, service):
    """No tracer, no header; nor for requests of no arrival (warm-up: negative numbers)."""
    s = service({"/predict": {"y": 1}})
    bench("rest_users", s.url, {"requests": [SPEC]}).run(k=1)
    traced(bench("rest_users", s.url, {"requests": [SPEC]}), Tracer("run", 1.0)).run(k=-7)
    assert told(s.seen) == [None, None]


def test_a_template_is_traced_too(bench, service):
    """A request that is built anew for each arrival."""
    s = service({f"/r/{k}": {"y": 1} for k in KS})
    b = traced(bench("http_users", s.url, {"requests": [SPEC | {"path": "/r/${k}"}]}))
    for k in KS:
        b.run(k=k)
    assert told(s.seen) == [TRACER.headers(k).get("traceparent") for k in KS]


def test_further_requests_have_spans_of_their_own(bench, service):
    """A retry after a refusal: the same trace, another span; a followed redirect is the same request, and the same span."""
    answers = iter([(429, {"Retry-After": "0"}, b""), {"y": 1}])
    s = service({"/predict": lambda _: next(answers), "/moved": (307, {"Location": "/there"}, b""), "/there": {"y": 1}})
    tracer = Tracer("run", 1.0)
    retry = SPEC | {"protocol": {"retry_after": {"most": 2, "longest": "1s"}}}
    traced(bench("rest_users", s.url, {"requests": [retry]}), tracer).run(k=3)
    assert told(s.seen) == [tracer.headers(3, 0)["traceparent"], tracer.headers(3, 1)["traceparent"]]
    s.seen.clear()
    moved = SPEC | {"path": "/moved", "protocol": {"follow_redirects": 2}}
    traced(bench("rest_users", s.url, {"requests": [moved]}), tracer).run(k=4)
    assert told(s.seen) == [tracer.headers(4)["traceparent"]] * 2


def test_shards_are_numbered_as_they_are_recorded(bench, service):
    """Fan-out: part 0 is the arrival, so shard i sends part i + 1, whatever the order in which they end."""
    s = service({"/predict": {"y": 1}})
    tracer = Tracer("run", 1.0)
    fan_out = SPEC | {"protocol": {"backends": 5}}
    reports = traced(bench("fanout_users", s.url, {"requests": [fan_out]}), tracer).run(k=9)
    assert [report.name for report in reports] == ["r", *(f"r/{i}" for i in range(5))]
    assert sorted(told(s.seen)) == sorted(tracer.headers(9, part)["traceparent"] for part in range(1, 6))


def test_a_client_of_ones_own(bench, service):
    """``trace_headers()`` of the mixin: what a locustfile passes to any other client."""
    b = traced(bench("rest_users", service({}).url, {"requests": [SPEC]}))
    sampled = next(k for k in KS if TRACER.sampled(k))
    other = next(k for k in KS if not TRACER.sampled(k))
    b.run(k=sampled)
    b.user.arrival.parts = 2
    assert b.user.trace_headers() == TRACER.headers(sampled, 2)
    assert b.user.trace_headers(part=5) == TRACER.headers(sampled, 5)
    b.run(k=other)
    assert b.user.trace_headers() == {}
    b.user.arrival = None
    assert b.user.trace_headers() == {}


@pytest.mark.parametrize("base", ["HttpUser", "FastHttpUser"])
def test_locusts_own_clients(service, base):
    """Any user class with the mixin: the header is added beside the task's own headers, to sampled arrivals alone; untraced runs are left as they are."""
    import locust
    from locust.env import Environment

    from truetail.arrival import Arrival
    from truetail.open_loop import OpenLoop

    class Own(OpenLoop, getattr(locust, base)):
        host = ""

        def ask(self):
            self.client.post("/predict", json={"x": 1}, headers={"X-Mine": "1"})
            with self.client.get("/predict", catch_response=True) as answer:
                answer.success()

    s = service({"/predict": {"y": 1}})
    for tracer in (TRACER, None):
        environment = Environment(host=s.url)
        engine_of(environment).tracer = tracer
        Own.host = s.url
        user = Own(environment)
        environment.events.request.add_listener(lambda user=user, **_: setattr(user.arrival, "parts", user.arrival.parts + 1))
        s.seen.clear()
        for k in KS:
            user.arrival = Arrival(k, 0, 0)
            user.ask()
        assert told(s.seen) == [tracer.headers(k, part).get("traceparent") if tracer else None for k in KS for part in (0, 1)]
        assert [request.headers.get("x-mine") for request in s.seen[:2]] == ["1", None]
