"""Triton's p99 under Poisson arrivals as a second tool sees it, at the same time on the same server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import environment_of, truetail_run

pytestmark = pytest.mark.real

ALPHA = 1e-3
RATE = 30
SECONDS = 40


def p99s(times_s, values_ms, rng, resamples=2000):
    """p99 of a moving-block bootstrap with blocks of one second: what another run of this length might have shown."""
    blocks = [values_ms[(times_s >= second) & (times_s < second + 1)] for second in range(int(times_s.min()), int(times_s.max()))]
    picks = rng.integers(0, len(blocks), (resamples, len(blocks)))
    return np.array([np.percentile(np.concatenate([blocks[i] for i in pick]), 99, method="inverted_cdf") for pick in picks])


def test_p99_agrees_with_perf_analyzer(triton, tmp_path, capsys):
    """Both send Poisson at 30/s at once, so that the server sees Poisson at 60/s and both sample the same waits.

    The difference of the two p99 lies within what the lengths of the runs support (block bootstrap, alpha 0.001).
    """
    folder = environment_of("triton")
    export = tmp_path / "perf.json"
    command = [
        folder / "bin" / "perf_analyzer", "-m", "plain", "-u", triton["http"], "--request-rate-range", str(RATE), "--request-distribution",
        "poisson", "--async", "--measurement-interval", str(SECONDS * 250), "--max-trials", "4",
        "--stability-percentage", "1000", "--profile-export-file", export,
    ]  # fmt: skip
    variables = {**os.environ, "LD_LIBRARY_PATH": str(folder / "perf_lib")}
    other = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    scenario = {
        "name": "beside", "target": {"url": f"http://{triton['http']}"}, "users": "kserve", "duration": f"{SECONDS}s", "seed": 11, "pool": 60,
        "requests": [{
            "name": "infer", "protocol": {"model": "plain"},
            "payload": {"tensors": [{"name": "x", "shape": [1, 4], "datatype": "FP32"}]},
        }],
        "arrivals": {"rate": f"{RATE}/s", "spacing": "poisson"},
    }  # fmt: skip
    _, manifest, rows = truetail_run(tmp_path, scenario)
    said, _ = other.communicate(timeout=120)
    if "error while loading shared libraries" in said:
        pytest.skip(f"perf_analyzer does not run here: {said[-300:]}")
    assert export.exists(), said
    theirs = json.loads(export.read_text())["experiments"][0]["requests"]
    their_sent_s = np.array([request["timestamp"] for request in theirs]) / 1e9
    their_ms = np.array([request["response_timestamps"][-1] - request["timestamp"] for request in theirs]) / 1e6
    our_sent_s = (np.array([row["sent_ns"] for row in rows]) + manifest["epoch_wall_ns"]) / 1e9
    our_ms = np.array([row["done_ns"] - row["sent_ns"] for row in rows]) / 1e6
    begin, end = max(our_sent_s.min(), their_sent_s.min()), min(our_sent_s.max(), their_sent_s.max())
    assert end - begin > 15, "the two runs hardly overlap"
    ours_in, theirs_in = (our_sent_s >= begin) & (our_sent_s <= end), (their_sent_s >= begin) & (their_sent_s <= end)
    rng = np.random.default_rng(1)
    differences = p99s(our_sent_s[ours_in], our_ms[ours_in], rng) - p99s(their_sent_s[theirs_in], their_ms[theirs_in], rng)
    low, high = np.percentile(differences, [100 * ALPHA / 2, 100 - 100 * ALPHA / 2])
    with capsys.disabled():
        print(
            f"\np99 over {end - begin:.0f} s: ours {np.percentile(our_ms[ours_in], 99):.1f} ms (n {ours_in.sum()}), "
            f"perf_analyzer {np.percentile(their_ms[theirs_in], 99):.1f} ms (n {theirs_in.sum()}); "
            f"p50 {np.median(our_ms[ours_in]):.2f} and {np.median(their_ms[theirs_in]):.2f}; difference within [{low:.1f}, {high:.1f}] ms"
        )
    assert low <= 0 <= high
