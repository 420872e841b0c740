"""A real llama.cpp server, streaming: our requests and tokens are its own, our first token comes after its prompt and before its end."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import metric, truetail_run

pytestmark = pytest.mark.real


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_and_tokens_agree_with_the_servers(llama, tmp_path, capsys, api):
    """Every arrival is answered, with as many tokens as asked for; the sums over all records are the server's own totals."""
    scenario = {
        "name": "llama", "target": {"url": llama, "ready": {"path": "/health"}}, "users": "openai", "duration": "15s", "seed": 5,
        "pool": 50, "requests": [{
            "name": "complete", "protocol": {"api": api, "model": "tiny", "options": {"ignore_eos": True, "temperature": 1.0}},
            "payload": {"tokens": {"uniform": [10, 40]}, "max_tokens": {"uniform": [8, 24]}},
        }],
        "arrivals": {"rate": "4/s", "spacing": "poisson"}, "slos": ["p99(ttft) < 60s"],
    }  # fmt: skip
    predicted = metric(f"{llama}/metrics", "llamacpp:tokens_predicted_total")
    _, manifest, rows = truetail_run(tmp_path, scenario)
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["ok"] == len(rows)
    assert sum(row["tokens_out"] for row in rows) == metric(f"{llama}/metrics", "llamacpp:tokens_predicted_total") - predicted
    assert all(8 <= row["tokens_out"] <= 24 and row["tokens_in"] > 0 for row in rows)
    assert all(row["sent_ns"] < row["first_byte_ns"] <= row["first_token_ns"] <= row["done_ns"] for row in rows)
    ttft_ms = np.array([row["first_token_ns"] - row["intended_ns"] for row in rows]) / 1e6
    with capsys.disabled():
        print(f"\n{api}: n {len(rows)}, ttft p50 {np.percentile(ttft_ms, 50):.1f}, p99 {np.percentile(ttft_ms, 99):.1f} ms")
