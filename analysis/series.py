"""The run over time: percentiles by intended instant, rates by the instant at which something happened, errors by class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Values, measure
from analysis.percentiles import at_rank_s, grouped
from analysis.record_columns import chosen, pieces
from analysis.run_folder import Run
from truetail.records import OK, OUTCOMES

MOST_STEPS = 600
SHOWN = ("50", "95", "99")
CLASSES_SHOWN = 8

Floats = NDArray[np.float64]


@dataclass
class Series:
    """Steps of ``step_s`` from the epoch on. Latencies in s are of all (inf: the rank falls on a failure; NaN: no arrival);
    counts are per step."""

    step_s: float
    starts_s: Floats
    response_s: dict[str, Floats]
    lateness_s: dict[str, Floats]
    offered: NDArray[np.int64]
    sent: NDArray[np.int64]
    completed: NDArray[np.int64]
    failed: NDArray[np.int64]
    errors: dict[str, NDArray[np.int64]]


def over_time(run: Run) -> Series:
    """Steps of one second, or of so many whole seconds that there are at most 600."""
    records = run.records
    first = records.arrivals
    latest_ns = int(max((records[name].max(initial=0) for name in ("intended_ns", "done_ns")), default=0))
    span_s = min(latest_ns / 1e9, run.scenario.duration_s + run.scenario.drain_s + 60) + 1e-9
    step_s = max(1.0, math.ceil(span_s / MOST_STEPS))
    steps = max(1, math.ceil(span_s / step_s))
    intended, outcome = chosen(records["intended_ns"], first), chosen(records["outcome"], first)
    done, failed = chosen(records["done_ns"], first), outcome != OK
    # A failure without an end (dropped, abandoned) is shown where it was intended.
    ended = np.where(done[failed] >= 0, done[failed], intended[failed])
    return Series(
        step_s, np.arange(steps, dtype=np.float64) * np.float64(step_s),
        _percentiles(measure(records, "response", first), intended, step_s, steps, SHOWN),
        _percentiles(measure(records, "lateness", first), intended, step_s, steps, ("50", "99", "100")),
        _counts(intended, step_s, steps), _counts(chosen(records["sent_ns"], first), step_s, steps),
        _counts(done[~failed], step_s, steps), _counts(ended, step_s, steps),
        _errors(run, first, (ended, failed), (step_s, steps)),
    )  # fmt: skip


def step_of(times_ns: Values, step_s: float, steps: int) -> NDArray[np.uint16]:
    """The step (of at most 65,536) in which each instant lies; what lies after the last counts there."""
    found = np.empty(len(times_ns), np.uint16)
    for piece in pieces(len(times_ns)):
        found[piece] = np.minimum(times_ns[piece] // round(step_s * 1e9), steps - 1)
    return found


def _counts(times_ns: Values, step_s: float, steps: int) -> NDArray[np.int64]:
    counts = np.zeros(steps, np.int64)
    for piece in pieces(len(times_ns)):
        some = times_ns[piece]
        counts += np.bincount(step_of(some[some >= 0], step_s, steps), minlength=steps)
    return counts


def _percentiles(values: Values, intended: Values, step_s: float, steps: int, shown: tuple[str, ...]) -> dict[str, Floats]:
    found = {q: np.full(steps, np.nan) for q in shown}
    if len(values) != len(intended):
        return found
    for step, ordered in grouped(values, step_of(np.maximum(intended, 0), step_s, steps), steps):
        for q in shown:
            value = at_rank_s(ordered, q)
            found[q][step] = math.nan if value is None else value
    return found


def _errors(
    run: Run, first: NDArray[np.bool_], ended: tuple[Values, NDArray[np.bool_]], grid: tuple[float, int]
) -> dict[str, NDArray[np.int64]]:
    """Failures per step by error class (what stands before the colon), the most frequent first, the rest together."""
    times, failed = ended
    if not failed.any():
        return {}
    texts = [text.split(":", 1)[0].strip() for text in run.records.texts("error")]
    classes = sorted(set(texts))
    class_of = np.array([classes.index(text) for text in texts])
    error = class_of[run.records["error"][first][failed]]
    outcome = run.records["outcome"][first][failed]
    found: dict[str, NDArray[np.int64]] = {}
    for number in np.unique(error).tolist():
        for fate in np.unique(outcome[error == number]).tolist():
            label = classes[number] or OUTCOMES[fate]
            mine = _counts(np.maximum(times[(error == number) & (outcome == fate)], 0), *grid)
            found[label] = found[label] + mine if label in found else mine
    ranked = sorted(found, key=lambda label: (-int(found[label].sum()), label))
    shown = {label: found[label] for label in ranked[:CLASSES_SHOWN]}
    if len(ranked) > CLASSES_SHOWN:
        shown["other"] = np.sum([found[label] for label in ranked[CLASSES_SHOWN:]], axis=0)
    return shown
