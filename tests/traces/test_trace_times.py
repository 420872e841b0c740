"""Times: every form to the exact nanosecond, against datetime, zoneinfo and DuckDB; the vectorised way gives what the
careful one does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes.traces.drops import TraceError
from shapes.traces.times import TimeKind, column_ns, detect_kind, iso_utc, parse_ns

ISO, CLF = TimeKind("iso"), TimeKind("clf")
instants = st.integers(min_value=631152000 * 10**9, max_value=4102444799 * 10**9)
T = 1700158623_979960012  # 2023-11-16T18:17:03.979960012Z


@pytest.mark.parametrize(("text", "expected"), [
    ("2023-11-16 18:17:03.9799600", T - 12),
    ("2023-11-16T18:17:03.979960012Z", T),
    ("2023-11-16t18:17:03.979960012z", T),
    ("2023-11-16 18:17:03,979", T - 960012),
    ("2023-11-16 18:17:03", T - 979960012),
    ("2023-11-16 18:17", T - 979960012 - 3 * 10**9),
    ("2023-11-16T20:17:03.979960012+02:00", T),
    ("2023-11-16T20:17:03.979960012+0200", T),
    ("2023-11-16T20:17:03.979960012 +02", T),
    ("2023-11-16T12:47:03.979960012-05:30", T),
    ("2016-12-31T23:59:60.5Z", 1483228800_500000000),
])  # fmt: skip
def test_iso_forms(text: str, expected: int) -> None:
    """Offsets, separators and 0 to 9 digits; a leap second is the next minute's first, as POSIX has it."""
    assert parse_ns(text, ISO) == expected


@given(instants, st.integers(0, 9), st.integers(-14 * 60, 14 * 60))
@settings(max_examples=200, deadline=None)
def test_iso_round_trip_with_any_offset_and_digits(time_ns: int, digits: int, offset_min: int) -> None:
    """What datetime writes in any zone, with digits appended by hand, is read back exactly, one by one and as a column."""
    whole, fraction = divmod(time_ns, 10**9)
    local = datetime.fromtimestamp(whole, timezone(timedelta(minutes=offset_min)))
    shown = f"{fraction:09d}"[:digits]
    text = local.strftime("%Y-%m-%dT%H:%M:%S") + (f".{shown}" if digits else "") + local.strftime("%z")
    expected = whole * 10**9 + int(shown.ljust(9, "0") or 0)
    assert parse_ns(text, ISO) == expected
    column = column_ns(pa.array([text]), ISO)
    assert column is None or column.tolist() == [expected]
    assert parse_ns(iso_utc(time_ns), ISO) == time_ns


@given(instants, st.sampled_from(["s", "ms", "us", "ns"]))
@settings(max_examples=200, deadline=None)
def test_epoch_numbers_keep_their_last_digit(time_ns: int, unit: str) -> None:
    """Decimal seconds with nine digits do not fit a float; here they are exact, both ways, and the unit is found out."""
    digits = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    whole, rest = divmod(time_ns, 10**digits)
    text = f"{whole}.{rest:0{digits}d}" if digits else str(whole)
    kind = TimeKind(unit)
    assert parse_ns(text, kind) == time_ns
    column = column_ns(pa.array([text, text]), kind)
    assert column is not None
    assert column.tolist() == [time_ns, time_ns]
    if time_ns >= 10**18:
        assert detect_kind([text], "auto", "UTC", "x") == kind


@given(instants, st.integers(-12 * 60, 14 * 60))
@settings(max_examples=100, deadline=None)
def test_log_times(time_ns: int, offset_min: int) -> None:
    """The common log format as strftime writes it, with any offset."""
    local = datetime.fromtimestamp(time_ns // 10**9, timezone(timedelta(minutes=offset_min)))
    assert parse_ns(local.strftime("%d/%b/%Y:%H:%M:%S %z"), CLF) == time_ns // 10**9 * 10**9


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca"]
)
def test_local_times_through_every_change_of_the_clocks(zone: str, tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """A clock read every 10 minutes in the weeks of a year's changes: both readings of the repeated hour are told apart, and
    nothing is lost or reordered.
    """
    start = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
    instants_s = [start + 600 * step for step in [*range(60 * 144, 120 * 144), *range(270 * 144, 320 * 144)]]
    walls = [datetime.fromtimestamp(second, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S") for second in instants_s]
    path = tmp_path / "local.csv"
    path.write_text("time\n" + "\n".join(walls) + "\n")
    rows, recording = read_whole(path, timezone=zone)
    assert recording.drops.lost == 0
    assert rows.times_ns.tolist() == [second * 10**9 for second in instants_s]


def test_without_the_zone_the_repeated_hour_shows_as_a_jump(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Local times read as UTC: the hour that repeats is out of order, is dropped by name, and the name says what may be
    missing.
    """
    path = tmp_path / "local.csv"
    path.write_text(
        "time\n2024-10-27 02:58:00\n2024-10-27 02:59:00\n2024-10-27 02:00:00\n2024-10-27 02:01:00\n2024-10-27 03:00:00\n"
    )
    _, recording = read_whole(path)
    ((reason, count),) = recording.drops.dropped.items()
    assert count == 2
    assert "a timezone may be missing" in reason


@pytest.mark.parametrize(("samples", "unit", "clock"), [
    (["0", "3000"], "s", "start"), (["0.25", "3.5"], "s", "start"), (["1700000000"], "s", "utc"), (["1700000000000"], "ms", "utc"),
    (["1700000000000000"], "us", "utc"), (["1700000000000000000"], "ns", "utc"), (["", "1700000000.5"], "s", "utc"),
])  # fmt: skip
def test_units_are_found_out(samples: list[str], unit: str, clock: str) -> None:
    """Magnitude tells epoch units apart; small numbers are seconds from the start."""
    assert detect_kind(samples, "auto", "UTC", "x") == TimeKind(unit, "UTC", clock)


def test_a_unit_that_cannot_be_told_has_to_be_stated() -> None:
    """2e9 ms of a relative clock look like nothing; once stated, they are read."""
    with pytest.raises(TraceError, match="state time_unit"):
        detect_kind(["5000000000"], "auto", "UTC", "x")
    assert detect_kind(["5000000000"], "ms", "UTC", "x") == TimeKind("ms", "UTC", "start")
