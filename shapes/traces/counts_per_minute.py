"""Counts per function and minute (the Azure Functions form): a rate curve, from which arrivals are drawn.

Within a minute the instants are drawn uniformly (what a Poisson process with that count does): the counts are the trace's,
the instants are not, and inspecting the trace below a minute shows the draw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.header import delimiter_of, split
from shapes.traces.line_blocks import line_blocks, lines_of
from shapes.traces.rows import MAX_WHOLE_NUMBER, Rows, Source
from shapes.traces.times import SECOND_NS, Ints

MINUTE_NS = 60 * SECOND_NS
MOST_ARRIVALS_AT_ONCE = 200_000
MOST_MINUTES = 14 * 1440

_MINUTE = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z_][\w -]*")
_COUNT = re.compile(r"[0-9]{1,16}")


def is_header(fields: Sequence[str]) -> bool:
    """Whether a header line has columns 1, 2, 3, ... of minutes, after any names."""
    minutes = [field for field in fields if _MINUTE.fullmatch(field.strip())]
    names = [field.strip() for field in fields if field not in minutes]
    return (
        len(minutes) >= 2
        and all(_NAME.fullmatch(name) for name in names)
        and [int(minute) for minute in minutes] == list(range(1, len(minutes) + 1))
    )


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """Arrivals whose counts per minute are the file's sums over all functions. Raises TraceError."""
    counts = totals(source, drops)
    drops.note("instants within a minute are drawn, not recorded", int(counts.sum()))
    return drawn(counts, MINUTE_NS, source.seed)


def totals(source: Source, drops: Drops) -> Ints:
    """The sum over all rows of each minute's count. A row with any bad count is dropped whole. Raises TraceError."""
    sums: Ints | None = None
    at: list[int] = []
    names: list[str] = []
    for block in line_blocks(source.path, drops):
        for line, text in lines_of(block, drops):
            if sums is None:
                delimiter = delimiter_of(text)
                names = [name.strip() for name in split(text, delimiter) or []]
                if not is_header(names):
                    raise TraceError(f"{drops.place(line)}: no columns 1, 2, 3, ... of minutes in the header")
                at = [number for number, name in enumerate(names) if _MINUTE.fullmatch(name)]
                if len(at) > MOST_MINUTES:
                    raise TraceError(f"{drops.place(line)}: {len(at)} minutes in a row, at most {MOST_MINUTES} are read")
                sums = np.zeros(len(at), np.int64)
                continue
            fields = split(text, delimiter)
            if fields is None or len(fields) != len(names):
                drops.drop("a wrong number of fields", line, "", text)
                continue
            bad = next((number for number in at if not _COUNT.fullmatch(fields[number].strip() or "0")), None)
            if bad is not None:
                drops.drop("not a count", line, f"minute {names[bad]}", fields[bad])
                continue
            sums += np.array([int(fields[number] or 0) for number in at], np.int64)
            if sums.max(initial=0) > MAX_WHOLE_NUMBER // 2**10:
                raise TraceError(f"{drops.place(line)}: counts beyond {MAX_WHOLE_NUMBER // 2**10} in a minute")
    if sums is None or not sums.any():
        raise TraceError(f"{drops.file}: no arrivals in any minute")
    return sums


def drawn(counts: Ints, width_ns: int, seed: int) -> Iterator[Rows]:
    """Sorted instants, uniform within each bin of ``width_ns``; bins of very many arrivals are drawn slice by slice
    (binomially).
    """
    for number, count in enumerate(counts.tolist()):
        random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), number]))
        slices = max(1, -(-count // MOST_ARRIVALS_AT_ONCE))
        edges = np.linspace(0, width_ns, slices + 1).astype(np.int64)
        left = count
        for piece in range(slices):
            here = left if piece == slices - 1 else int(random.binomial(left, 1 / (slices - piece)))
            left -= here
            if here:
                times = number * width_ns + np.sort(random.integers(edges[piece], edges[piece + 1], here))
                yield Rows(times, {}, np.full(here, number + 1, np.int64), "midnight")
