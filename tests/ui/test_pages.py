"""The pages inside a real Locust web UI, without a network: routes, login, strangers, stop, Locust's own page extended."""

import base64
import json

import locust.stats
import numpy as np
import pytest
from locust import FastHttpUser, task
from locust.argument_parser import get_parser
from locust.env import Environment
from prometheus_client.parser import text_string_to_metric_families

from truetail.errors import UsageError
from truetail.histogram import Histogram
from truetail.ui import pages


class Visitor(FastHttpUser):
    """A user, since Locust wants one."""

    host = "http://127.0.0.1:9"

    @task
    def nothing(self):
        """Never run."""


@pytest.fixture
def open_page(make_master, monkeypatch):
    """A function: (Flask test client, master, page) of a Locust master with our pages."""
    monkeypatch.setattr(locust.stats, "PERCENTILES_TO_CHART", list(locust.stats.PERCENTILES_TO_CHART))
    monkeypatch.setattr(locust.stats, "update_stats_history", locust.stats.update_stats_history)
    monkeypatch.setattr("sys.argv", ["locust"])  # Locust reads it again for its page
    runners = []

    def opened(web_login=False, base=None):
        environment = Environment(user_classes=[Visitor], events=None, parsed_options=get_parser().parse_args([]))
        environment.parsed_options.web_base_path = base
        runners.append(environment.create_master_runner("127.0.0.1", 0))
        web_ui = environment.create_web_ui("127.0.0.1", 8089, web_base_path=base, web_login=web_login, delayed_start=True)
        master = make_master()
        page = pages.attach(master.live, environment)
        web_ui.app.config["TESTING"] = True
        return web_ui.app.test_client(), master, page

    yield opened
    for runner in runners:
        runner.greenlet.kill(block=False)
        runner.server.close()


def histogram_of(values_ns):
    """A histogram of durations."""
    made = Histogram()
    made.record_many_ns(np.asarray(values_ns, dtype=np.int64))
    return made


def test_page_and_what_it_needs(open_page):
    """The page, its files and its data come from this server, under a policy that lets nothing else load; no path leads out of the folder."""
    client, _, _ = open_page()
    assert client.get("/fleet").headers["Location"].endswith("/fleet/")
    answer = client.get("/fleet/")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    html = answer.get_data(as_text=True)
    assert "<script>" not in html
    assert " style=" not in html
    assert "://" not in html.replace("http://www.w3.org", "")
    for file in ("fleet.js", "charts.js", "theme.js", "page.css", "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"):
        assert client.get(f"/fleet/static/{file}").status_code == 200
    for outside in ("../pages.py", "%2e%2e/pages.py", "/etc/passwd"):
        assert client.get(f"/fleet/static/{outside}", follow_redirects=True).status_code == 404
    data = client.get("/fleet/data")
    assert data.headers["Cache-Control"] == "no-cache"
    assert json.loads(data.data)["run"]["scenario"] == "live-test"


def test_under_a_base_path(open_page):
    """--web-base-path moves our pages too."""
    client, _, _ = open_page(base="/lt")
    assert client.get("/lt/fleet/data").status_code == 200
    assert client.get("/lt/metrics").status_code == 200
    assert client.get("/fleet/data").status_code == 404


def test_strangers_are_refused(open_page):
    """Another origin in the same browser can neither read nor stop, nor can a host name that was made to point here."""
    client, master, _ = open_page()
    for path, method in (("/fleet/data", "get"), ("/stats/requests", "get"), ("/fleet/stop", "post"), ("/stop", "post")):
        assert getattr(client, method)(path, headers={"Origin": "http://evil.example"}).status_code == 403
        assert getattr(client, method)(path, headers={"Host": "evil.example"}).status_code == 403
    assert master.stopped == []
    assert client.get("/fleet/data", headers={"Host": "localhost:8089", "Origin": "http://localhost:8089"}).status_code == 200


def test_stop_drains_from_both_pages(open_page):
    """Our button and Locust's own end the run as Ctrl-C does; Locust's start button says why it cannot start another."""
    client, master, _ = open_page()
    assert client.post("/fleet/stop").status_code == 200
    assert json.loads(client.post("/stop").data)["success"]
    assert [reason for reason, _ in master.stopped] == ["interrupted", "interrupted"]
    told = json.loads(client.post("/swarm", data={"user_count": "5", "spawn_rate": "5"}).data)
    assert told["success"] is False
    assert "One run a process" in told["message"]
    assert client.get("/fleet/stop").status_code == 405
    assert client.post("/fleet/new").status_code == 409


def test_final_figures_are_noted(open_page):
    """Whoever watches is waited for: only an answer given after the end counts as the last look."""
    client, master, page = open_page()
    assert not page.watched
    client.get("/fleet/data")
    assert page.watched
    assert not page.last_look.wait(0.5)
    master.finished = True
    assert json.loads(client.get("/fleet/data").data)["final"] is True
    assert page.last_look.wait(2.0)


def test_locust_page_shows_fleet_figures(open_page):
    """Tables on Locust's page, and its chart's percentiles, are the fleet's: of the last ten seconds, and exact."""
    client, master, _ = open_page()
    old, new = histogram_of([900_000_000] * 50), histogram_of([900_000_000] * 50 + [20_000_000] * 100)
    master.say(0, 1.0, {"response": old}, sent=50, ok=50)
    master.live.look()
    for second in range(2, 20):
        master.say(0, float(second), {"response": new}, sent=150, ok=150)
        master.live.look()
    told = json.loads(client.get("/stats/requests").data)
    assert [table["key"] for table in told["extended_stats"]] == ["fleet-percentiles", "fleet-ledger", "fleet-workers"]
    row = told["extended_stats"][0]["data"][0]
    assert (row["series"], row["n"], row["p99_9"]) == ("response", 150, 900.0)
    chart = told["current_response_time_percentiles"]
    assert set(chart) == {f"response_time_percentile_{share}" for share in (0.5, 0.95, 0.99, 0.999)}
    assert set(chart.values()) == {None}  # nothing ended in the last ten seconds, and what ended before is not now
    master.say(0, 20.0, {"response": histogram_of([900_000_000] * 50 + [20_000_000] * 300)}, sent=350, ok=350)
    master.live.look()
    chart = json.loads(client.get("/stats/requests").data)["current_response_time_percentiles"]
    assert chart["response_time_percentile_0.99"] == pytest.approx(20.0, rel=0.001)
    assert "fleet-percentiles" in client.get("/").get_data(as_text=True)


def test_login(open_page, monkeypatch):
    """Behind --web-login every route of ours asks for it; a wrong password does not help; log out ends it; Prometheus uses basic auth."""
    monkeypatch.delenv("TRUETAIL_UI_USER", raising=False)
    with pytest.raises(UsageError, match="TRUETAIL_UI_USER"):
        open_page(web_login=True)
    monkeypatch.setenv("TRUETAIL_UI_USER", "me")
    monkeypatch.setenv("TRUETAIL_UI_PASSWORD", "s3cret")
    monkeypatch.setenv("TRUETAIL_UI_SECRET", "0" * 64)
    client, master, _ = open_page(web_login=True)
    routes = [
        ("/fleet/", "get"),
        ("/fleet/data", "get"),
        ("/fleet/static/fleet.js", "get"),
        ("/fleet/report", "get"),
        ("/metrics", "get"),
    ]
    for path, method in [*routes, ("/fleet/stop", "post"), ("/fleet/new", "post"), ("/stop", "post"), ("/swarm", "post")]:
        answer = getattr(client, method)(path)
        assert answer.status_code == 302, path
        assert "/login" in answer.headers["Location"]
    assert client.post("/fleet/login", data={"username": "me", "password": "wrong"}).headers["Location"] == "/login"
    assert client.get("/fleet/data").status_code == 302
    answer = client.post("/fleet/login", data={"username": "me", "password": "s3cret"})
    assert answer.headers["Location"] == "/fleet/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "s3cret" not in cookie
    assert client.get("/fleet/data").status_code == 200
    assert client.post("/fleet/stop").status_code == 200
    client.post("/fleet/logout")
    assert client.get("/fleet/data").status_code == 302
    for password, status in (("s3cret", 200), ("wrong", 302)):
        token = base64.b64encode(f"me:{password}".encode()).decode()
        assert client.get("/metrics", headers={"Authorization": f"Basic {token}"}).status_code == status
    assert len(master.stopped) == 1


def test_report_is_cut_off_from_the_page(open_page):
    """The report is served in a sandbox, and only once there is one."""
    client, master, _ = open_page()
    assert client.get("/fleet/report").status_code == 404
    (master.folder / "report.html").write_text("<h1>report</h1>")
    answer = client.get("/fleet/report")
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox") and "allow-same-origin" not in policy and "connect-src" not in policy


def test_metrics_are_readable_by_prometheus_own_parser(open_page):
    """The exposition parses; counters and histograms carry the fleet's counts; buckets rise to n."""
    client, master, _ = open_page()
    master.say(
        0,
        10.0,
        {"response": histogram_of([5_000_000] * 90 + [400_000_000] * 10), "replica/<b>": histogram_of([1])},
        sent=100,
        ok=95,
        failed=5,
    )
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").get_data(as_text=True))}
    (sent,) = families["truetail_arrivals_sent"].samples
    assert (sent.name, sent.value) == ("truetail_arrivals_sent_total", 100)
    outcomes = {sample.labels["outcome"]: sample.value for sample in families["truetail_requests"].samples}
    assert outcomes == {"ok": 95, "failed": 5, "timed_out": 0, "abandoned": 0}
    buckets = [(s.labels["le"], s.value) for s in families["truetail_response_seconds"].samples if s.name.endswith("_bucket")]
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert dict(buckets)["+Inf"] == 100
    assert (dict(buckets)["0.0075"], dict(buckets)["0.3"], dict(buckets)["0.5"]) == (90, 90, 100)
    quantiles = {(s.labels["series"], s.labels["percentile"]): s.value for s in families["truetail_percentile_seconds"].samples}
    assert quantiles[("response", "99")] == pytest.approx(0.4, rel=0.001)
    assert ("replica/<b>", "50") in quantiles
    assert {s.labels["worker"] for s in families["truetail_worker_up"].samples} == {"worker-0", "worker-1"}
