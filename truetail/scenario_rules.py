"""Rules between the fields of a scenario. Each is a pure function of a scenario of which the named fields are valid."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetail.scenario_faults import Fault
from truetail.slo import Slo
from truetail.slo import parse as parse_slo
from truetail.tracing import ENDPOINTS, has_endpoint
from truetail.units import format_duration_s, shown
from truetail.yaml_lines import Keys

if TYPE_CHECKING:
    from truetail.scenario import Scenario

LOCUSTFILES = Path(__file__).resolve().parent.parent / "locustfiles"


def warmup_ends(scenario: Scenario) -> Iterator[Fault]:
    """Something must be left to measure after the warm-up."""
    if scenario.warmup >= scenario.duration:
        warmup, duration = format_duration_s(scenario.warmup), format_duration_s(scenario.duration)
        yield Fault(("warmup",), f"found {warmup}; allowed is less than duration ({duration})")


def slo_name_faults(data: Any) -> Iterator[Fault]:
    """An SLO line for a request that is never sent would never have data. Reads raw data: either list may have faults."""
    requests, slos = data.get("requests"), data.get("slos")
    if not isinstance(requests, list) or not isinstance(slos, list):
        return
    names = [entry["name"] for entry in requests if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    for index, line in enumerate(slos):
        try:
            name = parse_slo(line).name
        except ValueError:  # told by the schema
            continue
        if names and name is not None and name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield Fault(("slos", index), f"names request {shown(name)}, which is not in the mix: {_some(names)}{hint}")


def slos_within_deadline(scenario: Scenario) -> Iterator[Fault]:
    """A request is cut off at its deadline, so no answer can take as long as a limit beyond it."""
    longest_s = scenario.longest_deadline_s()
    for index, slo in enumerate(scenario.objectives()):
        bound_s = _bound_s(slo)
        if bound_s is not None and bound_s > longest_s + scenario.lateness_deadline:
            yield Fault(
                ("slos", index),
                f"allows {format_duration_s(bound_s)}, but a request is cut off after {format_duration_s(longest_s)} (deadline)",
            )


def _bound_s(slo: Slo) -> float | None:
    if slo.kind == "goodput":
        return slo.goodput_s
    return slo.limit if slo.unit == "s" and slo.metric in ("response", "service", "ttft", "first_byte") else None


def slos_once(scenario: Scenario) -> Iterator[Fault]:
    """The same line twice is a slip of the pen."""
    first: dict[str, int] = {}
    for index, line in enumerate(scenario.slos):
        at = first.setdefault("".join(line.split()), index)
        if at != index:
            yield Fault(("slos", index), f"repeats slos.{at}, {shown(scenario.slos[at])}")


def trace_starts(scenario: Scenario) -> Iterator[Fault]:
    """A trace that starts after the end sends nothing."""
    trace = scenario.arrivals.trace
    if trace is not None and trace.offset >= scenario.duration:
        offset, duration = format_duration_s(trace.offset), format_duration_s(scenario.duration)
        yield Fault(("arrivals", "trace", "offset"), f"found {offset}; allowed is less than duration ({duration})")


def something_to_send(scenario: Scenario) -> Iterator[Fault]:
    """Our own REST users send what the mix or a trace says."""
    if scenario.users == "rest" and not scenario.requests and scenario.arrivals.trace is None:
        yield Fault(("requests",), "is empty: the rest users send what the mix says; add an entry", of_key=True)


def traceparent_once(scenario: Scenario) -> Iterator[Fault]:
    """With tracing the header is ours; a second one would make both void (W3C Trace Context, section 3.2)."""
    holders: list[tuple[Keys, Any]] = [(("target", "headers"), scenario.target.headers)]
    holders += [(("requests", i, "headers"), request.headers) for i, request in enumerate(scenario.requests)]
    for path, headers in holders if scenario.tracing is not None else ():
        for name in headers:
            if name.lower() == "traceparent":
                yield Fault((*path, name), "is written by tracing; remove one of the two", of_key=True)


def users_exist(scenario: Scenario) -> Iterator[Fault]:
    """The locustfile is there."""
    if scenario.users.endswith(".py") or "/" in scenario.users:
        path = Path(scenario.beside(scenario.users))
        if not path.is_file():
            yield Fault(("users",), f"found {shown(scenario.users)}, but there is no file {path}")
        return
    stems = sorted(path.name.removesuffix("_users.py") for path in LOCUSTFILES.glob("*_users.py"))
    if scenario.users not in stems:
        near = difflib.get_close_matches(scenario.users, stems, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield Fault(("users",), f"found {shown(scenario.users)}; allowed is {', '.join(stems)}, or a path ending in .py{hint}")


# Which fields a rule reads: it is asked only when these are valid.
RULES: tuple[tuple[frozenset[str], Callable[[Any], Iterator[Fault]]], ...] = (
    (frozenset({"warmup", "duration"}), warmup_ends),
    (frozenset({"slos", "requests", "deadline", "lateness_deadline"}), slos_within_deadline),
    (frozenset({"slos"}), slos_once),
    (frozenset({"arrivals", "duration"}), trace_starts),
    (frozenset({"users", "requests", "arrivals"}), something_to_send),
    (frozenset({"tracing", "target", "requests"}), traceparent_once),
    (frozenset({"users"}), users_exist),
)


def rule_faults(scenario: Scenario, valid: set[str]) -> list[Fault]:
    """The faults between fields, of those rules whose fields are all in ``valid``."""
    return [fault for needs, rule in RULES if needs <= valid for fault in rule(scenario)]


ENVIRONMENT = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$\([A-Za-z_][A-Za-z0-9_]*\)")
FREE_TEXT = frozenset({"description", "json", "body", "contains", "payload", "protocol"})
TEMPLATED = frozenset({"path", "headers"})
"""Fields of a request, beside the free ones, in which ``${k}`` and the like are filled in (:mod:`truetail.payloads`)."""


def environment_faults(data: Any, path: Keys = ()) -> Iterator[Fault]:
    """``${NAME}`` where it would be sent as it stands: the environment is read as ``{env: NAME}``, by headers and auth only."""
    if isinstance(data, str):
        found = [match[0] for match in ENVIRONMENT.finditer(data) if not _filled_in(match[0], path)]
        if found:
            yield Fault(path, f"found {found[0]}, which is not replaced; headers and auth take {{env: NAME}}, other values --set")
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if key not in FREE_TEXT:
            yield from environment_faults(value, (*path, key))


def _filled_in(reference: str, path: Keys) -> bool:
    """Whether ``${name}`` stands in a request's path or header and names a value that every arrival has."""
    if path[:1] != ("requests",) or not TEMPLATED & set(path):
        return False
    from truetail.payloads.payload import NAMES  # numpy, which a scenario without templates does not need

    # row.COLUMN and line.FIELD: which there are, only the file knows
    return reference[2:-1].partition(".")[0] in {name.partition(".")[0] for name in NAMES.split(", ")}


def warnings(scenario: Scenario) -> list[str]:
    """What is allowed but probably not meant, a line each."""
    found = []
    drain_s, longest_s = scenario.resolved()["drain_s"], scenario.longest_deadline_s()
    if drain_s < longest_s:
        found.append(
            f"drain ({format_duration_s(drain_s)}) is shorter than the longest deadline ({format_duration_s(longest_s)}): "
            "requests that are still out then count as abandoned, and so as infinitely slow"
        )
    if not scenario.slos:
        found.append("no SLO lines: the verdict can only say whether the run is valid")
    rate = scenario.arrivals.rate
    if rate is not None and rate.ramp is not None and rate.ramp.over > scenario.duration:
        found.append("the ramp takes longer than the run: its last rate is never reached")
    if scenario.tracing is not None and not has_endpoint(os.environ):
        found.append(
            f"tracing: {ENDPOINTS[1]} is not set here: the service gets its traceparent, but no span of ours is exported"
        )
    if scenario.target.tls is not None and not scenario.target.tls.verify:
        found.append("tls.verify is false: the target's certificate is not checked")
    return found


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
