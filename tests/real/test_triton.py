"""A real Triton with dynamic batching: our counts are its counts, our times are its times and the way there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from real_servers import metric, truetail_run

pytestmark = pytest.mark.real

TENSORS = [{"name": "x", "shape": [1, 4], "datatype": "FP32"}]


def scenario(url, users, **protocol):
    return {
        "name": "triton", "target": {"url": url}, "users": users, "duration": "20s", "seed": 5, "pool": 100,
        "requests": [{"name": "infer", "protocol": {"model": "plain", **protocol}, "payload": {"tensors": TENSORS}}],
        "arrivals": {"rate": "60/s", "spacing": "poisson"}, "slos": ["error_rate < 0.1%"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("users", "protocol"), [("kserve", {}), ("kserve", {"binary": True}), ("kserve_grpc", {})], ids=["json", "binary", "grpc"]
)
def test_counts_and_times_agree_with_the_servers(triton, tmp_path, capsys, users, protocol):
    """Every arrival is one success in Triton's own counter; our mean service time is its mean request time plus the way there."""
    names = (
        "nv_inference_request_success",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_exec_count",
    )
    before = [metric(triton["metrics"], name, 'model="plain"') for name in names]
    url = f"grpc://{triton['grpc']}" if "grpc" in users else f"http://{triton['http']}"
    _, manifest, rows = truetail_run(tmp_path, scenario(url, users, **protocol))
    success, total_us, queue_us, executions = (
        metric(triton["metrics"], name, 'model="plain"') - then for name, then in zip(names, before, strict=True)
    )
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["sent"] == ledger["ok"] == success
    service_ms = np.array([(row["done_ns"] - row["sent_ns"]) / 1e6 for row in rows if row["k"] >= 0])
    response_ms = np.array([(row["done_ns"] - row["intended_ns"]) / 1e6 for row in rows if row["k"] >= 0])
    server_ms = total_us / success / 1e3
    with capsys.disabled():
        print(
            f"\n{users} {protocol}: n {success:.0f}, mean batch {success / executions:.2f}; server mean {server_ms:.2f} ms "
            f"(queue {queue_us / success / 1e3:.2f}), client service mean {service_ms.mean():.2f} ms; "
            f"response p50 {np.percentile(response_ms, 50):.2f}, p99 {np.percentile(response_ms, 99):.2f} ms"
        )
    assert service_ms.mean() >= server_ms
    assert service_ms.min() >= 10.5, "a batch of one takes 10.5 ms"
    assert success / executions > 1.0, "Poisson arrivals at 60/s meet"


def test_a_decoupled_model_streams_over_grpc(triton, tmp_path, capsys):
    """Every arrival is one success in Triton's own counter and has as many tokens as it asked for; the first comes with the prompt's 50 ms
    behind it, the rest 10 ms apart, each when it was sent."""
    before = metric(triton["metrics"], "nv_inference_request_success", 'model="streamy"')
    of = scenario(f"grpc://{triton['grpc']}", "kserve_grpc", model="streamy", stream=True)
    of["arrivals"] = {"rate": "10/s", "spacing": "poisson"}
    of["requests"][0]["payload"] = {"tensors": [{"name": "tokens", "shape": [1], "datatype": "INT32", "low": 5, "high": 31}]}
    _, manifest, rows = truetail_run(tmp_path, of)
    success = metric(triton["metrics"], "nv_inference_request_success", 'model="streamy"') - before
    ledger = manifest["ledger"]
    assert ledger["scheduled"] == ledger["sent"] == ledger["ok"] == len(rows) == success
    tokens = np.array([row["tokens_out"] for row in rows])
    assert tokens.min() >= 5
    assert len(set(tokens)) > 5, "so many variants of the request"
    first_ms = np.array([row["first_token_ns"] - row["sent_ns"] for row in rows]) / 1e6
    rest_ms = np.array([row["done_ns"] - row["first_token_ns"] for row in rows]) / 1e6
    beyond_ms = rest_ms - 10 * (tokens - 1)
    with capsys.disabled():
        print(
            f"\nstreamy: n {len(rows)}, first token min {first_ms.min():.1f}, p50 {np.median(first_ms):.1f} ms (50 for the prompt); "
            f"the rest beyond 10 ms a token: p50 {np.median(beyond_ms):.2f}, max {beyond_ms.max():.1f} ms"
        )
    assert first_ms.min() >= 50
    assert np.median(first_ms) < 80
    assert beyond_ms.min() > -10
    assert np.median(beyond_ms) < 10, "a client that waits for the whole would see the first token with the last"
