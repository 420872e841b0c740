"""``summary.json``: every figure of the report, for machines. Strict JSON: no NaN, no Infinity; null is 'no data' or 'infinite'."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.percentiles import Group, mean_of_p99s
from analysis.result import Result
from analysis.text import plain
from truetail.errors import ExitCode

FORMAT = 1
WRONG = "the arithmetic mean of p99s is no percentile of anything; it stands here to be compared with the true one"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a caller needs of a report: the verdict, the exit code, and the whole document."""

    status: str
    reasons: Sequence[str]
    exit_code: ExitCode
    document: Mapping[str, Any]

    def to_json(self) -> str:
        """The document as strict JSON."""
        return json.dumps(self.document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def summarise(result: Result) -> Summary:
    """The summary of an analysed run."""
    run, verdict, latency = result.run, result.verdict, result.percentiles
    manifest = run.manifest
    low, high = run.window_ns
    document = {
        "format": FORMAT, "run_id": manifest.run_id,
        "scenario": {"name": manifest.scenario.name, "description": manifest.scenario.description, "sha256": manifest.scenario_sha256},
        "verdict": {"status": verdict.status.value, "reasons": list(verdict.reasons), "exit_code": int(verdict.exit_code)},
        "slos": [dataclasses.asdict(slo) | {"word": slo.word} for slo in result.slos],
        "rules": [dataclasses.asdict(rule) for rule in result.rules],
        "window_s": [low / 1e9, high / 1e9],
        "ledger": _ledger(result),
        "response": latency.response.to_json(), "service": latency.service.to_json(), "lateness": latency.lateness.to_json(),
        "other_metrics": {name: found.to_json() for name, found in latency.others.items()},
        "from_histograms": latency.estimate.to_json() if latency.estimate else None,
        "by_name": _groups(latency.by_name), "by_replica": _groups(latency.by_replica), "by_worker": _groups(latency.by_worker),
        "mean_of_p99s_wrong": {"replicas_s": mean_of_p99s(latency.by_replica), "workers_s": mean_of_p99s(latency.by_worker), "note": WRONG},
        "over_time": _over_time(result),
        "missing": [*run.missing, *run.damage],
        "sections": {chapter.title: chapter.section.data | ({"failure": chapter.failure} if chapter.failure else {}) for chapter in result.chapters},
    }  # fmt: skip
    return Summary(verdict.status.value, list(verdict.reasons), verdict.exit_code, strict(document))


def _ledger(result: Result) -> dict[str, Any]:
    found = result.ledger
    return {
        "balanced": found.balanced, "faults": found.faults, "notes": found.notes, "fleet": dict(found.fleet.counts),
        "missing": found.missing, "doubled": found.doubled, "unknown": found.unknown, "missing_k": found.missing_k, "doubled_k": found.doubled_k,
        "workers": {line.label: dict(line.counts) | {"missing": line.missing} for line in found.workers},
    }  # fmt: skip


def _groups(groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [{"name": group.label, "further_request": group.further, **group.response.to_json()} for group in groups]


def _over_time(result: Result) -> dict[str, Any]:
    series = result.series
    return {
        "step_s": series.step_s, "start_s": series.starts_s,
        "response_s": {f"p{q}": values for q, values in series.response_s.items()},
        "response_infinite": {f"p{q}": np.isinf(values) for q, values in series.response_s.items()},
        "lateness_s": {f"p{q}": values for q, values in series.lateness_s.items()},
        "offered": series.offered, "sent": series.sent, "completed": series.completed, "failed": series.failed, "errors": series.errors,
    }  # fmt: skip


def strict(value: Any) -> Any:
    """The value in plain JSON types: arrays as lists, NaN and infinity as null, text without control characters."""
    if isinstance(value, str):
        return plain(value, 2000)
    if isinstance(value, Mapping):
        return {plain(key): strict(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, np.generic):
        return strict(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int)) else plain(value)
