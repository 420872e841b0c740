"""Prometheus endpoints as sources: chosen families, parsed by the official client's parser, raw values kept.

The text is hostile until proven otherwise: it is cut into families before parsing, so that a bad line costs that line
and not the scrape; lines, series and errors are bounded. Counters stay counters and histograms keep their cumulative
buckets, so that rates (over resets) and merges are made later, from everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from collector.fetch import MAX_BYTES, TIMEOUT_S, get
from collector.journal import Journal
from collector.presets import EVERYTHING, NOISE

MAX_SERIES = 20_000
MAX_LINE = 8_192
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count")
PARSER_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError)  # what malformed text was seen to raise
TYPES = {"counter", "gauge", "histogram", "summary", "untyped", "unknown"}


class Block(NamedTuple):
    """The lines of one family as they stood in the text, its TYPE line apart."""

    family: str
    kind: str
    lines: list[str]


class Scrape(NamedTuple):
    """One reading: value by series ``name{label="value",...}`` (labels sorted), family types, and what was left out."""

    series: dict[str, float]
    types: dict[str, str]
    bad_lines: int
    duplicates: int
    over: int


def blocks(text: str) -> Iterator[Block]:
    """Cut an exposition into families; lines that belong to none, too long, or not beginning like a metric are in ""."""
    block = Block("", "untyped", [])
    bad: list[str] = []
    for line in text.split("\n"):
        line = line.strip()
        words = line[:MAX_LINE].split(None, 3)
        if len(line) > MAX_LINE:
            bad.append(line[:80])
        elif line.startswith("#"):
            if len(words) == 4 and words[1] == "TYPE" and NAME.fullmatch(words[2]):
                yield block
                block = Block(words[2], words[3] if words[3] in TYPES else "untyped", [])
        elif line:
            match = NAME.match(line)
            if not match:
                bad.append(line[:80])
            elif match[0] in {block.family + suffix for suffix in SUFFIXES} and block.family:
                block.lines.append(line)
            elif not match[0].endswith("_created"):
                if block.lines or block.family != match[0]:
                    yield block
                    block = Block(match[0], "untyped", [])
                block.lines.append(line)
    yield block
    yield Block("", "bad", bad)


def wanted(family: str, patterns: tuple[str, ...]) -> bool:
    """Whether a family is asked for: by a pattern, and not noise (unless the pattern names it wholly)."""
    return family in patterns or (
        any(fnmatchcase(family, pattern) for pattern in patterns) and not any(fnmatchcase(family, noise) for noise in NOISE)
    )


def samples(block: Block) -> Iterator[tuple[str, float] | None]:
    """(series, value) of a family's samples, None for a line that the parser refuses."""
    head = f"# TYPE {block.family} {block.kind}\n"
    try:
        yield from _parse(head + "\n".join(block.lines), block)
    except PARSER_ERRORS:
        for line in block.lines:
            try:
                yield from _parse(head + line, block)
            except PARSER_ERRORS:
                yield None


def _parse(text: str, block: Block) -> list[tuple[str, float]]:
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name
            if block.kind == "counter" and not block.family.endswith("_total"):
                name = name.removesuffix("_total")  # the parser renames such counters; the server's own name is kept
            found.append((series_key(name, sample.labels), float(sample.value)))
    return found


def series_key(name: str, labels: Mapping[str, str]) -> str:
    """A series' identity: labels sorted, values escaped as Prometheus does."""
    if not labels:
        return name
    escaped = {key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()}
    return name + "{" + ",".join(f'{key}="{escaped[key]}"' for key in sorted(escaped)) + "}"


def scrape(text: str, patterns: tuple[str, ...] = EVERYTHING, max_series: int = MAX_SERIES) -> Scrape:
    """Read an exposition. The first of two equal series counts, as it does for Prometheus."""
    series: dict[str, float] = {}
    types: dict[str, str] = {}
    bad = duplicates = over = 0
    for block in blocks(text):
        if block.kind == "bad":
            bad += len(block.lines)
        if not block.family or not block.lines or not wanted(block.family, patterns):
            continue
        for sample in samples(block):
            if sample is None:
                bad += 1
            elif sample[0] in series:
                duplicates += 1
            elif len(series) >= max_series:
                over += 1
            else:
                series[sample[0]] = sample[1]
                types.setdefault(block.family, block.kind)
    return Scrape(series, types, bad, duplicates, over)


class Endpoint:
    """One Prometheus endpoint as a source."""

    folder = "server"

    def __init__(self, name: str, url: str, patterns: tuple[str, ...], journal: Journal, token: str = "") -> None:
        self.name, self.url, self.patterns, self.journal = name, url, patterns, journal
        self.key: Mapping[str, Any] = {}
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.types: dict[str, str] = {}

    def read(self, now_ns: int) -> Mapping[str, Any]:
        """All chosen series; what was left out is counted under ``collector_*``. Raises SourceFailed."""
        body = get(self.url, self.headers, TIMEOUT_S, MAX_BYTES)
        got = scrape(body.decode("utf-8", errors="replace"), self.patterns)
        if not got.types.items() <= self.types.items():
            self.types = {**self.types, **got.types}
            self.journal.append({"types": self.types})
        faults = {"bad_lines": got.bad_lines, "duplicates": got.duplicates, "series_over_bound": got.over}
        whole = {key: int(value) if _is_whole(value) else value for key, value in got.series.items()}
        return {**whole, **{f"collector_{name}": count for name, count in faults.items() if count}}


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value.is_integer() and abs(value) < 2**53
