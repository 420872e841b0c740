"""Latency histogram in the HDR layout: three significant digits at a bounded, mergeable cost.

Values are microseconds from 0 to one hour. The relative width of a bucket is at most 2^-10 (0.098 %), so a value
read back is never more than 0.1 % above the value recorded. n, min, max and sum are exact beside the counts; values above an hour are
counted in ``over`` (and take part in percentiles as the maximum), negative ones in ``invalid`` (and nowhere else).
Counts are sparse (a dict), since a live second of one series touches a few hundred of the 23,552 cells.
Layout: G. Tene's HdrHistogram, sub-bucket count 2048, unit magnitude 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from truetail.ranks import nearest_rank, to_ppm

HIGHEST_US = 3_600_000_000
SUB_BUCKETS = 2048
HALF = SUB_BUCKETS // 2
HALF_MAGNITUDE = 10


def index_of(value_us: int) -> int:
    """Cell of a value in microseconds, 0 <= value <= HIGHEST_US."""
    bucket = (value_us | (SUB_BUCKETS - 1)).bit_length() - 11
    return (bucket << HALF_MAGNITUDE) + (value_us >> bucket)


def bounds_us(index: int) -> tuple[int, int]:
    """Lowest and highest value (both included) of a cell."""
    bucket = (index >> HALF_MAGNITUDE) - 1
    if bucket < 0:
        return index, index
    low = (index - (bucket << HALF_MAGNITUDE)) << bucket
    return low, low + (1 << bucket) - 1


LAST_INDEX = index_of(HIGHEST_US)


class Histogram:
    """Counts of durations given in nanoseconds; see the module's guarantee."""

    __slots__ = ("counts", "invalid", "max_ns", "min_ns", "n", "over", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.n = 0
        self.min_ns = -1
        self.max_ns = -1
        self.sum_ns = 0
        self.over = 0
        self.invalid = 0

    def record_ns(self, value_ns: int) -> None:
        """Count one duration. Negative (a clock stepped back): ``invalid`` only."""
        if value_ns < 0:
            self.invalid += 1
            return
        value_us = value_ns // 1000
        if value_us <= HIGHEST_US:
            bucket = (value_us | 2047).bit_length() - 11
            index = (bucket << 10) + (value_us >> bucket)
            counts = self.counts
            counts[index] = counts.get(index, 0) + 1
        else:
            self.over += 1
        self.n += 1
        self.sum_ns += value_ns
        if value_ns > self.max_ns:
            self.max_ns = value_ns
        if self.min_ns < 0 or value_ns < self.min_ns:
            self.min_ns = value_ns

    def record_many_ns(self, values_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Count many durations at once; the same result as :meth:`record_ns` on each."""
        valid = values_ns[values_ns >= 0]
        self.invalid += len(values_ns) - len(valid)
        if not len(valid):
            return
        values_us = valid // 1000
        inside = values_us[values_us <= HIGHEST_US]
        self.over += len(valid) - len(inside)
        # frexp's exponent is the bit length; exact, since values are far below 2^53.
        bucket = np.frexp((inside | (SUB_BUCKETS - 1)).astype(np.float64))[1].astype(np.int64) - 11
        cells, cell_counts = np.unique((bucket << HALF_MAGNITUDE) + (inside >> bucket), return_counts=True)
        counts = self.counts
        for index, count in zip(cells.tolist(), cell_counts.tolist(), strict=True):
            counts[index] = counts.get(index, 0) + count
        self.n += len(valid)
        self.sum_ns += int(valid.sum(dtype=np.int64)) if len(valid) < 1 << 20 else sum(valid.tolist())
        low, high = int(valid.min()), int(valid.max())
        self.max_ns = max(self.max_ns, high)
        self.min_ns = low if self.min_ns < 0 else min(self.min_ns, low)

    def merge(self, other: Histogram) -> None:
        """Add the other's counts; exact, associative and commutative."""
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.n += other.n
        self.sum_ns += other.sum_ns
        self.over += other.over
        self.invalid += other.invalid
        self.max_ns = max(self.max_ns, other.max_ns)
        if other.min_ns >= 0:
            self.min_ns = other.min_ns if self.min_ns < 0 else min(self.min_ns, other.min_ns)

    def percentile_ns(self, percentile: str, infinite: int = 0) -> int | None:
        """Nearest-rank percentile, as the top of its cell (never above the exact maximum).

        ``infinite`` requests that never answered rank above every value. None: no data, or the rank falls among those.
        """
        total = self.n + infinite
        if total == 0:
            return None
        rank = nearest_rank(total, to_ppm(percentile))
        if rank > self.n:
            return None
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= rank:
                return min(bounds_us(index)[1] * 1000 + 999, self.max_ns)
        return self.max_ns

    def to_json(self) -> dict[str, Any]:
        """Plain values for the wire and for snapshots."""
        return {
            "n": self.n,
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
            "sum_ns": self.sum_ns,
            "over": self.over,
            "invalid": self.invalid,
            "counts": {str(i): c for i, c in self.counts.items()},
        }

    def to_wire(self) -> dict[str, Any]:
        """As :meth:`to_json` with cells as whole numbers, which MessagePack carries as they are: a tenth of the cost, each second, in a worker's event loop."""
        return {name: getattr(self, name) for name in ("n", "min_ns", "max_ns", "sum_ns", "over", "invalid")} | {
            "counts": dict(self.counts)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """The inverse of :meth:`to_json` and :meth:`to_wire`. The data comes from another machine: ValueError unless every value is sane."""
        self = cls()
        for field in ("n", "min_ns", "max_ns", "sum_ns", "over", "invalid"):
            value = data.get(field)
            if type(value) is not int or not -1 <= value < 1 << 96:
                raise ValueError(f"histogram field {field}: {value!r:.40} is not a whole number in range")
            setattr(self, field, value)
        counts = data.get("counts")
        if not isinstance(counts, Mapping) or len(counts) > LAST_INDEX + 1:
            raise ValueError("histogram counts: not a mapping of cell to count")
        self.counts = _cells(counts)
        if sum(self.counts.values()) + self.over != self.n or min(self.n, self.sum_ns, self.over, self.invalid) < 0:
            raise ValueError("histogram counts do not add up to n")
        return self


def _cells(counts: Mapping[Any, Any]) -> dict[int, int]:
    """Cells from another machine. The checks run over all of them at once: the master does this for every worker and series each second."""
    kinds = {*map(type, counts)}
    try:
        cells = dict(counts) if kinds == {int} else {int(key): count for key, count in counts.items()}
    except (TypeError, ValueError):
        cells = {}
    sane = (
        len(cells) == len(counts)
        and kinds <= {str, int}
        and {*map(type, counts.values())} <= {int}
        and (
            not cells
            or (min(cells) >= 0 and max(cells) <= LAST_INDEX and min(cells.values()) > 0 and max(cells.values()) < 1 << 62)
        )
    )
    if not sane:
        raise ValueError(f"histogram cells: {counts!r:.80}: a cell is out of range, or no whole number")
    return cells
