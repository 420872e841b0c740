"""Latency against load, and the largest rate that meets an SLO: one run after the other, at rates that the search chooses.

The scenario needs exactly one SLO line on a percentile (or say which: --slo). Its rate is replaced; its spacing stays. Other lines
(error_rate, mean, ...) must hold too where a rate is to count as met.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetail import manifest, roles
from truetail.children import Children
from truetail.errors import ExitCode, RunFailed, TargetNotReady, UsageError
from truetail.scenario import load
from truetail.slo import Slo
from truetail.units import format_duration_s, format_rate_rps, parse_duration_s, parse_share

if TYPE_CHECKING:
    from analysis.sweep_point import Asked
    from analysis.sweep_result import Sweep

EPILOG = """examples:
  truetail sweep scenarios/batch.yaml --rates 400/s..1000/s --slo "p99 < 80ms" --workers 2
  truetail sweep scenarios/batch.yaml --rates 100..900 --points 9 --seconds 30s     # a fixed grid: the whole curve
  truetail sweep scenarios/batch.yaml --resume sweeps/20261201T120000Z-batch        # go on where it ended

writes into the sweep's folder: sweep.json (after every run), sweep.html, points/ (a run folder each), logs/

exit codes: 0 the capacity is found (or the SLO is met at every rate), 1 the SLO is missed at the lowest rate, 2 usage or scenario error,
            3 cannot say (too noisy, the generator was the limit, or --budget ran out), 4 the target never became ready, 130 interrupted"""
FIXED = ("duration_s", "seed", "slos")
"""What of a scenario each point sets by itself, beside the rate: two sweeps that differ only there are of one scenario."""
RUN_CODES = (ExitCode.PASS, ExitCode.FAIL, ExitCode.INVALID)
OVERHEAD_S = 12.0
"""What a run takes beside its arrivals, for --budget: start, muster, report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", type=Path, help="scenario file (YAML)")
    parser.add_argument("--rates", metavar="A..B", help="the range to look in, like 100/s..900/s")
    parser.add_argument("--points", type=int, metavar="N", help="N fixed rates from A to B in place of the search")
    parser.add_argument(
        "--slo", metavar="LINE", help='the line to look at, like "p99 < 80ms", in place of the scenario\'s percentile lines'
    )
    parser.add_argument(
        "--seconds", metavar="TIME", help="measured time of a run (default: planned from the rate, 20 s to 120 s)"
    )
    parser.add_argument("--tolerance", default="3%", metavar="SHARE", help="how narrow the bracket shall be (default: 3%%)")
    parser.add_argument("--most", type=int, default=30, metavar="N", help="the most runs (default: %(default)s)")
    parser.add_argument("--budget", metavar="TIME", help="begin no run that would end after this; --resume continues later")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes of each run")
    parser.add_argument("--host", metavar="URL", help="test this service instead of the scenario's target")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a scenario value; repeatable")
    parser.add_argument("--out", type=Path, default=Path("sweeps"), metavar="DIR", help="where sweeps go (default: sweeps)")
    parser.add_argument("--resume", type=Path, metavar="SWEEP", help="go on with this sweep's folder")
    parser.add_argument("--json", action="store_true", help="print sweep.json in place of the table")


@dataclass(frozen=True, slots=True)
class Job:
    """One invocation: the scenario as every point has it, and where the sweep lives."""

    scenario_path: Path
    overrides: Sequence[str]
    resolved: dict[str, Any]
    slo: Slo
    folder: Path
    json: bool
    ends_at_s: float


def run(args: argparse.Namespace) -> int:
    """The whole sweep; the answer's exit code."""
    from analysis import sweep_question, sweep_result

    signal.signal(signal.SIGTERM, _as_interrupt)
    earlier = sweep_result.read(args.resume) if args.resume else None
    overrides = _overrides(args)
    scenario = load(args.scenario, overrides)
    roles.locustfile_of(scenario.users, args.scenario)
    slo = sweep_question.objective(scenario.objectives(), args.slo or (earlier.settings.slo if earlier else None))
    overrides += [f"slos={_yaml_list(sweep_question.kept_lines(scenario.objectives(), slo))}"]
    resolved = load(args.scenario, [*overrides, "arrivals.rate=1/s"]).resolved()
    if resolved["arrivals"].get("trace"):
        raise UsageError(
            f"{args.scenario}: arrivals.trace: a trace has its own rate; a sweep needs arrivals.rate and arrivals.spacing"
        )
    sweep = _begin(args, resolved, slo, earlier)
    budget_s = _duration("--budget", args.budget)
    folder = args.resume or manifest.new_run_folder(args.out, str(resolved["name"]), time.time())
    job = Job(args.scenario, overrides, resolved, slo, folder, args.json, time.monotonic() + budget_s if budget_s else math.inf)
    sweep_result.write(folder, sweep)
    _say(job, f"sweep: {folder} ({slo.text}, {sweep.settings.low_rps:g} to {sweep.settings.high_rps:g}/s)")
    try:
        sweep = _points(job, sweep)
    except KeyboardInterrupt:
        _say(job, f"interrupted; go on with: truetail sweep {args.scenario} --resume {folder}")
        _finish(job, sweep_result.read(folder))
        return ExitCode.INTERRUPTED
    return _finish(job, sweep)


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _overrides(args: argparse.Namespace) -> list[str]:
    found = list(args.set)
    if args.workers is not None:
        found.append(f"fleet.workers={args.workers}")
    if args.host:
        found += ["target.embedded=null", f"target.url={args.host}"]
    return found


def _yaml_list(lines: Sequence[str]) -> str:
    """A YAML flow list of quoted texts."""
    return "[" + ", ".join("'" + line.replace("'", "''") + "'" for line in lines) + "]"


def _begin(args: argparse.Namespace, resolved: dict[str, Any], slo: Slo, earlier: Sweep | None) -> Sweep:
    """A new sweep, or the earlier one if it is of this scenario and question."""
    from analysis import sweep_question as question
    from analysis.sweep_result import Sweep

    if not args.rates and earlier is None:
        raise UsageError("--rates A..B is needed, like --rates 100/s..900/s")
    before = earlier.settings if earlier else None
    low, high = question.rates(args.rates) if args.rates or before is None else (before.low_rps, before.high_rps)
    grid = question.grid(low, high, args.points) if args.points is not None else list(before.grid) if before else []
    try:
        tolerance = parse_share(args.tolerance)
    except ValueError as error:
        raise UsageError(f"--tolerance: {error}") from None
    asked = question.settings(
        slo=slo.text, low_rps=low, high_rps=high, grid=grid, tolerance=tolerance, most=args.most, seconds=_duration("--seconds", args.seconds),
    )  # fmt: skip
    digest = manifest.sha256(manifest.canonical({key: value for key, value in resolved.items() if key not in FIXED}))
    if earlier is not None:
        return question.go_on(earlier, asked, digest, str(args.resume))
    return Sweep(name=resolved["name"], scenario_file=args.scenario.name, scenario_sha256=digest, settings=asked)


def _duration(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if seconds < 1:
        raise UsageError(f"{option}: found {text!r}; at least 1 s is needed")
    return seconds


def _points(job: Job, sweep: Sweep) -> Sweep:
    """Run points until the search has its answer or the budget is used up; sweep.json is whole after each."""
    from analysis import sweep_point, sweep_result
    from analysis.sweep_search import Length, Probe, next_step

    wall_rps = _wall(job, sweep)
    while isinstance(step := next_step(sweep.settings.search(), sweep.tried), Probe):
        seconds = sweep.settings.seconds or sweep_point.full_seconds(job.slo, step.rate_rps, wall_rps)
        if step.length is Length.SHORT:
            seconds = sweep_point.short_seconds(seconds)
        if time.monotonic() + job.resolved["warmup_s"] + seconds + OVERHEAD_S > job.ends_at_s:
            sweep = sweep.model_copy(update={"state": "paused"})
            sweep_result.write(job.folder, sweep)
            return sweep
        number = len(sweep.points) + 1
        # Every run has arrivals of its own: errors of equal seeds would all lie on the same side.
        seed = (job.resolved["seed"]["schedule"] + number) % 2**63
        asked = sweep_point.Asked(number, step.rate_rps, step.length, seconds, seed)
        _say(job, f"{number:3}  {step.rate_rps:g}/s for {seconds:g} s ({step.length.value}; {step.why})")
        point = _one(job, asked)
        sweep = sweep.model_copy(update={"points": [*sweep.points, point]})
        sweep_result.write(job.folder, sweep)
        _say(job, f"     {point.outcome.value}: {point.reason}")
        wall_rps = wall_rps or _wall(job, sweep)
    return sweep.model_copy(update={"state": "ended", "answer": sweep_result.found(step)})


def _one(job: Job, asked: Asked) -> Any:
    """Run one point in a process of its own, and measure it."""
    from analysis import sweep_point
    from analysis.manifest_model import parse_json
    from analysis.run_folder import open_run

    points = job.folder / "points"
    before = set(points.glob("*/run.json"))
    command = [
        sys.executable, "-m", "truetail", "run", str(job.scenario_path), "--quiet", "--out", str(points),
        *(word for override in job.overrides for word in ("--set", override)),
        "--set", f"arrivals.rate={format_rate_rps(asked.rate_rps)}", "--set", f"seed={_seeds(job, asked.seed)}",
        "--set", f"duration={format_duration_s(job.resolved['warmup_s'] + asked.seconds)}",
    ]  # fmt: skip
    name = f"{asked.number:03}"
    with Children(job.folder / "logs") as children:
        child = children.start(name, command)
        try:
            code = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)  # it stops, drains and reports; a second Ctrl-C ends it through Children
            child.wait()
            raise
        tail = children.log_tail(name)
    made = sorted(set(points.glob("*/run.json")) - before)
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in RUN_CODES or not made or not (made[-1].parent / "summary.json").is_file():
        where = f"the run at {asked.rate_rps:g}/s gave no result (exit code {code}); see {job.folder}/logs/{name}.log:"
        kinds = {ExitCode.USAGE: UsageError, ExitCode.TARGET_NOT_READY: TargetNotReady}
        raise next((kind for found, kind in kinds.items() if found == code), RunFailed)(where, tail)
    run = open_run(made[-1].parent)
    summary = parse_json((run.path / "summary.json").read_bytes(), str(run.path / "summary.json"))
    return sweep_point.measure(run, summary, job.slo, asked)


def _seeds(job: Job, schedule: int) -> str:
    seeds = job.resolved["seed"]
    return f"{{schedule: {schedule}, payload: {seeds['payload']}, mix: {seeds['mix']}}}"


def _wall(job: Job, sweep: Sweep) -> float | None:
    """The declared capacity of the reference service, once a run has been made; it plans how long runs must be."""
    from analysis import sweep_theory
    from analysis.run_folder import open_run

    if not sweep.points:
        return None
    model, _ = sweep_theory.of_target(open_run(job.folder / "points" / sweep.points[0].run), job.resolved["arrivals"]["spacing"])
    return model.wall_rps if model else None


def _finish(job: Job, sweep: Sweep) -> int:
    """Theory, knee, page, table; the exit code."""
    from analysis import sweep_page, sweep_result
    from analysis.report import write_text
    from analysis.sweep_search import Kind

    sweep = sweep.model_copy(update={"knee_rps": sweep_result.knee_of(sweep.points)} | _theory(job, sweep))
    sweep_result.write(job.folder, sweep)
    write_text(job.folder / "sweep.html", sweep_page.render(sweep))
    if job.json:
        sys.stdout.write(sweep.to_json())
    else:
        _show(job, sweep)
    if sweep.answer is None:
        return ExitCode.INVALID
    return {Kind.FOUND: ExitCode.PASS, Kind.ABOVE: ExitCode.PASS, Kind.BELOW: ExitCode.FAIL}.get(
        sweep.answer.kind, ExitCode.INVALID
    )


def _theory(job: Job, sweep: Sweep) -> dict[str, Any]:
    """The curve for the rates that were swept, or why there is none."""
    from analysis import sweep_result, sweep_theory
    from analysis.run_folder import open_run
    from analysis.sweep_search import Length

    slo, spacing = job.slo, job.resolved["arrivals"]["spacing"]
    if slo.metric != "response" or not sweep.points:
        return {"theory": None, "theory_note": "only the response time is modelled" if sweep.points else "nothing was run"}
    model, why = sweep_theory.of_target(open_run(job.folder / "points" / sweep.points[0].run), spacing)
    if model is None:
        full = [p for p in sweep_result.best_points(sweep.points) if p.length is Length.FULL][-4:]
        model, other = sweep_theory.fitted([open_run(job.folder / "points" / p.run) for p in full], spacing)
        why = f"{why}; {other}"
    if model is None:
        return {"theory": None, "theory_note": why}
    tried = {p.rate_rps for p in sweep.points}
    low, high = min(tried), min(max(tried), model.wall_rps)
    between = {round(low + (high - low) * i / 11, 3) for i in range(12)} | {0.95 * model.wall_rps, 0.98 * model.wall_rps}
    rates = sorted(r for r in between if low <= r <= high)
    curve = sweep_theory.curve(model, rates, sweep_result.SHOWN, ((slo.ppm or 0) / 1e6, slo.limit))
    return {"theory": sweep_result.theory_of(curve), "theory_note": ""}


def _say(job: Job, text: str) -> None:
    """Progress, on standard error: standard output is for the answer."""
    print("".join(char if char.isprintable() else "�" for char in text), file=sys.stderr, flush=True)


def _show(job: Job, sweep: Sweep) -> None:
    """The table of points, then the answer."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from analysis import sweep_page

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True, no_color=not terminal)
    rows = [sweep_page.row(point) for point in sorted(sweep.points, key=lambda p: (p.rate_rps, p.number))]
    if terminal:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for at, name in enumerate(sweep_page.HEADER):
            table.add_column(name, justify="left" if at in (0, 1) else "right")
        for cells in rows:
            table.add_row(*cells)
        console.print(table)
    else:
        lines = [list(sweep_page.HEADER), *rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(sweep_page.HEADER))]
        for cells in lines:
            console.print(Text("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()))
    console.print(Text(sweep_page.word(sweep)), style="bold")
    for finding in sweep_page.findings(sweep):
        console.print(Text(f"  - {finding}"))
    console.print(Text(f"sweep: {job.folder / 'sweep.html'}"))
