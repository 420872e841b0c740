"""ServeGen's client files: a rate and a law of the gaps per window (start s, rate/s, CV, law, shape, scale), realised as
arrivals.

Gaps are drawn in each window from its own law (Gamma or Weibull, mean 1/rate), starting anew at the window's start at a
random point of a gap. The file holds parameters, not arrivals, so the instants are a draw by the seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.line_blocks import line_blocks, lines_of
from shapes.traces.rows import Rows, Source
from shapes.traces.times import SECOND_NS

LAWS = ("Gamma", "Weibull")
FIELDS = 6
GAPS_AT_ONCE = 100_000


class Window(NamedTuple):
    """Arrivals at ``rate_rps`` from ``start_s`` on, with gaps after ``law`` with ``shape`` ("" and 0 where the rate is 0)."""

    line: int
    start_s: float
    rate_rps: float
    law: str
    shape: float


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """Arrivals realised from the windows, times from the start. Raises TraceError when no window has any."""
    windows = list(parsed(source, drops))
    if not any(window.rate_rps for window in windows):
        raise TraceError(f"{drops.file}: no window has a rate above 0")
    starts = [window.start_s for window in windows]
    if any(later <= earlier for earlier, later in itertools.pairwise(starts)):
        raise TraceError(f"{drops.file}: the windows' starts do not rise")
    drops.note("windows realised as arrivals by the seed; the file has no instants", len(windows))
    last_width = starts[-1] - starts[-2] if len(starts) > 1 else 600.0
    ends = [*starts[1:], starts[-1] + last_width]
    for window, end_s in zip(windows, ends, strict=True):
        if window.rate_rps:
            yield from _realised(window, end_s, source.seed)


def parsed(source: Source, drops: Drops) -> Iterator[Window]:
    """The windows of the file, bad lines dropped by name."""
    for block in line_blocks(source.path, drops):
        for line, text in lines_of(block, drops):
            fields = [part.strip() for part in text.split(",")]
            try:
                yield _window(line, fields)
            except ValueError as fault:
                drops.drop(str(fault), line, "", text)


def _window(line: int, fields: list[str]) -> Window:
    if len(fields) != FIELDS:
        raise ValueError(f"not {FIELDS} fields")
    try:
        start_s, rate_rps, shape = float(fields[0]), float(fields[1]), float(fields[4])
    except ValueError:
        raise ValueError("not a number") from None
    if not all(math.isfinite(number) and number >= 0 for number in (start_s, rate_rps, shape)):
        raise ValueError("a negative or infinite number")
    if rate_rps > 1e6 or start_s > 1e9:
        raise ValueError("a rate above 1e6/s or a start above 1e9 s")
    if rate_rps and (fields[3] not in LAWS or not 0.01 <= shape <= 1000):
        raise ValueError(f"neither {' nor '.join(LAWS)} with a shape of 0.01 to 1000")
    return Window(line, start_s, rate_rps, fields[3], shape)


def _realised(window: Window, end_s: float, seed: int) -> Iterator[Rows]:
    random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), window.line]))
    width_s = end_s - window.start_s
    # A stationary start: the window opens somewhere within a gap, which is a long one more often than a short one.
    first = _gaps(window, random, 1000)
    at_s = float(random.choice(first, p=first / first.sum()) * random.random())
    while at_s < width_s:
        gaps = _gaps(window, random, int(min(GAPS_AT_ONCE, (width_s - at_s) * window.rate_rps + 100)))
        offsets = np.concatenate([[at_s], at_s + np.cumsum(gaps)])
        at_s = float(offsets[-1])
        inside = offsets[:-1][offsets[:-1] < width_s]
        times = np.rint((window.start_s + inside) * SECOND_NS).astype(np.int64)
        yield Rows(times, {}, np.full(len(times), window.line, np.int64), "start")


def _gaps(window: Window, random: np.random.Generator, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    if window.law == "Gamma":
        return random.gamma(window.shape, 1 / (window.shape * window.rate_rps), n)
    return random.weibull(window.shape, n) / (math.gamma(1 + 1 / window.shape) * window.rate_rps)
