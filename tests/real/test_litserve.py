"""A streaming server that is not ours, with known instants: a prompt of 50 ms, then a token every 20 ms."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import truetail_run

pytestmark = pytest.mark.real

TOKENS = 10


def test_stream_is_read_as_it_comes(litserve, tmp_path, capsys):
    """All are answered with ten tokens; the first comes after the prompt's 50 ms and 9 x 20 ms before the end."""
    scenario = {
        "name": "litserve", "target": {"url": litserve, "ready": {"path": "/health"}}, "users": "openai", "duration": "10s", "seed": 5,
        "pool": 20, "requests": [{"name": "chat", "protocol": {"model": "lit"}, "payload": {"tokens": 20}}],
        "arrivals": {"rate": "3/s", "spacing": "fixed"},
    }  # fmt: skip
    _, manifest, rows = truetail_run(tmp_path, scenario)
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["ok"] == len(rows) > 20
    assert {row["tokens_out"] for row in rows} == {TOKENS}
    first_ms = np.array([row["first_token_ns"] - row["sent_ns"] for row in rows]) / 1e6
    rest_ms = np.array([row["done_ns"] - row["first_token_ns"] for row in rows]) / 1e6
    with capsys.disabled():
        print(
            f"\nlitserve: n {len(rows)}, first token min {first_ms.min():.1f}, p50 {np.median(first_ms):.1f} ms; "
            f"from there to the end min {rest_ms.min():.1f}, p50 {np.median(rest_ms):.1f} ms"
        )
    assert first_ms.min() >= 50
    assert np.median(rest_ms) >= 150, "a client that buffers would see the first token with the last"
