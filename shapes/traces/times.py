"""Times as traces write them, as exact int64 nanoseconds: ISO 8601, epoch numbers, the common log format.

Nothing goes through a binary float: an epoch second with nine digits keeps its last one. A whole column is parsed at once
where every value is regular (:func:`column_ns`); what that refuses is parsed value by value (:func:`parse_ns`), which says
what is wrong.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from shapes.traces.drops import TraceError, quoted

Ints = np.ndarray[Any, np.dtype[np.int64]]

SECOND_NS = 10**9
PER_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNITS = ("auto", "iso", "clf", *PER_UNIT_NS)

EARLIEST_UTC_NS = calendar.timegm((1990, 1, 1, 0, 0, 0)) * SECOND_NS
LATEST_UTC_NS = calendar.timegm((2100, 1, 1, 0, 0, 0)) * SECOND_NS
MAX_RELATIVE_NS = 10 * 366 * 86400 * SECOND_NS

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?\s*([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_CLF = re.compile(r"\[?([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))? ([+-][0-9]{4})\]?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,25}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?")
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}


class TimeKind(NamedTuple):
    """How a trace writes time: the unit ("iso", "clf", "s", "ms", "us", "ns"), the zone of local times, and what zero is."""

    unit: str
    zone: str = "UTC"
    clock: str = "utc"


def parse_ns(raw: Any, kind: TimeKind, last_ns: int | None = None) -> int:
    """Nanoseconds of one time. ``last_ns`` (of the row before) settles which of two an ambiguous local hour is. Raises
    ValueError.
    """
    text = "" if raw is None else str(raw).strip()
    if not text:
        raise ValueError("no time")
    if kind.unit == "iso":
        return _iso_ns(text, kind.zone, last_ns)
    if kind.unit == "clf":
        return _clf_ns(text)
    if isinstance(raw, bool) or not _NUMBER.fullmatch(text):
        raise ValueError(f"not a number of {kind.unit}")
    return round(Decimal(text) * PER_UNIT_NS[kind.unit])


def check_range(time_ns: int, clock: str) -> None:
    """Raise ValueError for an instant that no trace holds: before 1990 or after 2100, or beyond ten years from the start."""
    if clock == "utc":
        if not EARLIEST_UTC_NS <= time_ns < LATEST_UTC_NS:
            raise ValueError("a time outside 1990 to 2100")
    elif time_ns < 0:
        raise ValueError("a negative time")
    elif time_ns > MAX_RELATIVE_NS:
        raise ValueError("a time more than ten years from the start")


def _iso_ns(text: str, zone: str, last_ns: int | None) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("not an ISO 8601 time (like 2024-05-10 00:00:00.009930+00:00)")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    whole = _whole_seconds(year, month, day, hour, minute, int(match[6] or 0))
    fraction = _fraction_ns(match[7])
    if match[8]:
        return (whole - _offset_s(match[8])) * SECOND_NS + fraction
    if zone == "UTC":
        return whole * SECOND_NS + fraction
    return _local_seconds(whole, zone, last_ns) * SECOND_NS + fraction


def _clf_ns(text: str) -> int:
    match = _CLF.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        raise ValueError("not a log time (like 17/May/2015:10:05:03 +0000)")
    whole = _whole_seconds(int(match[3]), _MONTHS[match[2]], int(match[1]), int(match[4]), int(match[5]), int(match[6]))
    return (whole - _offset_s(match[8])) * SECOND_NS + _fraction_ns(match[7])


def _whole_seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("a time of day that does not exist")
    leap = second == 60  # a leap second counts as the first of the next minute, as POSIX time does
    if leap and minute != 59:
        raise ValueError("a time of day that does not exist")
    return _minute_s(year, month, day, hour, minute) + second


@lru_cache(maxsize=4096)
def _minute_s(year: int, month: int, day: int, hour: int, minute: int) -> int:
    try:
        at = datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        raise ValueError("a date that does not exist") from None
    return calendar.timegm(at.timetuple())


def _fraction_ns(digits: str | None) -> int:
    if not digits:
        return 0
    if len(digits) > 9:
        raise ValueError("more than 9 fraction digits")
    return int(digits.ljust(9, "0"))


def _offset_s(text: str) -> int:
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise ValueError("an offset that does not exist")
    return (-1 if text[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def _local_seconds(whole: int, zone: str, last_ns: int | None) -> int:
    """UTC seconds of a wall-clock reading: of two readings in the hour that repeats, the first that is not before the row
    before.
    """
    second_of_minute = whole % 60
    first, second = (minute + second_of_minute for minute in _local_minute_s(whole - second_of_minute, zone))
    if first > second:  # PEP 495: for a reading that the clocks skipped, fold 0 lies after fold 1
        raise ValueError(f"a local time that does not exist in {zone} (clocks went forward)")
    if first == second or last_ns is None:
        return first
    return first if last_ns - first * SECOND_NS < (second - first) * SECOND_NS // 2 else second


@lru_cache(maxsize=4096)
def _local_minute_s(whole: int, zone: str) -> tuple[int, int]:
    wall = datetime(1970, 1, 1) + timedelta(seconds=whole)
    first, second = (int(wall.replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) for fold in (0, 1))
    return first, second


def column_ns(column: Any, kind: TimeKind) -> Ints | None:
    """A whole Arrow string column at once as int64 ns; None when any value needs the careful way or lies out of range."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if kind.unit == "iso":
            times = _iso_column(column, kind.zone, pa, pc)
        elif kind.unit == "clf":
            return None
        else:
            times = decimal_ns(column.cast(pa.decimal128(38, len(str(PER_UNIT_NS[kind.unit])) - 1)))
    except pa.ArrowInvalid:
        return None
    return times if in_range(times, kind.clock) else None


def in_range(times: Ints | None, clock: str) -> bool:
    """Whether every time passes :func:`check_range`."""
    if times is None or not len(times):
        return times is not None
    low, high = (EARLIEST_UTC_NS, LATEST_UTC_NS - 1) if clock == "utc" else (0, MAX_RELATIVE_NS)
    return bool(times.min() >= low and times.max() <= high)


def _iso_column(column: Any, zone: str, pa: Any, pc: Any) -> Ints | None:
    shortest = pc.min(pc.binary_length(column)).as_py()
    if column.null_count or shortest is None or shortest < len("2023-11-16 18:17"):
        return None
    try:  # Arrow refuses the one where any value has no offset, the other where any has one
        return to_int64(column.cast(pa.timestamp("ns", "UTC")))
    except pa.ArrowInvalid:
        times = column.cast(pa.timestamp("ns"))
    return to_int64(times if zone == "UTC" else pc.assume_timezone(times, zone, ambiguous="raise", nonexistent="raise"))


def to_int64(column: Any) -> Ints:
    """The int64 values of an Arrow column (timestamps in their own unit) without nulls."""
    import pyarrow as pa

    values: Ints = np.asarray(column.cast(pa.int64()))
    return values


def decimal_ns(column: Any) -> Ints | None:
    """The unscaled values of an Arrow decimal128 column: ns where the scale is that of the unit. None with nulls or beyond
    int64.
    """
    arrays = column.chunks if hasattr(column, "chunks") else [column]
    parts = []
    for array in arrays:
        words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        low, high = words[::2], words[1::2]
        if array.null_count or not np.array_equal(high, low >> 63):
            return None
        parts.append(low)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def detect_kind(samples: Sequence[Any], unit: str, zone: str, where: str) -> TimeKind:
    """The kind of time that ``samples`` (the first values of a column) are written in; ``unit`` other than "auto" is taken
    as stated.

    Raises TraceError, starting with ``where``, when no kind fits or the unit of a bare number cannot be told.
    """
    if unit not in UNITS:
        raise TraceError(f"{where}: time unit {quoted(unit)} is not one of {', '.join(UNITS)}")
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise TraceError(f"{where}: no time zone is called {quoted(zone)}; allowed are IANA names like Europe/Berlin") from None
    texts = [str(sample).strip() for sample in samples if sample not in (None, "") and not isinstance(sample, bool)]
    numbers = sorted(abs(Decimal(text)) for text in texts if _NUMBER.fullmatch(text))
    middle = numbers[len(numbers) // 2] if numbers else None
    if unit in PER_UNIT_NS:
        return TimeKind(unit, zone, _clock(middle, unit))
    if unit != "auto":
        return TimeKind(unit, zone)
    counts = {"iso": sum(_ISO.fullmatch(t) is not None for t in texts), "clf": sum(_CLF.fullmatch(t) is not None for t in texts)}
    likeliest = max(counts, key=lambda name: counts[name])
    if counts[likeliest] and counts[likeliest] >= len(numbers):
        return TimeKind(likeliest, zone)
    if middle is None:
        raise TraceError(
            f"{where}: no times found in the first {len(samples)} values, the first is {quoted(samples[0] if samples else '')}"
        )
    return _numeric_kind(middle, max(numbers), zone, where)


def _numeric_kind(middle: Decimal, highest: Decimal, zone: str, where: str) -> TimeKind:
    for unit, per_unit_ns in PER_UNIT_NS.items():
        # Since 2001, seconds, ms, us and ns of the epoch lie in ranges that do not meet until the year 2100.
        if 10**9 <= middle * per_unit_ns / SECOND_NS <= LATEST_UTC_NS // SECOND_NS:
            return TimeKind(unit, zone)
    if highest < 10**8:
        return TimeKind("s", zone, "start")
    raise TraceError(f"{where}: cannot tell the unit of times like {middle}; state time_unit: s, ms, us or ns")


def _clock(middle: Decimal | None, unit: str) -> str:
    return "utc" if middle is not None and middle * PER_UNIT_NS[unit] >= EARLIEST_UTC_NS else "start"


def iso_utc(time_ns: int) -> str:
    """``2023-11-16T18:17:03.979960000Z``: nine digits, always."""
    whole, fraction = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
