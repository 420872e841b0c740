"""The records of all workers as columns, whichever way they lie on disk (raw rows, or Parquet after the run).

A column is read when it is asked for and is a plain numpy array over the rows of all workers, in order of intended time (equal instants
as they lie in the files); strings are ids into ``Records.texts(name)``. So a report of 10^7 records touches only what it needs, sorts
once, and a stretch of time is a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.record_files import RecordFile, parts, text_parts
from analysis.text import plain
from truetail.records import FLAG_WARMUP, OUTCOMES, RECORD, TABLES

PIECE = 1 << 16
"""Rows that are worked on at a time: what lies between input and output stays in the processor's cache, and no memory is fetched for it."""
TIMES = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "done_ns")
FARTHEST_NS = 1 << 60
"""36 years: no instant of a run lies farther from its epoch. Keeps differences inside 64 bits whatever a file says."""
KEPT = ("k", "intended_ns", "sent_ns", "done_ns", "outcome", "flags", "part", "worker", "name", "replica", "error")
"""Columns that are asked for again and again; the others are read anew each time."""


def pieces(n: int) -> Iterator[slice]:
    """The slices of PIECE rows that make up ``n``."""
    return (slice(first, min(first + PIECE, n)) for first in range(0, n, PIECE))


def chosen(column: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """``column[mask]``; without a copy where the mask is one stretch, as it is after a warm-up."""
    first = int(mask.argmax()) if len(mask) else 0
    last = len(mask) - int(mask[::-1].argmax()) if len(mask) else 0
    stretch = mask[first:last]
    return column[first:last] if len(stretch) and stretch.all() else column[mask]


class Records:
    """Columns over the rows of ``files``; ``records["done_ns"]``. Rows whose outcome does not exist are left out and counted.

    Threads may share it; nobody writes into a column.
    """

    def __init__(self, files: list[RecordFile]) -> None:
        self.files = files
        self._texts: dict[str, list[str]] = {table: [""] for table in TABLES}
        self._ids: dict[str, dict[str, int]] = {table: {"": 0} for table in TABLES}
        self._kept: dict[str, NDArray[Any]] = {}
        self._lost_texts = sum(file.lost_texts for file in files)
        self._lock = RLock()
        self._starts = np.cumsum([0, *(file.rows for file in files)]).tolist()
        good = self._load("outcome", None) < len(OUTCOMES)
        self._length = int(good.sum())
        self.damaged_rows = len(good) - self._length
        self._good = good if self.damaged_rows else None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> NDArray[Any]:
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                return kept
            column = self._load(name, self._place)
            if name in KEPT:
                self._kept[name] = column
            return column

    def at(self, names: Sequence[str], index: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Columns at some rows only; of those that are not kept just the parts of the files in which the rows lie are read."""
        found = {name: self[name][index] for name in names if name in KEPT}
        wanted = [name for name in names if name not in KEPT]
        if not wanted or not len(index):
            return found | {name: np.empty(len(index), RECORD[name]) for name in wanted}
        rows = self._rows_at(index)
        by_row = np.argsort(rows, kind="stable")
        edges = np.searchsorted(rows[by_row], self._starts).tolist()
        columns = {name: np.empty(len(index), RECORD[name]) for name in wanted}

        def read(file: RecordFile, start: int, low: int, high: int) -> None:
            mine = by_row[low:high]
            inside = rows[mine] - start
            for first, part in parts(file, wanted, inside):
                here = slice(*np.searchsorted(inside, [first, first + len(part[wanted[0]])]))
                for name in wanted:
                    columns[name][mine[here]] = _clipped(name, part[name][inside[here] - first])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, self.files, self._starts, edges, edges[1:]))
        return found | columns

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

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """First requests of arrivals after the warm-up."""
        mask: NDArray[np.bool_] = self.measured & self.arrivals
        return mask

    @cached_property
    def _place(self) -> NDArray[np.integer[Any]] | None:
        """Where each row of the files stands here, -1 for a damaged one; None where they hold the rows in order, and none is damaged."""
        intended_ns = self._load("intended_ns", None)
        if self._good is not None:
            rows = np.flatnonzero(self._good)
            order = rows[np.argsort(intended_ns[rows], kind="stable")]
        elif (intended_ns[1:] >= intended_ns[:-1]).all():
            return None
        else:
            order = np.argsort(intended_ns, kind="stable")
        place: NDArray[np.integer[Any]] = np.full(len(intended_ns), -1, np.int32 if len(intended_ns) < 1 << 31 else np.int64)
        place[order] = np.arange(len(order), dtype=place.dtype)
        return place

    def _rows_at(self, index: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of the files that stand at ``index``."""
        with self._lock:
            place = self._place
        if place is None:
            return index
        rows = np.arange(len(place), dtype=place.dtype) if self._good is None else np.flatnonzero(self._good).astype(place.dtype)
        order = np.empty(self._length, place.dtype)
        order[place[rows]] = rows
        return order[index].astype(np.intp)

    def _load(self, name: str, place: NDArray[np.integer[Any]] | None) -> NDArray[Any]:
        """A column, each row put in its place (None: as in the files). Two files are read at a time: Arrow and numpy work outside the
        interpreter's lock."""
        length = self._starts[-1] if place is None else self._length
        column = np.empty(length, np.uint16 if name == "worker" else np.int32 if name in TABLES else RECORD[name])

        def put(first: int, values: NDArray[Any]) -> None:
            if place is None:
                column[first : first + len(values)] = values
                return
            here = place[first : first + len(values)]
            if self._good is not None:
                here, values = here[here >= 0], values[here >= 0]
            column[here] = values

        def read(file: RecordFile, start: int) -> None:
            for first, part in parts(file, [name]):
                put(start + first, _clipped(name, part[name]))

        if name == "worker":
            for number, (start, file) in enumerate(zip(self._starts, self.files, strict=False)):
                put(start, np.full(file.rows, number, column.dtype))
        elif name in TABLES:  # one file after the other: the same texts get the same ids at every reading
            for start, file in zip(self._starts, self.files, strict=False):
                for texts, own in text_parts(file, name):
                    put(start, self._numbered(name, texts, own))
                    start += len(own)
        else:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(read, self.files, self._starts))
        return column.astype(np.uint16) if column.dtype == np.int32 and int(column.max(initial=0)) < 1 << 16 else column

    def _numbered(self, table: str, texts: dict[int, str], own: NDArray[Any]) -> NDArray[np.int32]:
        """A file's own ids as those that all files share."""
        ids = np.full(max(1 << 16, len(texts)), -1, np.int32)
        for number, text in texts.items():
            ids[number] = self._id(table, text)
        found = ids[own]
        unknown = found < 0
        if unknown.any():
            self._lost_texts += int(unknown.sum())
            found[unknown] = self._id(table, f"(a {table} whose text is lost)")
        return found

    def _id(self, table: str, text: str) -> int:
        short = plain(text)
        ids = self._ids[table]
        if short not in ids:
            ids[short] = len(self._texts[table])
            self._texts[table].append(short)
        return ids[short]


def _clipped(name: str, values: NDArray[Any]) -> NDArray[Any]:
    return np.clip(values, -FARTHEST_NS, FARTHEST_NS) if name in TIMES else values
