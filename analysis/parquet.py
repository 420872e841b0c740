"""Raw rows to Parquet after the run: the same columns, strings in place of ids; verified before the raw file may go.

Crash-safe raw rows are what a run needs; typed, compressed columns are what everyone's tools read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analysis.manifest_model import RunFolderError
from analysis.record_files import RecordFile, columns_of, raw_chunks
from analysis.text import plain
from truetail.records import FIELDS, RECORD, TABLES

TORN, LOST = b"truetail.torn_bytes", b"truetail.lost_texts"
"""What is known of the raw file and would go with it, in the Parquet file's metadata."""
LOST_PLACE = 1
DELTA = ("k", "intended_ns", "sent_ns", "done_ns")
"""Nearly sorted columns, which delta encoding shrinks fourfold."""


def schema() -> pa.Schema:
    """Columns and types of ``records/<worker>.parquet``."""
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, text if name in TABLES else pa.from_numpy_dtype(RECORD[name])) for name, _ in FIELDS]
    return pa.schema(fields)


def convert(file: RecordFile) -> RecordFile:
    """Write a raw file's rows as Parquet beside it, read them back, compare every value. The raw file stays.

    Raises RunFolderError when what was read back differs; OSError when it cannot be written.
    """
    target = file.path.with_suffix(".parquet")
    scratch = target.with_suffix(".parquet.part")
    shape = schema()
    delta = dict.fromkeys(DELTA, "DELTA_BINARY_PACKED")
    lost = 0
    dictionaries = {table: _dictionary(file.tables.get(table, {})) for table in TABLES}
    try:
        with pq.ParquetWriter(
            scratch, shape, compression="zstd", compression_level=1, use_dictionary=list(TABLES), column_encoding=delta
        ) as writer:
            for rows in raw_chunks(file):
                writer.write_batch(_batch(rows, dictionaries, shape), row_group_size=len(rows))
                lost += sum(int((dictionaries[table][0][rows[table]] == LOST_PLACE).sum()) for table in TABLES)
            writer.add_key_value_metadata({TORN: str(file.torn_bytes), LOST: str(lost)})
        _verify(file, scratch, dictionaries)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return RecordFile(file.worker, target, file.rows, file.torn_bytes, lost)


def convert_all(files: list[RecordFile]) -> list[RecordFile]:
    """Every raw file that has rows converted, two at a time (Arrow and numpy work outside the interpreter's lock); the others as they are."""
    with ThreadPoolExecutor(2) as pool:
        converted = list(pool.map(lambda file: convert(file) if file.raw and file.rows else file, files))
    pa.default_memory_pool().release_unused()
    return converted


def parquet_rows(path: Path) -> tuple[int, int, int]:
    """(rows, torn bytes of the raw file it was made from, lost texts). Raises RunFolderError for a file that is not ours, or not whole."""
    try:
        with pq.ParquetFile(path) as parquet:
            found, rows, told = parquet.schema_arrow, parquet.metadata.num_rows, parquet.metadata.metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise RunFolderError(f"records/{path.name}: not a Parquet file that can be read: {plain(error, 160)}") from None
    for name, _ in FIELDS:
        wanted = pa.string() if name in TABLES else pa.from_numpy_dtype(RECORD[name])
        kind = found.field(name).type if name in found.names else None
        kind = kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind
        if kind != wanted:
            raise RunFolderError(f"records/{path.name}: column {name}: found {kind}; allowed is {wanted}")
    torn, lost = (int(value) if (value := told.get(key, b"0")).isdigit() and len(value) < 16 else 0 for key in (TORN, LOST))
    return rows, torn, lost


def _dictionary(texts: dict[int, str]) -> tuple[NDArray[np.int32], pa.Array]:
    """(position of each id in the dictionary, the dictionary). An id without a text points to a text that says so."""
    lost = "(its text is lost)"
    distinct = list(dict.fromkeys(["", lost, *texts.values()]))  # LOST_PLACE is where ``lost`` stands
    place = {text: i for i, text in enumerate(distinct)}
    positions = np.full(1 << 16, LOST_PLACE, np.int32)
    positions[0] = 0
    for number, text in texts.items():
        positions[number] = place[text]
    return positions, pa.array(distinct, pa.string())


def _column(rows: dict[str, NDArray[Any]], name: str, dictionaries: dict[str, tuple[NDArray[np.int32], pa.Array]]) -> Any:
    if name not in TABLES:
        return pa.array(rows[name])
    positions, dictionary = dictionaries[name]
    return pa.DictionaryArray.from_arrays(pa.array(positions[rows[name]]), dictionary)


def _batch(
    rows: NDArray[np.void], dictionaries: dict[str, tuple[NDArray[np.int32], pa.Array]], shape: pa.Schema
) -> pa.RecordBatch:
    columns = columns_of(rows)
    return pa.RecordBatch.from_arrays([_column(columns, name, dictionaries) for name, _ in FIELDS], schema=shape)


def _verify(file: RecordFile, written: Path, dictionaries: dict[str, tuple[NDArray[np.int32], pa.Array]]) -> None:
    """Compare every value with the raw rows (bit for bit: a NaN equals itself)."""
    with pq.ParquetFile(written, read_dictionary=list(TABLES)) as parquet:
        if parquet.metadata.num_rows != file.rows:
            raise RunFolderError(f"{written}: {parquet.metadata.num_rows} rows came back of {file.rows}; the raw file is kept")
        for group, rows in enumerate(raw_chunks(file)):
            table, columns = parquet.read_row_group(group), columns_of(rows)
            for name, _ in FIELDS:
                if not _same(table.column(name), columns[name], dictionaries.get(name)):
                    raise RunFolderError(f"{written}: column {name} came back changed; the raw file is kept")


def _same(column: Any, raw: NDArray[Any], dictionary: tuple[NDArray[np.int32], pa.Array] | None) -> bool:
    if dictionary is None:
        back, given = column.to_numpy(), raw
        return back.dtype == given.dtype and np.array_equal(back.view(f"u{back.itemsize}"), given.view(f"u{given.itemsize}"))
    positions, texts = dictionary
    place_of, at = {text: i for i, text in enumerate(texts.to_pylist())}, 0
    for chunk in column.chunks:
        own = chunk.dictionary.to_pylist()
        place = np.array([place_of.get(text, -1) for text in own] or [0], np.int32)
        indices = chunk.indices.to_numpy(zero_copy_only=False)
        if not np.array_equal(place[indices], positions[raw[at : at + len(indices)]]):
            return False
        at += len(indices)
    return at == len(raw)
