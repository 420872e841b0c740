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
