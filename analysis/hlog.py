"""``fleet.hlog``: the run's latencies as an HdrHistogram log (version 2), which HdrHistogram's own tools read.

Untagged lines are the fleet's response time of successes, by the second of intended time; tagged lines are single series, in longer intervals
(a reader that adds tagged and untagged lines counts twice). Values are microseconds. Header lines and tags are written by hand:
the Python library's writer garbles start times above 2^31 and never writes tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from analysis.metrics import INFINITE_NS, Values, measure
from analysis.percentiles import split, tally
from analysis.record_columns import chosen
from analysis.run_folder import Run
from analysis.series import step_of
from truetail.histogram import HALF_MAGNITUDE, HIGHEST_US, SUB_BUCKETS

MOST_LINES, MOST_TAGGED_LINES = 600, 60
"""Intervals of the fleet's total (one second each up to ten minutes), and of each tagged series."""
NAMES_SHOWN = 10
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_./|:-]")


def write(run: Run, path: Path) -> dict[str, str]:
    """Write the log, and beside it ``<name>.tags.json``, which says what each tag is. Returns that table."""
    start_s = (run.manifest.epoch_wall_ns or 0) / 1e9
    tags: dict[str, str] = {}
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("#[Histogram log format version 1.3]\n")
        file.write(f"#[StartTime: {start_s:.3f} (seconds since epoch)]\n#[BaseTime: {start_s:.3f} (seconds since epoch)]\n")
        file.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
        for tag, text, values, intended in _series(run):
            if tag:
                tags[tag] = text
            for line in _lines(values, intended, run.scenario.duration_s, MOST_TAGGED_LINES if tag else MOST_LINES):
                file.write(f"Tag={tag},{line}" if tag else line)
    path.with_suffix(".tags.json").write_text(json.dumps(tags, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return tags


def _series(run: Run) -> Iterator[tuple[str, str, Values, Values]]:
    """(tag, its text, values, intended instants) of each series; the fleet's total has no tag."""
    records = run.records
    first = records.judged
    intended = chosen(records["intended_ns"], first)
    response = measure(records, "response", first)
    yield "", "response time of successes, whole fleet", response, intended
    yield "service", "service time of successes (sent to done)", measure(records, "service", first), intended
    yield "lateness", "lateness (intended to sent)", measure(records, "lateness", first), intended
    names = chosen(records["name"], first)
    used = tally(names, len(records.texts("name")))
    ranked = [number for number in np.argsort(-used, kind="stable").tolist() if used[number]]
    if len(ranked) > 1:
        for number in ranked[:NAMES_SHOWN]:
            text = records.texts("name")[number]
            yield (
                f"response/{number}-{_NOT_IN_TAGS.sub('_', text)[:40]}",
                f"response of {text}",
                response[names == number],
                intended[names == number],
            )


def _lines(values: Values, intended: Values, duration_s: float, most: int) -> Iterator[str]:
    """One line per interval that has an answer: start, length, maximum (ms), payload."""
    step_s = float(max(1, int(np.ceil(duration_s / most))))
    steps = int(np.ceil(duration_s / step_s))
    for step, part in split(values, step_of(np.maximum(intended, 0), step_s, steps), steps):
        answered = part[(part != INFINITE_NS) & (part >= 0)]
        if len(answered):
            yield f"{step * step_s:.3f},{step_s:.3f},{int(answered.max()) / 1e6:.6f},{encode(answered // 1000)}\n"


def encode(values_us: NDArray[np.int64]) -> str:
    """Non-negative values (µs, at least one) as HdrHistogram's compressed V2 payload, base64. Beyond an hour: the topmost cell."""
    histogram = HdrHistogram(1, HIGHEST_US, 3)
    clipped = np.minimum(values_us, HIGHEST_US)
    bucket = np.frexp((clipped | (SUB_BUCKETS - 1)).astype(np.float64))[1].astype(np.int64) - 11
    counts = np.frombuffer(histogram.counts, np.int64)
    number = np.bincount((bucket << HALF_MAGNITUDE) + (clipped >> bucket))
    counts[: len(number)] = number
    histogram.total_count = len(clipped)
    histogram.min_value, histogram.max_value = int(clipped.min()), int(clipped.max())
    return str(histogram.encode().decode("ascii"))
