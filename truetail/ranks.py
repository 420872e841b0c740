"""Nearest-rank percentiles by integer arithmetic.

The q-th percentile of n sorted values is x_(ceil(q n)). Floats get the rank wrong (99.9 / 100 * 1000 is
999.0000000000001), so q is held as parts per million and the ceiling is taken in integers.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

PPM = 1_000_000


def to_ppm(percentile: str | int) -> int:
    """Parts per million of a percentile given as text: ``"99.9"`` -> 999000.

    Raises ValueError for anything but a decimal in (0, 100] with at most four digits after the point.
    """
    try:
        value = Decimal(str(percentile)) * 10_000
    except InvalidOperation:
        raise ValueError(f"percentile {percentile!r} is not a number") from None
    if not value.is_finite() or value != int(value) or not 0 < value <= PPM:
        raise ValueError(f"percentile {percentile!r} must lie in (0, 100] with at most four decimals")
    return int(value)


def nearest_rank(n: int, ppm: int) -> int:
    """The rank (1-based) of the percentile among n values: max(1, ceil(n ppm / 10^6)); n >= 1."""
    if n < 1:
        raise ValueError("no values: a percentile of nothing does not exist")
    return max(1, -(-ppm * n // PPM))
