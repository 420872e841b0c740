"""The theory curve beside a sweep: the reference service by its own settings, any other service by t(b) fitted to what it told.

Time inside the service alone: what the network and the client add is not in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import fit_batches, queueing
from analysis.batching import BatchRule, BatchTime, simulate
from analysis.metrics import INFINITE_NS, METRICS
from analysis.run_folder import Run
from analysis.text import duration
from shapes.schedule import Schedule
from truetail.records import OK

COARSE, CURVE, FINE = 20_000, 100_000, 500_000
"""Requests simulated for a first guess of the capacity, for a rate of the curve, and for each rate that the capacity rests on."""
HALVINGS = 7
HIGHEST_UTILISATION = 0.99
"""Nearer to the wall a simulation of this length says more about its seed than about the service."""
TELLS = re.compile(
    r"'(mode|balance|service)': '([a-z-]{1,20})'|'(a|c|max_batch|max_delay|service_mean|service_cv|replicas)': ([0-9.eE+-]{1,25})"
)

Seconds = NDArray[np.float64]
Serve = Callable[[float, int], Seconds]
"""Response times (s) in the steady state at a rate (1/s), of about so many requests."""


@dataclass(frozen=True, slots=True)
class Model:
    """A service that theory can serve: ``wall_rps`` is its capacity, ``exact`` its percentile formula (q, rate) where there is one."""

    label: str
    wall_rps: float
    serve: Serve
    exact: Callable[[float, float], float] | None = None

    def quantile_s(self, q: float, rate_rps: float, requests: int = CURVE) -> float:
        """The q-quantile at a rate, by formula or of so many simulated ``requests``; inf at or beyond the wall."""
        if rate_rps >= self.wall_rps:
            return math.inf
        if self.exact is not None:
            try:
                return self.exact(q, rate_rps)
            except ValueError:
                return math.inf
        return float(np.quantile(self.serve(rate_rps, requests), q, method="inverted_cdf"))


@dataclass(frozen=True, slots=True)
class Curve:
    """Percentiles (s; inf beyond the wall) at ``rates_rps``, and the largest rate at which the SLO's percentile meets the limit."""

    label: str
    wall_rps: float
    rates_rps: Sequence[float]
    quantiles_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    capacity_rps: float | None = None


def curve(model: Model, rates_rps: Sequence[float], percentiles: Sequence[str], slo: tuple[float, float]) -> Curve:
    """The model's curve; ``slo`` is (q, limit in s)."""
    shown = [r for r in rates_rps if r < HIGHEST_UTILISATION * model.wall_rps]
    found: dict[str, list[float]] = {p: [] for p in percentiles}
    for rate in shown:
        served = None if model.exact else model.serve(rate, CURVE)
        for p in percentiles:
            q = float(p) / 100
            found[p].append(model.quantile_s(q, rate) if served is None else float(np.quantile(served, q, method="inverted_cdf")))
    return Curve(model.label, model.wall_rps, shown, found, capacity_rps(model, *slo))


def capacity_rps(model: Model, q: float, limit_s: float) -> float | None:
    """The largest rate whose q-quantile stays within the limit, to about 0.2 %; None when not even an idle service does.

    A coarse search first, then a fine one around what it found: near the wall a short simulation is off by some per cent.
    """
    if model.quantile_s(q, model.wall_rps / 1000, COARSE) > limit_s:
        return None
    guess = _halved(model, q, limit_s, (0.0, model.wall_rps), COARSE)
    return _halved(model, q, limit_s, (0.85 * guess, min(1.1 * guess, model.wall_rps)), FINE)


def _halved(model: Model, q: float, limit_s: float, ends: tuple[float, float], requests: int) -> float:
    low, high = ends
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if model.quantile_s(q, middle, requests) <= limit_s else (low, middle)
    return (low + high) / 2


def arrivals_s(spacing: Mapping[str, Any], rate_rps: float, requests: int) -> Seconds:
    """About so many arrivals with the scenario's own spacing."""
    schedule = Schedule({"rate": {"kind": "constant", "rate_rps": rate_rps}, "spacing": dict(spacing)}, requests / rate_rps, 1)
    return np.concatenate([block.offsets_ns for block in schedule.blocks()]) / 1e9


def of_target(run: Run, spacing: Mapping[str, Any]) -> tuple[Model | None, str]:
    """(the reference service as it told its settings at /version, or None; why there is none)."""
    target = run.manifest.raw.get("target")
    version = target.get("version") if isinstance(target, dict) else None
    if not isinstance(version, dict) or version.get("service") != "truetail-target":
        return None, "the service is not the reference service"
    config = version.get("config")
    if isinstance(config, dict):
        told = {str(key): str(value) for key, value in config.items() if isinstance(value, str | int | float)}
    else:  # run folders before the manifest kept it as JSON
        told = {m[0] or m[2]: m[1] or m[3] for m in TELLS.findall(str(config or ""))}
    try:
        return _declared(told, spacing)
    except (KeyError, ValueError) as error:
        return None, f"the service's settings cannot be read ({error})"


def _declared(told: Mapping[str, str], spacing: Mapping[str, Any]) -> tuple[Model | None, str]:
    replicas, poisson = int(told["replicas"]), spacing.get("kind") == "poisson"
    if told["mode"] == "shared":
        return None, "percentiles of processor sharing are not modelled here"
    if replicas > 1 and told["balance"] != "round-robin":
        return None, "only round-robin over replicas is modelled here"
    if told["mode"] == "batch":
        time = BatchTime(float(told["a"]), float(told["c"]))
        rule = BatchRule(int(told["max_batch"]), float(told["max_delay"]))
        return batch_model(time, rule, replicas, spacing, "declared"), ""
    mean, law = float(told["service_mean"]), told["service"]
    draw = _law(law, mean, float(told["service_cv"]))
    label = f"{law} service, mean {duration(mean)}, first in, first out, {replicas} replica(s)"
    exact: Callable[[float, float], float] | None = None
    if replicas == 1 and poisson and law in ("exponential", "fixed"):
        formula = queueing.mm1_quantile_s if law == "exponential" else queueing.md1_quantile_s
        exact = lambda q, rate: formula(q, rate, mean)  # noqa: E731
        label = f"{'M/M/1' if law == 'exponential' else 'M/D/1'}: {label}"
    return fifo_model(label, mean, draw, replicas, spacing, exact), ""


def _law(law: str, mean: float, cv: float) -> Callable[[np.random.Generator, int], Seconds]:
    if law == "exponential":
        return lambda rng, n: rng.exponential(mean, n)
    if law == "lognormal":
        sigma = math.sqrt(math.log1p(cv**2))
        return lambda rng, n: rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, n)
    return lambda rng, n: np.full(n, mean)


def batch_model(time: BatchTime, rule: BatchRule, replicas: int, spacing: Mapping[str, Any], how: str) -> Model:
    """Dynamic batching by the exact rule, simulated; replicas get turns."""
    label = (
        f"batches of at most {rule.max_batch}, delay {1e3 * rule.max_delay_s:g} ms, t(b) = {1e3 * time.a_s:.4g} + {1e3 * time.c_s:.4g} b ms "
        f"({how}), {replicas} replica(s), simulated"
    )

    def serve(rate: float, requests: int) -> Seconds:
        return _steady(simulate(arrivals_s(spacing, rate, requests)[::replicas], time, rule).response_s)

    return Model(label, replicas * time.capacity_rps(rule.max_batch), serve)


def fifo_model(
    label: str, mean_s: float, draw: Callable[[np.random.Generator, int], Seconds], replicas: int, spacing: Mapping[str, Any],
    exact: Callable[[float, float], float] | None = None,
) -> Model:  # fmt: skip
    """One request at a time: Lindley's recursion; replicas get turns."""

    def serve(rate: float, requests: int) -> Seconds:
        at = arrivals_s(spacing, rate, requests)[::replicas]
        service = draw(np.random.default_rng(1), len(at))
        walk = np.concatenate([[0.0], np.cumsum(service[:-1] - np.diff(at))])
        return _steady(walk - np.minimum.accumulate(walk) + service)

    return Model(label, replicas / mean_s, serve, exact)


def _steady(response_s: Seconds) -> Seconds:
    """Without the first tenth: the simulated queue starts empty, which would flatter."""
    return response_s[len(response_s) // 10 :]


def fitted(runs: Sequence[Run], spacing: Mapping[str, Any]) -> tuple[Model | None, str]:
    """(a model of what the runs' answers told of batches and time on the device, or None; why there is none)."""
    batch, inference, replicas = _told(runs)
    if len(batch) < fit_batches.FEWEST_CALLS:
        return None, "the service does not tell its batches and its time on the device (Server-Timing, x-batch-size)"
    if batch.max() <= 1:
        mean = float(inference.mean())
        label = f"measured service times, mean {duration(mean)}, one request a call, {replicas} replica(s), simulated"
        return fifo_model(label, mean, lambda rng, n: rng.choice(inference, n), replicas, spacing), ""
    fit = fit_batches.fit(batch, inference)
    if fit is None:
        return None, "all batches have the same size: t(b) cannot be fitted"
    return batch_model(fit.time, BatchRule(fit.largest, 0.0), replicas, spacing, f"fitted to {fit.calls:,} calls"), ""


def _told(runs: Sequence[Run]) -> tuple[NDArray[np.int64], Seconds, int]:
    """Batch and device time (s) of each answer of ``runs``, and the number of replicas that answered."""
    batches, times, replicas = [], [], 1
    for run in runs:
        records = run.records
        metric = METRICS["inference"]
        inference = metric.of(*(records[name] for name in metric.columns))
        ok = (
            (records["outcome"] == OK)
            & records.measured
            & (inference >= 0)
            & (inference != INFINITE_NS)
            & (records["batch"] >= 1)
        )
        batches.append(records["batch"][ok].astype(np.int64))
        times.append(inference[ok] / 1e9)
        if ok.any():
            replicas = max(replicas, len(np.unique(records["replica"][ok])))
    if not batches:
        return np.empty(0, np.int64), np.empty(0), 1
    return np.concatenate(batches), np.concatenate(times), replicas
