"""`truetail sweep` as a person types it: real runs on the embedded service, stopped and continued, refused where it should be."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.usefixtures("no_child_left")]
# A batch of 2 takes 44 ms: the wall is 45/s, far from what the machine that tests can send.
SLOW = {"embedded": {"mode": "batch", "a": "40ms", "c": "2ms", "max_batch": 2, "max_delay": "1ms"}}
CHANGES = {"target": SLOW, "warmup": "1s", "slos": ["p90 < 1s", "error_rate < 50%"], "pool": 200}


def sweep(tmp_path, scenario, *args):
    """One invocation; (exit code, standard output, standard error)."""
    command = [sys.executable, "-m", "truetail", "sweep", str(scenario), "--out", str(tmp_path / "sweeps"), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_grid_is_paused_continued_and_refused_for_another_scenario(runs, tmp_path):
    """Wall 2 / 44 ms = 45/s: 10/s meets p90 < 1 s, 90/s grows in its short try and ends the grid; a budget too short for the
    second run pauses with exit 3, --resume continues without a run lost; another scenario is refused with exit 2."""
    scenario = runs.scenario(**CHANGES)
    code, out, err = sweep(tmp_path, scenario, "--rates", "10..170", "--points", "3", "--seconds", "20s", "--budget", "22s")
    assert code == 3, err
    folder = next((tmp_path / "sweeps").iterdir())
    before = json.loads((folder / "sweep.json").read_text())
    assert before["state"] == "paused"
    assert "--resume" in out
    code, out, err = sweep(tmp_path, scenario, "--resume", str(folder), "--json")
    after = json.loads(out)
    assert after["points"][: len(before["points"])] == before["points"]
    assert [(p["rate_rps"], p["outcome"]) for p in after["points"]][-1] == (90, "queue grows")
    assert code == 0, err
    assert (after["answer"]["lower_rps"], after["answer"]["upper_rps"]) == (10, 90)
    assert after["theory"]["wall_rps"] == pytest.approx(2 / 0.044)
    page = (folder / "sweep.html").read_text()
    assert f"points/{after['points'][-1]['run']}/report.html" in page
    assert (folder / "points" / after["points"][-1]["run"] / "report.html").is_file()
    other = runs.scenario(**CHANGES | {"pool": 10})
    code, _, err = sweep(tmp_path, other, "--resume", str(folder))
    assert code == 2
    assert "another scenario" in err


def test_missed_at_the_lowest_rate(runs, tmp_path):
    """90/s against a wall of 45/s: one short try, exit 1."""
    code, out, err = sweep(tmp_path, runs.scenario(**CHANGES), "--rates", "90..170", "--seconds", "5s")
    assert code == 1, err
    assert "missed at the lowest rate" in out
    assert len(list((tmp_path / "sweeps").glob("*/points/*/run.json"))) == 1


def test_faults_of_usage_start_nothing(runs, tmp_path):
    """No range, two lines to choose from, a range that is none, a scenario that is not there: exit 2, a clear line, no run."""
    good = runs.scenario(**CHANGES)
    for text, words in (
        ("--rates 5", "A..B"),
        ("", "--rates"),
        ("--rates 1..2 --points 1", "--points"),
        ("--rates 1..2 --slo p99", "--slo"),
    ):
        code, _, err = sweep(tmp_path, good, *text.split())
        assert (code, "Traceback" in err) == (2, False)
        assert words in err
    code, _, err = sweep(tmp_path, runs.scenario(**CHANGES | {"slos": ["p90 < 1s", "p50 < 1s"]}), "--rates", "1..2")
    assert code == 2
    assert "choose with --slo" in err
    assert not (tmp_path / "sweeps").exists()
