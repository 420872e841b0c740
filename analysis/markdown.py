"""``summary.md``: the verdict and why, the SLO table and the key percentiles, for a CI job's summary page."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import tables
from analysis.result import Result
from analysis.sections import Table
from analysis.text import count, markdown_cell

SIGNS = {"PASS": "✅", "FAIL": "❌", "INVALID": "⚠️"}
MEANINGS = {
    "PASS": "Every SLO line is met, and the run supports it",
    "FAIL": "An SLO line is missed",
    "INVALID": "The run cannot support a claim, neither good nor bad",
}
REASONS_SHOWN = 10


def render(result: Result) -> str:
    """The page. All text that is not ours is escaped."""
    verdict, run = result.verdict, result.run
    status = verdict.status.value
    lines = [f"## {SIGNS[status]} {status}: {markdown_cell(run.scenario.name)}", "", f"{MEANINGS[status]}.", ""]
    lines += [f"- {markdown_cell(reason)}" for reason in verdict.reasons[:REASONS_SHOWN]]
    if len(verdict.reasons) > REASONS_SHOWN:
        lines.append(f"- and {len(verdict.reasons) - REASONS_SHOWN} more in report.html")
    if result.slos:
        lines += ["", *_table(tables.slos(result))]
    lines += ["", *_table(_short(tables.key_percentiles(result)))]
    if failures := tables.failures(result):
        lines += ["", f"**{markdown_cell(failures)}**"]
    counts = result.ledger.fleet.counts
    lines += [
        "",
        "Ledger"
        + (" (balanced): " if result.ledger.balanced else " (**does not balance**): ")
        + ", ".join(f"{name.replace('_', ' ')} {count(value)}" for name, value in counts.items()),
    ]
    if run.missing or run.damage:
        lines += ["", "Missing:", *(f"- {markdown_cell(text)}" for text in [*run.damage, *run.missing][:REASONS_SHOWN])]
    return "\n".join([*lines, "", f"Run `{markdown_cell(run.manifest.run_id)}`; the whole report is report.html.", ""])


def _short(table: Table) -> Table:
    """Without the columns that a narrow page has no room for."""
    keep = [i for i, name in enumerate(table.header) if name not in ("p90", "p99.99", "mean")]
    return Table(table.title, [table.header[i] for i in keep], [[row[i] for i in keep] for row in table.rows], table.note)


def _table(table: Table) -> Sequence[str]:
    rows = [f"| {' | '.join(markdown_cell(cell) for cell in row)} |" for row in (table.header, *table.rows)]
    return [
        f"**{table.title}**",
        "",
        rows[0],
        f"|{'---|' * len(table.header)}",
        *rows[1:],
        "",
        f"<sub>{markdown_cell(table.note)}</sub>",
    ]
