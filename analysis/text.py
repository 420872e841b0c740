"""Text that is not ours (names, errors, events): made safe for terminals, XML and spreadsheets before it goes anywhere."""

from __future__ import annotations

import math
import re

MOST = 300
"""Longest text that is kept; the recorder cuts at the same length."""

# Controls, surrogates, non-characters, and the marks that reorder a line to hide what it says.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\uffff\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(value: object, most: int = MOST) -> str:
    """``value`` as one line of at most ``most`` characters without control characters (each becomes U+FFFD)."""
    text = str(value)[: most + 1]
    text = text if len(text) <= most else text[: most - 1] + "…"
    return _UNSAFE.sub("�", text)


def without_controls(text: str) -> str:
    """Text of several lines without control characters."""
    return "\n".join(_UNSAFE.sub("�", line) for line in text.split("\n"))


def csv_cell(value: object) -> object:
    """A CSV cell that no spreadsheet takes for a formula; numbers pass as they are."""
    if value is None or isinstance(value, (int, float)):
        return value
    text = plain(value)
    return "'" + text if text.lstrip().startswith(_FORMULA) else text


def markdown_cell(value: object) -> str:
    """Text that stands as itself within a Markdown table: markup escaped, no line broken."""
    text = plain(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#!~$@:])", lambda match: f"&#{ord(match[1])};", text)


def duration(seconds: float | None) -> str:
    """``27.7 ms`` with four significant digits; ``no data`` for None and ``inf (failed)`` for a request that never answered."""
    if seconds is None or math.isnan(seconds):
        return "no data"
    if math.isinf(seconds):
        return "inf (failed)"
    scale, unit = (1e6, "µs") if 0 < abs(seconds) < 1e-3 else (1e3, "ms") if abs(seconds) < 1 else (1.0, "s")
    value = seconds * scale
    digits = max(0, 3 - (math.floor(math.log10(abs(value))) if value else 3))
    return f"{value:,.{min(digits, 3)}f} {unit}"


def count(number: int | float) -> str:
    """A whole number with separators."""
    return f"{number:,.0f}"


def share(fraction: float) -> str:
    """A fraction as per cent; small ones keep their digits."""
    return f"{100 * fraction:.4g} %"
