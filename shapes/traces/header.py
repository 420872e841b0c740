"""Which of a file's columns is what: by the names that traces use, or by the mapping that the user states."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapes.traces.drops import Drops, TraceError, quoted
from shapes.traces.line_blocks import LineBlock, lines_of
from shapes.traces.rows import Source
from shapes.traces.times import PER_UNIT_NS, detect_kind

# Lower case, without signs and without a unit at the end; the first name of a row that the file has is taken.
ALIASES: Mapping[str, Sequence[str]] = {
    "time": (
        *(
            "timestamp",
            "time",
            "ts",
            "arrivaltimestamp",
            "arrivaltime",
            "arrivedat",
            "arrived",
            "arrivedwall",
            "starttime",
            "start",
        ),
        *("datetime", "offset", "intended", "eventtime", "timeiso8601", "timelocal", "msec", "invocationtime"),
    ),
    "prompt_tokens": (
        *("prompttokens", "contexttokens", "inputtokens", "inputlength", "requesttokens", "promptsize", "numprefilltokens"),
        *("promptlen", "inputlen", "tokensin"),
    ),
    "output_tokens": (
        *(
            "outputtokens",
            "generatedtokens",
            "outputlength",
            "responsetokens",
            "completiontokens",
            "tokensize",
            "numdecodetokens",
        ),
        *("outputlen", "tokensout"),
    ),
    "session": ("session", "sessionid", "chatid", "conversationid"),
    "method": ("method", "requestmethod"),
    "path": ("path", "requesturi", "uri", "url", "endpoint"),
    "name": ("name", "requestname"),
    "body": ("body", "payload", "requestbody"),
    "request_bytes": ("requestbytes", "bytesreceived", "requestlength", "requestsize", "bytesin", "size"),
    "response_bytes": ("responsebytes", "bytessent", "bodybytessent", "responsesize", "bytesout"),
    "status": ("status", "responsecode", "statuscode"),
    "duration_s": ("duration", "requesttime", "elapsedtime", "elapsed", "latency"),
    "model": ("model", "modelname"),
    "hash_ids": ("hashids",),
}

_UNIT = re.compile(r"(?:(?<=[A-Za-z0-9])[_ .-]+|(?<=[a-z]))(ns|us|ms|s|Ns|Us|Ms|S|seconds|Seconds)$")
_OUR_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_COLUMNS = 5000


@dataclass(frozen=True)
class Layout:
    """Where our columns stand in a file's: ``index`` by our name, ``names`` theirs; ``unit`` of time as its name tells
    ("auto").
    """

    names: Sequence[str]
    index: Mapping[str, int]
    unit: str = "auto"
    duration_unit_s: float = 1.0
    delimiter: str = ","
    header_lines: int = 1


def bare(name: str) -> str:
    """A column name as aliases are written: lower case letters and digits only, no unit at the end."""
    return re.sub(r"[^a-z0-9]", "", _without_unit(name.strip().lstrip("\ufeff"))[0].lower())


def _without_unit(name: str) -> tuple[str, str]:
    """(name, unit or "") of names like offset_ns, time_ms, arrivedAtMs; ``requests`` has no unit."""
    match = _UNIT.search(name)
    if match is None or (match.start() == match.start(1) and not match[1][0].isupper()):
        return name, ""
    unit = match[1].lower()
    return name[: match.start()], "s" if unit.startswith("s") else unit


def layout_of(names: Sequence[str], mapping: Mapping[str, str], where: str) -> Layout:
    """The layout for columns called ``names``. Raises TraceError when time is not among them or a stated column is missing."""
    index = {ours: _position(names, ours, theirs, where) for ours, theirs in mapping.items()}
    bares = [bare(name) for name in names]
    for ours, aliases in ALIASES.items():
        if ours not in index:
            found = [bares.index(alias) for alias in aliases if alias in bares]
            if found and found[0] not in index.values():
                index[ours] = found[0]
    if "time" not in index:
        shown = ", ".join(quoted(name) for name in names[:12])
        raise TraceError(f"{where}: no time column found among {shown}; name it with columns: {{time: NAME}}")
    duration = _without_unit(names[index["duration_s"]])[1] if "duration_s" in index else ""
    return Layout(names, index, _without_unit(names[index["time"]])[1] or "auto", PER_UNIT_NS.get(duration, 10**9) / 10**9)


def _position(names: Sequence[str], ours: str, theirs: str, where: str) -> int:
    if not _OUR_NAME.fullmatch(str(ours)):
        raise TraceError(f"{where}: columns: {quoted(ours)} is no column name of ours (small letters, digits and _)")
    text = str(theirs)
    if text in names:
        return names.index(text)
    matching = [at for at, name in enumerate(names) if name.strip().lower() == text.strip().lower()]
    if len(matching) == 1:
        return matching[0]
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(names):
        return int(text) - 1
    shown = ", ".join(quoted(name) for name in names[:12])
    raise TraceError(
        f"{where}: columns: {ours}: there is no column {quoted(text)}; found are {shown} (or a number, 1 = the first)"
    )


def split(text: str, delimiter: str) -> list[str] | None:
    """The fields of one delimited record, or None when its quotes are wrong."""
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), None)
    except csv.Error:
        return None


def delimiter_of(text: str) -> str:
    """The likeliest of comma, semicolon and tab in a line."""
    return max(",;\t", key=text.count)


def find_layout(block: LineBlock, source: Source, mapping: Mapping[str, str], drops: Drops) -> Layout:
    """The layout of a delimited file, from its first line that is not blank. Without a header columns go by number, or there
    is one.

    Raises TraceError when the line names no time, or is data whose columns nobody has named.
    """
    first = next(iter(lines_of(block, Drops(drops.file))), None)
    if first is None:
        raise TraceError(f"{drops.file}: the first {len(block.data)} bytes are blank lines")
    line, text = first
    delimiter = delimiter_of(text)
    names = split(text.lstrip("\ufeff"), delimiter)
    where = drops.place(line)
    if names is None or len(names) > _MOST_COLUMNS:
        raise TraceError(f"{where}: the header has a quote that is not closed, or more than {_MOST_COLUMNS} columns")
    names = [name.strip() for name in names]
    skipped = line - block.first_line
    if (mapping and all(str(theirs).isdigit() for theirs in mapping.values())) or (len(names) == 1 and is_time(names[0], source)):
        numbered = [str(number + 1) for number in range(len(names))]
        plain = layout_of(numbered, mapping or {"time": "1"}, where)
        header = not is_time(names[plain.index["time"]], source)
        return Layout(names if header else numbered, plain.index, delimiter=delimiter, header_lines=skipped + header)
    if is_time(names[0], source) and "time" not in mapping:
        raise TraceError(f"{where}: no header; add one, or name columns by number, as columns: {{time: 1}}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        if twice in mapping.values() or bare(twice) in ALIASES["time"]:
            raise TraceError(f"{where}: the header has {quoted(twice)} twice")
    found = layout_of(names, mapping, where)
    return Layout(names, found.index, found.unit, found.duration_unit_s, delimiter, skipped + 1)


def is_time(text: str, source: Source) -> bool:
    """Whether a field is a time, rather than the name of a column."""
    try:
        detect_kind([text], source.time_unit if source.time_unit in ("auto", "clf", "iso") else "auto", source.timezone, "")
    except TraceError:
        return bool(re.fullmatch(r"[0-9.]+", text))
    return True
