"""Rows of a Parquet file, batch by batch; time as a timestamp, a number with a known unit, or text. The "line" is the row's
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.header import Layout, layout_of
from shapes.traces.rows import Builder, Rows, Source, arrow_column, to_start
from shapes.traces.times import PER_UNIT_NS, TimeKind, column_ns, detect_kind, in_range

BATCH_ROWS = 50_000
SAMPLED_ROWS = 200


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows of a Parquet file; columns are found by their usual names or by ``source.columns``. Raises TraceError."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(source.path, memory_map=False) as file:
            yield from _rows(file, source, drops)
    except (pa.ArrowException, OSError) as fault:
        raise TraceError(
            f"{source.path.name}: not a whole Parquet file, or damaged: {str(fault).splitlines()[0][:120]}"
        ) from None


def _rows(file: Any, source: Source, drops: Drops) -> Iterator[Rows]:
    layout = layout_of(list(file.schema_arrow.names), source.columns, drops.file)
    ends = source.time_is == "end"
    if ends and "duration_s" not in layout.index:
        raise TraceError(f"{drops.file}: time_is: end needs a duration column; name it with columns: {{duration_s: NAME}}")
    keys = {ours: layout.names[layout.index[ours]] for ours in ["time", *source.wanted(layout.index)]}
    builder: Builder | None = None
    first = 1
    for batch in file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(keys.values())), use_threads=False):
        if batch.num_rows == 0:
            continue
        if builder is None:
            builder = Builder(_kind(batch, layout, source, drops), keys, drops, layout.duration_unit_s)
        rows = _at_once(batch, keys, builder, first) or _one_by_one(batch, keys, builder, first)
        first += batch.num_rows
        if len(rows.times_ns):
            yield to_start(rows) if ends else rows
    if builder is None:
        raise TraceError(f"{drops.file}: has no rows")


def _kind(batch: Any, layout: Layout, source: Source, drops: Drops) -> TimeKind:
    import pyarrow as pa

    name = layout.names[layout.index["time"]]
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        # A stated zone or none: Arrow's values count from the epoch, in UTC or on a wall clock that column_ns resolves as text.
        local = column.type.tz is None and source.timezone != "UTC"
        return TimeKind("iso" if local else "ns", source.timezone)
    stated = source.time_unit if source.time_unit != "auto" else layout.unit
    kind = detect_kind(column.slice(0, SAMPLED_ROWS).to_pylist(), stated, source.timezone, f"{drops.file}: {name}")
    if stated == "auto" and kind == TimeKind("s", source.timezone, "start"):
        drops.note("times taken as seconds from the start (time_unit says otherwise)")
    return kind


def _times(column: Any, kind: TimeKind) -> Any:
    """The column as text (exact for every type but floats, which hold what they hold), or as int64 ns where it is a timestamp."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and kind.unit == "ns":
        return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    if pa.types.is_integer(column.type) and kind.unit in PER_UNIT_NS:
        return column.cast(pa.int64())
    return column.cast(pa.string())


def _at_once(batch: Any, keys: dict[str, str], builder: Builder, first: int) -> Rows | None:
    import pyarrow as pa

    kind = builder.kind
    try:
        column = _times(batch.column(keys["time"]), kind)
        if column.null_count:
            return None
        if pa.types.is_integer(column.type):
            values = np.asarray(column)
            times = values * PER_UNIT_NS[kind.unit]
            if np.any(np.abs(values) > 2**62 // PER_UNIT_NS[kind.unit]) or not in_range(times, kind.clock):
                return None
        else:
            found = column_ns(column, kind)
            if found is None:
                return None
            times = found
        columns = {
            name: arrow_column(name, _plain(batch.column(keys[name]), name), builder.duration_unit_s) for name in builder.names
        }
    except pa.ArrowException:
        return None
    if any(column is None for column in columns.values()):
        return None
    told = {name: column for name, column in columns.items() if column is not None}
    return Rows(times, told, np.arange(first, first + batch.num_rows, dtype=np.int64), kind.clock)


def _plain(column: Any, name: str) -> Any:
    """Dictionary-encoded columns and the like as plain ones; text columns as text."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_list(column.type):
        raise pa.ArrowInvalid("a list goes value by value")
    whole_or_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    if whole_or_number and name in ("session", "method", "path", "name", "body", "model"):
        return column.cast(pa.string())
    return column


def _one_by_one(batch: Any, keys: dict[str, str], builder: Builder, first: int) -> Rows:
    import pyarrow as pa

    try:
        times = _times(batch.column(keys["time"]), builder.kind).to_pylist()
    except pa.ArrowException as fault:
        raise TraceError(
            f"{builder.drops.file}: {keys['time']}: no times in a column of type {batch.column(keys['time']).type}"
        ) from fault
    values = {name: batch.column(keys[name]).to_pylist() for name in builder.names}
    for at in range(batch.num_rows):
        builder.add(first + at, {"time": times[at]} | {name: column[at] for name, column in values.items()})
    return builder.build()
