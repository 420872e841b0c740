"""REST and generic HTTP users: what goes out, what is judged, one report a request."""

from __future__ import annotations

import json
from email.utils import formatdate

import pytest

from truetail.errors import TargetNotReady, UsageError
from truetail.http.checks import Check, parse_json
from truetail.http.errors import Failure
from truetail.http.retry_after import seconds
from truetail.records import FAILED, OK, TIMED_OUT


def request(**spec):
    return {
        "name": "r",
        "weight": 1.0,
        "method": None,
        "path": "/",
        "json": None,
        "body": None,
        "headers": {},
        "expect": {},
        **spec,
    }


def test_rest_request_goes_out_as_written(bench, service):
    """Method, path, JSON, headers of target and request; exact instants; Server-Timing, replica and batch in the account."""
    told = {"Server-Timing": "queue;dur=1.5, inference;dur=10.25", "x-replica-id": "r1", "x-batch-size": "4"}
    s = service({"/predict": (200, told, {"y": 1})})
    scenario = {
        "target": {"headers": {"X-Team": "a"}},
        "requests": [request(path="/predict", json={"x": [1, 2]}, headers={"X-One": "1"})],
    }
    (report,) = bench("rest_users", s.url, scenario).run()
    x = report.exchange
    (seen,) = s.seen
    assert (seen.method, seen.path, json.loads(seen.body)) == ("POST", "/predict", {"x": [1, 2]})
    assert (seen.headers["x-team"], seen.headers["x-one"], seen.headers["content-type"]) == ("a", "1", "application/json")
    assert (report.name, report.request_type, report.exception) == ("r", "POST", None)
    assert (x.outcome, x.status, x.queue_us, x.inference_us, x.replica, x.batch) == (OK, 200, 1500, 10250, "r1", 4)
    assert report.response_time == (x.done_ns - x.sent_ns) / 1e6
    assert x.response_bytes == report.response_length == len(b'{"y": 1}')


def test_rest_without_a_scenario(bench, service):
    """Plain locust with --host: the default request of the locustfile."""
    s = service({"/predict": {"y": 1}})
    (report,) = bench("rest_users", s.url, {}).run()
    assert report.exchange.outcome == OK
    assert s.seen[0].method == "POST"


def test_batch_of_drawn_size(bench, service):
    """payload.items makes the body a list of so many, by arrival, the same each time."""
    s = service({"/predict_batch": {"y": 1}})
    spec = request(path="/predict_batch", json={"k": "${k}"}, payload={"items": {"uniform": [1, 8]}})
    b = bench("rest_users", s.url, {"requests": [spec]})
    for k in (3, 4, 3):
        b.run(k=k)
    bodies = [json.loads(seen.body) for seen in s.seen]
    assert bodies[0] == bodies[2]
    assert all(body == [{"k": k}] * len(body) and 1 <= len(body) <= 8 for body, k in zip(bodies, (3, 4, 3), strict=True))


def test_templates_in_path_headers_and_body(bench, service):
    """Values of the arrival and of its row in every place; a cache-busting query differs each time."""
    s = service({"/items/7": b"ok", "/items/8": b"ok"})
    spec = request(method="PUT", path="/items/${k}?bust=${uuid}", headers={"X-Row": "${row.id}"}, body="n=${row.n}")
    b = bench("http_users", s.url, {"requests": [spec]})
    b.run(k=7, row={"id": "a", "n": 1})
    b.run(k=8, row={"id": "b", "n": 2})
    assert [(x.path, x.headers["x-row"], x.body) for x in s.seen] == [("/items/7", "a", b"n=1"), ("/items/8", "b", b"n=2")]
    assert len({x.query for x in s.seen}) == 2


def test_hostile_row_cannot_split_a_request(bench, service):
    """A trace's text with line breaks in a path or header is refused, not sent."""
    s = service({"/": b""})
    spec = request(path="/", headers={"X-Row": "${row.id}"})
    with pytest.raises(UsageError, match="header"):
        bench("http_users", s.url, {"requests": [spec]}).run(row={"id": "a\r\nX: y"})
    assert not s.seen


@pytest.mark.parametrize(
    ("status", "body", "expect", "error_class"),
    [
        (200, b"all is well", {}, ""),
        (204, b"", {}, ""),
        (200, b"all is well", {"contains": "well"}, ""),
        (200, b"all is lost", {"contains": "well"}, "wrong-content"),
        (200, b'{"a": {"b": 1, "c": 2}}', {"json": {"a": {"b": 1}}}, ""),
        (200, b'{"a": {"b": 2}}', {"json": {"a": {"b": 1}}}, "wrong-content"),
        (200, b'{"a": true}', {"json": {"a": 1}}, "wrong-content"),
        (200, b"{oops", {"json": {"a": 1}}, "malformed"),
        (200, b'{"a": NaN}', {"json": {"a": 1}}, "malformed"),
        (200, b"\xff\xfe\xfd", {"json": {"a": 1}}, "malformed"),
        (201, b"", {"status": 200}, "wrong-content"),
        (404, b"", {"status": 404}, ""),
        (422, b"", {"status": [200, 422]}, ""),
        (404, b"", {}, "http-4xx"),
        (500, b"", {}, "http-5xx"),
        (429, b"", {}, "shed"),
        (503, b"", {}, "shed"),
        (302, b"", {}, "redirect"),
        (304, b"", {}, "redirect"),
    ],
)
def test_answers_are_judged(bench, service, status, body, expect, error_class):
    """Each status and content with its class; one report, with an exception exactly where it failed."""
    s = service({"/": (status, {}, body)})
    (report,) = bench("http_users", s.url, {"requests": [request(method="GET", expect=expect)]}).run()
    assert report.exchange.error_class == error_class
    assert report.exchange.outcome == (FAILED if error_class else OK)
    assert bool(report.exception) == bool(error_class)
    assert report.exchange.status == status


def test_deep_json_is_no_crash():
    """A body nested a million deep is malformed."""
    with pytest.raises(Failure, match="malformed"):
        parse_json(b"[" * 1_000_000)
    with pytest.raises(Failure, match=r"\$\.a differs"):
        Check({"json": {"a": [1]}}).body(b'{"a": [2]}')


def test_deadline_of_the_request_counts(bench, service):
    """deadline_s of the entry, not the scenario's."""
    import gevent

    s = service({"/": lambda _: gevent.sleep(0.5) or b"late"})
    (report,) = bench("http_users", s.url, {"requests": [request(method="GET", deadline_s=0.1)]}).run()
    assert (report.exchange.outcome, report.exchange.error_class) == (TIMED_OUT, "timeout-first-byte")


def test_redirects_only_when_asked(bench, service):
    """Not followed: class redirect. Followed: the final answer, one report over the whole; a loop and another origin end."""
    routes = {
        "/a": (302, {"Location": "/b?x=1"}, b""),
        "/b": (307, {"Location": "c"}, b""),
        "/c": b"there",
        "/loop": (301, {"Location": "/loop"}, b""),
        "/away": (301, {"Location": "http://elsewhere.test/"}, b""),
        "/bad": (301, {"Location": "http://[::1"}, b""),
        "/none": (301, {}, b""),
    }
    s = service(routes)
    follow = {"follow_redirects": 3}
    specs = [request(name=path, method="GET", path=path, protocol=follow) for path in routes]
    b = bench("http_users", s.url, {"requests": [*specs, request(name="plain", method="GET", path="/a")]})
    assert b.run("plain")[0].exchange.error_class == "redirect"
    s.seen.clear()
    (report,) = b.run("/a")
    assert (report.exchange.outcome, report.exchange.status, [x.path for x in s.seen]) == (OK, 200, ["/a", "/b", "/c"])
    assert report.exchange.done_ns > report.exchange.first_byte_ns > report.exchange.sent_ns
    s.seen.clear()
    (report,) = b.run("/loop")
    assert (report.exchange.error_class, report.exchange.error_detail, len(s.seen)) == ("redirect", "over 3 of them", 4)
    assert b.run("/away")[0].exchange.error_detail == "to another origin"
    assert b.run("/bad")[0].exchange.error_detail == "to no URL"
    assert b.run("/none")[0].exchange.error_class == "redirect"


def test_retry_after_only_when_asked(bench, service):
    """Without leave one try. With leave the first report stays the refusal, and a further request follows after the wait."""
    answers = iter([(429, {"Retry-After": "0"}, b""), (200, {}, b"ok"), (503, {"Retry-After": "9"}, b""), (429, {}, b"")])
    s = service({"/": lambda _: next(answers)})
    polite = {"retry_after": {"most": 2, "longest": "1s"}}
    b = bench("http_users", s.url, {"requests": [request(method="GET", protocol=polite)]})
    assert [report.exchange.error_class for report in b.run()] == ["shed", ""]
    assert [report.exchange.error_class for report in b.run()] == ["shed"], "nine seconds are longer than allowed"
    assert [report.exchange.error_class for report in b.run()] == ["shed"], "the server does not say when"


def test_retry_after_forms():
    """Seconds, a date, nonsense."""
    assert seconds("12", 0) == 12
    assert seconds(formatdate(1000.0, usegmt=True), 990.0) == 10
    assert seconds(formatdate(1000.0, usegmt=True), 2000.0) == 0
    assert [seconds(text, 0) for text in ("", "soon", "-1", "1e9", "9" * 40)] == [None] * 5


def test_secrets_come_from_the_environment(bench, service, monkeypatch):
    """auth and header references are read from the environment; a variable that is not set is named."""
    s = service({"/": b"ok"})
    scenario = {
        "target": {"auth": {"env": "T_TOKEN", "prefix": "Bearer "}},
        "requests": [request(method="GET", headers={"X-Api-Key": {"env": "T_KEY"}})],
    }
    monkeypatch.setenv("T_TOKEN", "abc")
    with pytest.raises(UsageError, match="T_KEY is not set"):
        bench("http_users", s.url, scenario)
    monkeypatch.setenv("T_KEY", "k1")
    bench("http_users", s.url, scenario).run()
    assert (s.seen[0].headers["authorization"], s.seen[0].headers["x-api-key"]) == ("Bearer abc", "k1")


def test_unknown_protocol_settings_are_refused(bench, service):
    """A typo in the free settings is found before anything is sent."""
    s = service({})
    with pytest.raises(UsageError, match=r"protocol\.follow_redirect is unknown to AnyHttpUser; allowed are .*follow_redirects"):
        bench("http_users", s.url, {"requests": [request(protocol={"follow_redirect": 1})]})
    with pytest.raises(UsageError, match=r"protocol\.idle_limit"):
        bench("http_users", s.url, {"protocol": {"idle_limit": "soon"}})


def test_torchserve(bench, service):
    """The path of the model and version; the server's health is asked for first."""
    s = service({"/ping": {"status": "Healthy"}, "/predictions/m/2.0": b"[1]"})
    spec = request(name="p", json={"x": 1}, protocol={"model": "m", "version": "2.0"})
    (report,) = bench("torchserve_users", s.url, {"requests": [spec]}).run()
    assert report.exchange.outcome == OK
    assert [x.path for x in s.seen] == ["/ping", "/predictions/m/2.0"]
    sick = service({"/ping": (500, {}, b"Unhealthy")})
    with pytest.raises(TargetNotReady, match=r"TorchServe is healthy: GET /ping .* 500"):
        bench("torchserve_users", sick.url, {"requests": [spec], "target": {"ready": {"deadline_s": 0.3}}})


def test_fan_out_waits_for_all(bench, service):
    """Its account spans the first sending to the slowest end; shards are further reports; one failure fails it."""
    import gevent

    fast = service({"/q": b"1"})
    slow = service({"/q": lambda _: gevent.sleep(0.2) or b"2"})
    broken = service({"/q": (500, {}, b"")})
    specs = [
        request(name="good", method="GET", path="/q", protocol={"backends": [fast.url, slow.url, fast.url]}),
        request(name="bad", method="GET", path="/q", protocol={"backends": [fast.url, broken.url]}),
        request(name="many", method="GET", path="/q", protocol={"backends": 5}),
    ]
    b = bench("fanout_users", fast.url, {"requests": specs})
    whole, *shards = b.run("good")
    assert [shard.name for shard in shards] == ["good/0", "good/1", "good/2"]
    assert whole.exchange.done_ns == max(shard.exchange.done_ns for shard in shards)
    assert whole.exchange.sent_ns == min(shard.exchange.sent_ns for shard in shards)
    assert whole.exchange.done_ns - whole.exchange.sent_ns > 0.19e9
    assert (whole.exchange.outcome, whole.exchange.replica) == (OK, "shard 1")
    whole, *shards = b.run("bad")
    assert (whole.exchange.error_class, [x.exchange.outcome for x in shards]) == ("http-5xx", [OK, FAILED])
    assert len(b.run("many")) == 6
    with pytest.raises(UsageError, match="backends: found 0"):
        bench("fanout_users", fast.url, {"requests": [request(protocol={"backends": 0})]})


@pytest.mark.parametrize("stem", ["http_users", "rest_users"])
def test_replayed_log_is_sent_as_it_was(bench, service, tmp_path, stem):
    """Method, path with query and size of a log's rows; a broken line, which tells only its time, is the plainest request."""
    trace = tmp_path / "t.csv"
    trace.write_text("time,method,path,request_bytes\n0,PUT,/a?x=1,12\n")
    s = service({"/a": b"ok", "/": b"ok"})
    b = bench(stem, s.url, {"arrivals": {"trace": {"file": str(trace)}}})
    b.run(k=0, row={"method": "PUT", "path": "/a?x=1", "request_bytes": 12})
    b.run(k=1, row={"method": "", "path": "", "request_bytes": -1})
    assert [(x.method, x.path, x.query, len(x.body)) for x in s.seen] == [("PUT", "/a", "x=1", 12), ("GET", "/", "", 0)]
    for hostile in ("/a b", "/a\r\nX: y", "/ä"):
        with pytest.raises(UsageError, match="path"):
            b.run(k=2, row={"method": "GET", "path": hostile, "request_bytes": 0})
    assert len(s.seen) == 2
