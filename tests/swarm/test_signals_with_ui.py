"""SIGTERM and SIGINT to processes that serve Locust's web UI: what is in flight drains, the ledger balances, nothing is left running."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from analysis.report import build
from truetail import roles
from truetail.roles import free_port

from .conftest import SCENARIO, Outcome
from .test_run import balanced

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(240), pytest.mark.usefixtures("no_child_left")]
ROOT = Path(__file__).parents[2]
SHAPE = f"{Path(__file__).parent / 'single_users.py'},{ROOT / 'shapes' / 'poisson.py'}"
WAIT_S = 60


def until(done, what):
    """The first true answer; what fails to answer is asked again."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            found = done()
        except (OSError, ValueError, StopIteration):
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not in {WAIT_S} s: {what}")


def ask(port, path, data=None, form=None):
    """JSON of the UI's server."""
    body = json.dumps(data).encode() if data is not None else urllib.parse.urlencode(form).encode() if form is not None else None
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", body), timeout=10) as answer:
        return json.loads(answer.read())


@pytest.fixture
def begin(tmp_path):
    """Starts a process in the test's folder, its output in a file; ends it with its group if the test did not."""
    begun = []

    def start(*command):
        with (tmp_path / f"{len(begun)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=tmp_path, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def target(begin, tmp_path):
    """The reference service's address."""
    file = tmp_path / "port"
    process = begin(*roles.target({"mode": "fifo", "service": "fixed", "service_mean": "5ms"}, file)[1:])
    yield f"http://127.0.0.1:{until(lambda: file.read_text().strip(), 'the target')}"
    process.terminate()
    process.wait(20)


def begun_run(folder):
    """The run folder once the epoch is set."""
    run = next(iter(sorted(folder.glob("*"))))
    return run if '"epoch"' in (run / "events.jsonl").read_text() else None


def test_sigterm_to_a_run_with_ui(runs):
    """`truetail run --ui`: exit 130, a partial report, both laws of the ledger."""
    process, outcome = runs.start("--ui", "--ui-port", str(free_port()), duration="60s")
    outcome.wait_for_epoch(process)
    time.sleep(2)
    process.terminate()
    done = runs.finish(process, outcome, 60)
    assert done.code == 130, done.err
    assert balanced(done.manifest["ledger"])
    assert done.manifest["ledger"]["ok"] > 0 < done.manifest["ledger"]["unsent"]
    assert done.manifest["stop_reason"] == "interrupted"
    assert done.summary["verdict"]["status"] == "INVALID"
    assert (done.folder / "report.html").exists()


def test_sigterm_to_a_session(begin, tmp_path):
    """`truetail ui` during a run that its form started: the same."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "s.yaml").write_text(json.dumps(SCENARIO | {"duration": "60s"}))
    port = free_port()
    process = begin("-m", "truetail", "ui", "--ui-port", str(port))
    text = until(lambda: ask(port, "/desk/text?file=s.yaml"), "the form")["text"]
    assert ask(port, "/desk/start", {"file": "s.yaml", "text": text})["ok"]
    run = until(lambda: begun_run(tmp_path / "runs"), "the run")
    time.sleep(2)
    process.terminate()
    assert process.wait(60) == 130
    manifest = json.loads((run / "run.json").read_text())
    assert balanced(manifest["ledger"])
    assert manifest["ledger"]["ok"] > 0 < manifest["ledger"]["unsent"]
    assert (run / "report.html").exists()


@pytest.mark.parametrize(("number", "distributed"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_stock_locust_waits_for_start_and_drains(begin, target, tmp_path, number, distributed):
    """Stock `locust` with its web UI and a Truetail shape: nothing is gathered before Start, whose form cannot change the plan; then the signal."""
    port, bind = free_port(), free_port()
    common = ["-m", "locust", "-f", SHAPE, "--host", target]
    master = [*common, "--web-host", "127.0.0.1", "--web-port", str(port), "--rate", "50", "--duration-s", "60", "--pool", "20"]
    if distributed:
        master += ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(bind)]
    process = begin(*master)
    until(lambda: ask(port, "/fleet/data")["state"] == "waiting", "the page")
    time.sleep(1.5)
    run = next(iter((tmp_path / "runs").glob("*")))
    assert (run / "events.jsonl").read_text() == ""
    for form in ({"host": "http://127.0.0.1:9"}, {"rate_rps": "70"}):
        refused = ask(port, "/swarm", form=form)
        assert not refused["success"] and next(iter(form)) in refused["message"]
    assert ask(port, "/swarm", form={"host": target, "rate_rps": "50", "user_count": "1", "spawn_rate": "1"})["success"]
    if distributed:  # also after Start there are muster seconds for a worker to come
        worker = begin(*common, "--worker", "--master-host", "127.0.0.1", "--master-port", str(bind))
    until(lambda: begun_run(tmp_path / "runs"), "the run")
    time.sleep(2)
    assert "One run a process" in ask(port, "/swarm", form={})["message"]
    process.send_signal(number)
    process.wait(60)
    if distributed:
        worker.wait(30)
    manifest = json.loads((run / "run.json").read_text())
    assert (manifest["state"], manifest["stop_reason"]) == ("ended", "interrupted")
    ledger = manifest["ledger"]
    assert balanced(ledger)
    assert ledger["ok"] > 20 and ledger["unsent"] > 0 and ledger["abandoned"] == 0
    assert len(Outcome(0, "", "", run).rows()) == ledger["sent"]
    assert build(run).exit_code == 130
    assert (run / "report.html").exists()


def test_stock_locust_leaves_before_start_and_after_the_end(begin, target, tmp_path):
    """Ctrl-C before Start, and on the page that stays after a whole run."""
    for seconds in (None, 2):
        port = free_port()
        process = begin(
            "-m", "locust", "-f", SHAPE, "--host", target, "--web-host", "127.0.0.1", "--web-port", str(port), "--rate", "50",
            "--duration-s", str(seconds or 60), "--pool", "20", "--truetail-out", f"out-{seconds}",
        )  # fmt: skip
        until(lambda port=port: ask(port, "/fleet/data")["state"] == "waiting", "the page")
        if seconds:
            assert ask(port, "/swarm", form={})["success"]
            until(lambda port=port: ask(port, "/fleet/data")["final"], "the end")
        process.send_signal(signal.SIGINT)
        process.wait(30)
        (run,) = (tmp_path / f"out-{seconds}").glob("*/run.json")
        assert json.loads(run.read_text())["stop_reason"] == ("completed" if seconds else "interrupted")
