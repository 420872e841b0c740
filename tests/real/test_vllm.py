"""A real vLLM (on the CPU), streaming: our requests and tokens are its own counters', our first token fits its own histogram."""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import metric, refused_run, truetail_run

from collector.fetch import get
from collector.presets import PRESETS
from collector.prometheus import scrape

pytestmark = pytest.mark.real

COUNTERS = ("vllm:request_success_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")
SUMS = ("vllm:time_to_first_token_seconds_sum", "vllm:e2e_request_latency_seconds_sum", "vllm:request_queue_time_seconds_sum")
WARM_UP = 6
OF_OLDER_RELEASES = {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"}


def scenario(url, api, **protocol):
    return {
        "name": "vllm", "target": {"url": url, "ready": {"path": "/health"}}, "users": "openai", "duration": "20s", "seed": 5,
        "pool": 50, "warmup_requests": WARM_UP, "requests": [{
            "name": "complete",
            "protocol": {"api": api, "model": "tiny", "options": {"ignore_eos": True, "temperature": 1.0}, **protocol},
            "payload": {"tokens": {"uniform": [10, 40]}, "max_tokens": {"uniform": [8, 24]}},
        }],
        "arrivals": {"rate": "3/s", "spacing": "poisson"}, "slos": ["p99(ttft) < 5s"],
        "collectors": {"prometheus": [{"name": "vllm", "url": f"{url}/metrics", "preset": "vllm"}]},
    }  # fmt: skip


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_and_times_agree_with_the_servers(vllm, tmp_path, capsys, api):
    """Every arrival and warm-up request is one success in vLLM's own counter, with as many tokens as asked for; all sums are the server's.

    Our mean time to the first token, from sending, is that of its histogram and the way there; so is the whole. The sidecar read the same
    counters during the run.
    """
    before = [metric(f"{vllm}/metrics", name) for name in (*COUNTERS, *SUMS)]
    _, manifest, rows = truetail_run(tmp_path, scenario(vllm, api))
    successes, tokens_out, tokens_in, ttft_s, e2e_s, queue_s = (
        metric(f"{vllm}/metrics", name) - then for name, then in zip((*COUNTERS, *SUMS), before, strict=True)
    )
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["sent"] == ledger["ok"] == sum(row["k"] >= 0 for row in rows)
    assert ledger["ok"] + WARM_UP == len(rows) == successes
    assert sum(row["tokens_out"] for row in rows) == tokens_out
    assert sum(row["tokens_in"] for row in rows) == tokens_in
    assert all(8 <= row["tokens_out"] <= 24 for row in rows)
    assert manifest["target"]["models"]["complete"]["max_model_len"] == 1024
    assert manifest["target"]["version"]["version"]

    n = len(rows)
    first_ms = np.array([row["first_token_ns"] - row["sent_ns"] for row in rows]) / 1e6
    service_ms = np.array([row["done_ns"] - row["sent_ns"] for row in rows]) / 1e6
    response_ms = np.array([row["done_ns"] - row["intended_ns"] for row in rows if row["k"] >= 0]) / 1e6
    with capsys.disabled():
        print(
            f"\n{api}: n {n}, {tokens_out:.0f} tokens out, {tokens_in:.0f} in; mean in ms, ours and the server's: "
            f"first token {first_ms.mean():.1f}, {ttft_s / n * 1e3:.1f}; whole {service_ms.mean():.1f}, {e2e_s / n * 1e3:.1f} "
            f"(queue {queue_s / n * 1e3:.2f}); response p50 {np.median(response_ms):.1f}"
        )
    # The way: our connection and request, its HTTP server and tokenizer, and the events back: milliseconds of the same two cores.
    assert 0 <= first_ms.mean() - ttft_s / n * 1e3 < 0.25 * ttft_s / n * 1e3 + 10
    assert 0 <= service_ms.mean() - e2e_s / n * 1e3 < 0.25 * e2e_s / n * 1e3 + 10

    read = sidecar_values(tmp_path, COUNTERS[0])
    assert read[0] == before[0]
    assert before[0] < read[-1] <= before[0] + successes


def sidecar_values(tmp_path, family):
    """A counter over the run as the sidecar wrote it, summed over its series."""
    (file,) = (tmp_path / "runs").glob("*/server/vllm.jsonl")
    lines = (json.loads(line) for line in file.read_text().splitlines())
    return [
        sum(value for series, value in line["values"].items() if series.startswith(family)) for line in lines if "values" in line
    ]


def test_the_presets_families_are_there(vllm):
    """Every pattern of the sidecar's preset finds a family at the real server, but for the names that older releases had."""
    got = scrape(get(f"{vllm}/metrics").decode(), PRESETS["vllm"])
    missing = {pattern for pattern in PRESETS["vllm"] if not any(fnmatchcase(family, pattern) for family in got.types)}
    assert missing == OF_OLDER_RELEASES
    assert got.bad_lines == 0


def test_a_model_that_is_not_loaded_is_refused(vllm, tmp_path):
    """Found before anything is sent, with the names that the server lists."""
    sent = metric(f"{vllm}/metrics", COUNTERS[0])
    code, said = refused_run(tmp_path, scenario(vllm, "chat", model="gpt-4"))
    assert code == 2
    assert "model gpt-4 is not loaded" in said
    assert "lists tiny" in said
    assert metric(f"{vllm}/metrics", COUNTERS[0]) == sent
