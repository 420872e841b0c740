"""A real GPU: utilisation, clocks and power move with the load. Skipped, with the reason, where there is none."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.telemetry import read
from analysis.telemetry_figures import busy_percent

pytestmark = pytest.mark.gpu

LOAD = """
import time, torch
x = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
torch.cuda.synchronize(); print("ready", flush=True)
end = time.monotonic() + 6
while time.monotonic() < end:
    for _ in range(20): x @ x
    torch.cuda.synchronize()
"""


def torch_load() -> subprocess.Popen[str]:
    """Six seconds of matrix products on GPU 0 in a process of their own; skips where torch or CUDA is not to be had."""
    process = subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    if process.stdout.readline().strip() != "ready":
        error = process.communicate()[1].strip().splitlines()
        pytest.skip(f"no load can be made on the GPU: {error[-1] if error else 'torch ended'}")
    return process


def test_load_moves_the_figures(tmp_path: Path, collect: Any) -> None:
    """Power, busy share and memory in use are higher under matrix products than before; the energy counter agrees with the power."""
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has no NVIDIA GPU (/dev/nvidiactl is not there)")
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--no-host")
    time.sleep(4)
    load = torch_load()
    epoch_wall_ns = time.time_ns()
    load.wait(timeout=60)
    loaded_s = (time.time_ns() - epoch_wall_ns) / 1e9
    time.sleep(1)
    process.terminate()
    assert process.wait(timeout=20) == 0
    source = next(s for s in read(tmp_path, epoch_wall_ns).of("gpu") if s.device == "0")
    busy = busy_percent(source)
    assert busy
    for name, series in {
        "power": source.series["power_w"],
        "busy": busy[1],
        "memory": source.series["memory_used_bytes"],
    }.items():
        idle = series.values[series.at_ns < -1_500_000_000]
        loaded = series.values[(series.at_ns > 10**9) & (series.at_ns < (loaded_s - 0.5) * 1e9)]
        print(f"{name}: idle {np.mean(idle):.6g}, loaded {np.mean(loaded):.6g}, n = {len(idle)}, {len(loaded)}")
        assert np.mean(loaded) > np.mean(idle)
    energy = source.series.get("energy_mj_total")
    if energy is not None:
        span = energy.between(10**9, (loaded_s - 0.5) * 1e9)
        watts = (span.values[-1] - span.values[0]) / 1000 / ((span.at_ns[-1] - span.at_ns[0]) / 1e9)
        power = source.series["power_w"].between(10**9, (loaded_s - 0.5) * 1e9)
        print(f"mean power by the energy counter {watts:.1f} W, by the power readings {power.values.mean():.1f} W")
        assert watts == pytest.approx(power.values.mean(), rel=0.2)
