"""Servers that we did not write, when the tester runs one and says where: ``TRUETAIL_REAL_TRITON=http://127.0.0.1:8002/metrics``."""

from __future__ import annotations

import os

import pytest

from collector.fetch import get
from collector.presets import PRESETS
from collector.prometheus import scrape

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("preset", "families"),
    [
        ("triton", {"nv_inference_request_success", "nv_inference_queue_duration_us", "nv_inference_exec_count"}),
        ("vllm", {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:request_queue_time_seconds"}),
        ("tgi", {"tgi_queue_size", "tgi_request_queue_duration"}),
        ("sglang", {"sglang:num_queue_reqs"}),
        ("dcgm", {"DCGM_FI_DEV_SM_CLOCK"}),
    ],
)
def test_the_preset_finds_its_families(preset: str, families: set[str]) -> None:
    """The preset's families are in what the real server exposes, and no line of it is refused."""
    url = os.environ.get(f"TRUETAIL_REAL_{preset.upper()}")
    if not url:
        pytest.skip(f"no {preset} here: TRUETAIL_REAL_{preset.upper()} is not set to its metrics address")
    got = scrape(get(url).decode("utf-8", errors="replace"), PRESETS[preset])
    assert families <= got.types.keys()
    assert got.bad_lines == 0
