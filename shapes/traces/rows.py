"""Rows of a trace as columns: when each request arrived, and what it carried, in the order of the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shapes.traces.drops import Drops
from shapes.traces.times import Ints, TimeKind, check_range, parse_ns

Column = np.ndarray[Any, Any]

WHOLE_NUMBERS = ("prompt_tokens", "output_tokens", "request_bytes", "response_bytes", "status")
NUMBERS = ("duration_s",)
TEXTS = ("session", "method", "path", "name", "body", "model", "hash_ids")
NOT_TOLD = -1  # a whole number that the trace does not tell; NaN for other numbers, "" for text

MAX_WHOLE_NUMBER = 2**53
MAX_DURATION_S = 366 * 86400.0


class Rows(NamedTuple):
    """Some rows: ``times_ns`` on the trace's clock, carried ``columns`` of equal length, the file's ``lines``.

    ``clock`` says what zero is: "utc" (the Unix epoch), "midnight" (local, of the first day) or "start" (of the recording).
    Columns are int64 (-1 = not told), float64 (NaN) or object arrays of str ("").
    """

    times_ns: Ints
    columns: Mapping[str, Column]
    lines: Ints
    clock: str = "utc"

    def take(self, which: Any) -> Rows:
        """The rows that an index array, mask or slice picks."""
        picked = {name: column[which] for name, column in self.columns.items()}
        return Rows(self.times_ns[which], picked, self.lines[which], self.clock)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """One Rows out of several of the same trace. A column that a part lacks (a format that varies) is filled as not told."""
    if len(parts) == 1:
        return parts[0]
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    columns = {
        name: np.concatenate([p.columns[name] if name in p.columns else _blank(name, len(p.times_ns)) for p in parts])
        for name in names
    }
    return Rows(np.concatenate([p.times_ns for p in parts]), columns, np.concatenate([p.lines for p in parts]), parts[0].clock)


def _blank(name: str, n: int) -> Column:
    if name in WHOLE_NUMBERS:
        return np.full(n, NOT_TOLD, np.int64)
    return np.full(n, np.nan) if name in NUMBERS else np.full(n, "", object)


@dataclass(frozen=True)
class Source:
    """What to read and what was said about it; ``columns`` maps our names to the file's."""

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: str = "auto"
    timezone: str = "UTC"
    time_is: str = "auto"  # start | end | auto: whether the time is when a request arrived or when it was done
    seed: int = 0
    times_only: bool = False  # leave out what rows carry, for a pass that only counts

    def wanted(self, names: Iterable[str]) -> list[str]:
        """Which of our columns to read beside the time: all, or with ``times_only`` what the time itself needs."""
        return [
            name for name in names if name != "time" and (not self.times_only or (name == "duration_s" and self.time_is == "end"))
        ]


class Builder:
    """Builds Rows from single records, value by value: the careful way, for what the vectorised way does not accept."""

    def __init__(self, kind: TimeKind, names: Iterable[str], drops: Drops, duration_unit_s: float = 1.0) -> None:
        self.kind = kind
        self.names = [name for name in names if name != "time"]
        self.drops = drops
        self.duration_unit_s = duration_unit_s
        self._times: list[int] = []
        self._lines: list[int] = []
        self._values: dict[str, list[Any]] = {name: [] for name in self.names}
        self._last_ns: int | None = None

    def add(self, line: int, values: Mapping[str, Any]) -> None:
        """Take a record (our names to raw values) or drop it, named by line and field. Raises TraceError when strict."""
        field_name: str = "time"
        try:
            time_ns = parse_ns(values.get("time"), self.kind, self._last_ns)
            check_range(time_ns, self.kind.clock)
            parsed = []
            for field_name in self.names:
                parsed.append(parse_value(field_name, values.get(field_name), self.duration_unit_s))
        except ValueError as fault:
            self.drops.drop(str(fault), line, field_name, values.get(field_name))
            return
        self._last_ns = time_ns
        self._times.append(time_ns)
        self._lines.append(line)
        for name, value in zip(self.names, parsed, strict=True):
            self._values[name].append(value)

    def build(self) -> Rows:
        """The rows taken so far; the builder is empty afterwards."""
        columns = {name: as_column(name, values) for name, values in self._values.items()}
        rows = Rows(np.array(self._times, np.int64), columns, np.array(self._lines, np.int64), self.kind.clock)
        self._times, self._lines, self._values = [], [], {name: [] for name in self.names}
        return rows

    def __len__(self) -> int:
        return len(self._times)


def parse_value(name: str, raw: Any, duration_unit_s: float = 1.0) -> Any:
    """A raw field as the column ``name`` holds it. Raises ValueError with a short reason."""
    if name in WHOLE_NUMBERS:
        return _whole(raw)
    if name in NUMBERS:
        duration_s = _number(raw) * duration_unit_s
        if duration_s > MAX_DURATION_S:
            raise ValueError("a duration of more than a year")
        return duration_s
    if raw is None:
        return ""
    if isinstance(raw, (list, dict)):
        return json.dumps(raw, separators=(",", ":"))
    return str(raw)


def _whole(raw: Any) -> int:
    text = "" if raw is None else str(raw).strip()
    if text in ("", "-"):
        return NOT_TOLD
    number = _number(text)
    if number != int(number) or isinstance(raw, bool):
        raise ValueError("not a whole number")
    if number > MAX_WHOLE_NUMBER:
        raise ValueError("too large a number")
    return int(number)


def _number(raw: Any) -> float:
    text = "" if raw is None else str(raw).strip()
    if text in ("", "-"):
        return float("nan")
    try:
        number = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if "_" in text or not text.isascii() or number != number or abs(number) == float("inf"):
        raise ValueError("not a number")
    if number < 0:
        raise ValueError("a negative number")
    return number


def to_start(rows: Rows) -> Rows:
    """Rows whose times are ends, at their starts: start = end - duration where it is told, the end where it is not."""
    durations_ns = np.rint(np.nan_to_num(rows.columns["duration_s"]) * 1e9).astype(np.int64)
    return rows._replace(times_ns=rows.times_ns - durations_ns)


def arrow_column(name: str, column: Any, duration_unit_s: float = 1.0) -> Column | None:
    """An Arrow column as the array that ``name`` is; None when a value in it is not allowed."""
    import pyarrow as pa

    if name in WHOLE_NUMBERS:
        told = np.asarray(column.is_valid())
        whole = np.asarray(column.cast(pa.int64()).fill_null(NOT_TOLD))
        return whole if not told.any() or (whole[told].min() >= 0 and whole.max() <= MAX_WHOLE_NUMBER) else None
    if name in NUMBERS:
        told = np.asarray(column.is_valid())
        number = np.asarray(column.cast(pa.float64()).fill_null(float("nan"))) * duration_unit_s
        return number if bool((number[told] >= 0).all() and (number[told] <= MAX_DURATION_S).all()) else None
    text: Column = np.asarray(column.fill_null("").to_numpy(), object)
    return text


def as_column(name: str, values: Sequence[Any]) -> Column:
    """A list of parsed values as the array that the column ``name`` is."""
    if name in WHOLE_NUMBERS:
        return np.array(values, np.int64)
    if name in NUMBERS:
        return np.array(values, np.float64)
    column = np.empty(len(values), object)
    column[:] = values
    return column
