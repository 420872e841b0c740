"""What a replayed trace gives its requests where the scenario is silent: sizes, and for a log the method, path and body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SIZES: Mapping[str, Mapping[str, Any]] = {
    "tokens": {"column": "prompt_tokens", "min": 1},
    "max_tokens": {"column": "output_tokens", "min": 1},
    "size": {"column": "request_bytes", "min": 0},
}
"""Law of ``payload`` -> column of the trace. Servers refuse prompts and answers of no token, so the least is 1."""


def filled_in(scenario: Mapping[str, Any], default: Sequence[Mapping[str, Any]], log: bool) -> Mapping[str, Any]:
    """The scenario with what its trace's columns tell and it does not: ``payload``, and the one request of a mix without any.

    ``default`` is the user's own request, whose sizes give way to the trace's; with ``log`` a trace that tells paths replaces it.
    Returned as it is where arrivals are no trace. Raises TraceError for a trace that cannot be read.
    """
    carried = columns(scenario)
    if not carried:
        return scenario
    laws = {law: {"row": dict(of)} for law, of in SIZES.items() if of["column"] in carried}
    requests = scenario.get("requests")
    if not requests and log and "path" in carried:
        requests = [_logged(carried)]
    elif not requests:
        requests = [
            {**spec, "payload": {law: of for law, of in (spec.get("payload") or {}).items() if law not in laws}}
            for spec in default
        ]
    return {**scenario, "payload": {**laws, **(scenario.get("payload") or {})}, "requests": requests}


def columns(scenario: Mapping[str, Any]) -> frozenset[str]:
    """The columns that the scenario's trace carries, by its first rows; none where arrivals are no trace. Raises TraceError."""
    trace = (scenario.get("arrivals") or {}).get("trace")
    if not trace:
        return frozenset()
    from shapes.traces.detect import open_rows  # pyarrow, which a scenario without a trace does not need
    from shapes.traces.drops import Drops
    from shapes.traces.spec import parse_spec

    spec = parse_spec(trace, 0)
    first = next(iter(open_rows(spec.source, spec.format, Drops(spec.source.path.name))), None)
    return frozenset(first.columns if first is not None else ())


def _logged(carried: frozenset[str]) -> dict[str, Any]:
    """Method, path and body of the row, or a body of its size."""
    asks: dict[str, Any] = {"name": "replayed", "path": "${row.path}"}
    if "method" in carried:
        asks["method"] = "${row.method}"
    if "body" in carried:
        asks["body"] = "${row.body}"
    elif "request_bytes" in carried:
        asks["body"] = "${bytes}"
    return asks
