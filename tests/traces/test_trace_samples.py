"""Every public sample is read, inspected and replayed; counts, spans, rates and dispersion agree with tools that are not ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from shapes.schedule import Schedule
from shapes.traces.detect import detect
from shapes.traces.drops import Drops
from shapes.traces.inspect import inspected
from shapes.traces.recording import Recording
from shapes.traces.rows import Source
from shapes.traces.servegen import parsed
from shapes.traces.spec import parse_spec

RECORDED = {
    "azure_llm_2023_code.csv": "azure-llm",
    "azure_llm_2023_conv.csv": "azure-llm",
    "mooncake_conversation.jsonl": "mooncake",
    "mooncake_conversation_nohash_head4000.jsonl": "mooncake",
    "mooncake_synthetic.jsonl": "mooncake",
    "apache_combined.log": "access-log",
}
SQL = {
    "azure-llm": "SELECT epoch_ns(TIMESTAMP::TIMESTAMP_NS) FROM read_csv(?, header=true, all_varchar=true)",
    "mooncake": "SELECT timestamp * 1000000 FROM read_json(?, format='newline_delimited')",
    "access-log": "SELECT epoch_ns(strptime(regexp_extract(line, '\\[([^\\]]+)\\]', 1), '%d/%b/%Y:%H:%M:%S %z')) FROM "
    "read_csv(?, delim=chr(1), header=false, quote='', escape='', columns={'line': 'VARCHAR'})",
}


def by_duckdb(path: Path) -> np.ndarray[Any, Any]:
    """All times of a sample as sorted ns, read and parsed by DuckDB."""
    rows = duckdb.sql(SQL[RECORDED[path.name]], params=[str(path)]).fetchall()
    return np.sort(np.array([row[0] for row in rows], np.int64))


def dispersion_by_duckdb(times: np.ndarray[Any, Any], width_s: int) -> float:
    """Variance over mean of the counts in the whole bins of the span, empty ones too, in SQL."""
    given = {"t": times - times[0]}  # noqa: F841 - DuckDB finds it by its name
    width_ns, bins = width_s * 10**9, int(times[-1] - times[0]) // (width_s * 10**9)
    return float(
        duckdb.sql(
            f"SELECT var_samp(n) / avg(n) FROM (SELECT b, count(t) AS n FROM range({bins}) AS bins(b) "
            f"LEFT JOIN given ON t // {width_ns} = b GROUP BY b)"
        ).fetchall()[0][0]
    )


@pytest.mark.parametrize("name", RECORDED)
def test_times_are_those_that_duckdb_reads(name: str, public: Path, read_whole: Callable[..., Any]) -> None:
    """Format detected; every time to the nanosecond, none missing or doubled, nothing dropped."""
    path = public / name
    assert detect(path) == RECORDED[name]
    rows, recording = read_whole(path, order="sort")
    assert recording.drops.lost == 0
    assert np.array_equal(rows.times_ns, by_duckdb(path))


@pytest.mark.parametrize("name", RECORDED)
def test_the_reorder_window_is_enough_for_the_samples(name: str, public: Path, read_whole: Callable[..., Any]) -> None:
    """The bounded window gives the same rows as the sort on disk, carried values included (the Apache log is half out of
    order).
    """
    windowed, _ = read_whole(public / name)
    by_sort, _ = read_whole(public / name, order="sort")
    assert np.array_equal(windowed.times_ns, by_sort.times_ns)
    for column, values in windowed.columns.items():
        np.testing.assert_array_equal(values, by_sort.columns[column])


@pytest.mark.parametrize(("name", "program"), [
    ("azure_llm_2023_code.csv", 'BEGIN{FS=","} NR>1 {n++; p+=$2; g+=$3} END{printf "%d %d %d", n, p, g}'),
    ("azure_llm_2023_conv.csv", 'BEGIN{FS=","} NR>1 {n++; p+=$2; g+=$3} END{printf "%d %d %d", n, p, g}'),
    ("mooncake_conversation_nohash_head4000.jsonl", 'BEGIN{FS="[:,}]"} {n++; p+=$4; g+=$6} END{printf "%d %d %d", n, p, g}'),
    ("mooncake_conversation.jsonl", 'BEGIN{FS="[:,}]"} {n++; p+=$4; g+=$6} END{printf "%d %d %d", n, p, g}'),
    ("mooncake_synthetic.jsonl", 'BEGIN{FS="[:,}]"} {n++; p+=$4; g+=$6} END{printf "%d %d %d", n, p, g}'),
])  # fmt: skip
def test_rows_and_tokens_add_up_as_awk_says(name: str, program: str, public: Path, read_whole: Callable[..., Any]) -> None:
    """Rows, prompt tokens and output tokens by awk."""
    said = subprocess.run(["awk", program, str(public / name)], capture_output=True, text=True, check=True).stdout
    rows, _ = read_whole(public / name)
    columns = rows.columns
    assert said == f"{len(rows.times_ns)} {columns['prompt_tokens'].sum()} {columns['output_tokens'].sum()}"


def test_the_apache_log_adds_up_as_awk_says(public: Path, read_whole: Callable[..., Any]) -> None:
    """Rows, bytes and 200s of the combined log by awk's fields."""
    program = '{n++; if ($10 != "-") b += $10; if ($9 == 200) ok++} END{printf "%d %.0f %d", n, b, ok}'
    path = str(public / "apache_combined.log")
    said = subprocess.run(["awk", program, path], capture_output=True, text=True, check=True).stdout
    rows, _ = read_whole(public / "apache_combined.log")
    sent = rows.columns["response_bytes"]
    assert said == f"{len(sent)} {sent[sent >= 0].sum()} {(rows.columns['status'] == 200).sum()}"


@pytest.mark.parametrize("name", RECORDED)
def test_figures_agree_with_another_computation(name: str, public: Path) -> None:
    """Span, rate, CV of gaps and dispersion at 1, 10 and 60 s by numpy and DuckDB (samples are cut, so not the papers'
    figures).
    """
    recording = Recording(parse_spec({"file": str(public / name)}, seed=1))
    figures = inspected(recording.rows(), recording.origin_ns).to_json()
    seconds = by_duckdb(public / name).astype(np.float64) / 1e9
    seconds -= seconds[0]
    gaps = np.diff(by_duckdb(public / name)) / 1e9
    assert figures["arrivals"] == len(seconds)
    assert figures["span_s"] == pytest.approx(seconds[-1], rel=1e-9)
    assert figures["rate_rps"] == pytest.approx((len(seconds) - 1) / seconds[-1], rel=1e-9)
    assert figures["gap_cv"] == pytest.approx(gaps.std() / gaps.mean(), rel=1e-6)
    for width in (1, 10, 60):
        if figures["idc"][f"{width}s"] is not None:
            assert figures["idc"][f"{width}s"] == pytest.approx(dispersion_by_duckdb(by_duckdb(public / name), width), rel=1e-6)
    assert figures["longest_gaps"][0]["length_s"] == pytest.approx(gaps.max(), rel=1e-9)
    assert figures["equal_times_share"] == pytest.approx((gaps == 0).mean())


@pytest.mark.parametrize(("name", "idc_1s"), [("azure_llm_2023_code.csv", 13.2), ("azure_llm_2023_conv.csv", 1.39),
                                              ("mooncake_conversation_nohash_head4000.jsonl", 7.9), ("mooncake_synthetic.jsonl", 1.09)])  # fmt: skip
def test_dispersion_is_near_the_whole_trace_s(name: str, idc_1s: float, public: Path) -> None:
    """The samples' dispersion per second lies within 20 % of the figure measured for the whole traces (real-parts, section D)."""
    recording = Recording(parse_spec({"file": str(public / name)}, seed=1))
    figures = inspected(recording.rows(), recording.origin_ns).to_json()
    assert figures["idc"]["1s"] == pytest.approx(idc_1s, rel=0.2)


def test_the_apache_sample_has_every_row_in_minute_5(public: Path) -> None:
    """What is known of that log is found: every row at minute :05, no burst on the hour, seconds for resolution."""
    recording = Recording(parse_spec({"file": str(public / "apache_combined.log")}, seed=1))
    inspection = inspected(recording.rows(), recording.origin_ns)
    hour = inspection.on_the_hour()
    assert hour is not None
    assert (hour["busiest_minute"], hour["busiest_share"], hour["burst"]) == (5, 1.0, False)
    assert inspection.to_json()["resolution_s"] == 1.0


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_exact_replay_is_the_trace(name: str, speed: float, public: Path) -> None:
    """Every timestamp once, counted from the first, divided by the speed to the nearest ns."""
    schedule = Schedule({"trace": {"file": str(public / name), "mode": "exact", "speed": speed}}, 1e6, seed=3)
    planned = np.concatenate([block.offsets_ns for block in schedule.blocks()])
    times = by_duckdb(public / name)
    expected = times - times[0]
    assert np.array_equal(planned, expected if speed == 1 else np.rint(expected / speed).astype(np.int64))


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("mode", ["poisson", "fixed", "model"])
def test_fitted_replays_have_the_trace_s_throughput(name: str, mode: str, public: Path) -> None:
    """The expected count is the trace's count; the drawn one lies within 5 standard deviations of it (alpha about 1e-6)."""
    path = public / name
    n = len(by_duckdb(path))
    schedule = Schedule({"trace": {"file": str(path), "mode": mode}}, 1e6, seed=3)
    assert schedule.expected_count == pytest.approx(n, rel=1e-9)
    cv = {"poisson": 1.0, "fixed": 0.0}.get(mode) or (schedule._source.fit.cv if mode == "model" else 0.0)  # type: ignore[attr-defined]
    assert abs(schedule.count() - n) <= 5 * cv * n**0.5 + 1


def test_servegen_is_realised_at_its_windows_rates(public: Path, read_whole: Callable[..., Any]) -> None:
    """Counts per window are rate times width within 5 standard deviations of a renewal process with the file's CV; awk finds
    the windows.
    """
    path = public / "servegen_m-large_chunk-24-trace.csv"
    said = subprocess.run(["awk", "-F,", "$2>0 {print $1, $2, $3}", str(path)], capture_output=True, text=True, check=True).stdout
    windows = [tuple(float(part) for part in line.split()) for line in said.splitlines()]
    assert len(windows) == sum(window.rate_rps > 0 for window in parsed(Source(path), Drops("x"))) > 0
    rows, _ = read_whole(path)
    for start_s, rate_rps, cv in windows:
        inside = rows.times_ns[(rows.times_ns >= start_s * 1e9) & (rows.times_ns < (start_s + 600) * 1e9)] / 1e9
        assert abs(len(inside) - rate_rps * 600) < 5 * cv * (rate_rps * 600) ** 0.5
        if len(inside) > 5000:
            gaps = np.diff(inside)
            assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert len(rows.times_ns) == sum(
        ((rows.times_ns >= s * 1e9) & (rows.times_ns < (s + 600) * 1e9)).sum() for s, _, _ in windows
    )
