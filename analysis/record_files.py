"""One worker's records as they lie on disk: raw rows while a run lasts, Parquet after it. Read in pieces that bound the memory taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.manifest_model import RunFolderError
from analysis.text import plain
from truetail.records import FIELDS, RECORD

CHUNK_ROWS, CACHED_ROWS = 500_000, 8_192


@dataclass(slots=True)
class RecordFile:
    """One worker's records. ``torn_bytes``: a last row that was not written whole (a crash), left out; ``lost_texts``: ids without a
    text, as counted when the file was made into Parquet."""

    worker: str
    path: Path
    rows: int
    torn_bytes: int = 0
    lost_texts: int = 0
    tables: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def raw(self) -> bool:
        """Fixed rows, rather than Parquet."""
        return self.path.suffix == ".rec"


def raw_chunks(file: RecordFile) -> Iterator[NDArray[np.void]]:
    """The rows of a raw file, in pieces that bound the memory taken."""
    for first in range(0, file.rows, CHUNK_ROWS):
        yield _raw_rows(file, first, min(CHUNK_ROWS, file.rows - first))


def _raw_rows(file: RecordFile, first: int, count: int) -> NDArray[np.void]:
    rows = np.fromfile(file.path, RECORD, count, offset=first * RECORD.itemsize)
    if len(rows) != count:
        raise RunFolderError(f"{file.path}: shrank while it was read")
    return rows


def columns_of(rows: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The rows turned into contiguous columns, in pieces that stay in the processor's cache (many times faster than whole columns)."""
    columns = {name: np.empty(len(rows), RECORD[name]) for name, _ in FIELDS}
    for first in range(0, len(rows), CACHED_ROWS):
        piece = rows[first : first + CACHED_ROWS]
        for name, column in columns.items():
            column[first : first + CACHED_ROWS] = piece[name]
    return columns


def parts(
    file: RecordFile, names: Sequence[str], inside: NDArray[np.intp] | None = None
) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """(first row, columns) of the pieces of a file in which one of the rows ``inside`` (rising) lies; None: all."""

    def wanted(first: int, count: int) -> bool:
        return inside is None or bool(np.diff(np.searchsorted(inside, [first, first + count]))[0])

    first = 0
    if file.raw:
        for first in range(0, file.rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, file.rows - first)
            if wanted(first, count):
                rows = _raw_rows(file, first, count)
                yield first, {name: rows[name] for name in names}
        return
    with _opened(file, names[0], None) as parquet:
        for group in range(parquet.num_row_groups):
            count = parquet.metadata.row_group(group).num_rows
            if wanted(first, count):
                table = parquet.read_row_group(group, columns=list(names), use_threads=False)
                yield first, {name: _without_nulls(file, name, table.column(name)).to_numpy() for name in names}
            first += count


@contextmanager
def _opened(file: RecordFile, name: str, dictionary: list[str] | None) -> Iterator[Any]:
    """A Parquet file; what goes wrong in it is a RunFolderError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path, read_dictionary=dictionary) as parquet:
            yield parquet
    except (OSError, pa.ArrowException, KeyError) as error:
        raise RunFolderError(f"{file.path}: column {name} cannot be read: {plain(error, 160)}") from None


def _without_nulls(file: RecordFile, name: str, column: Any) -> Any:
    if column.null_count:
        raise RunFolderError(f"{file.path}: column {name} has {column.null_count} rows without a value; allowed are none")
    return column


def text_parts(file: RecordFile, table: str) -> Iterator[tuple[dict[int, str], NDArray[Any]]]:
    """(text by id, ids) of the pieces of a string column, in the order of the rows. An id may lack its text in a raw file."""
    if file.raw:
        texts = {0: "", **file.tables.get(table, {})}
        for rows in raw_chunks(file):
            yield texts, rows[table]
        return
    with _opened(file, table, [table]) as parquet:
        for group in range(parquet.num_row_groups):
            for chunk in _without_nulls(file, table, parquet.read_row_group(group, columns=[table]).column(0)).chunks:
                own = dict(enumerate(text or "" for text in chunk.dictionary.to_pylist()))
                yield own, chunk.indices.to_numpy(zero_copy_only=False)
