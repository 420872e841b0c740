"""The figures of the moment, from the workers' newest snapshots: what progress, web UI and /metrics show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truetail.histogram import Histogram

if TYPE_CHECKING:
    from truetail.master import MasterRole


def progress_line(master: MasterRole, now_s: float) -> dict[str, Any]:
    """One line of ``progress.jsonl``. Percentiles are of all answered requests so far (cumulative), in ms; None = no data."""
    snapshots = [member.snapshot for member in master.fleet.members.values() if member.snapshot is not None]
    ledger = master.fleet.ledger(master.count)
    series = master.fleet.merged()
    whole = int(now_s)
    return {
        "at_s": round(now_s, 3),
        "duration_s": master.scenario["duration_s"],
        "planned": sum(master.planned_per_s[:whole]),
        "planned_last_s": sum(master.planned_per_s[max(0, whole - 1) : whole]),
        **{name: ledger[name] for name in ("scheduled", "sent", "dropped", "lost", "ok", "failed", "timed_out")},
        "in_flight": sum(snapshot.in_flight for snapshot in snapshots),
        "backlog": sum(snapshot.backlog for snapshot in snapshots),
        "workers": sum(not member.ended for member in master.fleet.members.values()),
        "workers_lost": sum(member.lost_at_ns is not None for member in master.fleet.members.values()),
        "response_ms": percentiles_ms(series.get("response")),
        "lateness_ms": percentiles_ms(series.get("lateness")),
        "cpu_share_max": max((snapshot.generator.cpu_share for snapshot in snapshots), default=0.0),
    }


def percentiles_ms(histogram: Histogram | None) -> dict[str, float | None]:
    """p50, p95, p99, p99.9 and max of a histogram, in ms."""
    if histogram is None or histogram.n == 0:
        return dict.fromkeys(("p50", "p95", "p99", "p99.9", "max"))
    values: dict[str, float | None] = {}
    for percentile in ("50", "95", "99", "99.9"):
        found_ns = histogram.percentile_ns(percentile)
        values[f"p{percentile}"] = None if found_ns is None else round(found_ns / 1e6, 3)
    values["max"] = round(histogram.max_ns / 1e6, 3)
    return values
