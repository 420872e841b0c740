"""What a scenario says of a trace, checked: every field with what was found and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapes.traces.drops import TraceError, quoted
from shapes.traces.reorder import ORDERS, WINDOW_S
from shapes.traces.rows import Source
from shapes.traces.times import SECOND_NS, UNITS

MODES = ("exact", "poisson", "fixed", "model")
ALIGNMENTS = ("start", "wall-clock")
CARRIES = ("in-order", "bootstrap")
MOST_COPIES = 1000


@dataclass(frozen=True)
class TraceSpec:
    """A replay as it was asked for; times in ns of the trace's own clock, except ``offset_ns`` (of the run)."""

    source: Source
    format: str = "auto"
    mode: str = "exact"
    speed: float = 1.0
    thin: float = 1.0
    copies: int = 1
    from_ns: int = 0
    to_ns: int | None = None
    loop: bool = False
    offset_ns: int = 0
    align: str = "start"
    fit_window_s: float | None = None
    strict: bool = False
    rows: str = "in-order"
    order: str = "window"
    reorder_window_s: float = WINDOW_S


DEFAULTS: Mapping[str, Any] = {
    "format": "auto",
    "mode": "exact",
    "speed": 1.0,
    "thin": 1.0,
    "copies": 1,
    "window_from_s": 0.0,
    "window_to_s": None,
    "loop": False,
    "offset_s": 0.0,
    "align": "start",
    "columns": {},
    "fit_window_s": None,
    "strict": False,
    "rows": "in-order",
    "order": "window",
    "reorder_window_s": WINDOW_S,
    "time_unit": "auto",
    "timezone": "UTC",
    "time_is": "auto",
}


def parse_spec(spec: Mapping[str, Any], seed: int) -> TraceSpec:
    """The checked spec. Keys are ``file`` and those of DEFAULTS; None means the default. Raises TraceError naming the field."""
    unknown = sorted(set(spec) - set(DEFAULTS) - {"file"})
    if unknown:
        raise TraceError(f"trace: {quoted(unknown[0])} is no field; allowed are file, {', '.join(DEFAULTS)}")
    if not isinstance(spec.get("file"), (str, Path)) or not spec["file"]:
        raise TraceError(f"trace: file: found {quoted(spec.get('file'))}; allowed is the path of a trace")
    said = {key: default if spec.get(key) is None else spec[key] for key, default in DEFAULTS.items()}
    columns = said["columns"]
    if not isinstance(columns, Mapping) or not all(isinstance(theirs, (str, int)) for theirs in columns.values()):
        raise TraceError(f"trace: columns: found {quoted(columns)}; allowed is our names to the file's, like {{time: ts}}")
    from_s = _number(said, "window_from_s", 0.0)
    to_s = None if said["window_to_s"] is None else _number(said, "window_to_s", 0.0)
    if to_s is not None and to_s <= from_s:
        raise TraceError(f"trace: window_to_s: found {to_s:g}, which is not after window_from_s {from_s:g}")
    align = _choice(said, "align", ALIGNMENTS)
    speed = _number(said, "speed", 1e-6, 1e6)
    if align == "wall-clock" and speed != 1.0:
        raise TraceError(f"trace: speed: found {speed:g}; with align: wall-clock only 1 keeps to the clock")
    return TraceSpec(
        source=Source(
            path=Path(spec["file"]),
            columns={str(ours): str(theirs) for ours, theirs in columns.items()},
            time_unit=_choice(said, "time_unit", UNITS),
            timezone=str(said["timezone"]),
            time_is=_choice(said, "time_is", ("auto", "start", "end")),
            seed=seed,
        ),
        format=str(said["format"]),
        mode=_choice(said, "mode", MODES),
        speed=speed,
        thin=_number(said, "thin", 1e-9, 1.0),
        copies=_copies(said["copies"]),
        from_ns=round(from_s * SECOND_NS),
        to_ns=None if to_s is None else round(to_s * SECOND_NS),
        loop=_yes(said, "loop"),
        offset_ns=round(_number(said, "offset_s", 0.0) * SECOND_NS),
        align=align,
        fit_window_s=None if said["fit_window_s"] is None else _number(said, "fit_window_s", 1e-3),
        strict=_yes(said, "strict"),
        rows=_choice(said, "rows", CARRIES),
        order=_choice(said, "order", ORDERS),
        reorder_window_s=_number(said, "reorder_window_s", 0.0, 86400.0),
    )


def _number(said: Mapping[str, Any], name: str, least: float, most: float = 1e9) -> float:
    value = said[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not least <= value <= most:
        raise TraceError(f"trace: {name}: found {quoted(value)}; allowed is a number from {least:g} to {most:g}")
    return float(value)


def _choice(said: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    if said[name] not in allowed:
        raise TraceError(f"trace: {name}: found {quoted(said[name])}; allowed is one of {', '.join(allowed)}")
    return str(said[name])


def _copies(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_COPIES:
        raise TraceError(f"trace: copies: found {quoted(value)}; allowed is a whole number from 1 to {MOST_COPIES}")
    return value


def _yes(said: Mapping[str, Any], name: str) -> bool:
    value = said[name]
    if not isinstance(value, bool):
        raise TraceError(f"trace: {name}: found {quoted(value)}; allowed is true or false")
    return value
