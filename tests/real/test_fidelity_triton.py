"""Production on a real Triton, recorded by Triton's own trace and replayed: the exact replay keeps the tail, the fixed one loses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import environment_of

pytestmark = pytest.mark.real

REPO = Path(__file__).resolve().parents[2]


def test_exact_keeps_tritons_tail_and_fixed_loses_it(tmp_path, capsys):
    """All arrivals come once, at production's instants, and p99 is production's within the interval; fixed shows less than 0.8 of it.

    The interval is a 95 % one of the paired ratio; it is widened by 5 %, what separates two runs of the very same instants on a
    shared machine. Fixed at 60/s never forms a batch: 12.5 of 21.4 ms by the exact queue, 0.58.
    """
    environment_of("triton")
    command = [
        sys.executable,
        "benchmarks/fidelity.py",
        "--cases",
        "triton-poisson",
        "--seconds",
        "60",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        [*command, "--runs", "production", "fixed", "exact"], cwd=REPO, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with capsys.disabled():
        print("\n" + done.stdout)
    (rows,) = json.loads((tmp_path / "out" / "fidelity.json").read_text()).values()
    production, fixed, exact = rows
    assert exact["requests"] == pytest.approx(production["requests"], abs=3), "those near the end of the warm-up may change sides"
    _, low, high = exact["p99_ratio"]
    assert low / 1.05 <= 1.0 <= high * 1.05
    assert fixed["p99_ratio"][0] < 0.8
