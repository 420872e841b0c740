"""Which format a trace is in, by its content, and the rows of it by the reader of that format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from shapes.traces import (
    access_log,
    azure_llm,
    burstgpt,
    counts_per_minute,
    csv_reader,
    envoy_json,
    jsonl_reader,
    mooncake,
    parquet_reader,
    run_records,
    servegen,
)
from shapes.traces.drops import Drops, TraceError, quoted
from shapes.traces.header import bare, delimiter_of, split
from shapes.traces.line_blocks import head
from shapes.traces.rows import Rows, Source

READERS: Mapping[str, Callable[[Source, Drops], Iterator[Rows]]] = {
    "csv": csv_reader.read,
    "jsonl": jsonl_reader.read,
    "parquet": parquet_reader.read,
    "azure-llm": azure_llm.read,
    "burstgpt": burstgpt.read,
    "mooncake": mooncake.read,
    "access-log": access_log.read,
    "envoy-json": envoy_json.read,
    "truetail-run": run_records.read,
    "counts-per-minute": counts_per_minute.read,
    "servegen": servegen.read,
}

_LINES_LOOKED_AT = 20
_SERVEGEN = re.compile(r"[0-9.]+,[0-9.eE+-]+,[0-9.eE+-]+,(Gamma|Weibull)?,[0-9.eE+-]+,[0-9.eE+-]+\s*")


def detect(path: Path) -> str:
    """The name of the format of ``path``: a key of READERS. Raises TraceError when it is unreadable, empty or none of them."""
    if path.is_dir():
        if (path / "run.json").exists() or (path / "records").is_dir():
            return "truetail-run"
        raise TraceError(f"{path}: is a folder without run.json; allowed are a run folder or a file")
    data = head(path)
    if data.startswith(b"PAR1"):
        return "parquet"
    lines = [line.strip() for line in data.decode("utf-8", "replace").lstrip("\ufeff").splitlines() if line.strip()][
        :_LINES_LOOKED_AT
    ]
    if not lines:
        raise TraceError(f"{path.name}: is empty")
    if lines[0] == "[" or lines[0].startswith("[{"):
        raise TraceError(f"{path.name}: is one JSON array; allowed is one object a line (`jq -c '.[]'` makes that of it)")
    if any(line.startswith("{") for line in lines[:3]):
        return _json_format(lines)
    if any(access_log.LINE.fullmatch(line) for line in lines):
        return "access-log"
    return _delimited_format(lines[0])


def _json_format(lines: list[str]) -> str:
    for line in lines:
        try:
            keys = set(jsonl_reader.parse_object(line))
        except ValueError:
            continue
        if {"timestamp", "input_length", "output_length"} <= keys:
            return "mooncake"
        if {"start_time", "duration"} <= keys and keys & {"response_code", "response_flags", "bytes_received", "upstream_host"}:
            return "envoy-json"
        return "jsonl"
    return "jsonl"


def _delimited_format(first: str) -> str:
    fields = split(first, delimiter_of(first)) or []
    names = {bare(field) for field in fields}
    if {"timestamp", "contexttokens", "generatedtokens"} <= names:
        return "azure-llm"
    if {"timestamp", "model", "requesttokens", "responsetokens"} <= names:
        return "burstgpt"
    if counts_per_minute.is_header(fields):
        return "counts-per-minute"
    return "servegen" if _SERVEGEN.fullmatch(first) else "csv"


def resolve_format(path: Path, name: str) -> str:
    """``name``, or the detected one for "auto". Raises TraceError for a name that no reader has."""
    if name == "auto":
        return detect(path)
    if name not in READERS:
        raise TraceError(f"{path}: format {quoted(name)} is not one of auto, {', '.join(READERS)}")
    if path.is_dir() != (name == "truetail-run"):
        raise TraceError(f"{path}: format {name} needs a {'folder' if name == 'truetail-run' else 'file'}")
    return name


def open_rows(source: Source, name: str, drops: Drops) -> Iterator[Rows]:
    """The rows of a trace in the order of its file. Raises TraceError, here or while reading."""
    if not source.path.exists():
        raise TraceError(f"{source.path}: there is no such file")
    resolved = resolve_format(source.path, name)
    if source.time_is == "end" and resolved in ("counts-per-minute", "servegen", "truetail-run"):
        raise TraceError(f"{source.path}: time_is: end does not fit the format {resolved}, which has no durations")
    yield from READERS[resolved](source, drops)
