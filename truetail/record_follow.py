"""A worker's records, followed while they are written: whole rows that are new, and the texts that their ids stand for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetail.records import RECORD, TABLES
from truetail.tail import Tail

MOST_ROWS = 8192
"""Read at one call (0.9 MB); what is beyond waits for the next."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record with its texts. ``values`` is a scalar of :data:`truetail.records.RECORD`."""

    worker: str
    values: Any
    name: str
    replica: str
    error: str


class RecordFollower:
    """Reads ``records/<worker>.rec`` from where it left off."""

    def __init__(self, path: Path) -> None:
        self.worker = path.name.removesuffix(".rec")
        self._path = path
        self._at = 0
        self._tail = Tail(path.with_name(f"{self.worker}.names.jsonl"))
        self._texts: dict[str, dict[int, str]] = {table: {0: ""} for table in TABLES}

    def rows(self) -> NDArray[np.void]:
        """At most :data:`MOST_ROWS` whole rows that have come since the last call; none while there is no file. A torn row waits for its rest."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(MOST_ROWS * RECORD.itemsize)
        except OSError:
            return np.empty(0, RECORD)
        whole = len(data) // RECORD.itemsize * RECORD.itemsize
        self._at += whole
        if whole:
            self._read_texts()  # written before the first row that uses them, so they are all there
        return np.frombuffer(data[:whole], RECORD)

    def row(self, values: Any) -> Row:
        """A row with its texts; one whose text is not there says so."""
        texts = {table: self._texts[table].get(int(values[table]), f"({table} {values[table]})") for table in TABLES}
        return Row(self.worker, values, **texts)

    def _read_texts(self) -> None:
        while lines := self._tail.lines():
            for line in lines:
                table, number, text = line.get("table"), line.get("id"), line.get("text")
                if table in self._texts and isinstance(number, int) and isinstance(text, str):
                    self._texts[table][number] = text


def followed(folder: Path, known: dict[str, RecordFollower]) -> list[RecordFollower]:
    """A follower of each worker's file, new ones included (a remote worker's file begins with its first chunk)."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else ():
        if entry.name.endswith(".rec") and entry.name not in known:
            known[entry.name] = RecordFollower(Path(entry.path))
    return list(known.values())
