"""A whole trace sorted by time in bounded memory: rows go to temporary Parquet, DuckDB sorts them on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.rows import NUMBERS, WHOLE_NUMBERS, Column, Rows

BATCH_ROWS = 50_000
MEMORY_LIMIT = "96MB"


def sorted_rows(blocks: Iterable[Rows], drops: Drops) -> Iterator[Rows]:
    """The rows by time, equal times in the file's order. Uses disk under the system's temporary folder, removed at the end.

    Raises TraceError when the disk is full or cannot be written.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="truetail-sort-") as folder:
        try:
            written = _written(blocks, Path(folder))
            if not written:
                return
            config: dict[str, str | bool | int | float | list[str]] = {
                "memory_limit": MEMORY_LIMIT,
                "threads": 1,
                "temp_directory": folder,
                "preserve_insertion_order": False,
            }
            with duckdb.connect(config=config) as database:
                database.execute("SET enable_progress_bar = false")  # it would be printed among our output
                yield from _sorted(database, Path(folder), written, drops)
        except (duckdb.Error, OSError) as fault:
            raise TraceError(
                f"{drops.file}: cannot be sorted under {Path(folder).parent}: {str(fault).splitlines()[0][:160]}"
            ) from None


def _written(blocks: Iterable[Rows], folder: Path) -> str:
    """Write every block to a Parquet part; returns the clock of the rows, "" when there are none."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    clock = ""
    for number, rows in enumerate(blocks):
        clock = rows.clock
        arrays = {"_time": rows.times_ns, "_line": rows.lines} | {
            name: column if column.dtype != object else pa.array(column.tolist(), pa.string())
            for name, column in rows.columns.items()
        }
        parquet.write_table(pa.table(arrays), folder / f"{number:06d}.parquet", compression="lz4")
    return clock


def _sorted(database: Any, folder: Path, clock: str, drops: Drops) -> Iterator[Rows]:
    query = "SELECT * FROM read_parquet(?, union_by_name=true) ORDER BY _time, _line"
    relation = database.sql(query, params=[str(folder / "*.parquet")])
    batches = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch  # the name before DuckDB 1.4
    reader = batches(BATCH_ROWS)
    for batch in reader:
        columns = {name: _column(name, batch.column(name)) for name in batch.schema.names if name not in ("_time", "_line")}
        drops.kept += batch.num_rows
        yield Rows(np.asarray(batch.column("_time")), columns, np.asarray(batch.column("_line")), clock)


def _column(name: str, column: Any) -> Column:
    if name in WHOLE_NUMBERS:
        return np.asarray(column.fill_null(-1))
    if name in NUMBERS:
        return np.asarray(column.fill_null(float("nan")))
    texts: Column = np.array(column.fill_null("").to_pylist(), object)
    return texts
