"""Chapter "Theory beside measurement": t(b) fitted, utilisation and the wall, and what a queue with these arrivals should have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import queueing
from analysis.batching import BatchRule, BatchTime, simulate
from analysis.diagnosis_evidence import Evidence
from analysis.fit_batches import BatchFit
from analysis.plots import COLOURS, legend, line, plot
from analysis.record_rows import declared, rows_of
from analysis.run_folder import Run
from analysis.sections import Plot, Section, Table
from analysis.text import duration

FEWEST = 200
SHOWN = (0.5, 0.95, 0.99)
UNEXPLAINED = 1.25
"""How far measurement may lie from the prediction for queueing to explain it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Mean and quantiles (s) of time in the server, as predicted and as measured, by one model."""

    model: str
    mean_s: float
    quantiles_s: tuple[float, ...]


def section(run: Run) -> Section | None:
    """Theory for what the server told; a sentence where it told too little."""
    rows, which = rows_of(run)
    evidence = Evidence(rows, declared=None)
    if len(evidence.rows) < FEWEST or not evidence.ok.any():
        return None
    if not {"queue", "inference"} <= set(evidence.stage_s):
        return Section(
            [
                "Not measured: without the server's queue and inference times (Server-Timing) there is nothing to hold against theory."
            ]
        )
    told = evidence.ok & np.isfinite(evidence.stage_s["queue"]) & np.isfinite(evidence.stage_s["inference"])
    measured = evidence.stage_s["queue"][told] + evidence.stage_s["inference"][told]
    found, findings, plots = [_of("measured: queue + inference", measured)], [], []
    known, fit = declared(run), evidence.fit
    if fit is not None and fit.largest > 1:
        findings += _batch_findings(evidence, fit, known)
        found.append(_replayed(evidence, told, fit.time, _rule(known, fit)))
        plots.append(_batch_plot(evidence, told, fit))
    else:
        findings, extra = _single_findings(evidence, told)
        found += extra
    findings.append(_beside(found[0], found[1]))
    header = ["", "mean", *(f"p{100 * q:g}" for q in SHOWN)]
    table = Table(
        "Time in queue and on the device: theory beside measurement",
        header,
        [[p.model, duration(p.mean_s), *(duration(v) for v in p.quantiles_s)] for p in found],
        which or f"{int(told.sum()):,} answers after the warm-up.",
    )
    data = {"predicted": [{"model": p.model, "mean_s": p.mean_s, "p99_s": p.quantiles_s[-1]} for p in found]}
    return Section(findings, [table], plots, data)


def _beside(measured: Prediction, predicted: Prediction) -> str:
    ratio = measured.quantiles_s[-1] / max(predicted.quantiles_s[-1], 1e-12)
    words = f"The measured p99 of queue and device is {ratio:.2f} times what the same arrivals would bring by theory"
    if ratio > UNEXPLAINED:
        return f"{words}: something else than queueing behind each other lengthened it (see the diagnosis)."
    return (
        f"{words}: queueing explains it."
        if ratio > 1 / UNEXPLAINED
        else f"{words}: the model is too pessimistic for this service."
    )


def _of(model: str, values: NDArray[np.float64]) -> Prediction:
    quantiles = np.quantile(values, SHOWN, method="inverted_cdf")
    return Prediction(model, float(values.mean()), tuple(float(v) for v in quantiles))


def _rule(known: tuple[BatchTime, BatchRule] | None, fit: BatchFit) -> BatchRule:
    return known[1] if known else BatchRule(fit.largest, 0.0)


def _replicas(evidence: Evidence) -> NDArray[np.uint16]:
    found: NDArray[np.uint16] = np.unique(evidence.rows["replica"][evidence.ok])
    return found


def _replayed(evidence: Evidence, told: NDArray[np.bool_], time: BatchTime, rule: BatchRule) -> Prediction:
    """The exact batching rule on the arrivals that each replica really had."""
    joined = evidence.rows["sent_ns"] / 1e9
    parts = [
        simulate(np.sort(joined[told & (evidence.rows["replica"] == r)]), time, rule).response_s
        for r in _replicas(evidence)
        if (told & (evidence.rows["replica"] == r)).any()
    ]
    return _of(
        f"simulated: same arrivals, batches of at most {rule.max_batch}, delay {1e3 * rule.max_delay_s:g} ms",
        np.concatenate(parts),
    )


def _error_ms(seconds: float) -> str:
    """A standard error in ms; below a nanosecond it is only rounding."""
    return f"{1e3 * seconds:.2g}" if seconds >= 1e-9 else "0"


def _batch_findings(evidence: Evidence, fit: BatchFit, known: tuple[BatchTime, BatchRule] | None) -> list[str]:
    rule, replicas = _rule(known, fit), len(_replicas(evidence))
    span_s = max(float(np.ptp(evidence.rows["intended_ns"])) / 1e9, 1e-9)
    each = len(evidence.rows) / span_s / replicas
    capacity = fit.time.capacity_rps(rule.max_batch)
    findings = [
        f"Measured t(b) = {1e3 * fit.time.a_s:.4g} (+-{_error_ms(fit.a_error_s)}) + {1e3 * fit.time.c_s:.4g} (+-{_error_ms(fit.c_error_s)}) b ms, "
        f"from {fit.calls:,} calls with batches of {fit.smallest} to {fit.largest} (standard errors)."
        + (f" Declared: {1e3 * known[0].a_s:.4g} + {1e3 * known[0].c_s:.4g} b ms." if known else "")
    ]
    largest = f"batches of at most {rule.max_batch}" if known else f"the largest batch seen, {rule.max_batch}"
    findings.append(
        f"Each of {replicas} replica(s) got {each:.4g}/s of a capacity of {capacity:.4g}/s with {largest}: {each / capacity:.0%} of the wall."
    )
    try:
        predicted = fit.time.fixed_point(each, rule.max_batch)
    except queueing.Unstable:
        return [
            *findings,
            "That is at or above the wall: the queue grows without bound, and percentiles depend on the run's length.",
        ]
    batch = evidence.rows["batch"][evidence.ok]
    mean_batch = float(1 / np.mean(1 / np.maximum(batch, 1)))
    return [
        *findings,
        f"A busy replica settles at batches of {max(predicted, 1.0):.3g} by theory; the mean call had {mean_batch:.3g}.",
    ]


def _batch_plot(evidence: Evidence, told: NDArray[np.bool_], fit: BatchFit) -> Plot:
    batch, inference = evidence.rows["batch"][told], evidence.stage_s["inference"][told]
    sizes = np.unique(batch)
    medians = np.array([1e3 * np.median(inference[batch == b]) for b in sizes])

    def draw(figure: Any, on: Any) -> None:
        line(on, sizes.astype(float), 1e3 * (fit.time.a_s + fit.time.c_s * sizes), 0, "fit a + c b")
        on.plot(sizes, medians, "o", color=COLOURS[1], label="median of calls")
        on.set_xlabel("batch size")
        on.set_ylabel("inference time (ms)")
        legend(figure, on, 2)

    return plot(
        "batch-time",
        "Inference time by batch size",
        f"Answers after the warm-up; n = {int(told.sum()):,}. Points are medians by batch size.",
        draw,
    )


def _single_findings(evidence: Evidence, told: NDArray[np.bool_]) -> tuple[list[str], list[Prediction]]:
    """One request a call: M/G/1 from the measured mean and variation, and the same service times replayed through a FIFO queue."""
    service = evidence.stage_s["inference"][told]
    mean_s, cv = float(service.mean()), float(service.std() / max(service.mean(), 1e-12))
    span_s = max(float(np.ptp(evidence.rows["intended_ns"])) / 1e9, 1e-9)
    each = len(evidence.rows) / span_s / len(_replicas(evidence))
    findings = [
        f"One request a call, {duration(mean_s)} in the mean (coefficient of variation {cv:.2f}): each of {len(_replicas(evidence))} "
        f"replica(s) got {each:.4g}/s of a capacity of {1 / mean_s:.4g}/s, {each * mean_s:.0%} of the wall."
    ]
    predictions = [_fifo(evidence, told)]
    try:
        steady = queueing.mg1(each, mean_s, cv)
        findings.append(
            f"Pollaczek-Khinchine (M/G/1) predicts {duration(steady.response_mean_s)} in the mean for Poisson arrivals."
        )
        if 0.9 <= cv <= 1.1:
            quantiles = tuple(queueing.mm1_quantile_s(q, each, mean_s) for q in SHOWN)
            predictions.append(
                Prediction("M/M/1 (Poisson arrivals, exponential service)", queueing.mm1(each, mean_s).response_mean_s, quantiles)
            )
        elif cv <= 0.1 and steady.utilisation <= queueing.HIGHEST_MD1_UTILISATION:
            quantiles = tuple(queueing.md1_quantile_s(q, each, mean_s) for q in SHOWN)
            predictions.append(
                Prediction("M/D/1 (Poisson arrivals, constant service)", queueing.md1(each, mean_s).response_mean_s, quantiles)
            )
    except queueing.Unstable as error:
        findings.append(f"No steady state: {error}.")
    return findings, predictions


def _fifo(evidence: Evidence, told: NDArray[np.bool_]) -> Prediction:
    """Lindley's recursion on the measured arrivals and service times of each replica: what waiting in order alone explains."""
    parts = []
    for replica in _replicas(evidence):
        mine = told & (evidence.rows["replica"] == replica)
        at, service = evidence.rows["sent_ns"][mine] / 1e9, evidence.stage_s["inference"][mine]
        order = np.argsort(at, kind="stable")
        at, service = at[order], service[order]
        walk = np.concatenate([[0.0], np.cumsum(service[:-1] - np.diff(at))])
        parts.append(walk - np.minimum.accumulate(walk) + service)
    return _of("simulated: same arrivals and service times, first in, first out", np.concatenate(parts))
