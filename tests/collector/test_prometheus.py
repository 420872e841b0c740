"""Prometheus text: what servers really say is read whole; what hostile ones say costs only itself."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.journal import Journal
from collector.presets import PRESETS
from collector.prometheus import Endpoint, scrape, series_key
from collector.sampler import SourceFailed

TEXTS = Path(__file__).parent / "texts"


@pytest.mark.parametrize(
    ("name", "expected", "unwanted"),
    [
        (
            "triton",
            {
                'nv_inference_count{model="plain",version="1"}': 1200,
                'nv_inference_exec_count{model="plain",version="1"}': 150,
                'nv_inference_queue_duration_us{model="plain",version="1"}': 2_400_000,
                'nv_inference_request_failure{model="plain",reason="REJECTED",version="1"}': 48,
                'nv_inference_pending_request_count{model="plain",version="1"}': 7,
            },
            "nv_pinned_memory_pool_total_bytes",
        ),
        (
            "vllm",
            {
                'vllm:num_requests_waiting{engine="0",model_name="tiny"}': 5,
                'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}': 0.31,
                'vllm:num_preemptions_total{engine="0",model_name="tiny"}': 2,
                'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"}': 4096,
                'vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="tiny"}': 1000,
                'vllm:request_queue_time_seconds_sum{engine="0",model_name="tiny"}': 123.5,
            },
            "http_requests_total",
        ),
        (
            "tgi",
            {
                "tgi_queue_size": 3,
                'tgi_batch_inference_count{method="decode"}': 1600,
                'tgi_request_queue_duration_bucket{le="0.01"}': 400,
            },
            "none",
        ),
        (
            "dcgm",
            {
                'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname="node-1",UUID="GPU-aaaa",device="nvidia0",gpu="0",'
                'modelName="NVIDIA H100 80GB HBM3",pci_bus_id="00000000:17:00.0"}': 987654321012
            },
            "none",
        ),
    ],
)
def test_presets_read_each_server(name: str, expected: dict[str, float], unwanted: str) -> None:
    """Each server's preset keeps the series that matter under their own names, with no noise and no bad line."""
    got = scrape((TEXTS / f"{name}.txt").read_text(), PRESETS[name])
    assert expected.items() <= got.series.items()
    assert (got.bad_lines, got.duplicates, got.over) == (0, 0, 0)
    assert not [key for key in got.series if "_created" in key or "python_gc" in key or key.startswith(unwanted)]
    assert got.types


@pytest.mark.parametrize("name", ["triton", "vllm", "tgi", "dcgm"])
def test_same_values_as_the_official_parser(name: str) -> None:
    """On clean text our cutting changes nothing: every sample of the official parser's whole reading is there, same value."""
    text = (TEXTS / f"{name}.txt").read_text()
    whole = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    kept = [s for s in whole if not s.name.startswith("python_gc") and not s.name.endswith("_created")]
    got = scrape(text)
    assert len(got.series) == len(kept)
    for sample in kept:
        ours = got.series.get(series_key(sample.name, sample.labels))
        ours = got.series[series_key(sample.name.removesuffix("_total"), sample.labels)] if ours is None else ours
        assert ours == sample.value or (math.isnan(ours) and math.isnan(sample.value))


def test_hostile_lines_cost_only_themselves() -> None:
    """NaN and infinities are kept; duplicates, broken labels, words for numbers, binary rubbish are counted, the rest is read."""
    text = "\n".join(
        [
            "# TYPE good gauge", "good 1", 'good{a="x"} NaN', 'good{a="y"} +Inf', 'good{a="z"} -Inf', "good 2",
            'good{a="unclosed} 3', "good{a=unquoted} 4", 'good{a="x",a="x"} 5', "good notanumber", "good", "good 1_000",
            "\x00\x01\x02", "{} 5", "# TYPE", "# TYPE  gauge", "# TYPE bad\x00name gauge", "# HELP", "#", "=== 1",
            "# TYPE other counter", "other 7", "lonely_value 8 1700000000000", 'esc{p="a\\\\b\\"c\\nd"} 9', "huge " + "9" * 5000,
        ]
    )  # fmt: skip
    got = scrape(text)
    assert got.series["good"] == 1, "the first of two equal series counts"
    assert math.isnan(got.series['good{a="x"}'])
    assert got.series['good{a="y"}'] == math.inf
    assert got.series['good{a="z"}'] == -math.inf
    assert got.series["other"] == 7
    assert got.types["other"] == "counter"
    assert got.series["lonely_value"] == 8
    assert got.series['esc{p="a\\\\b\\"c\\nd"}'] == 9
    assert got.duplicates == 1
    assert got.bad_lines >= 8
    assert not [key for key in got.series if "unclosed" in key or "unquoted" in key]


def test_bounds_hold_and_are_fast() -> None:
    """A line of a megabyte is not parsed, series past the bound are counted, and quadratic label text ends soon."""
    long_line = 'm{a="' + "x" * 1_000_000 + '"} 1'
    quadratic = "m{" + ",".join(f'a{i}="\\\\\\\\"' for i in range(500)) + "} 1"
    text = "\n".join([long_line, quadratic, *(f'm{{i="{i}"}} {i}' for i in range(300))])
    got = scrape(text, max_series=100)
    assert len(got.series) == 100
    assert got.over >= 200
    assert got.bad_lines >= 1


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400), st.binary(max_size=200))
def test_any_text_is_survived(text: str, raw: bytes) -> None:
    """Whatever the text, reading it raises nothing and a good family after it is still read."""
    rubbish = text + raw.decode("utf-8", errors="replace")
    got = scrape(rubbish + "\n# TYPE after_it gauge\nafter_it 5\n")
    assert got.series.get("after_it") == 5 or "after_it" in rubbish


def test_endpoint_end_to_end(tmp_path: Path, served: Any, read_lines: Any) -> None:
    """A scrape of a served text files the types once and gives strict JSON even for NaN; the token travels as a header."""
    served.answer = (200, (TEXTS / "triton.txt").read_bytes())
    journal = Journal(tmp_path, "triton", {"source": "prometheus"})
    endpoint = Endpoint("triton", served.url, PRESETS["triton"], journal, token="not-for-files")
    values = endpoint.read(0)
    endpoint.read(1)
    journal.append({"values": values})
    filed = read_lines(tmp_path / "triton.jsonl")
    assert len([line for line in filed if "types" in line]) == 1
    assert filed[-1]["values"]['nv_inference_request_summary_us{model="plain",quantile="0.99",version="1"}'] == "NaN"
    assert served.requests[0]["Authorization"] == "Bearer not-for-files"
    assert "not-for-files" not in (tmp_path / "triton.jsonl").read_text()


def _flood(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    for _ in range(100):
        handler.wfile.write(b"x 1\n" * 50_000)


def _trickle(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
    for _ in range(100):
        handler.wfile.write(b"X-A: b\r\n")
        handler.wfile.flush()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, b"no"), "status 500"),
        ((302, b""), "status 302"),
        (_flood, "more than"),
        (_trickle, "no whole answer within"),
        (lambda handler: handler.wfile.write(b"\x16\x03\x01 not http\r\n\r\n"), "127.0.0.1"),
        (lambda handler: None, "127.0.0.1"),
    ],
)
def test_hostile_servers_are_bounded(tmp_path: Path, served: Any, answer: Any, said: str) -> None:
    """Errors, redirects, floods, trickles and rubbish end as one clear SourceFailed: in bounded time, with bounded size."""
    from collector.fetch import get

    served.answer = answer
    with pytest.raises(SourceFailed, match=said) as failed:
        get(served.url + "?secret=1", timeout_s=0.5)
    assert failed.value.kind == "fetch-failed"
    assert "secret" not in str(failed.value)


def test_endpoint_that_dies_and_returns(
    tmp_path: Path, served: Any, collect: Any, read_lines: Any, read_samples: Any, wait_until: Any
) -> None:
    """An endpoint that fails is one event, its return another, and samples before and after are in the file."""
    served.answer = (200, b"# TYPE hits_total counter\nhits_total 100\n")
    process = collect(
        "--out", str(tmp_path), "--gpu", "no", "--no-host", "--server-period", "100ms", "--prometheus", f"web={served.url}"
    )
    path, events = tmp_path / "server/web.jsonl", tmp_path / "server/collector_events.jsonl"

    def kinds() -> list[str]:
        return [line["kind"] for line in read_lines(events) if "kind" in line] if events.exists() else []

    wait_until(lambda: path.exists() and len(read_samples(path)) >= 3)
    served.answer = (503, b"")
    wait_until(lambda: kinds() == ["fetch-failed"])
    served.answer = (200, b"# TYPE hits_total counter\nhits_total 4\n")
    wait_until(lambda: kinds() == ["fetch-failed", "source-back"])
    process.terminate()
    process.communicate(timeout=20)
    values = [line["values"]["hits_total"] for line in read_samples(path)]
    assert values[0] == 100
    assert values[-1] == 4, "raw counters are kept; the reset is for the analysis"
