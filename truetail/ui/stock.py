"""Locust's own page, extended: tables of the fleet, its chart with true fleet-wide percentiles, its buttons told about our runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import locust.stats
from flask import Response, jsonify, make_response, request
from locust.runners import Runner
from locust.web import WebUI

from truetail.live import Live, ms
from truetail.timeline import PERCENTILES, PPMS
from truetail.ui.payload import Payload

CHARTED = tuple(ppm / 1_000_000 for ppm in PPMS)
CHART_S = 10.0
"""Locust's chart shows the last ten seconds; so do our percentiles in it."""
COLUMNS = [{"key": "series", "title": "Series (ms)"}, {"key": "n", "title": "n"}] + [
    {"key": f"p{percentile}".replace(".", "_"), "title": f"p{percentile}"} for percentile in PERCENTILES
]
TABLES: list[dict[str, Any]] = [
    {"key": "fleet-percentiles", "structure": [*COLUMNS, {"key": "max", "title": "max"}]},
    {"key": "fleet-ledger", "structure": [{"key": "what", "title": "Arrivals"}, {"key": "count", "title": "count"}]},
    {
        "key": "fleet-workers",
        "structure": [
            {"key": key, "title": title}
            for key, title in (
                ("name", "Worker"),
                ("slot", "slot"),
                ("state", "state"),
                ("sent", "sent"),
                ("lateness", "lateness p99 (ms)"),
                ("cpu", "CPU (%)"),
                ("clock", "clock offset (ms)"),
            )
        ],
    },
]


def supervised() -> bool:
    """Whether `truetail ui` waits for this process and serves the form for another run after it."""
    return bool(os.environ.get("TRUETAIL_UI_SUPERVISED"))


def extend(web_ui: WebUI, payload: Payload, live: Live) -> None:
    """Tabs, tables, chart and buttons of Locust's page."""
    assert web_ui.app is not None
    locust.stats.PERCENTILES_TO_CHART[:] = CHARTED
    _overwrite_history(live)
    tabs = [{"title": table["key"].replace("-", " ").title(), "key": table["key"]} for table in TABLES]
    link = {"href": "fleet/", "title": "Live view of the fleet (Truetail)"}
    web_ui.template_args.update({"extended_tabs": tabs, "extended_tables": TABLES, "extended_csv_files": [link]})
    views = web_ui.app.view_functions
    views["locust.stop"] = web_ui.auth_required_if_enabled(lambda: _stop(live))
    begin = views["locust.swarm"]  # behind the login by itself
    views["locust.swarm"] = web_ui.auth_required_if_enabled(lambda: _swarm(live, begin, web_ui))

    @web_ui.app.after_request
    def _add_fleet(response: Response) -> Response:
        if request.endpoint != "locust.request_stats" or not response.is_json:
            return response
        document = response.get_json()
        if not isinstance(document, dict):
            return response
        document["extended_stats"] = rows(payload)
        document["current_response_time_percentiles"] = {
            f"response_time_percentile_{share}": value for share, value in zip(CHARTED, _recent_ms(live), strict=True)
        }
        # A new response: Locust keeps the original for two seconds and hands it to everybody.
        return make_response(jsonify(document))


def rows(payload: Payload) -> list[dict[str, Any]]:
    """The rows of our tables."""
    percentiles = [
        {"series": series, **{key.replace(".", "_"): value for key, value in figures.items()}}
        for series, figures in payload.percentiles().items()
    ]
    ledger = [{"what": name.replace("_", " "), "count": count} for name, count in payload.ledger().items()]
    workers = [
        {
            **{key: worker[key] for key in ("name", "slot", "state", "sent")},
            "lateness": worker["lateness_ms"],
            "cpu": None if worker["cpu_share"] is None else round(100 * worker["cpu_share"], 1),
            "clock": worker["clock_offset_ms"],
        }
        for worker in payload.workers()
    ]
    return [{"key": table["key"], "data": data} for table, data in zip(TABLES, (percentiles, ledger, workers), strict=True)]


def _recent_ms(live: Live) -> list[float | None]:
    window = live.timeline.last(CHART_S)
    delta = window.deltas.get("response") if window is not None else None
    return [ms(ns) for ns in delta.ns] if delta is not None else [None] * len(PPMS)


def _stop(live: Live) -> Response:
    """Locust would kill what is in flight; ours drains."""
    live.master.stop("interrupted", "stopped from Locust's page")
    return jsonify({"success": True, "message": "No more arrivals; what is in flight drains"})


def _swarm(live: Live, begin: Callable[[], Any], web_ui: WebUI) -> Any:
    """Start on Locust's page: the run of plain `locust` that waits for it, as it was planned on the command line, and no other.

    A run's schedule, slots and records belong to its process, so another run needs another process.
    """
    if not live.master.waits_for_start:
        how = "press New run on the fleet page" if supervised() else "start Locust or `truetail run` again, or use `truetail ui`"
        why = f"One run a process: for another run {how}"
    elif web_ui.userclass_picker_is_active:
        why = "Choosing classes here would put the planned arrivals aside: start Locust again without --class-picker"
    elif changed := _changed(request.form, live.master.document["target"]["url"], web_ui.environment.parsed_options):
        why = f"The run is planned already; to change {', '.join(changed)} start Locust again with other options"
    else:
        return begin()
    return jsonify({"success": False, "message": why, "host": ""})


def _changed(form: Mapping[str, str], target: str, options: Any) -> list[str]:
    """Fields of Locust's form that would change the plan, which was made from the command line: the target, a shape's, a trace's."""
    from shapes.open_loop import OPTIONS  # registers options of Locust, so only where a shape has done so already

    planned = {attribute for _, attribute, _, _ in OPTIONS} | {name for name in form if name.startswith("trace")}
    now = {name: str(getattr(options, name)) for name in planned if hasattr(options, name)} | {"host": target}
    return sorted(name for name, value in now.items() if name in form and not _same(form[name], value))


def _same(told: str, value: str) -> bool:
    """Whether a form's text says what is there: 50 is 50.0, and an address may end in a slash."""
    try:
        return float(told) == float(value)
    except ValueError:
        return told.rstrip("/") == value.rstrip("/")


def _overwrite_history(live: Live) -> None:
    """The history behind Locust's chart and its HTML report: the same percentiles."""
    original = locust.stats.update_stats_history

    def noted(runner: Runner, timestamp: str | None = None) -> None:
        original(runner, timestamp)
        entry = runner.stats.history[-1]
        for share, value in zip(CHARTED, _recent_ms(live), strict=True):
            entry[f"response_time_percentile_{share}"] = [entry["time"], value or 0]

    locust.stats.update_stats_history = noted
