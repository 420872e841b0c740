"""Durations, rates, sizes and shares as people write them, and back.

Parsing is exact: the decimal that was written is scaled before it becomes a float, so ``0.1ms`` is the float nearest to 0.0001,
and ``parse(format(x)) == x`` holds for every value. A ValueError says what was found and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

DURATION_UNITS: Mapping[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # the micro sign ...
    "μs": Fraction(1, 10**6),  # ... and the Greek letter mu, which look alike
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
SIZE_UNITS: Mapping[str, int] = {"B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for power, prefix in enumerate("kMGT")
    for suffix, base in (("B", 1000), ("iB", 1024))
}
MULTIPLES: Mapping[str, int] = {"": 1, "k": 1000, "M": 10**6}

DURATION_ALLOWED = "a duration like 50ms, 1.5s, 2m or 1h30m (ns, us, ms, s, m, h, d; a bare number is seconds)"
RATE_ALLOWED = "a rate like 60/s, 1200/min or 3.6k/h (a bare number is per second)"
SIZE_ALLOWED = "a size like 512B, 200kB or 1MiB (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; a bare number is bytes)"
SHARE_ALLOWED = "a share between 0 and 1, like 0.1% or 0.001"

# At most three digits of exponent: a longer one could only be a mistake, and would take memory to work out.
NUMBER = r"(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?"
_NUMBER = re.compile(NUMBER)
_PARTS = re.compile(rf"({NUMBER})\s*([a-zµμ]+)\s*")
_RATE = re.compile(rf"({NUMBER})\s*([kM]?)\s*(?:/\s*([a-z]+)|rps)")
_SIZE = re.compile(rf"({NUMBER})\s*([A-Za-z]+)")
_SHARE = re.compile(rf"({NUMBER})\s*%")


def parse_duration_s(value: object) -> float:
    """Seconds of ``50ms``, ``250us``, ``2m``, ``1h30m`` or a number (seconds). Raises ValueError."""
    number = _plain_number(value, DURATION_ALLOWED)
    if number is not None:
        return _finite(number, value, DURATION_ALLOWED)
    text = str(value).strip()
    total, end, last = Fraction(0), 0, None
    for part in _PARTS.finditer(text):
        unit = DURATION_UNITS.get(part[2])
        # Parts must follow one another from large to small units: 1h30m, not 30m1h or 5s5s.
        if part.start() != end or unit is None or (last is not None and unit >= last):
            raise _wrong(value, DURATION_ALLOWED)
        total, end, last = total + Fraction(Decimal(part[1])) * unit, part.end(), unit
    if end != len(text) or last is None:
        raise _wrong(value, DURATION_ALLOWED)
    return _finite(total, value, DURATION_ALLOWED)


def parse_rate_rps(value: object) -> float:
    """Events per second of ``60/s``, ``1200/min``, ``3.6k/h``, ``50 rps`` or a number. Raises ValueError."""
    number = _plain_number(value, RATE_ALLOWED)
    if number is not None:
        return _finite(number, value, RATE_ALLOWED)
    match = _RATE.fullmatch(str(value).strip())
    unit = DURATION_UNITS.get(match[3] or "s") if match else None
    if match is None or unit is None:
        raise _wrong(value, RATE_ALLOWED)
    return _finite(Fraction(Decimal(match[1])) * MULTIPLES[match[2]] / unit, value, RATE_ALLOWED)


def parse_size_bytes(value: object) -> int:
    """Whole bytes of ``1MiB``, ``200kB``, ``512B`` or a number. Raises ValueError, also for a fraction of a byte."""
    number = _plain_number(value, SIZE_ALLOWED)
    if number is None:
        match = _SIZE.fullmatch(str(value).strip())
        scale = SIZE_UNITS.get(match[2].replace("K", "k")) if match else None
        if match is None or scale is None:
            raise _wrong(value, SIZE_ALLOWED)
        number = Fraction(Decimal(match[1])) * scale
    if number.denominator != 1:
        raise ValueError(f"found {shown(value)}, which is not a whole number of bytes; allowed is {SIZE_ALLOWED}")
    if number >= 2**63:
        raise ValueError(f"found {shown(value)}, which is too large; allowed is {SIZE_ALLOWED}")
    return int(number)


def parse_share(value: object) -> float:
    """The fraction in [0, 1] of ``0.1%`` or 0.001. Raises ValueError, with a hint when a per cent sign seems to be missing."""
    number = _plain_number(value, SHARE_ALLOWED)
    if number is None:
        match = _SHARE.fullmatch(str(value).strip())
        if match is None:
            raise _wrong(value, SHARE_ALLOWED)
        number = Fraction(Decimal(match[1])) / 100
    elif 1 < number <= 100:
        raise ValueError(f"found {shown(value)}; allowed is {SHARE_ALLOWED}; did you mean {str(value).strip()}%?")
    if number > 1:
        raise _wrong(value, SHARE_ALLOWED)
    return float(number)


def format_duration_s(seconds: float) -> str:
    """The shortest usual form: ``50ms``, ``1.5s``, ``1h30m``; parses back to the same float."""
    exact = _checked(seconds)
    if exact and exact < 1:
        for unit in ("ms", "us", "ns"):
            if exact >= DURATION_UNITS[unit] or unit == "ns":
                return f"{_decimal(exact / DURATION_UNITS[unit])}{unit}"
    if exact < 60 or exact.denominator != 1:
        return f"{_decimal(exact)}s"
    if exact >= 10**9:  # beyond 31 years only as the result of arithmetic
        return f"{_decimal(exact)}s"
    minutes, secs = divmod(int(exact), 60)
    hours, mins = divmod(minutes, 60)
    return "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (mins, "m"), (secs, "s")) if n)


def format_rate_rps(rps: float) -> str:
    """``60/s``; parses back to the same float."""
    return f"{_decimal(_checked(rps))}/s"


def format_size_bytes(size: int) -> str:
    """The largest unit that divides it: ``1MiB``, ``200kB``, ``1234B``; parses back to the same integer."""
    if isinstance(size, bool) or size < 0:
        raise ValueError(f"a size must be a whole number >= 0, found {size!r}")
    exact = [(scale, unit) for unit, scale in SIZE_UNITS.items() if size and size % scale == 0]
    scale, unit = max(exact, default=(1, "B"))
    return f"{size // scale}{unit if unit != 'kiB' else 'KiB'}"


def format_share(fraction: float) -> str:
    """``0.1%``; parses back to the same float."""
    return f"{_decimal(_checked(fraction) * 100)}%"


def shown(value: object, most: int = 60) -> str:
    """``value`` as it is quoted in an error: its repr, cut to ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _plain_number(value: object, allowed: str) -> Fraction | None:
    """A number, or text that is only a number, as an exact decimal; None for other text. Raises ValueError for the rest."""
    if isinstance(value, str):
        text = value.strip()
        return Fraction(Decimal(text)) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value) or value < 0:
        raise _wrong(value, allowed)
    # repr is the shortest decimal that gives this float: what the person wrote.
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(float(value))))


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _finite(number: Fraction, value: object, allowed: str) -> float:
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"found {shown(value)}, which is too large; allowed is {allowed}") from None


def _wrong(value: object, allowed: str) -> ValueError:
    return ValueError(f"found {shown(value)}; allowed is {allowed}")


def _checked(value: float) -> Fraction:
    if isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"only a finite number >= 0 can be written, found {value!r}")
    return Fraction(Decimal(repr(float(value))))


def _decimal(exact: Fraction) -> str:
    """The shortest decimal of a fraction whose denominator divides a power of ten."""
    number = Decimal(exact.numerator) / Decimal(exact.denominator)
    plain = format(number.normalize(), "f")
    return plain if len(plain) <= 25 else format(number.normalize(), "e").replace("e+", "e")
