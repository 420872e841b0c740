"""The records of all workers as columns, whichever way they lie on disk (raw rows, or Parquet after the run).

A column is read when it is asked for and is a plain numpy array over the rows of all workers, in the order of the files; strings
are int32 ids into ``Records.texts(name)``. So a report of 10^7 records touches only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.manifest_model import RunFolderError
from analysis.text import plain
from truetail.records import FIELDS, FLAG_WARMUP, OUTCOMES, RECORD, TABLES

CHUNK_ROWS, CACHED_ROWS = 500_000, 8_192
TIMES = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "done_ns")
FARTHEST_NS = 1 << 60
"""36 years: no instant of a run lies farther from its epoch. Keeps differences inside 64 bits whatever a file says."""
KEPT = ("intended_ns", "sent_ns", "done_ns", "outcome", "flags", "part", "worker", "name", "replica", "error")
"""Columns that are asked for again and again; the others are read anew each time."""


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
        count = min(CHUNK_ROWS, file.rows - first)
        rows = np.fromfile(file.path, RECORD, count, offset=first * RECORD.itemsize)
        if len(rows) != count:
            raise RunFolderError(f"{file.path}: shrank while it was read")
        yield rows


def columns_of(rows: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    """The rows turned into contiguous columns, in pieces that stay in the processor's cache (many times faster than whole columns)."""
    columns = {name: np.empty(len(rows), RECORD[name]) for name, _ in FIELDS}
    for first in range(0, len(rows), CACHED_ROWS):
        piece = rows[first : first + CACHED_ROWS]
        for name, column in columns.items():
            column[first : first + CACHED_ROWS] = piece[name]
    return columns


class Records:
    """Columns over the rows of ``files``; ``records["done_ns"]``. Rows whose outcome does not exist are left out and counted."""

    def __init__(self, files: list[RecordFile]) -> None:
        self.files = files
        self._texts: dict[str, list[str]] = {table: [""] for table in TABLES}
        self._ids: dict[str, dict[str, int]] = {table: {"": 0} for table in TABLES}
        self._kept: dict[str, NDArray[Any]] = {}
        self._good: NDArray[np.bool_] | None = None
        self._lost_texts = sum(file.lost_texts for file in files)
        outcome = self._load("outcome")
        good = outcome < len(OUTCOMES)
        self.damaged_rows = int(len(good) - good.sum())
        if self.damaged_rows:
            self._good = good
            outcome = outcome[good]
        self._kept["outcome"] = outcome
        self._length = len(outcome)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> NDArray[Any]:
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        column = self._load(name)
        if self._good is not None:
            column = column[self._good]
        if column.dtype == np.int32 and int(column.max(initial=0)) < 1 << 16:
            column = column.astype(np.uint16)
        if name in KEPT:
            self._kept[name] = column
        return column

    def texts(self, table: str) -> list[str]:
        """The texts that the ids of a string column stand for."""
        _ = self[table]  # a text gets its id when the column is read
        return self._texts[table]

    @property
    def lost_texts(self) -> int:
        """How many names, replicas and errors of rows are ids whose text is lost."""
        for table in TABLES:
            _ = self[table]
        return self._lost_texts

    @property
    def workers(self) -> list[str]:
        """Names of the workers, as the column ``worker`` numbers them."""
        return [file.worker for file in self.files]

    @cached_property
    def numbered(self) -> NDArray[np.bool_]:
        """Rows that belong to an arrival of the schedule."""
        mask: NDArray[np.bool_] = self["k"] >= 0
        return mask

    @cached_property
    def arrivals(self) -> NDArray[np.bool_]:
        """Rows that are an arrival's first request: what the ledger counts."""
        mask: NDArray[np.bool_] = self.numbered & (self["part"] == 0)
        return mask

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Rows of the schedule after the warm-up, further requests of a task included."""
        mask: NDArray[np.bool_] = self.numbered & (self["flags"] & FLAG_WARMUP == 0)
        return mask

    def _load(self, name: str) -> NDArray[Any]:
        if name == "worker":
            return np.repeat(np.arange(len(self.files), dtype=np.int32), [file.rows for file in self.files])
        pieces: list[NDArray[Any]] = []
        for file in self.files:
            pieces += self._raw(file, name) if file.raw else [self._parquet(file, name)]
        column: NDArray[Any] = np.concatenate(pieces) if pieces else np.empty(0, np.int32 if name in TABLES else RECORD[name])
        return np.clip(column, -FARTHEST_NS, FARTHEST_NS, out=column) if name in TIMES else column

    def _raw(self, file: RecordFile, name: str) -> list[NDArray[Any]]:
        columns = [np.ascontiguousarray(rows[name]) for rows in raw_chunks(file)]
        if name not in TABLES:
            return columns
        known = file.tables.get(name, {})
        ids = np.full(1 << 16, -1, np.int32)
        ids[0] = 0
        for own, text in known.items():
            ids[own] = self._id(name, text)
        mapped = [ids[column] for column in columns]
        for column in mapped:
            unknown = column < 0
            if unknown.any():
                self._lost_texts += int(unknown.sum())
                column[unknown] = self._id(name, f"(a {name} whose text is lost)")
        return mapped

    def _parquet(self, file: RecordFile, name: str) -> NDArray[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file.path, read_dictionary=[name] if name in TABLES else None) as parquet:
                column = parquet.read(columns=[name]).column(0)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise RunFolderError(f"{file.path}: column {name} cannot be read: {plain(error, 160)}") from None
        if column.null_count:
            raise RunFolderError(f"{file.path}: column {name} has {column.null_count} rows without a value; allowed are none")
        if name not in TABLES:
            return np.array(column.to_numpy(), RECORD[name])
        pieces = [np.empty(0, np.int32)]
        for chunk in column.chunks:
            ids = np.array([self._id(name, text or "") for text in chunk.dictionary.to_pylist()], np.int32)
            pieces.append(ids[chunk.indices.to_numpy(zero_copy_only=False)])
        return np.concatenate(pieces)

    def _id(self, table: str, text: str) -> int:
        short = plain(text)
        ids = self._ids[table]
        if short not in ids:
            ids[short] = len(self._texts[table])
            self._texts[table].append(short)
        return ids[short]
