"""The pages in a real browser, on real runs: start from the form, watch, lose a worker, stop, log in and out."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from truetail.histogram import Histogram, bounds_us, index_of
from truetail.roles import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(420)]
playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = Path("/usr/bin/chromium")
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
WAIT_MS = 120_000
SCENARIO = {
    "name": "in-the-browser",
    "description": MARKUP,
    "target": {"embedded": {"mode": "batch", "a": "4ms", "c": "0.2ms", "max_batch": 16, "max_delay": "1ms", "replicas": 2}},
    "users": "./mix_users.py",
    "requests": [
        {"name": "predict", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}},
        {"name": MARKUP, "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}},
    ],
    "arrivals": {"rate": "60/s", "spacing": "poisson"},
    "duration": "12s",
    "warmup": "1s",
    "drain": "5s",
    "fleet": {"workers": 2, "lease": "3s"},
    "collectors": {"gpu": False},
    "slos": ["p50 < 5s", "error_rate < 1%"],
    "validity": {"lateness_p99": "2s", "lateness_max": "5s"},
}


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, without a display."""
    if not CHROMIUM.exists():
        pytest.skip("needs Debian's package chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page that notes every script error."""
    made = browser.new_page(viewport={"width": 1400, "height": 1000})
    made.set_default_timeout(WAIT_MS)
    made.problems = []
    made.on("pageerror", lambda error: made.problems.append(str(error)))
    yield made
    made.close()


class Session:
    """A running `truetail ui` in a folder of its own."""

    def __init__(self, folder, *options, **environment):
        self.folder, self.port = folder, free_port()
        (folder / "scenarios").mkdir()
        (folder / "scenarios" / "mix_users.py").write_text((Path(__file__).parent / "mix_users.py").read_text())
        (folder / "scenarios" / "try.yaml").write_text(json.dumps(SCENARIO, indent=1))
        command = [sys.executable, "-m", "truetail", "ui", "--ui-port", str(self.port), *options]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=self.log, stderr=self.log, env={**os.environ, **environment}, start_new_session=True
        )

    @property
    def url(self):
        """Where the form is."""
        return f"http://127.0.0.1:{self.port}/"

    def wait(self):
        """Until it answers."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self.url).close()
                return
            except urllib.error.URLError:
                time.sleep(0.3)
        raise AssertionError((self.folder / "log").read_text())

    def run(self):
        """The newest run folder."""
        return sorted((self.folder / "runs").glob("*"))[-1]

    def end(self):
        """Ctrl-C, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        finally:
            self.log.close()


@pytest.fixture
def start(tmp_path):
    """Starts a session; ends it after the test."""
    started = []

    def begin(*options, **environment):
        started.append(Session(tmp_path, *options, **environment))
        started[-1].wait()
        return started[-1]

    yield begin
    for session in started:
        if session.process.poll() is None:
            session.end()


def merged(folder):
    """Series by Histogram.merge over the run's snapshots: what the report reads when there are no records."""
    fleet = {}
    for path in (folder / "snapshots").glob("*.jsonl"):
        for name, data in json.loads(path.read_text())["series"].items():
            fleet.setdefault(name, Histogram()).merge(Histogram.from_json(data))
    return fleet


def as_the_page_says(report):
    """The report's exact figures, read off the records, as the fleet's histogram tells them: each percentile as the top of its cell."""
    max_s, mean_s = report["max_of_successes_s"], report["mean_of_successes_s"]
    shown = {"n": report["n"], "max": round(max_s * 1e3, 3), "mean": round(mean_s * 1e3, 3)}
    for percentile in ("50", "95", "99", "99.9"):
        exact_ns = round(report["successes_s"][f"p{percentile}"] * 1e9)
        top_ns = bounds_us(index_of(exact_ns // 1000))[1] * 1000 + 999
        shown[f"p{percentile}"] = round(min(top_ns, round(max_s * 1e9)) / 1e6, 3)
    return shown


def marked(value):
    """A JSON value in which every text is markup."""
    if isinstance(value, dict):
        return {key: marked(each) for key, each in value.items()}
    return [marked(each) for each in value] if isinstance(value, list) else MARKUP if isinstance(value, str) else value


def every_text_is_only_text(page):
    """The page is told markup in place of every text: whoever supplied it (target, trace, collector, hosts), none becomes an element."""

    def answer(route):
        data = route.fetch().json()
        data["telemetry"] = [
            {"source": "", "title": "", "unit": "", "simulated": True, "recent": [[1], [2]], "whole": [[1], [2]]}
        ] * 2
        data["events"].append({"at_s": 1, "kind": "", "text": ""})
        route.fulfill(json=marked(data) | {"final": data["final"], "can_start": data["can_start"]})

    page.route("**/fleet/data", answer)
    page.wait_for_function("text => document.getElementById('scenario').textContent === text", arg=MARKUP)
    page.wait_for_timeout(300)
    for part in ("verdict", "light", "slos", "telemetry", "names", "replicas", "workers", "events", "foot"):
        assert MARKUP in page.locator(f"#{part}").evaluate("e => e.textContent"), part
    assert page.locator("img").count() == 0
    assert page.title().startswith(MARKUP)  # an image's onerror would have set another
    page.unroute("**/fleet/data")


def cells(page, table):
    """A table's rows as lists of text."""
    return [row.locator("td").all_inner_texts() for row in page.locator(f"#{table} tbody tr").all()]


def test_from_the_form_to_the_verdict_and_back(start, page):
    """Faults stop the start; the run that is started is seen moving; its last figures equal the merged snapshots exactly; then the form again."""
    session = start()
    page.goto(session.url)
    page.wait_for_selector("#start:enabled")
    assert page.locator("#about").inner_text().count("planned") == 1
    good = page.input_value("#text")
    page.fill("#text", good.replace('"12s"', '"soon"'))
    page.wait_for_selector("#faults li")
    assert "duration" in page.locator("#faults").inner_text()
    assert page.locator("#start").is_disabled()
    page.fill("#text", good.replace('"60/s"', '"70/s"'))
    page.wait_for_selector("#start:enabled")
    page.click("#start")
    page.wait_for_url("**/fleet/")
    page.wait_for_selector("#state.running")
    page.wait_for_selector("#percentiles tbody tr")
    before = page.locator("#ledger").inner_text()
    page.wait_for_timeout(2500)
    assert page.locator("#ledger").inner_text() != before
    assert page.locator("canvas").count() >= 6
    page.wait_for_selector("#verdict.PASS")
    folder = session.run()
    data = page.request.get(f"{session.url}fleet/data").json()
    assert data["final"] is True
    fleet = merged(folder)
    assert set(data["percentiles"]) == {"response", "service", "lateness"}
    shown = {row[0]: row for row in cells(page, "percentiles")}
    for series, told in data["percentiles"].items():
        assert told["n"] == fleet[series].n > 500
        assert shown[series][1] == f"{told['n']:,}"
        for column, percentile in enumerate(("50", "95", "99", "99.9"), 2):
            assert told[f"p{percentile}"] == round(fleet[series].percentile_ns(percentile) / 1e6, 3)
            assert float(shown[series][column]) == pytest.approx(told[f"p{percentile}"], abs=0.051)
    manifest = json.loads((folder / "run.json").read_text())
    assert data["ledger"] == {name: manifest["ledger"][name] for name in data["ledger"]}
    assert manifest["scenario"]["arrivals"]["rate"]["rate_rps"] == 70
    summary = json.loads((folder / "summary.json").read_text())
    for series, told in data["percentiles"].items():
        assert told == as_the_page_says(summary[series])
    assert (summary["response"]["n"], data["verdict"]["status"]) == (data["percentiles"]["response"]["n"], "PASS")
    assert [row[0] for row in cells(page, "names")].count(MARKUP) == 1
    assert page.locator("img").count() == 0 and "owned" not in page.title()
    assert sorted(row[0] for row in cells(page, "replicas")) == ["replica-0", "replica-1"]
    for width in (360, 768, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
    every_text_is_only_text(page)
    page.click("#new")
    page.wait_for_selector("#start:enabled")
    assert page.problems == []
    assert session.end() == 0


def test_login_a_lost_worker_and_stop(start, page):
    """Behind a login: wrong password, right one, the same session across form and run; a killed worker is seen; stop drains; log out."""
    session = start("--web-login", TRUETAIL_UI_USER="me", TRUETAIL_UI_PASSWORD="s3cret")
    page.goto(session.url)
    for password in ("wrong", "s3cret"):
        page.fill("[name=username]", "me")
        page.fill("[name=password]", password)
        page.keyboard.press("Enter")
        if password == "wrong":
            page.wait_for_selector("#problem:not([hidden])")
            assert "Wrong name or password" in page.locator("#problem").inner_text()
    page.wait_for_selector("#start:enabled")
    page.fill("#text", page.input_value("#text").replace('"12s"', '"120s"'))
    page.wait_for_selector("#start:enabled")
    page.click("#start")
    page.wait_for_url("**/fleet/")
    page.wait_for_selector("#state.running")
    page.wait_for_selector("#light.green")
    workers = json.loads((session.run() / "run.json").read_text())["workers"]
    os.kill(workers[1]["pid"], signal.SIGKILL)
    page.wait_for_selector("#light.red")
    page.wait_for_selector("#workers tr.lost")
    assert "1 workers lost" in page.locator("#reasons").inner_text()
    assert "worker-lost" in page.locator("#events").inner_text()
    page.focus("#stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict.INVALID")
    assert "interrupted" in page.locator("#state").inner_text()
    assert json.loads((session.run() / "run.json").read_text())["stop_reason"] == "interrupted"
    page.click("#logout button")
    page.wait_for_url("**/login**")
    page.goto(f"{session.url}fleet/")
    assert "/login" in page.url
    assert page.request.get(f"{session.url}fleet/data", max_redirects=0).status == 302
    assert page.problems == []
    for path in session.folder.rglob("*"):
        if path.is_file():
            assert b"s3cret" not in path.read_bytes(), path


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_no_page_is_wider_than_its_window(start, page, width):
    """From a phone to a desk the form does not scroll sideways, in light and dark; every control has a name."""
    session = start()
    page.set_viewport_size({"width": width, "height": 800})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(session.url)
        page.wait_for_selector("#start:enabled")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
    for control in page.locator("button, select, input, textarea").all():
        if control.is_visible():
            assert control.evaluate("e => (e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || '').trim()") != ""
