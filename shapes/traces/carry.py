"""What arrivals of a fitted process carry: rows of the trace in their order, or drawn from it at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from shapes.mix import uniforms
from shapes.traces.recording import Recording
from shapes.traces.rows import Column, Rows, concatenate
from shapes.traces.scale import marked

SAMPLE_ROWS = 50_000


class Carrier(Protocol):
    """Gives arrivals first_k, first_k + 1, ... their columns, asked for in order."""

    def columns(self, first_k: int, n: int) -> Mapping[str, Column]:
        """The columns of the next ``n`` arrivals."""
        ...


class InOrder:
    """Arrival k carries row k of the recording, over and over: the mix in time and the order of sessions stay."""

    def __init__(self, recording: Recording) -> None:
        self._source = _over_and_over(recording)
        self._held: list[Rows] = []

    def columns(self, first_k: int, n: int) -> Mapping[str, Column]:
        """The columns of the next ``n`` rows."""
        while sum(len(rows.times_ns) for rows in self._held) < n:
            self._held.append(next(self._source))
            if not self._held[0].columns:
                return {}
        together = concatenate(self._held)
        self._held = [together.take(slice(n, None))]
        return together.take(slice(0, n)).columns


def _over_and_over(recording: Recording) -> Iterator[Rows]:
    cycle = 0
    while True:
        for rows in recording.rows():
            yield marked(rows, f"~{cycle}" if cycle else "")
        cycle += 1


class Bootstrap:
    """Arrival k carries a row drawn with replacement from a uniform sample of the recording; sessions are left out, being
    torn apart.
    """

    def __init__(self, recording: Recording, seed: int) -> None:
        self._seed = seed
        self._sample = _sampled(recording, seed)

    def columns(self, first_k: int, n: int) -> Mapping[str, Column]:
        """Rows drawn by (k, seed) alone."""
        size = len(self._sample.times_ns)
        drawn = (uniforms(np.arange(first_k, first_k + n), self._seed, "bootstrap") * size).astype(np.int64)
        return self._sample.take(drawn).columns


def _sampled(recording: Recording, seed: int) -> Rows:
    """At most SAMPLE_ROWS rows: those with the smallest of one random key a row."""
    held: Rows | None = None
    keys = np.zeros(0)
    number = 0
    for rows in recording.rows():
        kept = {name: column for name, column in rows.columns.items() if name != "session"}
        new = uniforms(np.arange(number, number + len(rows.times_ns)), seed, "sample")
        number += len(rows.times_ns)
        rows = rows._replace(columns=kept)
        held, keys = (rows, new) if held is None else (concatenate([held, rows]), np.concatenate([keys, new]))
        if len(keys) > SAMPLE_ROWS:
            smallest = np.sort(np.argpartition(keys, SAMPLE_ROWS)[:SAMPLE_ROWS])
            held, keys = held.take(smallest), keys[smallest]
    assert held is not None  # Recording.rows raises when it has none
    return held
