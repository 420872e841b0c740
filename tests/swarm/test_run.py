"""The main job through a real swarm: every exit code, the ledger, what happens when things die."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from truetail.records import FAILED

pytestmark = [pytest.mark.swarm, pytest.mark.usefixtures("no_child_left")]
ORDINARY = str(Path(__file__).parent / "ordinary_users.py")


def balanced(ledger):
    """Both laws of the ledger."""
    return (
        ledger["scheduled"] == ledger["sent"] + ledger["dropped"] + ledger["lost"] + ledger["unsent"]
        and ledger["sent"] == ledger["ok"] + ledger["failed"] + ledger["timed_out"] + ledger["abandoned"]
    )


def test_pass_and_everything_a_run_leaves(runs):
    """Exit 0; every planned arrival has exactly one record; all outputs are there and agree."""
    done = runs.run()
    assert done.code == 0, done.err
    ledger = done.manifest["ledger"]
    assert balanced(ledger)
    assert ledger["scheduled"] == ledger["ok"] == done.manifest["schedule"]["count"]
    assert sorted(done.rows()["k"].tolist()) == list(range(ledger["scheduled"]))
    assert done.summary["verdict"]["status"] == "PASS"
    for name in ("summary.md", "junit.xml", "report.html", "fleet.hlog"):
        assert (done.folder / name).stat().st_size > 100, name
    assert "PASS" in done.out
    rows = done.rows()
    assert (rows["sent_ns"] >= rows["intended_ns"]).all()
    assert (rows["inference_us"] > 3900).all()


def test_fail_when_an_slo_is_missed(runs):
    """Exit 1, and the line that was missed is named."""
    done = runs.run(slos=["p50 < 1ms", "error_rate < 10%"])
    assert done.code == 1, done.err
    assert "p50 < 1ms" in done.out


def test_scenario_faults_all_at_once(runs):
    """Exit 2 before anything starts; every fault of the scenario in one answer, no traceback, no run folder."""
    done = runs.run(duration="soon", pool=0, slos=["p99 <"], arrivals={"rate": "fast", "spacing": "poison"})
    assert done.code == 2
    for field in ("duration", "pool", "slos", "arrivals"):
        assert field in done.err, field
    assert "Traceback" not in done.err
    assert done.folder is None


def test_invalid_when_the_generator_breaks_its_promise(runs):
    """Exit 3: arrivals were dropped because the pool was too small, so the load was not what the scenario says."""
    done = runs.run(pool=1, lateness_deadline="50ms", arrivals={"rate": "300/s", "spacing": "poisson"})
    assert done.code == 3, done.err
    assert done.manifest["ledger"]["dropped"] > 0
    assert balanced(done.manifest["ledger"])
    assert "INVALID" in done.out


def test_target_never_ready(runs):
    """Exit 4: nothing is sent, the last thing seen is said."""
    done = runs.run(target={"url": "http://127.0.0.1:9", "ready": {"path": "/readyz", "deadline": "1s"}})
    assert done.code == 4
    assert "not ready within 1 s" in done.err
    assert "Traceback" not in done.err


def test_ctrl_c_gives_a_partial_report(runs):
    """Exit 130: what was in flight has drained, what was not sent is counted, a report is there, no child is left."""
    process, outcome = runs.start(duration="60s")
    outcome.wait_for_epoch(process)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    done = runs.finish(process, outcome)
    assert done.code == 130, done.err
    ledger = done.manifest["ledger"]
    assert balanced(ledger)
    assert ledger["unsent"] > 0
    assert ledger["ok"] > 50
    assert done.manifest["stop_reason"] == "interrupted"
    assert (done.folder / "report.html").exists()


def test_sigterm_is_an_interruption_too(runs):
    """What CI and Kubernetes send ends the run in the same way."""
    process, outcome = runs.start(duration="60s")
    outcome.wait_for_epoch(process)
    time.sleep(1.5)
    process.terminate()
    done = runs.finish(process, outcome)
    assert done.code == 130
    assert balanced(done.manifest["ledger"])


def test_killed_worker_is_never_green(runs):
    """kill -9 of a worker: INVALID, its rest is lost, the ledger balances over the records, the survivors' records are all there."""
    process, outcome = runs.start(duration="12s", fleet={"workers": 2, "lease": "2s"})
    outcome.wait_for_epoch(process)
    time.sleep(2)
    os.kill(outcome.manifest["workers"][1]["pid"], signal.SIGKILL)
    done = runs.finish(process, outcome)
    assert done.code == 3, done.err
    ledger = done.summary["ledger"]["fleet"]
    assert done.summary["ledger"]["balanced"]
    assert balanced(done.manifest["ledger"])
    assert balanced(ledger)
    assert ledger["lost"] > 100
    rows = done.rows()
    assert len(np.unique(rows["k"])) == len(rows)
    survivor = np.sort(rows["k"][rows["k"] % 2 == 0])
    assert survivor.tolist() == list(range(0, done.manifest["schedule"]["count"], 2))
    assert any(event["kind"] == "worker-lost" for event in done.events)


def test_killed_master_leaves_a_report(runs):
    """kill -9 of the master: the workers stop, the report works from what is on disk, INVALID."""
    process, outcome = runs.start(duration="30s", fleet={"workers": 2, "lease": "2s"})
    outcome.wait_for_epoch(process)
    time.sleep(2)
    mother = psutil.Process(process.pid)
    master = next(child for child in mother.children() if "--master" in child.cmdline())
    master.kill()
    done = runs.finish(process, outcome, 90)
    assert done.code == 3, done.err
    assert (done.folder / "report.html").exists()
    assert len(done.rows()) > 50


def test_killed_command_leaves_no_load_behind(runs):
    """kill -9 of `truetail run` itself: every child ends by itself."""
    process, outcome = runs.start(duration="60s")
    outcome.wait_for_epoch(process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []


def test_ordinary_locustfile_with_the_mixin(runs):
    """Weights, on_start, nested TaskSets, HttpUser and FastHttpUser: each arrival is one record, further requests are parts of it."""
    done = runs.run(users=ORDINARY, duration="6s")
    assert done.code == 0, done.err
    ledger = done.manifest["ledger"]
    assert balanced(ledger)
    rows = done.rows()
    assert sorted(rows["k"].tolist()) == list(range(ledger["scheduled"]))
    names = (done.folder / "records" / "worker-0.names.jsonl").read_text()
    for name in ("login", "nested-1", "nested-2", "predict", "task-error: KeyError"):
        assert name in names
    assert (rows["outcome"] == FAILED).sum() == ledger["failed"] > 0


def test_locustfile_without_the_mixin_is_told(runs, tmp_path):
    """A closed-loop user class would prove nothing: the run ends at once and says which class and what to do."""
    users = tmp_path / "closed_users.py"
    users.write_text(
        "from locust import FastHttpUser, task\n\nclass Closed(FastHttpUser):\n    @task\n    def t(self):\n        self.client.get('/healthz')\n"
    )
    done = runs.run(users=str(users))
    assert done.code == 2
    assert "Closed" in done.err
    assert "OpenLoop" in done.err
    assert "Traceback" not in done.err


def test_what_the_locustfile_refuses_is_a_scenario_error(runs):
    """A setting that the user class does not know: exit 2 with its words, nothing sent."""
    request = {"name": "predict", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}, "protocol": {"nonsense": 1}}
    done = runs.run(users="rest", requests=[request])
    assert done.code == 2
    assert "protocol.nonsense is unknown" in done.err
    assert "Traceback" not in done.err


def test_out_that_cannot_be_written(runs, tmp_path):
    """A clear error and an exit code, no traceback, nothing sent."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    process, outcome = runs.start(out=blocked / "runs")
    done = runs.finish(process, outcome)
    assert done.code == 2
    assert "run folder" in done.err
    assert "Traceback" not in done.err
