"""Chapter "Sanity laws": what must hold in any right measurement, whatever the service does."""

from __future__ import annotations

from typing import Any

from analysis import littles_law
from analysis.record_rows import rows_of
from analysis.run_folder import Run
from analysis.sections import Section, Table
from analysis.text import duration
from truetail.records import FLAG_WARMUP, OK


def section(run: Run) -> Section | None:
    """Little's law, stages against the client's time, offered against completed."""
    rows, which = rows_of(run)
    ended = rows[(rows["sent_ns"] >= 0) & (rows["done_ns"] >= rows["sent_ns"])]
    if not len(ended):
        return None
    window = run.window_ns if not which else (int(rows["intended_ns"][0]), int(rows["intended_ns"][-1]) + 1)
    law = littles_law.littles_law(ended["sent_ns"], ended["done_ns"], window)
    judged = (ended["outcome"] == OK) & (ended["flags"] & FLAG_WARMUP == 0)
    account = littles_law.stage_account(ended[judged])
    through = littles_law.throughput(rows, window)
    findings: list[str] = []
    tables: list[Table] = []
    data: dict[str, Any] = {}
    if law is not None:
        findings.append(_little(law))
        tables.append(_little_table(law, which))
        data["little_gap"] = float(law.gap)
    if account is None:
        findings.append(
            "Client time against the server's stages: not measured, for the server tells no stage times (Server-Timing)."
        )
    else:
        findings.append(_account(account))
        tables.append(_account_table(account))
        data["outside_p50_s"] = account.outside_p50_s
    if through is not None:
        kept = (
            "keeps up"
            if through.keeps_up
            else "does NOT keep up: the backlog grows, so every percentile depends on the run's length"
        )
        findings.append(
            f"Offered {through.offered_rps:.4g}/s, completed {through.completed_rps:.4g}/s; the number in flight changes by "
            f"{through.growth_per_s:+.3g} per second: the service {kept}."
        )
        data["keeps_up"] = through.keeps_up
    return Section(findings, tables, data=data)


def _little(law: littles_law.Littles) -> str:
    verdict = "holds" if law.holds else "does NOT hold: records are missing, doubled or wrongly timed"
    return (
        f"Little's law {verdict}: {law.in_flight:.4g} in flight on average against {law.rate_rps:.4g}/s x {duration(law.response_mean_s)} "
        f"= {law.product:.4g} (off by {law.gap:.2%}; requests across the window's edges explain {law.edge_share:.2%})."
    )


def _little_table(law: littles_law.Littles, which: str) -> Table:
    row = [
        f"{law.window_s:.4g}",
        law.n,
        f"{law.rate_rps:.4g}",
        duration(law.response_mean_s),
        f"{law.product:.4g}",
        f"{law.in_flight:.4g}",
        f"{law.gap:.3%}",
    ]
    header = ["window (s)", "requests", "rate (1/s)", "mean time, sent to done", "rate x time", "mean in flight", "gap"]
    return Table("Little's law", header, [row], which)


def _account(account: littles_law.StageAccount) -> str:
    verdict = "agree" if account.holds else "do NOT agree: stages exceed the client's time in too many answers"
    return (
        f"Client and server times {verdict}: of {duration(account.client_mean_s)} in the mean, {duration(account.outside_mean_s)} are outside "
        f"the server's stages (network and queueing outside; p50 {duration(account.outside_p50_s)}, p99 {duration(account.outside_p99_s)})."
    )


def _account_table(account: littles_law.StageAccount) -> Table:
    client = max(account.client_mean_s, 1e-12)
    rows = [[stage, duration(mean), f"{mean / client:.1%}"] for stage, mean in account.mean_s.items()]
    rows += [["outside the stages", duration(account.outside_mean_s), f"{account.outside_mean_s / client:.1%}"]]
    rows += [["client: sent to done", duration(account.client_mean_s), "100.0%"]]
    note = f"Means over {account.n:,} answers ({account.told_share:.0%} of the successes); {account.impossible_share:.2%} claim more than the client saw."
    return Table("Client time by the server's stages", ["stage", "mean", "share"], rows, note)
