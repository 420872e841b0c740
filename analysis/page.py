"""``report.html``: one self-contained page, verdict and why first. Everything is escaped; nothing is loaded; no script but ours may run."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import jinja2
from markupsafe import Markup

from analysis import plots_latency, plots_traffic, plots_where, tables
from analysis.markdown import MEANINGS
from analysis.percentiles import mean_of_p99s
from analysis.result import Result
from analysis.sections import Plot, Table
from analysis.summary import strict
from analysis.text import count, duration, without_controls

TEMPLATES = Path(__file__).parent / "templates"
FURTHER = (
    "A further request is one that a task sent after its first: it has no instant of its own, so its response is its service."
)
SCENARIO_SHOWN = 50_000
"""Characters of the scenario; longer ones (payloads in line) are cut."""


def render(result: Result) -> str:
    """The page of an analysed run."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: without_controls(value) if type(value) is str else value,
    )
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    run = result.run
    return environment.get_template("report.html").render(
        run=run, verdict=result.verdict, meaning=MEANINGS[result.verdict.status.value], facts=_facts(result),
        slos=tables.slos(result) if result.slos else None, rules=tables.rules(result), ledger=tables.ledger(result), balanced=result.ledger.balanced,
        faults=result.ledger.faults, notes=result.ledger.notes, percentiles=tables.key_percentiles(result), plots=_plots(result),
        failures=tables.failures(result), detail=_detail(result), comparison=_comparison(result),
        chapters=result.chapters, events=tables.events(result), environment=tables.environment(result), missing=[*run.damage, *run.missing],
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")), script=Markup(script), script_hash=digest,  # noqa: S704 - our own files
        trusted=Markup, scenario_text=json.dumps(strict(run.manifest.raw["scenario"]), indent=1, ensure_ascii=False)[:SCENARIO_SHOWN],
    )  # fmt: skip


def _facts(result: Result) -> list[tuple[str, str]]:
    """The few figures beside the verdict."""
    latency, counts = result.percentiles, result.ledger.fleet.counts
    low, high = result.run.window_ns
    seconds = max((high - low) / 1e9, 1e-9)
    failed = sum(counts[name] for name in ("failed", "timed_out", "abandoned", "dropped"))
    return [
        ("p50 of all", duration(latency.response.all_s["50"])),
        ("p99 of all", duration(latency.response.all_s["99"])),
        ("p99 of successes", duration(latency.response.successes_s["99"])),
        ("offered in the window", f"{latency.response.n / seconds:,.4g}/s"),
        ("arrivals, whole run", count(counts["scheduled"])),
        ("failed or dropped, whole run", count(failed)),
    ]


def _plots(result: Result) -> list[Plot]:
    """The main plots, in the order of the questions that a reader asks."""
    run, latency, series = result.run, result.percentiles, result.series
    found = [
        plots_latency.percentile_curve(run, latency), plots_latency.latency_over_time(run, series), plots_traffic.rates(run, series),
        plots_latency.lateness_over_time(run, series), plots_traffic.errors(run, series), plots_where.stages(run), plots_traffic.gaps(run),
        plots_where.groups("replica", "replica", [group for group in latency.by_replica if group.label != "(not told)"], latency),
        plots_where.groups("worker", "worker", latency.by_worker, latency),
    ]  # fmt: skip
    return [plot for plot in found if plot is not None]


def _detail(result: Result) -> list[Table]:
    latency = result.percentiles
    found = [
        tables.groups(
            "By request",
            latency.by_name,
            FURTHER,
        ),
        tables.groups("By replica", latency.by_replica),
        tables.groups("By worker", latency.by_worker),
    ]
    return [table for table in found if table is not None]


def _comparison(result: Result) -> list[tuple[str, str, str]]:
    """(what, true p99, mean of p99s): to see that averaging is wrong."""
    latency = result.percentiles
    true = duration(latency.response.successes_s["99"])
    kinds = (("replicas", latency.by_replica), ("workers", latency.by_worker))
    return [(what, true, duration(mean_of_p99s(groups))) for what, groups in kinds if len(groups) > 1]
