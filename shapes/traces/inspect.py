"""What a trace looks like: rate over time, dispersion of counts, gaps, bursts on the hour, sizes. One streamed pass, bounded
memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapes.traces.drops import TraceError
from shapes.traces.rows import NOT_TOLD, NUMBERS, WHOLE_NUMBERS, Rows
from shapes.traces.times import SECOND_NS, Ints, iso_utc

IDC_WIDTHS_S = (1, 10, 60)
MOST_BINS = 40_000_000  # of 4 bytes: 463 days of seconds
LEAST_BINS = 10
GAPS_SHOWN = 5
MOST_SESSIONS = 1_000_000
SIZE_STEP = 1.01  # sizes are counted in bins 1 % wide
RESOLUTIONS_NS = (60 * SECOND_NS, SECOND_NS, 10**6, 10**3, 1)
HOUR_BURST_RATIO = 1.5
HOURS_NEEDED = 3
MANY_EQUAL = 0.2


class Counts:
    """Counts in bins of ``width_s`` from the first arrival on; gives up (``values`` None) when there would be too many bins."""

    def __init__(self, width_s: int) -> None:
        self.width_ns = width_s * SECOND_NS
        self.values: np.ndarray[Any, np.dtype[np.int32]] | None = np.zeros(1024, np.int32)
        self.highest = 0

    def add(self, times: Ints) -> None:
        """Sorted times from the first arrival, not before those added already."""
        bins = times // self.width_ns
        self.highest = int(bins[-1])
        if self.values is None or self.highest >= MOST_BINS:
            self.values = None
            return
        if self.highest >= len(self.values):
            more = min(MOST_BINS, max(2 * len(self.values), self.highest + 1))
            self.values = np.concatenate([self.values, np.zeros(more - len(self.values), np.int32)])
        first = int(bins[0])
        self.values[first : self.highest + 1] += np.bincount(bins - first, minlength=self.highest + 1 - first).astype(np.int32)

    def whole(self, span_ns: int) -> np.ndarray[Any, np.dtype[np.int32]] | None:
        """Counts of the bins that lie wholly within the span."""
        return None if self.values is None else self.values[: min(span_ns // self.width_ns, self.highest + 1)]


def dispersion(counts: np.ndarray[Any, Any] | None) -> float | None:
    """Index of dispersion of counts, variance (n - 1) over mean; None with too few bins, or none filled. Poisson has 1."""
    if counts is None or len(counts) < LEAST_BINS or not counts.any():
        return None
    mean = counts.mean(dtype=np.float64)
    return float(counts.var(dtype=np.float64, ddof=1) / mean)


@dataclass
class Sizes:
    """A column's distribution in bins 1 % wide, with exact count, sum, least and most."""

    n: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    bins: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(4096, np.int64))

    def add(self, values: np.ndarray[Any, Any], scale: float) -> None:
        """Count values >= 0; ``scale`` brings the smallest of interest to about 1."""
        if not len(values):
            return
        self.n, self.total = self.n + len(values), self.total + float(values.sum(dtype=np.float64))
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
        at = np.rint(np.log(values.astype(np.float64) * scale + 1) / math.log(SIZE_STEP)).astype(np.int64)
        self.bins += np.bincount(np.minimum(at, len(self.bins) - 1), minlength=len(self.bins))

    def percentile(self, q: float, scale: float) -> float:
        """The nearest-rank percentile, within 1 %; least and most exactly."""
        at = int(np.searchsorted(np.cumsum(self.bins), math.ceil(q * self.n), "left"))
        return min(self.most, max(self.least, (SIZE_STEP**at - 1) / scale))


class Inspection:
    """Figures of a trace, gathered block by block with :meth:`add`, told by :meth:`to_json`; times count from ``origin_ns``."""

    def __init__(self, origin_ns: int = 0) -> None:
        self.origin_ns = origin_ns
        self.counts = {width: Counts(width) for width in IDC_WIDTHS_S}
        self.n = self.equal = self.identical = 0
        self.first_ns = self.last_ns = 0
        self.clock = "utc"
        self.gap_sum = self.gap_squares = 0.0
        self.longest: list[tuple[int, int]] = []
        self.sizes: dict[str, Sizes] = {}
        self.sessions: set[int] = set()
        self.in_session = 0
        self.minutes = np.zeros(60, np.int64)
        self.resolution = 0

    def add(self, rows: Rows) -> None:
        """Rows in order of time."""
        times = rows.times_ns
        if not self.n:
            self.first_ns = self.last_ns = int(times[0])
            self.clock = rows.clock
        gaps = np.diff(times, prepend=self.last_ns)[0 if self.n else 1 :]
        self._add_gaps(gaps, times)
        for counts in self.counts.values():
            counts.add(times - self.first_ns)
        self.minutes += np.bincount(((times + self.origin_ns) // (60 * SECOND_NS)) % 60, minlength=60)
        while self.resolution < len(RESOLUTIONS_NS) - 1 and ((times + self.origin_ns) % RESOLUTIONS_NS[self.resolution]).any():
            self.resolution += 1
        self._add_columns(rows)
        self.n, self.last_ns = self.n + len(times), int(times[-1])

    def _add_gaps(self, gaps: Ints, times: Ints) -> None:
        seconds = gaps / SECOND_NS
        self.gap_sum, self.gap_squares = self.gap_sum + float(seconds.sum()), self.gap_squares + float((seconds * seconds).sum())
        self.equal += int((gaps == 0).sum())
        ends = times[len(times) - len(gaps) :]
        largest = np.argpartition(gaps, -min(GAPS_SHOWN, len(gaps)))[-GAPS_SHOWN:] if len(gaps) else gaps
        found = [(int(gaps[at]), int(ends[at] - gaps[at] - self.first_ns)) for at in largest.tolist()]
        self.longest = heapq.nlargest(GAPS_SHOWN, self.longest + found)

    def _add_columns(self, rows: Rows) -> None:
        same = np.diff(rows.times_ns) == 0
        for name, column in rows.columns.items():
            if name in WHOLE_NUMBERS and name != "status":
                self.sizes.setdefault(name, Sizes()).add(column[column != NOT_TOLD], 1.0)
            elif name in NUMBERS:
                self.sizes.setdefault(name, Sizes()).add(column[~np.isnan(column)], 1e6)
            elif name == "session":
                named = [session for session in column.tolist() if session]
                self.in_session += len(named)
                if len(self.sessions) < MOST_SESSIONS:
                    self.sessions.update(hash(session) for session in named)
            equal = column[1:] == column[:-1]
            same &= (equal | (np.isnan(column[1:]) & np.isnan(column[:-1]))) if name in NUMBERS else equal
        self.identical += int(same.sum()) if rows.columns else 0

    @property
    def span_s(self) -> float:
        """From the first to the last arrival."""
        return (self.last_ns - self.first_ns) / SECOND_NS

    @property
    def gap_cv(self) -> float | None:
        """Standard deviation (n) over mean of the gaps; None with fewer than two gaps or all at once."""
        gaps = self.n - 1
        if gaps < 2 or not self.gap_sum:
            return None
        mean = self.gap_sum / gaps
        return math.sqrt(max(0.0, self.gap_squares / gaps - mean * mean)) / mean

    def on_the_hour(self) -> dict[str, Any] | None:
        """Arrivals in minute 0 of the hour against the other minutes; None for a trace without wall clock or of fewer than 3
        hours.
        """
        hours = self.span_s / 3600
        if self.clock == "start" or hours < HOURS_NEEDED:
            return None
        others = float(np.delete(self.minutes, 0).mean())
        busiest = int(self.minutes.argmax())
        ratio = None if not others else float(self.minutes[0] / others)
        return {
            "minute_0_over_others": ratio,
            "burst": bool(ratio is None or ratio >= HOUR_BURST_RATIO),
            "busiest_minute": busiest,
            "busiest_share": float(self.minutes[busiest] / self.minutes.sum()),
        }

    def to_json(self) -> dict[str, Any]:
        """All figures as plain JSON; what cannot be told is null. Raises TraceError when nothing was added."""
        if not self.n:
            raise TraceError("no arrivals to inspect")
        span_ns = self.last_ns - self.first_ns
        minutes = self.counts[60].whole(span_ns)
        peak = self.counts[1].values
        return {
            "arrivals": self.n,
            "clock": self.clock,
            "first": self._instant(self.first_ns),
            "last": self._instant(self.last_ns),
            "span_s": self.span_s,
            "rate_rps": (self.n - 1) / self.span_s if span_ns else None,
            "peak_1s": None if peak is None else int(peak.max()),
            "idc": {f"{width}s": dispersion(counts.whole(span_ns)) for width, counts in self.counts.items()},
            "gap_cv": self.gap_cv,
            "resolution_s": RESOLUTIONS_NS[self.resolution] / SECOND_NS,
            "equal_times_share": self.equal / max(1, self.n - 1),
            "identical_rows": self.identical,
            "empty_minutes": None if minutes is None else int((minutes == 0).sum()),
            "longest_gaps": [{"length_s": gap / SECOND_NS, "at_s": at / SECOND_NS} for gap, at in self.longest],
            "on_the_hour": self.on_the_hour(),
            "sessions": len(self.sessions) if self.sessions else None,
            "in_session_share": self.in_session / self.n,
            "sizes": {name: self._sizes(name) for name, sizes in self.sizes.items() if sizes.n},
        }

    def _instant(self, time_ns: int) -> str | float:
        time_ns += self.origin_ns
        return iso_utc(time_ns) if self.clock == "utc" else time_ns / SECOND_NS

    def _sizes(self, name: str) -> dict[str, float]:
        sizes, scale = self.sizes[name], 1e6 if name in NUMBERS else 1.0
        quantiles = {f"p{percent}": sizes.percentile(percent / 100, scale) for percent in (50, 90, 99)}
        return {"told": sizes.n, "mean": sizes.total / sizes.n, "min": sizes.least, **quantiles, "max": sizes.most}

    def remarks(self) -> list[str]:
        """What a person should know before replaying it."""
        found = []
        share = self.equal / max(1, self.n - 1)
        if share >= MANY_EQUAL:
            resolution = RESOLUTIONS_NS[self.resolution] / SECOND_NS
            found.append(
                f"{share:.0%} of the times equal the one before (resolution {resolution:g} s): an exact replay sends herds that "
                "production may not have had; mode: poisson spreads them"
            )
        hour = self.on_the_hour()
        if hour is not None:
            found.append(
                "bursts on the hour: minute 0 is far above the others" if hour["burst"] else "no burst at minute 0 of the hours"
            )
        if self.counts[1].values is None:
            found.append(f"too long for counts per second (more than {MOST_BINS} s)")
        return found


def inspected(blocks: Iterable[Rows], origin_ns: int = 0) -> Inspection:
    """The figures of rows in order of time, whose times count from ``origin_ns`` on the trace's clock."""
    inspection = Inspection(origin_ns)
    for rows in blocks:
        inspection.add(rows)
    return inspection
