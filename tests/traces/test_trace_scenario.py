"""A trace in a scenario and in a plain Locust shape plans what the trace holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shapes.schedule import Schedule
from truetail.scenario import load

SCENARIO = """
name: replay
target: {url: 'http://127.0.0.1:9'}
users: rest
requests: [{name: r, method: GET, path: /}]
duration: 60s
arrivals:
  trace: {file: azure_llm_2024.csv, mode: exact, speed: 0.5, window: {from: 0s, to: 1.1s}, loop: true, strict: true, columns: {session: ContextTokens}}
"""


def test_a_scenario_s_trace_is_planned(samples: Path, tmp_path: Path) -> None:
    """Every field that a scenario may state reaches the replay: window of 1.1 s at half speed, looped every 2.2 s."""
    (tmp_path / "azure_llm_2024.csv").write_bytes((samples / "azure_llm_2024.csv").read_bytes())
    (tmp_path / "s.yaml").write_text(SCENARIO)
    resolved = load(tmp_path / "s.yaml").resolved()
    schedule = Schedule(resolved["arrivals"], resolved["duration_s"], resolved["seed"]["schedule"])
    first = next(iter(schedule.blocks()))
    assert first.offsets_ns.tolist() == [0, 2 * (10**9 - 9_930_000)]
    assert first.columns["session"].tolist() == ["2162", "2399"]
    assert schedule.count() == 2 * 27 + 1  # 27 whole rounds of 2.2 s, and the first of the 28th before 60 s


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_plain_locust_takes_the_shape_and_refuses_a_wrong_trace(samples: Path, tmp_path: Path) -> None:
    """`locust -f users.py,shapes/replay.py --trace FILE` plans the trace; a wrong mode ends with exit code 2 and the field's
    name.
    """
    users = tmp_path / "plain_users.py"
    users.write_text(
        "from locust import User, task\nclass Idle(User):\n    @task\n    def nothing(self): pass\n    wait_time = lambda self: 1\n"
    )
    shape = Path(__file__).resolve().parents[2] / "shapes" / "replay.py"
    command = [sys.executable, "-m", "locust", "-f", f"{users},{shape}", "--headless", "--drain-s", "0", "--duration-s", "1",
               "--trace", str(samples / "azure_llm_2024.csv"), "--trace-mode"]  # fmt: skip
    planned = subprocess.run([*command, "exact"], capture_output=True, text=True, check=False, timeout=50)
    assert "plans about 2 arrivals in 1 s" in planned.stderr
    wrong = subprocess.run([*command, "jazz"], capture_output=True, text=True, check=False, timeout=50)
    assert wrong.returncode == 2
    assert "mode: found 'jazz'" in wrong.stderr
