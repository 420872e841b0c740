"""Say whether two groups of runs have the same tail, by Welch's test on the runs' log percentiles.

examples:
  truetail compare runs/base-1 runs/base-2 runs/base-3 -- runs/new-1 runs/new-2 runs/new-3
  truetail compare --percentile 99.9 --margin 5% runs/base-* -- runs/new-*
  truetail compare runs/yesterday -- runs/today            # one pair: indicative only

Each arm wants five fresh starts, interleaved (base, candidate, base, ...), of equal length. exit code: 0 the candidate is better,
or a slowdown of more than the margin is ruled out; 1 it is slower; 3 these runs cannot say.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analysis import compare as comparing
from analysis import likeness
from analysis.metrics import METRICS
from analysis.run_folder import Run, open_run
from truetail.errors import ExitCode, UsageError
from truetail.ranks import to_ppm
from truetail.units import parse_share

SEPARATOR = "--"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options and runs; the runs are taken apart at ``--`` later, for argparse itself would drop it."""
    _options(parser)
    parser.add_argument("runs", nargs=argparse.REMAINDER, metavar="BASE... -- CANDIDATE...", help="run folders of the two arms")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--percentile", metavar="Q", help="which one (default: 99)", default=argparse.SUPPRESS)
    parser.add_argument(
        "--metric", choices=sorted(METRICS), help="what is compared (default: response)", default=argparse.SUPPRESS
    )
    parser.add_argument("--name", help="only the requests of this name", default=argparse.SUPPRESS)
    parser.add_argument(
        "--margin", metavar="SHARE", help="a slowdown that does not matter (default: 10%%)", default=argparse.SUPPRESS
    )
    parser.add_argument(
        "--unlike",
        action="store_true",
        help="compare although the runs differ in more than the target",
        default=argparse.SUPPRESS,
    )
    parser.add_argument("--json", action="store_true", help="print JSON", default=argparse.SUPPRESS)


def arms(args: argparse.Namespace) -> tuple[argparse.Namespace, list[Path], list[Path]]:
    """(options, base, candidate). Options may stand anywhere, also between runs. Raises UsageError without two arms."""
    given = list(args.runs)
    if SEPARATOR not in given:
        raise UsageError("put -- between the base's runs and the candidate's: truetail compare BASE... -- CANDIDATE...")
    at = given.index(SEPARATOR)
    defaults = {"percentile": "99", "metric": "response", "name": None, "margin": "10%", "unlike": False, "json": False}
    options = argparse.Namespace(**(defaults | {key: value for key, value in vars(args).items() if key != "runs"}))
    inner = argparse.ArgumentParser(prog="truetail compare", add_help=False)
    _options(inner)
    inner.add_argument("found", nargs="*", type=Path)
    sides: list[list[Path]] = []
    for part in (given[:at], given[at + 1 :]):
        inner.parse_intermixed_args(part, options)
        sides.append(options.found)
    if not all(sides):
        raise UsageError("each arm needs at least one run folder: truetail compare BASE... -- CANDIDATE...")
    return options, sides[0], sides[1]


def run(args: argparse.Namespace) -> int:
    """Compare. Raises UsageError for folders that cannot be read and for runs that are unlike."""
    options, base_paths, candidate_paths = arms(args)
    try:
        ppm, margin = to_ppm(options.percentile), parse_share(options.margin)
    except ValueError as error:
        raise UsageError(str(error)) from None
    paths = [path.resolve() for path in (*base_paths, *candidate_paths)]
    if len(set(paths)) < len(paths):
        raise UsageError("a run folder is named twice")
    base, candidate = [open_run(path) for path in base_paths], [open_run(path) for path in candidate_paths]
    doubts = likeness.doubts(base, candidate)
    if doubts.unlike and not options.unlike:
        raise UsageError(*doubts.unlike, "these runs are unlike; --unlike compares them all the same")
    values = [[likeness.values_s(run, options.metric, options.name) for run in arm] for arm in (base, candidate)]
    try:
        found = comparing.compare(values[0], values[1], ppm, margin)
    except ValueError as error:
        raise UsageError(str(error)) from None
    notes = [*doubts.notes, *(f"compared although {doubt}" for doubt in doubts.unlike)]
    if options.json:
        print(json.dumps(as_json(found, base, candidate, notes), indent=1, allow_nan=False))
    else:
        _show(found, base, candidate, notes)
    return exit_code(found)


def exit_code(found: comparing.Comparison) -> ExitCode:
    """The regression gate: a single pair never passes and never fails."""
    if found.indicative or found.verdict == "cannot say":
        return ExitCode.INVALID
    return ExitCode.FAIL if found.verdict == "worse" else ExitCode.PASS


def as_json(found: comparing.Comparison, base: Sequence[Run], candidate: Sequence[Run], notes: Sequence[str]) -> dict[str, Any]:
    """Plain JSON; what is infinite or unknown is null."""

    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "verdict": found.verdict, "indicative": found.indicative, "percentile": found.percentile,
        "ratio": known(found.ratio), "low": known(found.low), "high": known(found.high), "confidence": 1 - found.alpha,
        "p": known(found.p), "permutation_p": known(found.permutation_p), "margin": found.margin, "requests_each": found.n_each,
        "base": [{"run": r.path.name, "value_s": known(v)} for r, v in zip(base, found.base, strict=True)],
        "candidate": [{"run": r.path.name, "value_s": known(v)} for r, v in zip(candidate, found.candidate, strict=True)],
        "notes": list(notes),
    }  # fmt: skip


def _show(found: comparing.Comparison, base: Sequence[Run], candidate: Sequence[Run], notes: Sequence[str]) -> None:
    console = Console()
    table = Table("arm", "run", f"p{found.percentile}", title=f"first {found.n_each} requests after each warm-up")
    for label, runs, values in (("base", base, found.base), ("candidate", candidate, found.candidate)):
        for one, value in zip(runs, values, strict=True):
            name = "".join(char if char.isprintable() else "?" for char in one.path.name).replace("[", r"\[")
            table.add_row(label, name, f"{1e3 * value:.4g} ms")
    console.print(table)
    exact = "" if math.isnan(found.permutation_p) else f"exact permutation test: p = {found.permutation_p:.3g}"
    for line in (found.text, exact, *(f"note: {note}" for note in notes)):
        if line:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
