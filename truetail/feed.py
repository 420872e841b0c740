"""A worker's own arrivals, one after the other, planned ahead of need and off the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shapes.mix import choices
from shapes.schedule import SlotBlock
from truetail.arrival import Arrival
from truetail.share import Share

BLOCKS_AHEAD = 2


class Feed:
    """The arrivals of one slot in order.

    ``plan`` turns an iterator step into a block of plain lists; by default inline, on a worker through gevent's thread
    pool (:meth:`plan_ahead`), because a block takes milliseconds and the loop has none to give.
    """

    def __init__(
        self, blocks: Iterator[SlotBlock], requests: Sequence[Mapping[str, Any]], mix_seed: int, share: Share | None = None
    ) -> None:
        self._blocks = blocks
        self._requests = requests
        self._weights = [float(request.get("weight", 1)) for request in requests]
        self._mix_seed = mix_seed
        self._share = share if share is not None and share.splits else None
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
        if self._share is not None:
            keep = self._share.mask(ks, offsets)
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


class Feeds:
    """Several feeds as one: the arrival that is intended first comes first. Feeds can be added while the run lasts."""

    def __init__(self, first: Feed) -> None:
        self._feeds = [first]
        self._heads: list[Arrival | None] = [None]
        self._epoch_mono_ns = 0

    @property
    def epoch_mono_ns(self) -> int:
        """The epoch on this host's CLOCK_MONOTONIC."""
        return self._epoch_mono_ns

    @epoch_mono_ns.setter
    def epoch_mono_ns(self, value: int) -> None:
        self._epoch_mono_ns = value
        for feed in self._feeds:
            feed.epoch_mono_ns = value

    @property
    def exhausted(self) -> bool:
        """Every feed is."""
        return all(head is None and feed.exhausted for head, feed in zip(self._heads, self._feeds, strict=True))

    def add(self, feed: Feed, waiting: Arrival | None) -> None:
        """Take in another feed. ``waiting`` is an arrival that was already taken out, to be put back first."""
        feed.epoch_mono_ns = self._epoch_mono_ns
        self._feeds.append(feed)
        self._heads.append(None)
        if waiting is not None:
            one = _One(waiting)
            self._feeds.append(one)  # type: ignore[arg-type]
            self._heads.append(one.next())

    def next(self) -> Arrival | None:
        """See :meth:`Feed.next`."""
        if len(self._feeds) == 1:
            return self._feeds[0].next()
        first = -1
        for i, feed in enumerate(self._feeds):
            if self._heads[i] is None and not feed.exhausted:
                self._heads[i] = feed.next()
            head = self._heads[i]
            if head is not None and (first < 0 or head.intended_ns < self._heads[first].intended_ns):  # type: ignore[union-attr]
                first = i
        if first < 0:
            return None
        arrival, self._heads[first] = self._heads[first], None
        return arrival


class _One:
    """A feed of one arrival: one that had been taken out of another and is put back."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival: Arrival | None = arrival
        self.exhausted = False
        self.epoch_mono_ns = 0

    def next(self) -> Arrival | None:
        arrival, self._arrival = self._arrival, None
        self.exhausted = True
        return arrival


def _rows(columns: Mapping[str, np.ndarray[Any, Any]], n: int) -> Iterator[Mapping[str, Any] | None]:
    """A mapping per arrival from the columns of a trace; made lazily, since most are never asked for at once."""
    if not columns:
        return iter([None] * n)
    names = list(columns)
    return (
        dict(zip(names, values, strict=True)) for values in zip(*(column.tolist() for column in columns.values()), strict=True)
    )
