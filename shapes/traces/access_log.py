"""nginx and Apache access logs in the common and the combined format, with an optional last field for the time taken.

nginx writes its time when a request is done and ``$request_time`` in seconds with a fraction; Apache writes when it arrived
and ``%D`` in whole microseconds. The last field's form therefore tells which time it is; ``time_is`` states it otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shapes.traces.drops import Drops, TraceError
from shapes.traces.line_blocks import line_blocks, lines_of
from shapes.traces.rows import Builder, Rows, Source, to_start
from shapes.traces.times import TimeKind

NAMES = ("method", "path", "status", "response_bytes", "duration_s")

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(
    r"\S+ \S+ (?:\S+|[^\[\]]{0,200}) \[([^\]]{1,40})\] "
    + _QUOTED
    + r" ([0-9]{3}|-) ([0-9]{1,18}|-)"
    + rf"(?: {_QUOTED} {_QUOTED}(?: {_QUOTED})?)?"
    + r"(?: (?:rt=|request_time=)?([0-9]{1,12}(?:\.[0-9]{1,9})?|-))?\s*"
)
_PREFIX = re.compile(r"\S+ \S+ (?:\S+|[^\[\]]{0,200}) \[([^\]]{1,40})\] ")
_REQUEST = re.compile(r"([A-Z][A-Z-]{0,20}) (\S+)(?: HTTP/[0-9.]+)?")
_LOG_TIME = TimeKind("clf")


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows with method, path, status, bytes and the duration where the log has it, times at the start. Raises TraceError."""
    if source.columns:
        raise TraceError(f"{drops.file}: an access log has no columns to name; it is read by its form")
    builder = Builder(_LOG_TIME, NAMES, drops)
    ends: bool | None = {"start": False, "end": True}.get(source.time_is)
    for block in line_blocks(source.path, drops):
        for line, text in lines_of(block, drops):
            taken = _take(builder, line, text, drops)
            if ends is None and taken:
                ends = "." in taken
                drops.note(
                    "logged times taken as "
                    + ("ends" if ends else "starts")
                    + ", by the form of the time taken (time_is says otherwise)"
                )
        rows = builder.build()
        if len(rows.times_ns):
            yield to_start(rows) if ends else rows


def _take(builder: Builder, line: int, text: str, drops: Drops) -> str:
    """Give a line's fields to the builder; returns the time taken as it was written, or ""."""
    match = LINE.fullmatch(text)
    if match is None:
        if (prefix := _PREFIX.match(text)) is None:
            drops.drop("not a line of the common or combined log format", line, "", text)
            return ""
        # It says when it arrived, so it did; the rest of the line is broken (a quote that is not closed, a cut line).
        drops.note("a line whose end cannot be read: only its time is used")
        builder.add(line, {"time": prefix[1]})
        return ""
    time, request, status, sent, *_, taken = match.groups()
    asked = _REQUEST.fullmatch(request)
    if asked is None:
        drops.note("a request line without method and path")
    method, path = asked.groups() if asked else ("", "")
    written = "" if taken in (None, "-") else taken
    seconds = written if "." in written or not written else repr(int(written) / 1e6)
    builder.add(
        line, {"time": time, "method": method, "path": path, "status": status, "response_bytes": sent, "duration_s": seconds}
    )
    return written
