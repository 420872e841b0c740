"""Latency histogram in the HDR layout: three significant digits at a bounded, mergeable cost.

Values are microseconds from 0 to one hour. The relative width of a bucket is at most 2^-10 (0.098 %), so a value
read back is never more than 0.1 % above the value recorded. n, min, max and sum are exact beside the counts; values above an hour are
counted in ``over`` (and take part in percentiles as the maximum), negative ones in ``invalid`` (and nowhere else).
Counts are an array up to the highest cell in use, grown by whole buckets: it is as large after a minute as after a day (62 kB a series for
answers below 100 ms, 188 kB at most), where a dict grew with every new cell. On the wire and on disk only cells in use travel, as bytes.
Layout: G. Tene's HdrHistogram, sub-bucket count 2048, unit magnitude 0.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
WHERE, NARROW, WIDE = np.dtype("<u2"), np.dtype("<u4"), np.dtype("<u8")
MOST_IN_A_CELL = (1 << 48) - 1
"""Of a histogram from elsewhere: so that no sum over all cells passes 63 bits."""
NUMBERS = ("n", "min_ns", "max_ns", "sum_ns", "over", "invalid")


class Histogram:
    """Counts of durations given in nanoseconds; see the module's guarantee. ``cells[i]``: count of cell i; cells beyond its end are 0."""

    __slots__ = ("cells", "invalid", "max_ns", "min_ns", "n", "over", "sum_ns")

    def __init__(self) -> None:
        self.cells: NDArray[np.int64] = np.zeros(0, np.int64)
        self.n = 0
        self.min_ns = -1
        self.max_ns = -1
        self.sum_ns = 0
        self.over = 0
        self.invalid = 0

    def _reach(self, index: int) -> None:
        """Make room up to a cell."""
        if index >= len(self.cells):
            grown = np.zeros(((index >> HALF_MAGNITUDE) + 1) << HALF_MAGNITUDE, np.int64)
            grown[: len(self.cells)] = self.cells
            self.cells = grown

    def record_ns(self, value_ns: int) -> None:
        """Count one duration. Negative (a clock stepped back): ``invalid`` only."""
        if value_ns < 0:
            self.invalid += 1
            return
        value_us = value_ns // 1000
        if value_us <= HIGHEST_US:
            index = index_of(value_us)
            self._reach(index)
            self.cells[index] += 1
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
        if len(inside):
            # frexp's exponent is the bit length; exact, since values are far below 2^53.
            bucket = np.frexp((inside | (SUB_BUCKETS - 1)).astype(np.float64))[1].astype(np.int64) - 11
            indices = (bucket << HALF_MAGNITUDE) + (inside >> bucket)
            self._reach(int(indices.max()))
            np.add.at(self.cells, indices, 1)
        self.n += len(valid)
        self.sum_ns += int(valid.sum(dtype=np.int64)) if len(valid) < 1 << 20 else sum(valid.tolist())
        low, high = int(valid.min()), int(valid.max())
        self.max_ns = max(self.max_ns, high)
        self.min_ns = low if self.min_ns < 0 else min(self.min_ns, low)

    def merge(self, other: Histogram) -> None:
        """Add the other's counts; exact, associative and commutative."""
        self._reach(len(other.cells) - 1)
        self.cells[: len(other.cells)] += other.cells
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
        index = int(np.searchsorted(np.cumsum(self.cells), rank))
        return self.max_ns if index == len(self.cells) else min(bounds_us(index)[1] * 1000 + 999, self.max_ns)

    def to_wire(self) -> dict[str, Any]:
        """For MessagePack: the cells in use as little-endian numbers, ``where`` 2 bytes each, ``counts`` 4 (8 where one needs it)."""
        where = np.flatnonzero(self.cells)
        counts = self.cells[where]
        narrow = not len(counts) or int(counts.max()) < 1 << 32
        packed = {"where": where.astype(WHERE).tobytes(), "counts": counts.astype(NARROW if narrow else WIDE).tobytes()}
        return {name: getattr(self, name) for name in NUMBERS} | packed

    def to_json(self) -> dict[str, Any]:
        """As :meth:`to_wire` with the bytes in base64: plain values for a file."""
        return {name: base64.b64encode(x).decode() if isinstance(x, bytes) else x for name, x in self.to_wire().items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """The inverse of :meth:`to_json` and :meth:`to_wire`. The data comes from another machine: ValueError unless every value is sane."""
        self = cls()
        for field in NUMBERS:
            value = data.get(field)
            if type(value) is not int or not -1 <= value < 1 << 96:
                raise ValueError(f"histogram field {field}: {value!r:.40} is not a whole number in range")
            setattr(self, field, value)
        where, counts = _cells(_bytes(data, "where"), _bytes(data, "counts"))
        if int(counts.sum()) + self.over != self.n or min(self.n, self.sum_ns, self.over, self.invalid) < 0:
            raise ValueError("histogram counts do not add up to n")
        if len(where):
            self._reach(int(where[-1]))
            self.cells[where] = counts
        return self


def _bytes(data: Mapping[str, Any], field: str) -> bytes:
    """A field that is bytes, or their base64 text."""
    value = data.get(field)
    if isinstance(value, str) and len(value) <= 12 * (LAST_INDEX + 1):
        try:
            value = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            value = None
    if not isinstance(value, bytes) or len(value) > WIDE.itemsize * (LAST_INDEX + 1):
        raise ValueError(f"histogram {field}: not the bytes of a histogram")
    return value


def _cells(where: bytes, counts: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cells from another machine: (indices, counts). Checked over all at once: the master does this for every worker and series each second."""
    used, odd = divmod(len(where), WHERE.itemsize)
    kind = next((kind for kind in (NARROW, WIDE) if len(counts) == used * kind.itemsize), None)
    if odd or kind is None:
        raise ValueError(f"histogram cells: {len(where)} bytes of indices with {len(counts)} bytes of counts")
    indices, numbers = np.frombuffer(where, WHERE).astype(np.int64), np.frombuffer(counts, kind)
    if used and not (
        (np.diff(indices) > 0).all() and indices[-1] <= LAST_INDEX and numbers.min() > 0 and numbers.max() <= MOST_IN_A_CELL
    ):
        raise ValueError("histogram cells: not in ascending order, out of range, or empty")
    return indices, numbers.astype(np.int64)
