"""What the page asks for once a second, as plain JSON values: under 100 kB also at the end of a run of two hours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from truetail.live import Live, ms, percentiles_ms
from truetail.tail import Tail
from truetail.timeline import CHARTED, PERCENTILES, Merged, Window
from truetail.ui.judgement import Standing, light, slo_states

PLAN_POINTS = 240
MOST_ROWS = 40
MOST_EVENTS = 40
MOST_TEXT = 200
REASONS = 12


class Payload:
    """Builds the page's data from the live figures, the run's events and what the collector has written."""

    def __init__(self, live: Live) -> None:
        self._live = live
        folder = live.master.folder
        self._event_tail = Tail(folder / "events.jsonl")
        self._events: list[dict[str, Any]] = []
        self._verdict: dict[str, Any] | None = None
        self._plan: dict[str, Any] | None = None

    def build(self) -> dict[str, Any]:
        """Everything, at this instant."""
        live, master = self._live, self._live.master
        standing = self._standing()
        colour, said = light(standing)
        live.telemetry.look(master.document["epoch_wall_ns"])
        return {
            "run": self._run(),
            "state": live.state,
            "final": master.finished,
            "stop_reason": master.stop_reason,
            "now_s": round(live.now_s, 1),
            "at_s": round(live.at_s, 3),
            "light": {"colour": colour, "reasons": [{"colour": c, "text": text[:MOST_TEXT]} for c, text in said[:REASONS]]},
            "slos": [state.as_json() for state in slo_states(standing)[:MOST_ROWS]],
            "ledger": self.ledger(),
            "percentiles": self.percentiles(),
            "names": self._each("response", "failed"),
            "replicas": self._replicas(),
            "workers": self.workers(),
            "levels": live.levels(),
            "recent": self._columns(live.timeline.recent),
            "whole": self._columns(live.timeline.whole),
            "width_s": live.timeline.width_s,
            "plan": self._planned(),
            "telemetry": live.telemetry.as_json(live.timeline.width_s),
            "events": self._newest_events(),
            "verdict": self._told_verdict(),
        }

    def ledger(self) -> dict[str, int]:
        """The fleet's ledger, in the order of its law."""
        ledger = self._live.ledger
        order = ("scheduled", "sent", "dropped", "lost", "unsent", "ok", "failed", "timed_out", "abandoned")
        return {name: ledger[name] for name in order}

    def percentiles(self) -> dict[str, dict[str, Any]]:
        """Of the whole run after the warm-up, true for the fleet: series to n, percentiles, max and mean (ms)."""
        return {series: _figures(self._live.merged.get(series)) for series in CHARTED if series in self._live.merged}

    def workers(self) -> list[dict[str, Any]]:
        """One row a worker, by slot."""
        rows = []
        for member in self._live.members[: 4 * MOST_ROWS]:
            snapshot = member.snapshot
            lateness, response = (
                Merged.of([member.histograms[series]]) if series in member.histograms else None
                for series in ("lateness", "response")
            )
            rows.append(
                {
                    "name": member.hello.name,
                    "host": member.hello.host[:MOST_TEXT],
                    "slot": member.slot,
                    "state": str(member.state),
                    "clock_offset_ms": round(member.clock_offset_ns / 1e6, 3),
                    "clock_residual_ms": round(member.clock_residual_ns / 1e6, 3),
                    "lateness_ms": percentiles_ms(lateness)["p99"],
                    "response_ms": percentiles_ms(response)["p99"],
                    "cpu_share": snapshot.generator.cpu_share if snapshot else None,
                    "stall_max_ms": round(snapshot.generator.loop_stall_max_ms, 2) if snapshot else None,
                    "sent": snapshot.ledger.sent if snapshot else 0,
                    "dropped": snapshot.ledger.dropped if snapshot else 0,
                    "in_flight": snapshot.in_flight if snapshot else 0,
                    "age_s": round(max(0.0, self._live.now_s - snapshot.at_ns / 1e9), 1) if snapshot else None,
                }
            )
        return rows

    def _standing(self) -> Standing:
        live, master = self._live, self._live.master
        return Standing(
            scenario=master.scenario,
            merged=live.merged,
            ledger=live.ledger,
            at_s=live.at_s,
            planned=live.planned_until(live.at_s),
            lost=tuple(member.hello.name for member in live.members if member.lost_at_ns is not None),
            residual_ns=max((member.clock_residual_ns for member in live.members), default=0),
            stop_reason=master.stop_reason,
        )

    def _run(self) -> dict[str, Any]:
        master = self._live.master
        scenario = master.scenario
        return {
            "id": master.folder.name,
            "scenario": scenario["name"],
            "description": str(scenario.get("description") or "")[: 2 * MOST_TEXT],
            "target": str(master.document["target"]["url"])[:MOST_TEXT],
            "digest": master.digest[:12],
            "duration_s": scenario["duration_s"],
            "warmup_s": scenario["warmup_s"],
            "limits_ms": {
                "lateness_p99": scenario["validity"]["lateness_p99_s"] * 1e3,
                "lateness_max": scenario["validity"]["lateness_max_s"] * 1e3,
            },
        }

    def _each(self, series: str, bad: str) -> list[dict[str, Any]]:
        """Rows of ``series/NAME``, the most requests first."""
        merged = self._live.merged
        names = {key.partition("/")[2] for key in merged if key.startswith((f"{series}/", f"{bad}/"))}
        rows = [
            {"name": name[:MOST_TEXT], "failed": _n(merged.get(f"{bad}/{name}")), **_figures(merged.get(f"{series}/{name}"))}
            for name in sorted(names)
        ]
        return sorted(rows, key=lambda row: -row["n"])[:MOST_ROWS]

    def _replicas(self) -> dict[str, Any]:
        """One row a replica; the mean of their p99s beside the true p99 of the same requests, to show how wrong it is."""
        merged = self._live.merged
        rows = self._each("replica", "")
        found = [merged[key] for key in merged if key.startswith("replica/")]
        p99s = [p99_ns for each in found if (p99_ns := each.percentiles_ns((990_000,))[0]) is not None]
        together = _together(found)
        true_ns = together.percentiles_ns((990_000,))[0] if together is not None else None
        return {
            "rows": rows,
            "mean_of_p99s_ms": round(sum(p99s) / len(p99s) / 1e6, 3) if p99s else None,
            "true_p99_ms": ms(true_ns),
        }

    def _columns(self, windows: Iterable[Window]) -> dict[str, list[Any]]:
        """Windows as columns for the charts: times in s, rates in 1/s, percentiles in ms."""
        windows = list(windows)
        spans = [max(1e-9, window.to_s - window.from_s) for window in windows]
        columns: dict[str, list[Any]] = {"to_s": [round(window.to_s, 2) for window in windows]}
        for name in ("sent", "completed", "ok", "dropped"):
            rates = (window.counts[name] / span for window, span in zip(windows, spans, strict=True))
            columns[name] = [round(rate, 2) for rate in rates]
        columns["planned"] = [
            round((self._live.planned_until(window.to_s) - self._live.planned_until(window.from_s)) / span, 2)
            for window, span in zip(windows, spans, strict=True)
        ]
        columns["in_flight"] = [window.levels["in_flight"] for window in windows]
        columns["cpu"] = [round(100 * window.levels["cpu_share"], 1) for window in windows]
        for series in CHARTED:
            if any(series in window.deltas and window.deltas[series].n for window in windows):
                for i, percentile in enumerate(PERCENTILES):
                    columns[f"{series}_p{percentile}"] = [
                        ms(window.deltas[series].ns[i]) if series in window.deltas else None for window in windows
                    ]
        return columns

    def _planned(self) -> dict[str, Any]:
        """The whole run's planned rate, also ahead of now; it does not change during a run."""
        per_s = self._live.master.planned_per_s
        if self._plan is None or not self._plan["rate"]:
            duration_s = self._live.master.scenario["duration_s"]
            width_s = max(1, -(-int(duration_s) // PLAN_POINTS))
            edges = [*range(0, int(duration_s), width_s), duration_s] if per_s else []
            until = self._live.planned_until
            rates = [round((until(b) - until(a)) / (b - a), 2) for a, b in pairwise(edges) if b > a]
            self._plan = {"from_s": edges[: len(rates)], "rate": rates, "width_s": width_s}
        return self._plan

    def _newest_events(self) -> list[dict[str, Any]]:
        self._events = [*self._events, *self._event_tail.lines(), *self._live.telemetry.new_events()][-MOST_EVENTS:]
        return [
            {
                "at_s": round(event["at_ns"] / 1e9, 1) if isinstance(event.get("at_ns"), int) else None,
                "kind": str(event.get("kind", ""))[:MOST_TEXT],
                "text": str(event.get("text", ""))[:MOST_TEXT],
            }
            for event in reversed(self._events)
        ]

    def _told_verdict(self) -> dict[str, Any] | None:
        """The report's verdict, once there is one."""
        if self._verdict is None and self._live.master.finished:
            try:
                summary = json.loads((self._live.master.folder / "summary.json").read_text(encoding="utf-8"))
                told = summary["verdict"]
                reasons = [str(reason)[:MOST_TEXT] for reason in told["reasons"][:REASONS]]
                self._verdict = {"status": str(told["status"])[:20], "reasons": reasons}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                return None
        return self._verdict


def _n(merged: Merged | None) -> int:
    return merged.n if merged is not None else 0


def _figures(merged: Merged | None) -> dict[str, Any]:
    mean_ms = round(merged.sum_ns / merged.n / 1e6, 3) if merged is not None and merged.n else None
    return {"n": _n(merged), **percentiles_ms(merged), "mean": mean_ms}


def _together(found: list[Merged]) -> Merged | None:
    if not found:
        return None
    cells = found[0].cells.copy()
    for each in found[1:]:
        cells += each.cells
    return Merged(cells, sum(each.n for each in found), max_ns=max(each.max_ns for each in found))
