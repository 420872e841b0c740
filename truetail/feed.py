"""A worker's own arrivals, one after the other, planned ahead of need and off the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from shapes.mix import choices
from truetail.arrival import Arrival

BLOCKS_AHEAD = 2


class SlotBlock(Protocol):
    """What ``Schedule.slot_blocks`` yields: numbers, offsets in ns and the trace columns of one stretch of a slot."""

    ks: np.ndarray[Any, np.dtype[np.int64]]
    offsets_ns: np.ndarray[Any, np.dtype[np.int64]]
    columns: Mapping[str, np.ndarray[Any, Any]]


class Feed:
    """The arrivals of one slot in order.

    ``plan`` turns an iterator step into a block of plain lists; by default inline, on a worker through gevent's thread
    pool (:meth:`plan_ahead`), because a block takes milliseconds and the loop has none to give.
    """

    def __init__(self, blocks: Iterator[SlotBlock], requests: Sequence[Mapping[str, Any]], mix_seed: int, first_k: int = 0) -> None:
        self._blocks = blocks
        self._requests = requests
        self._weights = [float(request.get("weight", 1)) for request in requests]
        self._mix_seed = mix_seed
        self._first_k = first_k
        self._ready: deque[Iterator[tuple[int, int, Mapping[str, Any] | None, Mapping[str, Any] | None]]] = deque()
        self._current: Iterator[tuple[int, int, Mapping[str, Any] | None, Mapping[str, Any] | None]] = iter(())
        self._all_planned = False
        self.exhausted = False
        self.epoch_mono_ns = 0

    def _plan_block(self) -> None:
        block = next(self._blocks, None)
        if block is None:
            self._all_planned = True
            return
        ks, offsets, columns = block.ks, block.offsets_ns, block.columns
        if self._first_k:
            keep = ks >= self._first_k
            ks, offsets, columns = ks[keep], offsets[keep], {name: column[keep] for name, column in columns.items()}
        self._ready.append(zip(ks.tolist(), offsets.tolist(), self._chosen(ks), _rows(columns, len(ks)), strict=True))

    def _chosen(self, ks: np.ndarray[Any, np.dtype[np.int64]]) -> Sequence[Mapping[str, Any] | None]:
        if len(self._requests) <= 1:
            return [self._requests[0] if self._requests else None] * len(ks)
        return [self._requests[i] for i in choices(ks, self._weights, self._mix_seed).tolist()]

    def plan_ahead(self, run_off_loop: Callable[[Callable[[], None]], None], wait: Callable[[], None]) -> None:
        """Keep blocks planned ahead until all are: the body of a greenlet. ``wait`` pauses between looks."""
        while not self._all_planned:
            if len(self._ready) < BLOCKS_AHEAD:
                run_off_loop(self._plan_block)
            else:
                wait()

    def plan_one(self) -> None:
        """Plan a block here and now: before the epoch, and in tests."""
        self._plan_block()

    def next(self) -> Arrival | None:
        """The next arrival; None when there is none *yet* (``exhausted`` is False) or none any more (True)."""
        while True:
            step = next(self._current, None)
            if step is not None:
                k, offset, request, row = step
                return Arrival(k, offset, self.epoch_mono_ns + offset, request, row)
            if not self._ready:
                self.exhausted = self._all_planned
                return None
            self._current = self._ready.popleft()


def _rows(columns: Mapping[str, np.ndarray[Any, Any]], n: int) -> Iterator[Mapping[str, Any] | None]:
    """A mapping per arrival from the columns of a trace; made lazily, since most are never asked for at once."""
    if not columns:
        return iter([None] * n)
    names = list(columns)
    return (dict(zip(names, values, strict=True)) for values in zip(*(column.tolist() for column in columns.values()), strict=True))
