"""Validate a scenario and show what it would send: its schedule in figures and a picture. Nothing is sent.

``--generator`` beside that measures what one worker can send here: it runs the scenario's locustfile against a sink of ours, never the target.
Every fault is listed at once with file, line and column (exit code 2). What is allowed but probably not meant is a warning.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from truetail import embedded_target, generator_check
from truetail.errors import ExitCode, UsageError
from truetail.generator_check import Capacity, Step
from truetail.scenario import Scenario, load
from truetail.scenario_preview import NOTHING_PLANNED, Need, Preview, need_of, preview, share_of
from truetail.scenario_rules import warnings
from truetail.units import format_duration_s, parse_share

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("scenario", type=Path, help="scenario file (YAML)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a value; repeatable")
    parser.add_argument("--workers", type=int, metavar="N", help="plan for so many workers")
    parser.add_argument(
        "--utilisation",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="expected load of the server, for run lengths (default: 50%%)",
    )
    parser.add_argument("--json", action="store_true", help="the figures (or the faults) as JSON on standard output")
    parser.add_argument(
        "--generator",
        action="store_true",
        help="measure how much one worker can send here with this scenario's locustfile (half a minute; against a sink, not the target)",
    )
    parser.add_argument(
        "--host", metavar="URL", help="with --generator: send to this server in place of the sink, up to its limits"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="write a picture of the planned rate and gaps")


def run(args: argparse.Namespace) -> int:
    """Check, plan and show. Raises UsageError for a wrong scenario or one that cannot be planned."""
    if args.host and not args.generator:
        raise UsageError("--host belongs to --generator: check by itself sends nothing")
    overrides = [*args.set, *([f"fleet.workers={args.workers}"] if args.workers is not None else [])]
    try:
        scenario = load(args.scenario, overrides)
        resolved = scenario.resolved()
        plan = planned(args.scenario, resolved)
    except UsageError as error:
        if not args.json:
            raise
        print(json.dumps({"ok": False, "faults": list(error.faults)}, indent=2))
        return ExitCode.USAGE
    needs = slo_needs(scenario, plan, args.utilisation)
    doubts = [*warnings(scenario), *plan_warnings(scenario, plan, needs)]
    if args.png is not None:
        write_png(plan, scenario.name, args.png)
    capacity = None
    if args.generator:
        if not args.json:
            print("measuring what one worker can send here, half a minute ...", file=sys.stderr, flush=True)
        capacity = generator_check.measure(resolved, args.scenario, args.host)
        doubts += generator_warnings(capacity, plan, scenario.fleet.workers)
    if args.json:
        figures = as_json(scenario, plan, needs, doubts)
        figures |= {"generator": capacity.as_json(plan.peak_rps)} if capacity else {}
        print(json.dumps(figures, indent=2, allow_nan=False))
    else:
        print("\n".join(as_text(scenario, plan, needs, doubts, capacity)))
    return ExitCode.PASS


def planned(file: Path, resolved: Mapping[str, Any]) -> Preview:
    """The plan. Raises UsageError with what only shows beyond the scenario's own text: its embedded target's options, its trace, no arrivals."""
    embedded = resolved["target"]["embedded"]
    found = [f"{file}: {fault}" for fault in embedded_target.faults(embedded)] if embedded is not None else []
    try:
        plan = preview(resolved, time.time())
    except (ValueError, OSError) as error:  # a trace that is missing or malformed
        raise UsageError(*found, f"{file}: arrivals cannot be planned: {error}") from None
    if plan.count == 0:
        found.append(f"{file}: {NOTHING_PLANNED}")
    if found:
        raise UsageError(*found)
    return plan


def generator_warnings(capacity: Capacity, plan: Preview, workers: int) -> list[str]:
    """What the measured generator cannot do of the plan."""
    found = []
    needed = capacity.workers_for(plan.peak_rps)
    if needed is None:
        lowest = capacity.steps[0]
        found.append(f"one worker does not even send {lowest.rate_rps:g}/s here in time (lateness p99 {_late(lowest)})")
    elif needed > workers:
        cores = os.cpu_count() or 1
        where = f", on a core each (this machine has {cores})" if needed > 1 else ""
        found.append(
            f"the peak of {plan.peak_rps:.4g}/s over {workers} worker{'s' * (workers != 1)} is {plan.peak_rps / workers:.4g}/s each; one is good for "
            f"{generator_check.HEADROOM * capacity.sustained_rps:.4g}/s here: {needed} workers are needed{where}"
        )
    if capacity.failed:
        found.append(f"{capacity.failed} of the generator check's requests failed, the first: {capacity.error or 'no text'}")
    return found


def slo_needs(scenario: Scenario, plan: Preview, utilisation: float) -> list[Need]:
    """What each SLO line needs, and what is planned for it."""
    requests = scenario.resolved()["requests"]
    return [need_of(slo, round(plan.measured * share_of(slo.name, requests)), utilisation) for slo in scenario.objectives()]


def pool_needs(scenario: Scenario, plan: Preview) -> dict[str, Any]:
    """In flight per worker at the planned peak by Little's law, at the tightest latency SLO and at the deadline."""
    per_worker_rps = plan.peak_rps / scenario.fleet.workers
    limits_s = [slo.limit for slo in scenario.objectives() if slo.unit == "s" and slo.metric in ("response", "service")]
    return {
        "pool": scenario.pool,
        "at_slo": per_worker_rps * min(limits_s) if limits_s else None,
        "at_deadline": per_worker_rps * scenario.longest_deadline_s(),
        "rides_out_s": scenario.pool / per_worker_rps if per_worker_rps else None,
    }


def plan_warnings(scenario: Scenario, plan: Preview, needs: Sequence[Need]) -> list[str]:
    """What the plan shows that the scenario alone does not."""
    found = []
    for need in needs:
        if need.bound is not None and need.planned < need.bound:
            longer = f"; a run {need.bound / need.planned:.1f} times as long has them" if need.planned else ""
            found.append(f"{need.slo}: {need.planned} requests are planned, {need.bound} are needed to show it{longer}")
    pool = pool_needs(scenario, plan)
    if pool["at_slo"] is not None and pool["at_slo"] > scenario.pool:
        found.append(
            f"pool ({scenario.pool} per worker) is too small: at the peak and the SLO's limit {pool['at_slo']:.0f} are in flight"
        )
    return found


def secrets_of(resolved: Any) -> Iterator[str]:
    """Names of the environment variables that headers and auth refer to."""
    if isinstance(resolved, dict) and set(resolved) == {"env", "prefix"}:
        yield resolved["env"]
    elif isinstance(resolved, (dict, list)):
        for item in resolved.values() if isinstance(resolved, dict) else resolved:
            yield from secrets_of(item)


def environment_of(scenario: Scenario) -> dict[str, bool]:
    """Whether each environment variable that the scenario needs is set here; never its value."""
    resolved = scenario.resolved()
    names = secrets_of([resolved["target"]["headers"], resolved["target"]["auth"], [r["headers"] for r in resolved["requests"]]])
    return {name: name in os.environ for name in sorted(set(names))}


def as_json(scenario: Scenario, plan: Preview, needs: Sequence[Need], doubts: Sequence[str]) -> dict[str, Any]:
    """All figures as plain JSON."""
    start_s, peak = plan.peak
    return {
        "ok": True,
        "scenario": scenario.resolved(),
        "scenario_sha256": scenario.sha256(),
        "schedule": {
            "digest": plan.digest,
            "count": plan.count,
            "expected_count": plan.expected_count,
            "measured": plan.measured,
            "mean_gap_s": plan.mean_gap_s,
            "gap_scv": plan.gap_scv,
            "at_once_share": plan.at_once_share,
            "dispersion": plan.dispersion,
            "peak": {"start_s": start_s, "width_s": plan.bin_s, "count": peak},
            "worker_counts": plan.worker_counts,
            "bin_s": plan.bin_s,
            "counts": plan.counts.tolist(),
        },
        "pool": pool_needs(scenario, plan),
        "slos": [asdict(need) for need in needs],
        "environment": environment_of(scenario),
        "warnings": list(doubts),
    }


def as_text(
    scenario: Scenario, plan: Preview, needs: Sequence[Need], doubts: Sequence[str], capacity: Capacity | None = None
) -> Iterator[str]:
    """The figures for a terminal, a line each."""
    start_s, peak = plan.peak
    duration = format_duration_s(scenario.duration)
    yield f"{scenario.name}: {scenario.arrivals.headline()} for {duration}, seed {scenario.seed.schedule}"
    if scenario.description:
        yield f"  {' '.join(scenario.description.split())}"
    yield ""
    warmup = f" ({plan.measured} after the warm-up of {format_duration_s(scenario.warmup)})" if scenario.warmup else ""
    yield f"  arrivals    {plan.count}{warmup}, expected {plan.expected_count:.1f}"
    yield f"  digest      {plan.digest}"
    mean = f"mean {plan.count / scenario.duration:.4g}/s"
    yield f"  peak        {peak} in {format_duration_s(plan.bin_s)} from {format_duration_s(start_s)}; {mean}"
    if plan.mean_gap_s is not None and plan.gap_scv is not None:
        scv = f"SCV {plan.gap_scv:.3f} (0 fixed, 1 Poisson)"
        yield f"  gaps        mean {_ms(plan.mean_gap_s)}, {scv}, {plan.at_once_share:.1%} of them 0"
    if plan.dispersion:
        yield (
            "  dispersion  "
            + ", ".join(f"{value:.3f} in {width}" for width, value in plan.dispersion.items())
            + " windows (1 is Poisson)"
        )
    yield f"  workers     {len(plan.worker_counts)}: {_shares(plan.worker_counts)} arrivals each"
    yield f"  pool        {_pool(pool_needs(scenario, plan))}"
    for need in needs:
        yield f"  slo         {_need(need)}"
    for name, is_set in environment_of(scenario).items():
        yield f"  environment {name} is {'set' if is_set else 'NOT set here'}"
    if capacity is not None:
        yield from _generator(capacity, plan)
    yield ""
    yield f"  {sparkline(plan.counts[: max(1, int(scenario.duration / plan.bin_s))])}"
    yield f"  0s .. {duration}, highest column {int(columns(plan.counts).max()) / plan.bin_s:.4g}/s"
    yield from (f"warning: {doubt}" for doubt in doubts)
    yield ""
    yield "the scenario is valid; nothing was sent" + (" to its target" if capacity else "")


def columns(counts: np.ndarray[Any, Any], width: int = WIDTH) -> np.ndarray[Any, Any]:
    """``counts`` as at most ``width`` columns, each the mean of its bins."""
    return np.array([part.mean() for part in np.array_split(counts, min(width, len(counts)))])


def sparkline(counts: np.ndarray[Any, Any], width: int = WIDTH) -> str:
    """A line of block characters, from 0 to the highest column."""
    means = columns(counts, width)
    top = means.max()
    if top <= 0:
        return BLOCKS[0] * len(means)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(mean / top * len(BLOCKS)))] for mean in means)


def write_png(plan: Preview, name: str, path: Path) -> None:
    """A picture of the planned rate over time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    times_s = np.arange(len(plan.counts)) * plan.bin_s
    axes.step(times_s, plan.counts / plan.bin_s, where="post", linewidth=1)
    axes.set(
        title=f"{name}: {plan.count} planned arrivals", xlabel="time from the start (s)", ylabel=f"arrivals/s in {plan.bin_s:g} s"
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise UsageError(f"--png {path}: cannot be written: {error.strerror or error}") from None


def _share(text: str) -> float:
    try:
        share = parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if share > 0.99:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed is at most 99%")
    return share


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _need(need: Need) -> str:
    text = f"{need.slo}: judged on {need.planned} requests"
    if need.bound is not None:
        text += f"; {need.bound} can show it, if none is slower"
    if need.interval is not None:
        text += f", {need.interval} give an interval"
    return text


def _shares(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _late(step: Step) -> str:
    return "-" if step.lateness_p99_ms is None else f"{step.lateness_p99_ms:.3g} ms"


def _generator(capacity: Capacity, plan: Preview) -> Iterator[str]:
    rate = f"{'at least ' * capacity.at_top}{capacity.sustained_rps:.4g}/s"
    yield f"  generator   one worker sends {rate} here with lateness p99 within {capacity.limit_ms:g} ms; the peak is {plan.peak_rps:.4g}/s"
    top = next((i for i, step in enumerate(capacity.steps) if step.rate_rps == capacity.sustained_rps), 0)
    shown = [*capacity.steps[max(0, top - 2) : top + 3]]
    yield "              lateness p99: " + ", ".join(f"{_late(step)} at {step.rate_rps:g}/s" for step in shown)


def _pool(needs: dict[str, Any]) -> str:
    text = f"{needs['pool']} per worker"
    if needs["at_slo"] is not None:
        text += f"; {needs['at_slo']:.1f} in flight at the peak when answers take as long as the tightest SLO allows"
    if needs["rides_out_s"] is not None:
        text += f"; a stall of {needs['rides_out_s']:.1f} s at the peak fills it"
    return text
