"""The worker's record of every arrival: raw rows to disk, counts for the ledger, histograms for the live view.

The hot path packs one row into a buffer (no allocation of note, no encoding). Twice a second the buffer is written with one
``os.write`` and turned into histograms with numpy: inline Parquet or per-request histograms would stall the event loop.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from truetail.arrival import Arrival
from truetail.exchange import Exchange
from truetail.histogram import Histogram
from truetail.records import ABANDONED, DROPPED, FLAG_WARMUP, OUTCOMES, RECORD, ROW, TABLES

MAX_IDS = 65_535
MAX_TEXT = 300
OTHER = "(other)"
MOST_EARLY = 100_000
"""Requests before the epoch (on_start, warm-up) that are kept until it is known; of more the rest is not recorded."""
MOST_REPLICAS = 32
"""Replicas that get a live series of their own; the rest share one. The records know them all."""


class StringTable:
    """Text to a 16-bit id, each new one announced once. Untrusted text: capped in length and in number."""

    def __init__(self, table: str, announce: Callable[[str], None]) -> None:
        self._table = table
        self._announce = announce
        self._ids: dict[str, int] = {"": 0}

    def id_of(self, text: str) -> int:
        """The id of the text; ``(other)`` once 65,535 different texts have been seen."""
        found = self._ids.get(text)
        return found if found is not None else self._add(text)

    def _add(self, text: str) -> int:
        short = text[:MAX_TEXT]
        if short != text:
            return self.id_of(short)
        if len(self._ids) >= MAX_IDS - 1 and text != OTHER:
            return self.id_of(OTHER)
        new = self._ids[text] = len(self._ids)
        self._announce(json.dumps({"table": self._table, "id": new, "text": text}) + "\n")
        return new


class Recorder:
    """Rows and counts of one worker. ``epoch_mono_ns`` is the run's epoch on this host's CLOCK_MONOTONIC."""

    def __init__(self, folder: Path, worker: str, warmup_ns: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.rows_path = folder / f"{worker}.rec"
        self._rows_fd = os.open(self.rows_path, flags, 0o644)
        self._names_fd = os.open(folder / f"{worker}.names.jsonl", flags, 0o644)
        self._new_names: list[str] = []
        self._names, self._replicas, self._errors = (StringTable(table, self._new_names.append) for table in TABLES)
        self._warmup_ns = warmup_ns
        self._epoch_mono_ns = 0
        self._early: list[tuple[str, Exchange]] | None = []
        self._buffer = bytearray(ROW.size * 1024)
        self._filled = 0
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.rows_written = 0
        self.histograms: dict[str, Histogram] = {}
        self._name_texts: dict[int, str] = {}
        self._replica_texts: dict[int, str] = {}

    @property
    def epoch_mono_ns(self) -> int:
        """The run's epoch; 0 as long as it is not known."""
        return self._epoch_mono_ns

    @epoch_mono_ns.setter
    def epoch_mono_ns(self, value: int) -> None:
        self._epoch_mono_ns = value
        early, self._early = self._early or (), None
        for name, exchange in early:
            self.exchange(None, name, exchange)

    def exchange(self, arrival: Arrival | None, name: str, exchange: Exchange) -> None:
        """Record one finished request. ``arrival`` is None for a request outside the schedule (on_start, warm-up)."""
        part = 0
        if arrival is not None:
            part = arrival.parts
            arrival.parts = part + 1
        if arrival is None and self._early is not None:
            if len(self._early) < MOST_EARLY:
                self._early.append((name, exchange))
        elif arrival is None:
            self._pack(-1, exchange.sent_ns - self.epoch_mono_ns, 0, name, exchange)
        elif part == 0:
            self.counts[OUTCOMES[exchange.outcome]] += 1
            self._pack(arrival.k, arrival.intended_ns, 0, name, exchange)
        else:
            self._pack(arrival.k, exchange.sent_ns - self.epoch_mono_ns, part, name, exchange)

    def without_request(self, arrival: Arrival, outcome: int, error: str, sent_mono_ns: int = -1) -> None:
        """Record an arrival that has no finished request: dropped, abandoned, or a task that sent nothing."""
        name = str(arrival.request["name"]) if arrival.request else ""
        self.counts[OUTCOMES[outcome]] += 1
        arrival.parts += 1
        self._pack(arrival.k, arrival.intended_ns, 0, name, Exchange(sent_mono_ns, outcome=outcome, error_class=error))

    def _pack(self, k: int, intended_ns: int, part: int, name: str, x: Exchange) -> None:
        at = self._filled
        if at == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        epoch = self.epoch_mono_ns
        error = f"{x.error_class}: {x.error_detail}" if x.error_detail else x.error_class
        name_id = self._names.id_of(name)
        if name_id not in self._name_texts:
            self._name_texts[name_id] = name
        replica_id = self._replicas.id_of(x.replica)
        if replica_id not in self._replica_texts:
            self._replica_texts[replica_id] = x.replica[:MAX_TEXT]
        ROW.pack_into(
            self._buffer,
            at,
            k,
            intended_ns,
            x.sent_ns - epoch if x.sent_ns >= 0 else -1,  # negative also before the epoch, in rows that belong to no arrival
            x.first_byte_ns - epoch if x.first_byte_ns >= 0 else -1,
            x.first_token_ns - epoch if x.first_token_ns >= 0 else -1,
            x.done_ns - epoch if x.done_ns >= 0 else -1,
            x.connect_us,
            x.queue_us,
            x.preprocess_us,
            x.inference_us,
            x.postprocess_us,
            x.dependency_us,
            x.itl_max_us,
            min(x.request_bytes, 0xFFFFFFFF),
            min(x.response_bytes, 0xFFFFFFFF),
            min(x.tokens_in, 0xFFFFFFFF),
            min(x.tokens_out, 0xFFFFFFFF),
            min(x.status, 0xFFFF),
            min(x.batch, 0xFFFF),
            name_id,
            replica_id,
            self._errors.id_of(error),
            min(part, 0xFFFF),
            x.outcome,
            FLAG_WARMUP if intended_ns < self._warmup_ns else 0,
        )
        self._filled = at + ROW.size

    def flush(self) -> None:
        """Write what is buffered. OSError (a full disk) leaves the buffer as it was."""
        if self._new_names:
            _write_all(self._names_fd, "".join(self._new_names).encode())
            self._new_names.clear()
        if not self._filled:
            return
        rows = bytes(memoryview(self._buffer)[: self._filled])
        _write_all(self._rows_fd, rows)
        self._filled = 0
        self.rows_written += len(rows) // ROW.size
        self._count(np.frombuffer(rows, RECORD))

    def _count(self, rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        """Add rows to the cumulative histograms: answered, after the warm-up, part of the schedule."""
        rows = rows[(rows["k"] >= 0) & (rows["flags"] & FLAG_WARMUP == 0) & (rows["part"] == 0)]
        sent = rows[rows["sent_ns"] >= 0]
        self._add("lateness", sent["sent_ns"] - sent["intended_ns"])
        done = rows[rows["outcome"] == 0]
        response = done["done_ns"] - done["intended_ns"]
        self._add("response", response)
        self._add("service", done["done_ns"] - done["sent_ns"])
        self._add_each("response", done["name"], response, self._name_texts)
        replicas = done["replica"]
        told = (replicas > 0) & (replicas <= MOST_REPLICAS)
        self._add_each("replica", replicas[told], response[told], self._replica_texts)
        self._add(f"replica/{OTHER}", response[replicas > MOST_REPLICAS])
        # How long what was not answered took to fail (0: dropped, never sent). Its n is what percentiles of all arrivals need.
        bad = rows[rows["outcome"] != 0]
        given_up = np.maximum(bad["done_ns"] - bad["intended_ns"], 0)
        self._add("failed", given_up)
        self._add_each("failed", bad["name"], given_up, self._name_texts)
        tokens = done[done["first_token_ns"] >= 0]
        if len(tokens):
            self._add("ttft", tokens["first_token_ns"] - tokens["intended_ns"])

    def _add_each(
        self,
        series: str,
        ids: np.ndarray[tuple[int], np.dtype[np.uint16]],
        values_ns: np.ndarray[tuple[int], np.dtype[np.int64]],
        texts: Mapping[int, str],
    ) -> None:
        """One series for each id, ``series/text``."""
        for found in np.unique(ids).tolist():
            self._add(f"{series}/{texts.get(found, OTHER)}", values_ns[ids == found])

    def _add(self, series: str, values_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        if len(values_ns):
            self.histograms.setdefault(series, Histogram()).record_many_ns(values_ns)

    @property
    def sent(self) -> int:
        """Arrivals whose request has ended, in whatever way, after being sent."""
        return sum(count for outcome, count in self.counts.items() if outcome != OUTCOMES[DROPPED])

    @property
    def abandoned(self) -> int:
        """Arrivals still in flight at the drain deadline."""
        return self.counts[OUTCOMES[ABANDONED]]

    def close(self) -> None:
        """Flush, and close both files."""
        try:
            self.flush()
        finally:
            os.close(self._rows_fd)
            os.close(self._names_fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
