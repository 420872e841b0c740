"""More or less traffic from one trace: compress time, keep a share of the arrivals, or superpose copies of it.

What each does to burstiness (index of dispersion I over windows of length w): compression by c keeps the pattern and its gap
CV, and moves I(w) to I(w / c): bursts stay as large, and come c times as often. Thinning to a share p gives 1 + p (I - 1):
towards Poisson, bursts are broken up. Superposing n copies, each begun at another place of the trace, keeps I where copies
are displaced by more than w, at n times the rate: a burst stays as large, among n times the traffic, and gaps tend to
Poisson's once bursts of different copies overlap. Over longer w, as with copies at the same place, I is n times as large.
Arrivals at the same instant stay together under all but thinning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from shapes.mix import uniforms
from shapes.traces.rows import Column, Rows, concatenate
from shapes.traces.times import Ints

EFFECTS = {
    "speed": "time compressed {:g} times: gap CV and burst sizes stay, bursts come that much closer",
    "thin": "{:.3%} of the arrivals kept at random: bursts are thinned, dispersion I becomes 1 + share (I - 1)",
    "copies": "{:d} displaced copies superposed: bursts stay as large, among that many times the traffic; slow swings stay",
}


def thinned(rows: Rows, first: int, keep: float, seed: int, copy: int) -> Rows:
    """About a share ``keep`` of the rows (the first of which has number ``first``), by the seed; a session stays or goes as
    a whole.
    """
    if keep >= 1.0:
        return rows
    draws = uniforms(np.arange(first, first + len(rows.times_ns)), seed, f"thin-{copy}")
    sessions = rows.columns.get("session")
    if sessions is not None:
        for at, session in enumerate(sessions.tolist()):
            if session:
                draws[at] = _share_of(f"{seed}/{copy}/{session}")
    return rows.take(draws < keep)


def _share_of(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def marked(rows: Rows, mark: str) -> Rows:
    """The rows with ``mark`` added to their sessions, so that copies of a session are not taken for one."""
    sessions = rows.columns.get("session")
    if not mark or sessions is None:
        return rows
    named: Column = np.array([session and session + mark for session in sessions.tolist()], object)
    return rows._replace(columns={**rows.columns, "session": named})


def displacements_ns(copies: int, most_ns: int, seed: int) -> list[int]:
    """Where in the trace each copy begins: the first at 0, copy j uniform within the j-th part of ``most_ns``."""
    draws = uniforms(np.arange(copies), seed, "displacement")
    return [0] + [round((number + float(draws[number])) * most_ns / copies) for number in range(1, copies)]


def scaled(times: Ints, speed: float) -> Ints:
    """Times divided by the compression factor, to the nearest ns; at speed 1 untouched."""
    return times if speed == 1.0 else np.rint(times / speed).astype(np.int64)


def superposed(streams: Sequence[Iterator[Rows]]) -> Iterator[Rows]:
    """Sorted streams as one; equal times in the order of the streams. Holds a block of each."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        # All that is not after the earliest of the heads' ends can go out: every stream has shown what it holds up to there.
        horizon = min(int(head.times_ns[-1]) for head in heads if head is not None)
        ready = []
        for number, head in enumerate(heads):
            if head is None:
                continue
            free = int(np.searchsorted(head.times_ns, horizon, "right"))
            if free:
                ready.append(head.take(slice(0, free)))
            heads[number] = head.take(slice(free, None)) if free < len(head.times_ns) else next(streams[number], None)
        together = concatenate(ready)
        yield together.take(np.argsort(together.times_ns, kind="stable"))
