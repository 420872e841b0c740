"""A trace is named by its path, so each worker reads its own file: an absent or another one is told to the master in words."""

from types import SimpleNamespace

import gevent
import pytest
from locust.env import Environment

from shapes.schedule import Schedule
from truetail import manifest, messages
from truetail.plugin import engine_of
from truetail.scenario import loads
from truetail.worker import WorkerRole

SCENARIO = """
name: replay
target: {url: "http://127.0.0.1:1"}
users: http
arrivals: {trace: {file: %s, mode: exact}}
duration: 10s
"""


@pytest.fixture
def planned(tmp_path):
    """What a worker answers to a plan whose trace is ``text`` on its host (None: there is none)."""

    def answer(text):
        file = tmp_path / "trace.csv"
        file.write_text("time,prompt_tokens\n0,5\n1,6\n2,7\n")
        scenario = loads(SCENARIO % file).resolved()
        schedule = Schedule(scenario["arrivals"], 10.0, scenario["seed"]["schedule"])
        masters = schedule.digest()
        file.unlink() if text is None else file.write_text(text)
        sent = []
        runner = SimpleNamespace(send_message=lambda kind, data: sent.append((kind, data)))
        role = WorkerRole(engine_of(Environment()), runner, "w1")
        plan = {
            "scenario": scenario, "run_id": "r", "trace_key": "r", "sha256": manifest.sha256(manifest.canonical(scenario)), "share": {"slot": 0, "n_slots": 1},
            "epoch_wall_s": 0.0, "folder": str(tmp_path / "run"), "target_url": "http://127.0.0.1:1",
        }  # fmt: skip
        with gevent.Timeout(20):
            role._on_plan(None, SimpleNamespace(data=plan))
        ((kind, data),) = sent
        assert kind == messages.PLANNED
        return data, masters

    return answer


def test_an_absent_trace_is_a_fault_of_the_scenario(planned):
    """With the file's name and what has to be done; not a crash of the worker."""
    data, _ = planned(None)
    assert data["refused"]
    assert "trace.csv" in data["fault"]
    assert "each" in data["fault"]


@pytest.mark.parametrize("text", ["time,prompt_tokens\n0,5\n1,6\n2,8\n", "time,prompt_tokens\n0,5\n1,6\n2.5,7\n"])
def test_another_trace_has_another_digest(planned, text):
    """Other times or other tokens alike: the master compares digests and refuses to begin."""
    data, masters = planned(text)
    assert not data["fault"]
    assert data["digest"] != masters


def test_the_same_trace_has_the_masters_digest(planned):
    """So the two tests above can fail."""
    data, masters = planned("time,prompt_tokens\n0,5\n1,6\n2,7\n")
    assert (data["digest"], data["count"], data["slot_count"]) == (masters, 3, 3)
