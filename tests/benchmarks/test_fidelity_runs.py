"""The fidelity experiment through real runs: nothing about clocks, everything about what was sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fidelity_instants import replayed

REPO = Path(__file__).resolve().parents[2]
AZURE = REPO.parent / "shared" / "traces" / "azure_llm_2023_conv.csv"

pytestmark = [pytest.mark.slow, pytest.mark.swarm]


def test_quick_experiment(tmp_path):
    """Production is recorded and replayed: exact sends every one of its requests, fixed has no bursts, figures are strict JSON."""
    command = [sys.executable, "benchmarks/fidelity.py", "--quick", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stdout + done.stderr
    (rows,) = json.loads((tmp_path / "out" / "fidelity.json").read_text()).values()
    production, fixed, exact = rows
    assert [row["run"] for row in rows] == ["production", "fixed", "exact"]
    assert exact["requests"] == pytest.approx(production["requests"], abs=3), "those near the end of the warm-up may change sides"
    assert production["gap_cv"] > 0.5
    assert fixed["gap_cv"] < production["gap_cv"]
    assert "production" in done.stdout

    command[2:3] = ["--seconds", "7"]
    refused = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "holds runs of 6 s, not of 7 s" in refused.stderr


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_no_arrival_missing_or_doubled(speed):
    """A stretch of a public trace over four workers: each arrival once in the records and once at the server, to the nanosecond."""
    if not AZURE.exists():
        pytest.skip("the samples of public traces (../shared/traces) are not here")
    found = replayed(AZURE, 15.0, speed)
    assert found["arrivals"] > 10
    wrong = {name: value for name, value in found.items() if name.startswith(("records_", "server_", "intended_")) and value != 0}
    assert not wrong
