"""The schedule: a run's whole, ordered stream of arrivals, a pure function of (arrivals, duration, seed).

Arrival k is due at t_k = Lambda^-1(S_k): the spacing gives the partial sums S_k in operational time, the rate stretches them into
seconds. Everything is streamed in blocks, so memory does not grow with the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shapes.rates import Rate, build_rate
from shapes.rates.base import check
from shapes.spacings import build_spacing
from shapes.variates import check_seed

Column = NDArray[Any]
STREAM = "truetail-schedule-1"
"""Version of the stream; stands in every digest, and changes when the same seed means other arrivals."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the whole schedule: arrivals first_k, first_k + 1, ..., their offsets in ns (int64, rising), what they carry."""

    first_k: int
    offsets_ns: NDArray[np.int64]
    columns: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlotBlock:
    """A stretch of one slot: the arrivals' numbers (int64), offsets in ns and what they carry."""

    ks: NDArray[np.int64]
    offsets_ns: NDArray[np.int64]
    columns: Mapping[str, Column]


class Source(Protocol):
    """Where arrivals come from: a rate with a spacing, or a trace."""

    @property
    def count_hint(self) -> float | None:
        """Lambda(duration), or what a trace knows of its count; None if it must be counted."""
        ...

    def blocks(self) -> Iterator[Block]:
        """The whole, ordered; each call starts anew."""
        ...


class Planned:
    """Arrivals of a rate and a spacing."""

    def __init__(self, arrivals: Mapping[str, Any], duration_s: float, seed: int, epoch_wall_s: float) -> None:
        self.rate: Rate = build_rate(arrivals["rate"], epoch_wall_s)
        self._spacing = build_spacing(arrivals["spacing"])
        self._duration_ns, self._seed = round(duration_s * 1e9), seed
        self.count_hint: float = float(self.rate.cumulative(np.array([duration_s]))[0])

    def blocks(self) -> Iterator[Block]:
        """t_k = Lambda^-1(S_k), rounded to ns, while S_k < Lambda(duration)."""
        k, latest = 0, 0
        if not self.count_hint:
            return
        for sums in self._spacing.sums(self._seed):
            within = sums[: int(np.searchsorted(sums, self.count_hint, side="left"))]
            seconds = self.rate.inverse(within)
            offsets = np.rint(seconds * 1e9).astype(np.int64)
            # Rounding in the inverse can turn two arrivals within a nanosecond of each other round.
            np.maximum.accumulate(np.maximum(offsets, latest), out=offsets)
            offsets = offsets[: int(np.searchsorted(offsets, self._duration_ns, side="left"))]
            if offsets.size:
                yield Block(k, offsets)
                k, latest = k + offsets.size, int(offsets[-1])
            if within.size < sums.size:
                return


class Schedule:
    """What is due when: ``arrivals`` is a resolved scenario's, ``epoch_wall_s`` the wall time (Unix, s) of t = 0.

    Raises ValueError, naming the field, what was found and what is allowed.
    """

    def __init__(self, arrivals: Mapping[str, Any], duration_s: float, seed: int, epoch_wall_s: float = 0.0) -> None:
        self.duration_s = check("duration_s", duration_s, above=True)
        self._header = {
            "stream": STREAM,
            "arrivals": _without_paths(arrivals),
            "duration_s": self.duration_s,
            "seed": check_seed(seed),
        }
        self._source = _source(arrivals, self.duration_s, seed, epoch_wall_s)

    def blocks(self) -> Iterator[Block]:
        """All arrivals in order, 0 <= offset < duration; each call starts anew."""
        return self._source.blocks()

    def slot_blocks(self, slot: int, n_slots: int) -> Iterator[SlotBlock]:
        """The arrivals of one slot: k mod n_slots = slot; where arrivals carry a session, all of a session in one slot."""
        if not 0 <= slot < n_slots:
            raise ValueError(f"slot: found {slot} of {n_slots}; allowed is 0 to {n_slots - 1}")
        for block in self.blocks():
            slots = _slots(block, n_slots)
            mine = np.flatnonzero(slots == slot)
            yield SlotBlock(
                block.first_k + mine, block.offsets_ns[mine], {name: column[mine] for name, column in block.columns.items()}
            )

    def digest(self) -> str:
        """SHA-256 (hex) of what was planned, of all offsets and of all columns; streams the schedule once, then remembers."""
        return self._digest_and_count[0]

    def count(self) -> int:
        """How many arrivals there are; exact, so the schedule is streamed once."""
        return self._digest_and_count[1]

    @property
    def expected_count(self) -> float:
        """Lambda(duration), the mean number over all seeds; of a trace the number it hints at, or counts."""
        hint = self._source.count_hint
        return float(self.count() if hint is None else hint)

    @cached_property
    def _digest_and_count(self) -> tuple[str, int]:
        offsets, count = hashlib.sha256(), 0
        columns: dict[str, Any] = {}
        for block in self.blocks():
            offsets.update(np.ascontiguousarray(block.offsets_ns, dtype="<i8").data)
            count += block.offsets_ns.size
            for name, column in block.columns.items():
                columns.setdefault(name, hashlib.sha256()).update(_column_bytes(column))
        content = {
            "count": count,
            "offsets": offsets.hexdigest(),
            "columns": {name: total.hexdigest() for name, total in columns.items()},
        }
        text = json.dumps(self._header | content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest(), count


def _source(arrivals: Mapping[str, Any], duration_s: float, seed: int, epoch_wall_s: float) -> Source:
    if "trace" in arrivals:
        from shapes.traces.replay import open_trace  # traces build on the schedule's blocks

        return open_trace(arrivals["trace"], duration_s, seed, epoch_wall_s)
    missing = {"rate", "spacing"} - set(arrivals)
    if missing:
        raise ValueError(f"arrivals: {' and '.join(sorted(missing))} missing; allowed is rate and spacing, or trace")
    return Planned(arrivals, duration_s, seed, epoch_wall_s)


def _without_paths(arrivals: Mapping[str, Any]) -> dict[str, Any]:
    """What was planned, but not where a trace's file lies: that differs between hosts, and its content is in the digest anyway."""
    return {
        key: {k: v for k, v in value.items() if k != "file"} if key == "trace" else value for key, value in arrivals.items()
    }  # fmt: skip


def _slots(block: Block, n_slots: int) -> NDArray[np.int64]:
    """Each arrival's slot."""
    slots = np.arange(block.first_k, block.first_k + block.offsets_ns.size, dtype=np.int64) % n_slots
    sessions = block.columns.get("session")
    if sessions is None or n_slots == 1:
        return slots
    known: dict[Any, int] = {}
    for i, session in enumerate(sessions.tolist()):
        if session is None or session == "" or session != session:
            continue  # no session: any slot will do
        if session not in known:
            known[session] = int.from_bytes(hashlib.blake2b(str(session).encode(), digest_size=8).digest(), "big") % n_slots
        slots[i] = known[session]
    return slots


def _column_bytes(column: Column) -> bytes:
    """The same bytes on every machine: numbers little-endian, all else as JSON lines."""
    if column.dtype.kind in "iufb":
        return column.astype(column.dtype.newbyteorder("<")).tobytes()
    return "".join(json.dumps(value, sort_keys=True, default=str) + "\n" for value in column.tolist()).encode()
