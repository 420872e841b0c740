"""Formats of which no public sample is at hand, in small files of our own; and every way to write the same trace reads the
same.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from shapes.traces.detect import detect
from shapes.traces.drops import TraceError
from shapes.traces.write import write_rows

T0 = 1715299200 * 10**9  # 2024-05-10T00:00:00Z


def test_azure_2024(samples: Path, read_whole: Callable[..., Any]) -> None:
    """Times with an offset; pandas wrote one without a fraction."""
    rows, recording = read_whole(samples / "azure_llm_2024.csv")
    assert detect(samples / "azure_llm_2024.csv") == "azure-llm"
    assert (rows.times_ns - T0).tolist() == [9_930_000, 1_000_000_000, 1_250_000_000]
    assert rows.columns["prompt_tokens"].tolist() == [2162, 2399, 76]
    assert recording.drops.lines() == []


@pytest.mark.parametrize(("name", "sessions"), [("burstgpt_6_columns.csv", None), ("burstgpt_8_columns.csv", ["", "7", "7", ""])])
def test_burstgpt_by_names_not_positions(
    name: str, sessions: list[str] | None, samples: Path, read_whole: Callable[..., Any]
) -> None:
    """Newer files have two columns put in: tokens are found all the same; failures are kept and counted."""
    rows, recording = read_whole(samples / name)
    assert detect(samples / name) == "burstgpt"
    assert rows.clock == "midnight"
    assert rows.times_ns.tolist() == [5 * 10**9, 45 * 10**9, 118_500_000_000, 118_500_000_000]
    assert rows.columns["prompt_tokens"].tolist() == [472, 1087, 417, 0]
    assert rows.columns["output_tokens"].tolist() == [18, 230, 276, 0]
    assert recording.drops.noted["failed in the trace (0 response tokens), kept"] == 1
    if sessions is not None:
        assert rows.columns["session"].tolist() == sessions
        assert rows.columns["duration_s"].tolist()[:2] == [1.5, 12.25]


def test_envoy(samples: Path, read_whole: Callable[..., Any]) -> None:
    """start_time is the arrival; lines come at requests' ends, so they are put in order; durations are ms, "-" is not told."""
    rows, _ = read_whole(samples / "envoy.json")
    assert detect(samples / "envoy.json") == "envoy-json"
    assert (rows.times_ns - T0).tolist() == [100_000_000, 200_000_000, 300_000_000]
    assert rows.columns["path"].tolist() == ["/slow", "/fast", "/gone"]
    assert rows.columns["duration_s"].tolist()[:2] == [2.5, 0.004]
    assert rows.columns["request_bytes"].tolist() == [512, 16, 0]


def test_nginx_ends_become_starts(samples: Path, read_whole: Callable[..., Any]) -> None:
    """nginx logs when a request is done and a fraction of seconds that it took: start = end - duration, in the order of
    arrival.
    """
    rows, recording = read_whole(samples / "nginx.log", order="sort")
    assert (rows.times_ns - T0).tolist() == [500_000_000, 4_750_000_000, 4_996_000_000]
    assert rows.columns["path"].tolist() == ["/slow", "/a?b=1", "/b"]
    assert any("taken as ends" in note for note in recording.drops.noted)
    as_starts, _ = read_whole(samples / "nginx.log", order="sort", time_is="start")
    assert (as_starts.times_ns - T0).tolist() == [5 * 10**9] * 2 + [10 * 10**9]


def test_apache_microseconds_are_starts(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Apache logs when a request arrived and, with %D, whole microseconds: the time stays."""
    path = tmp_path / "access.log"
    path.write_text('::1 - bob [10/May/2024:00:00:05 +0000] "POST /p HTTP/1.1" 200 12 "-" "x" 2500000\n')
    rows, _ = read_whole(path)
    assert rows.times_ns.tolist() == [T0 + 5 * 10**9]
    assert rows.columns["duration_s"].tolist() == [2.5]


def test_counts_per_minute(samples: Path, read_whole: Callable[..., Any]) -> None:
    """Sums over functions are met exactly, minute by minute; the seed decides the instants within, and says so."""
    rows, recording = read_whole(samples / "functions_per_minute.csv")
    assert detect(samples / "functions_per_minute.csv") == "counts-per-minute"
    assert np.bincount(rows.times_ns // (60 * 10**9), minlength=5).tolist() == [3, 0, 120, 1, 40]
    assert (np.diff(rows.times_ns) >= 0).all()
    assert recording.drops.noted["instants within a minute are drawn, not recorded"] == 164


def _run_folder(folder: Path) -> Path:
    (folder / "records").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    for worker in range(2):
        ks = np.arange(worker, 100, 2)[::-1]  # in the order in which requests ended
        table = {"k": ks, "part": np.zeros(50, int), "intended_ns": ks * 10_000_000, "name": [f"n{k % 3}" for k in ks],
                 "tokens_in": ks, "tokens_out": ks * 2, "request_bytes": ks + 1}  # fmt: skip
        extra = {"k": [-1, 5], "part": [0, 1], "intended_ns": [0, 7], "name": ["x", "x"], "tokens_in": [0, 0], "tokens_out": [0, 0],
                 "request_bytes": [0, 0]}  # fmt: skip
        both = pa.concat_tables([pa.table(table), pa.table(extra)])
        parquet.write_table(both, folder / "records" / f"worker-{worker}.parquet")
    return folder


def test_a_run_folder_gives_its_arrivals_over_all_workers(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Each k once, in order, at its intended instant; further parts of a task and rows of no arrival are left out."""
    folder = _run_folder(tmp_path / "run")
    rows, recording = read_whole(folder)
    assert detect(folder) == "truetail-run"
    assert rows.times_ns.tolist() == [k * 10_000_000 for k in range(100)]
    assert rows.columns["name"].tolist() == [f"n{k % 3}" for k in range(100)]
    assert rows.columns["prompt_tokens"].tolist() == [-1, *range(1, 100)]
    assert recording.drops.lost == 0


def test_a_run_folder_without_parquet_says_what_to_do(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Raw records only: the remedy is named. An empty folder: it is no run."""
    (tmp_path / "run" / "records").mkdir(parents=True)
    (tmp_path / "run" / "records" / "worker-0.rec").write_bytes(b"")
    with pytest.raises(TraceError, match="truetail report"):
        read_whole(tmp_path / "run")
    with pytest.raises(TraceError, match="run folder"):
        read_whole(tmp_path)


ROWS = [(T0 + 7, "s=1", "/a", 5), (T0 + 10**9, "", '/q"u,o\nte', -1), (T0 + 2 * 10**9, "é", "/c", 0)]


def _as_csv(path: Path, **how: Any) -> None:
    from shapes.traces.rows import Rows, as_column

    columns = {"session": as_column("session", [r[1] for r in ROWS]), "path": as_column("path", [r[2] for r in ROWS]),
               "prompt_tokens": as_column("prompt_tokens", [r[3] for r in ROWS])}  # fmt: skip
    write_rows([Rows(np.array([r[0] for r in ROWS]), columns, np.arange(3), "utc")], path)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("mangle", ["", "bom", "crlf", "gzip", "blank"])
def test_what_is_written_is_read_back(ending: str, mangle: str, tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Each of our own forms gives the same rows, also with a byte order mark, CRLF, blank lines or gzipped; quotes hold line
    ends.
    """
    path = tmp_path / f"t{ending}"
    _as_csv(path)
    data = path.read_bytes()
    if ending != ".parquet":
        multi_line = mangle == "crlf" and ending == ".csv"  # CRLF within a quoted value is that value's own affair
        data = {"": data, "bom": b"\xef\xbb\xbf" + data, "gzip": gzip.compress(data), "blank": b"\n\n" + data + b"\n \n",
                "crlf": data if multi_line else data.replace(b"\n", b"\r\n")}[mangle]  # fmt: skip
        path.write_bytes(data)
    rows, recording = read_whole(path)
    assert rows.times_ns.tolist() == [row[0] for row in ROWS]
    assert rows.columns["session"].tolist() == [row[1] for row in ROWS]
    assert rows.columns["path"].tolist() == [row[2] for row in ROWS]
    assert rows.columns["prompt_tokens"].tolist() == [row[3] for row in ROWS]
    assert recording.drops.lost == 0


def test_csv_cells_are_no_formulas(tmp_path: Path) -> None:
    """A path that a spreadsheet would run is written as text."""
    from shapes.traces.rows import Rows, as_column

    path = tmp_path / "t.csv"
    write_rows([Rows(np.array([1]), {"path": as_column("path", ["=HYPERLINK(1)"])}, np.array([1]), "start")], path)
    assert path.read_text() == "offset_ns,path\n1,'=HYPERLINK(1)\n"


@pytest.mark.parametrize(("header", "said"), [
    ("Time;Input Tokens", {}), ("arrived_at\tnum_prefill_tokens", {}), ("arrival_timestamp,prompt_size", {}), ("ts,n", {"columns": {"prompt_tokens": "N"}}),
    (" TIMESTAMP , ContextTokens ", {}), ("a,b", {"columns": {"time": "a", "prompt_tokens": "2"}}), (None, {"columns": {"time": "1", "prompt_tokens": "2"}}),
])  # fmt: skip
def test_header_variants(header: str | None, said: dict[str, Any], tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Names that other traces use, in any case, by mapping, by number, without a header; comma, semicolon and tab."""
    between = next((sign for sign in ";\t" if header and sign in header), ",")
    lines = ([header] if header else []) + [between.join(("0.5", "7")), between.join(("1.25", " 8 "))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    rows, _ = read_whole(tmp_path / "t.csv", **said)
    assert rows.times_ns.tolist() == [500_000_000, 1_250_000_000]
    assert rows.columns["prompt_tokens"].tolist() == [7, 8]


@pytest.mark.parametrize("type_", [pa.timestamp("ms"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.int64(), pa.string(),
                                   pa.float64(), pa.decimal128(25, 3)])  # fmt: skip
def test_parquet_times_of_any_type(type_: pa.DataType, tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Timestamps with and without zone, epoch numbers, ISO text."""
    ms = [T0 // 10**6 + 1, T0 // 10**6 + 2500]
    values: Any = (
        pa.array(ms, pa.timestamp("ms", "UTC")).cast(type_) if pa.types.is_timestamp(type_) and type_.tz else pa.array(ms)
    )
    if pa.types.is_timestamp(type_) and not type_.tz:
        values = pa.array(ms, pa.timestamp("ms"))
    if pa.types.is_string(type_):
        values = pa.array(["2024-05-10T00:00:00.001Z", "2024-05-10T00:00:02.500Z"])
    elif pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        values = pa.array(ms).cast(type_)
    parquet.write_table(pa.table({"time": values, "tokens_in": [1, None]}), tmp_path / "t.parquet")
    rows, _ = read_whole(tmp_path / "t.parquet")
    assert (rows.times_ns - T0).tolist() == [10**6, 2_500_000_000]
    assert rows.columns["prompt_tokens"].tolist() == [1, -1]


def test_the_fast_way_and_the_careful_way_agree(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """A regular file and the same with one odd (but right) row per block: the same rows from Arrow and from the record reader."""
    lines = [f"2024-05-10T00:{i // 3600:02d}:{i // 60 % 60:02d}.{i:06d}Z,{i},/p{i}" for i in range(3000)]
    (tmp_path / "fast.csv").write_text("time,prompt_tokens,path\n" + "\n".join(lines) + "\n")
    odd = [*lines]
    odd[1500] = odd[1500].replace(",1500,", ", 1500 ,")
    (tmp_path / "odd.csv").write_text("time,prompt_tokens,path\n" + "\n".join(odd) + "\n")
    fast, _ = read_whole(tmp_path / "fast.csv", reorder_window_s=4000.0)
    careful, _ = read_whole(tmp_path / "odd.csv", reorder_window_s=4000.0)
    assert np.array_equal(fast.times_ns, careful.times_ns)
    assert np.array_equal(fast.lines, careful.lines)
    for name, column in fast.columns.items():
        assert column.tolist() == careful.columns[name].tolist()


def test_bodies_and_hash_ids_reach_the_columns(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """A JSON body and prefix hashes come through as JSON text, sessions as text."""
    line = {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2], "session_id": 9, "body": {"x": [1, 2.50]}}
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    rows, _ = read_whole(tmp_path / "t.jsonl")
    assert {name: column.tolist()[0] for name, column in rows.columns.items()} == {
        "prompt_tokens": 5, "output_tokens": 1, "hash_ids": "[1,2]", "session": "9", "body": '{"x":[1,2.5]}',
    }  # fmt: skip
