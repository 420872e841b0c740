"""Durations, rates, sizes and shares: read exactly, written back to the same value, refused with what was found and allowed."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetail import units

floats = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05), ("250us", 0.00025), ("250µs", 0.00025), ("250μs", 0.00025), ("7ns", 7e-9), ("2m", 120.0), ("2min", 120.0),
        ("1h30m", 5400.0), ("1h 30m 5s", 5405.0), ("1.5 s", 1.5), (".5s", 0.5), ("1d", 86400.0), ("1e-3s", 0.001), ("30", 30.0),
        (30, 30.0), (0.25, 0.25), (0, 0.0), ("0s", 0.0),
    ],
)  # fmt: skip
def test_durations_are_seconds(text, seconds):
    """What people write is the float nearest to it."""
    assert units.parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "wrong",
    ["", "fast", "ms", "-5ms", "5 parsec", "5s5s", "30m1h", "1h junk", "5ms5", "nan", "inf", "1e9999s", "1e99999s", "5,5s", "0x5s",
     "\u0665s", float("nan"), float("inf"), -1, True, None, [], {}, "s" * 10_000],
)  # fmt: skip
def test_wrong_durations_say_what_is_allowed(wrong):
    """Junk, negatives, NaN and infinity are refused with one readable line."""
    with pytest.raises(ValueError, match=r"found .*duration like 50ms") as error:
        units.parse_duration_s(wrong)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("text", "rps"),
    [
        ("60/s", 60.0),
        ("1200/min", 20.0),
        ("1200/m", 20.0),
        ("3.6k/h", 1.0),
        ("2M/d", 2e6 / 86400),
        ("50 rps", 50.0),
        ("5/ms", 5000.0),
        (12.5, 12.5),
    ],
)
def test_rates_are_per_second(text, rps):
    """Rates over any unit of time become 1/s."""
    assert units.parse_rate_rps(text) == rps


@pytest.mark.parametrize("wrong", ["/s", "60/", "60/parsec", "-1/s", "k/s", "60/s/s", float("nan"), False, None])
def test_wrong_rates_say_what_is_allowed(wrong):
    """Units that are none, negatives, NaN."""
    with pytest.raises(ValueError, match=r"found .*rate like 60/s"):
        units.parse_rate_rps(wrong)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1MiB", 2**20), ("200kB", 200_000), ("1KB", 1000), ("1.5KiB", 1536), ("512B", 512), (7, 7), ("2GiB", 2**31)],
)
def test_sizes_are_whole_bytes(text, size):
    """Decimal and binary multiples."""
    assert units.parse_size_bytes(text) == size


@pytest.mark.parametrize("wrong", ["1Mb", "0.3B", "1.00011kB", "-1B", "1XiB", "99999999TiB", 0.5, float("inf"), True])
def test_wrong_sizes_are_refused(wrong):
    """Bits, fractions of a byte and sizes beyond 63 bits."""
    with pytest.raises(ValueError, match="size like 512B"):
        units.parse_size_bytes(wrong)


@pytest.mark.parametrize(
    ("text", "fraction"), [("0.1%", 0.001), (0.001, 0.001), ("100%", 1.0), (1, 1.0), (0, 0.0), ("2 %", 0.02), ("0.5", 0.5)]
)
def test_shares_are_fractions(text, fraction):
    """Per cent, or the fraction itself."""
    assert units.parse_share(text) == fraction


def test_a_share_beyond_one_is_taken_for_a_missing_sign():
    """5 is no share, and surely meant 5%."""
    with pytest.raises(ValueError, match="did you mean 5%"):
        units.parse_share(5)
    for wrong in ("101%", -0.1, "-1%", "a%", float("nan"), True, 1000):
        with pytest.raises(ValueError, match="share between 0 and 1"):
            units.parse_share(wrong)


@given(floats)
def test_durations_round_trip(seconds):
    """What is written reads back to the same float, to the last bit."""
    assert units.parse_duration_s(units.format_duration_s(seconds)) == seconds


@given(floats)
def test_rates_round_trip(rps):
    """Likewise rates."""
    assert units.parse_rate_rps(units.format_rate_rps(rps)) == rps


@given(st.floats(min_value=0, max_value=1))
def test_shares_round_trip(fraction):
    """Likewise shares."""
    assert units.parse_share(units.format_share(fraction)) == fraction


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_sizes_round_trip(size):
    """Likewise sizes."""
    assert units.parse_size_bytes(units.format_size_bytes(size)) == size


@given(st.integers(0, 10**9), st.sampled_from(["ns", "us", "ms", "s", "m", "h"]))
def test_durations_are_exact(number, unit):
    """Against rational arithmetic of our own: the result is the nearest float."""
    scale = {
        "ns": Fraction(1, 10**9),
        "us": Fraction(1, 10**6),
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "m": Fraction(60),
        "h": Fraction(3600),
    }
    assert units.parse_duration_s(f"{number}{unit}") == float(number * scale[unit])


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    """No text brings anything but a finite value or a ValueError."""
    for parse in (units.parse_duration_s, units.parse_rate_rps, units.parse_size_bytes, units.parse_share):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert math.isfinite(value)
        assert value >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.05, "50ms"), (90, "1m30s"), (5400, "1h30m"), (0, "0s"), (2.5e-7, "250ns"), (90.5, "90.5s"), (86400, "24h")],
)
def test_durations_are_written_as_people_do(seconds, text):
    """The usual unit, no trailing zeros."""
    assert units.format_duration_s(seconds) == text


@pytest.mark.parametrize("write", [units.format_duration_s, units.format_rate_rps, units.format_share])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, True])
def test_only_finite_values_are_written(write, wrong):
    """A NaN never becomes text that looks like a value."""
    with pytest.raises(ValueError, match="only a finite number"):
        write(wrong)
