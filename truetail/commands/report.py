"""Build (again) the report of a run's folder, also of one whose master, worker or machine died; the exit code is the verdict's."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from truetail.errors import UsageError

if TYPE_CHECKING:
    from analysis.summary import Summary

REASONS_SHOWN = 12
FAILED = "failed"
"""A percentile that falls on a request which failed, and so took for ever; short, since the table is to fit into 80 columns."""
EPILOG = """writes into the run folder: summary.json, summary.md, junit.xml, percentiles.csv, over_time.csv, fleet.hlog, report.html,
and records/*.parquet in place of the raw records (checked value by value before these are removed)

examples:
  truetail report runs/20261201T120000Z-poisson
  truetail report runs/20261201T120000Z-poisson --json | jq .response

exit codes: 0 PASS, 1 FAIL, 2 not a run folder, 3 INVALID, 4 the target never became ready, 130 the run was interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder (it holds a run.json)")
    parser.add_argument("--json", action="store_true", help="print summary.json instead of the table")
    parser.add_argument("--open", action="store_true", help="open report.html in the browser")
    parser.add_argument("--keep-raw", action="store_true", help="leave the raw records as they are (no Parquet)")


def run(args: argparse.Namespace) -> int:
    """Rebuild everything and show the verdict."""
    from analysis.report import build

    folder: Path = args.run
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; a run folder holds a run.json")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: cannot be written to; copy it somewhere and report on the copy")
    summary = build(folder, rebuild_parquet=not args.keep_raw)
    show(summary, folder, as_json=args.json)
    if args.open:
        webbrowser.open((folder / "report.html").resolve().as_uri())
    return int(summary.exit_code)


def show(summary: Summary, folder: Path, *, as_json: bool = False) -> None:
    """Verdict, reasons, key percentiles and where the report is, on standard output; coloured only in a terminal."""
    if as_json:
        sys.stdout.write(summary.to_json())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True, no_color=not terminal)
    colour = {"PASS": "bold green", "FAIL": "bold red"}.get(summary.status, "bold yellow")
    console.print(Text(summary.status, colour) + Text(f"  {summary.document['scenario']['name']}"))
    for reason in summary.reasons[:REASONS_SHOWN]:
        console.print(Text(f"  - {reason}"))
    if len(summary.reasons) > REASONS_SHOWN:
        console.print(Text(f"  - and {len(summary.reasons) - REASONS_SHOWN} more"))
    lines = _percentile_lines(summary)
    if terminal:
        table = Table(box=None, padding=(0, 1, 0, 0))
        for at, name in enumerate(lines[0]):
            table.add_column(name, justify="left" if at == 0 else "right")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table)
    else:
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        for line in lines:
            first = line[0].ljust(widths[0])
            console.print(
                Text("  ".join([first, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]).rstrip())
            )
    console.print(Text(f"report: {folder / 'report.html'}"))


def _percentile_lines(summary: Summary) -> list[list[str]]:
    """Header and rows: response of all and of successes, service, lateness."""
    from analysis.text import count, duration

    shown = ("p50", "p95", "p99", "p99.9")
    lines = [["", "n", *shown, "max"]]
    populations = (
        ("response, all", "response", "all_s"),
        ("response, successes", "response", "successes_s"),
        ("service, successes", "service", "successes_s"),
        ("lateness, sent", "lateness", "successes_s"),
    )
    for label, metric, population in populations:
        found = summary.document[metric]
        everything = population == "all_s"
        infinite = set(found["infinite"]) if everything else set()
        cells = [FAILED if q in infinite else duration(found[population][q]) for q in shown]
        largest = FAILED if everything and found["failed"] else duration(found["max_of_successes_s"])
        lines.append([label, count(found["n"] - (0 if everything else found["failed"])), *cells, largest])
    return lines
