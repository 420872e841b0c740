"""Tables for spreadsheets: numbers as numbers (seconds), text guarded so that no cell is taken for a formula."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.percentiles import SHOWN, Distribution, finite
from analysis.result import Result
from analysis.text import csv_cell


def write(result: Result, folder: Path) -> None:
    """``percentiles.csv`` and ``over_time.csv``. An empty cell is no data; ``inf`` says that the rank falls on a failure."""
    _write(folder / "percentiles.csv", _percentiles(result))
    _write(folder / "over_time.csv", _over_time(result))


def _percentiles(result: Result) -> Iterable[Sequence[object]]:
    latency = result.percentiles
    yield "kind", "name", "population", "n", "failed", *(f"p{q}_s" for q in SHOWN), "mean_of_successes_s", "max_of_successes_s"
    groups: list[tuple[str, str, Distribution]] = [
        ("fleet", "response", latency.response), ("fleet", "service", latency.service), ("fleet", "lateness", latency.lateness),
    ]  # fmt: skip
    groups += [("name", group.label, group.response) for group in latency.by_name]
    groups += [("replica", group.label, group.response) for group in latency.by_replica]
    groups += [("worker", group.label, group.response) for group in latency.by_worker]
    for kind, label, found in groups:
        for population, shown in (("all", found.all_s), ("successes", found.successes_s)):
            yield (
                kind,
                label,
                population,
                found.n,
                found.failed,
                *(_number(shown[q]) for q in SHOWN),
                finite(found.mean_s),
                finite(found.max_s),
            )


def _over_time(result: Result) -> Iterable[Sequence[object]]:
    series = result.series
    yield (
        "start_s",
        "offered",
        "sent",
        "completed",
        "failed",
        *(f"response_p{q}_s" for q in series.response_s),
        *(f"lateness_p{q}_s" for q in series.lateness_s),
    )
    for i, start_s in enumerate(series.starts_s.tolist()):
        counts = (int(values[i]) for values in (series.offered, series.sent, series.completed, series.failed))
        latencies = (_number(float(values[i])) for values in (*series.response_s.values(), *series.lateness_s.values()))
        yield start_s, *counts, *latencies


def _number(value: float | None) -> object:
    if value is None or math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def _write(path: Path, rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([csv_cell(cell) for cell in row] for row in rows)
