"""Rows written as a trace of our own: CSV, JSONL or Parquet, the same columns in each, read back by the plain readers.

Time is ``time`` (ISO 8601 with nine digits, UTC) where the trace knows the wall clock, else ``offset_ns`` from its start.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from shapes.traces.drops import TraceError, quoted
from shapes.traces.rows import NOT_TOLD, NUMBERS, WHOLE_NUMBERS, Rows
from shapes.traces.times import iso_utc

# A cell that starts so is a formula to a spreadsheet; a leading apostrophe makes it text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(blocks: Iterable[Rows], path: Path) -> int:
    """Write rows to ``path``, whose ending names the format; returns how many. The file appears whole or not at all.

    Raises TraceError for an ending that is none of .csv, .jsonl and .parquet, for no rows, and when the file cannot be written.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise TraceError(f"{path}: found ending {quoted(path.suffix)}; allowed are {', '.join(WRITERS)}")
    partial = path.with_name(path.name + ".partial")
    try:
        count = writer(blocks, partial)
        if count:
            partial.replace(path)
    except OSError as fault:
        raise TraceError(f"{path}: cannot be written: {fault.strerror or fault}") from None
    finally:
        partial.unlink(missing_ok=True)
    if not count:
        raise TraceError(f"{path}: nothing to write, the trace has no arrivals")
    return count


def _times(rows: Rows) -> tuple[str, list[Any]]:
    times = rows.times_ns.tolist()
    return ("time", [iso_utc(time) for time in times]) if rows.clock == "utc" else ("offset_ns", times)


def _told(name: str, value: Any) -> Any:
    """A value as JSON or CSV has it; None where the trace does not tell."""
    if name in WHOLE_NUMBERS:
        return None if value == NOT_TOLD else value
    if name in NUMBERS:
        return None if value != value else value
    return value or None


def _write_csv(blocks: Iterable[Rows], path: Path) -> int:
    count, names = 0, []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for rows in blocks:
            time_name, times = _times(rows)
            if not count:
                names = list(rows.columns)
                writer.writerow([time_name, *names])
            columns = [_cells(name, rows.columns[name].tolist()) for name in names]
            writer.writerows(zip(times, *columns, strict=True))
            count += len(times)
    return count


def _cells(name: str, values: list[Any]) -> list[Any]:
    cells = ["" if (told := _told(name, value)) is None else told for value in values]
    return cells if name in WHOLE_NUMBERS or name in NUMBERS else [guarded(cell) for cell in cells]


def guarded(cell: str) -> str:
    """Text from a trace that no spreadsheet takes for a formula."""
    return "'" + cell if cell.startswith(_FORMULA) else cell


def _write_jsonl(blocks: Iterable[Rows], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for rows in blocks:
            time_name, times = _times(rows)
            columns = {name: column.tolist() for name, column in rows.columns.items()}
            for at, time in enumerate(times):
                values = {name: told for name, column in columns.items() if (told := _told(name, column[at])) is not None}
                _write_line(file, {time_name: time} | values)
            count += len(times)
    return count


def _write_line(file: IO[str], values: Mapping[str, Any]) -> None:
    file.write(json.dumps(values, separators=(",", ":"), allow_nan=False) + "\n")


def _write_parquet(blocks: Iterable[Rows], path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    count, writer = 0, None
    try:
        for rows in blocks:
            time = pa.array(rows.times_ns, pa.timestamp("ns", "UTC")) if rows.clock == "utc" else pa.array(rows.times_ns)
            arrays = {"time" if rows.clock == "utc" else "offset_ns": time}
            for name, column in rows.columns.items():
                whole, number = name in WHOLE_NUMBERS, name in NUMBERS
                kind = pa.int64() if whole else pa.float64() if number else pa.string()
                arrays[name] = pa.array([_told(name, value) for value in column.tolist()], kind)
            table = pa.table(arrays)
            writer = writer or parquet.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            count += len(rows.times_ns)
    finally:
        if writer is not None:
            writer.close()
    return count


WRITERS: Mapping[str, Callable[[Iterable[Rows], Path], int]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
