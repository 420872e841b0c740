"""The simulated device: filed apart, marked as simulated, hostile answers bounded. The host: numbers that are real."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from collector.hosts import Host
from collector.sampler import SourceFailed
from collector.simulated import MAX_FIELDS, SimulatedDevice


def test_filed_apart_and_marked(
    tmp_path: Path, served: Any, fake_nvml: Any, collect: Any, read_lines: Any, read_samples: Any
) -> None:
    """Simulated figures get a file of their own whose header and every line say so; NVML's file has none of them."""
    device = {
        "source": "simulated",
        "busy_share": 0.75,
        "batch": {"last": 12},
        "throttled": True,
        "reasons": ["thermal"],
        "note": "text",
        "x": None,
    }
    served.answer = (200, json.dumps(device).encode())
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--no-host", "--host-name", "h", "--simulated",
                      f"target={served.url}", "--duration", "1s", env=fake_nvml.environment())  # fmt: skip
    process.communicate(timeout=20)
    filed = read_lines(tmp_path / "gpu/simulated-target.jsonl")
    assert filed[0]["source"] == "simulated"
    assert "not measured on a GPU" in filed[0]["note"]
    samples = read_samples(tmp_path / "gpu/simulated-target.jsonl")
    assert samples
    assert all(line["simulated"] is True for line in samples)
    assert samples[0]["values"] == {"busy_share": 0.75, "batch.last": 12, "throttled": 1, "reasons": ["thermal"]}
    assert "busy_share" not in (tmp_path / "gpu/h.jsonl").read_text()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"not json", "not JSON"),
        (b"[" * 100_000, "more than|not JSON"),
        (b'{"source": "nvml", "busy": 1}', "source"),
        (b"[1, 2]", "source"),
        (b'{"source": "service", "devices": []}', "a real model runs there.*--prometheus"),
    ],
)
def test_not_what_it_should_be(served: Any, body: bytes, said: str) -> None:
    """An answer that is not JSON, too large, or does not say that it is simulated is refused with the reason."""
    served.answer = (200, body)
    with pytest.raises(SourceFailed, match=said):
        SimulatedDevice("t", served.url).read(0)


def test_hostile_numbers(served: Any) -> None:
    """NaN, infinities, monstrous integers, deep nesting and thousands of fields are left out or bounded."""
    deep: Any = 1
    for _ in range(50):
        deep = {"d": deep}
    told = {"source": "simulated", "deep": deep, "ok": 1} | {f"f{i}": i for i in range(1000)}
    body = json.dumps(told)[:-1] + ', "nan": NaN, "inf": 1e999, "big": ' + "9" * 400 + ', "../<b>": 5}'
    served.answer = (200, body.encode())
    values = SimulatedDevice("t", served.url).read(0)
    assert values["ok"] == 1
    assert len(values) == MAX_FIELDS
    assert not {"nan", "inf", "big"} & values.keys()
    served.answer = (200, b'{"source":"simulated","../<b>":5}')
    assert SimulatedDevice("t", served.url).read(0) == {"____b_": 5}


def test_host_moves_with_the_load() -> None:
    """CPU seconds, page faults and context switches grow by at least what this test causes, and never fall."""
    host = Host("h")
    before, own_before = host.read(0), psutil.Process().cpu_times().user
    pages = bytearray(64 << 20)
    pages[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(pages[:: os.sysconf("SC_PAGE_SIZE")])
    while psutil.Process().cpu_times().user - own_before < 0.3:
        sum(range(10_000))
    after = host.read(0)
    assert all(after[key] >= before[key] for key in before if key.endswith("_total"))
    used = [sum(sample[f"cpu_{mode}_s_total"] for mode in ("user", "nice")) for sample in (before, after)]
    assert used[1] - used[0] >= 0.2
    assert after["context_switches_total"] > before["context_switches_total"]
    assert after["memory_total_bytes"] == psutil.virtual_memory().total
    if Path("/proc/vmstat").exists():
        assert after["page_faults_total"] - before["page_faults_total"] >= len(pages) // os.sysconf("SC_PAGE_SIZE") // 512
