"""The scenario: one YAML file that says what to send, when, to whom, and what counts as good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError

from truetail.overrides import apply as apply_overrides
from truetail.scenario_arrivals import Arrivals
from truetail.scenario_faults import Fault, ScenarioError, schema_faults
from truetail.scenario_faults import lines as fault_lines
from truetail.scenario_fleet import Collectors, Fleet, Tracing, Validity
from truetail.scenario_rules import environment_faults, rule_faults, slo_name_faults
from truetail.scenario_target import Request, Target, check_mix
from truetail.scenario_types import Duration, FilePath, OptionalDuration, Part, RunName, SomeDuration, Unit
from truetail.slo import Slo
from truetail.slo import parse as parse_slo
from truetail.units import shown
from truetail.yaml_lines import YamlFaults, read_text
from truetail.yaml_lines import parse as parse_yaml

__all__ = ["Scenario", "ScenarioError", "load", "loads"]

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Seeds(Part):
    """One seed a dimension, so that one can change while the others stay."""

    schedule: Seed = Field(default=0, description="Instants of arrivals.")
    payload: Seed = Field(default=0, description="What requests carry.")
    mix: Seed = Field(default=0, description="Which request each arrival is.")


def _seeds(value: Any) -> Any:
    """One number stands for all three. 0 is a seed like any other; there is no unseeded run."""
    if isinstance(value, (dict, Seeds)):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return {"schedule": value, "payload": value, "mix": value}
    raise ValueError(f"found {shown(value)}; allowed is a whole number from 0 to 2^63 - 1, or schedule, payload and mix each")


def _slo_line(line: Any) -> Any:
    if isinstance(line, Slo):
        return line.text
    return parse_slo(line).text


class Scenario(Part):
    """A scenario as it was written, checked. ``load`` builds it; ``resolved`` is what the rest of the house reads."""

    name: RunName = Field(description="Names the run's folder.")
    description: str = Field(default="", max_length=10_000, description="What to expect.")
    target: Target = Field(description="What is tested.")
    users: FilePath = Field(
        default="rest", description="Stem of a file in locustfiles/ (`rest` is rest_users.py), or a path to your own."
    )
    requests: Annotated[list[Request], AfterValidator(check_mix)] = Field(
        default_factory=list, max_length=10_000, description="The mix."
    )
    protocol: dict[str, Any] = Field(default_factory=dict, description="Free settings for the locustfile's protocol.")
    payload: dict[str, Any] = Field(default_factory=dict, description="Free settings for the locustfile's payloads.")
    arrivals: Arrivals = Field(description="When requests are due.")
    duration: SomeDuration = Field(description="Arrivals are planned for so long.")
    warmup: Duration = Field(default=0.0, description="Arrivals due before this are sent and counted, but are in no percentile.")
    warmup_requests: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Requests of the whole fleet before the start, in neither ledger nor percentiles: the entries of the "
        "mix in turn, 4 at once per worker, for at most `fleet.muster`.",
    )
    seed: Annotated[Seeds, BeforeValidator(_seeds), Unit("", "number, or one a dimension")] = Field(
        default_factory=Seeds, description="One number for all, or schedule, payload and mix each. 0 is a seed like any other."
    )
    pool: int = Field(default=100, ge=1, le=100_000, description="The most requests in flight per worker; a cap, not the load.")
    lateness_deadline: SomeDuration = Field(
        default=1.0, description="An arrival not handed to a user by then is dropped and counted."
    )
    deadline: SomeDuration = Field(default=10.0, description="Total time of a request, unless the request says otherwise.")
    drain: OptionalDuration = Field(
        default=None,
        description="How long after the last arrival requests may finish. When absent: the longest deadline, "
        "the lateness deadline and 1 s.",
    )
    fleet: Fleet = Field(default_factory=Fleet, description="The workers.")
    collectors: Collectors = Field(default_factory=Collectors, description="What is recorded beside the latency.")
    tracing: Tracing | None = Field(default=None, description="Which requests are traced; none when absent.")
    slos: list[Annotated[str, BeforeValidator(_slo_line), Unit("", "SLO line")]] = Field(
        default_factory=list, max_length=1000, description="What counts as good, a line each."
    )
    validity: Validity = Field(default_factory=Validity, description="The generator's own limits.")

    _source: Path | None = PrivateAttr(None)

    @property
    def source(self) -> Path | None:
        """The file that it was read from; None for text."""
        return self._source

    def objectives(self) -> list[Slo]:
        """The SLO lines, parsed."""
        return [parse_slo(line) for line in self.slos]

    def longest_deadline_s(self) -> float:
        """The longest that any request may take."""
        return max([self.deadline, *(request.deadline for request in self.requests if request.deadline)])

    def resolved(self) -> dict[str, Any]:
        """Plain JSON in canonical units (docs/internals.md section 3). Secrets stay references; files are as found from here."""
        result = super().resolved()
        for request in result["requests"]:
            request["deadline_s"] = request["deadline_s"] or self.deadline
        if self.drain is None:
            result["drain_s"] = self.longest_deadline_s() + self.lateness_deadline + 1.0
        if self.users.endswith(".py") or "/" in self.users:
            result["users"] = self.beside(self.users)
        for holder in (result, *result["requests"]):
            pool = holder["payload"].get("file")
            if isinstance(pool, str):
                holder["payload"] = holder["payload"] | {"file": self.beside(pool)}
        trace = result["arrivals"].get("trace")
        if trace is not None:
            trace["file"] = self.beside(trace["file"])
        for key in ("ca", "cert", "key"):
            if result["target"]["tls"] and result["target"]["tls"][key]:
                result["target"]["tls"][key] = self.beside(result["target"]["tls"][key])
        return result

    def beside(self, file: str) -> str:
        """A file named in the scenario: relative to the scenario's own folder."""
        return str((self._source.parent if self._source else Path()) / file)

    def sha256(self) -> str:
        """Fingerprint of ``resolved()``."""
        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in a file, with ``key.path=value`` overrides laid over it. Raises ScenarioError listing all faults."""
    source = Path(path)
    try:
        text = read_text(source)
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read: {error.strerror or error}") from None
    except YamlFaults as error:
        raise ScenarioError(*(f"{place.within(str(source))}: {fault}" for place, fault in error.faults)) from None
    return loads(text, str(source), overrides, source)


def loads(text: str, called: str = "<text>", overrides: Sequence[str] = (), source: Path | None = None) -> Scenario:
    """The scenario in ``text``, ``called`` so in faults. Files that it names are looked for beside ``source`` (else here)."""
    try:
        document = parse_yaml(text)
    except YamlFaults as error:
        raise ScenarioError(*(f"{place.within(called)}: {fault}" for place, fault in error.faults)) from None
    if not isinstance(document.value, dict):
        found = "nothing" if document.value is None else shown(document.value)
        raise ScenarioError(
            f"{called}:1:1: found {found}; a scenario is a mapping that starts with name, target, arrivals, duration"
        )
    earlier = document.faults + apply_overrides(document, overrides)
    scenario, faults = _check(document.value, source)
    if earlier or faults:
        raise ScenarioError(*fault_lines(faults, document, called, earlier))
    return scenario


def _check(data: dict[str, Any], source: Path | None) -> tuple[Scenario, list[Fault]]:
    """The scenario, and all its faults. With faults only some of its fields are valid, and only the rules on those are asked."""
    faults = [*environment_faults(data), *slo_name_faults(data)]
    try:
        scenario, valid = Scenario.model_validate(data), set(Scenario.model_fields)
    except ValidationError as error:
        told = {fault.path for fault in faults}
        faults += [fault for fault in schema_faults(Scenario, data, error) if fault.path not in told]
        wrong = {str(details["loc"][0]) for details in error.errors(include_url=False) if details["loc"]}
        valid = set(Scenario.model_fields) - wrong
        scenario = Scenario.model_construct()
        for key in valid & data.keys():
            Scenario.__pydantic_validator__.validate_assignment(scenario, key, data[key])
    scenario._source = source
    return scenario, faults + rule_faults(scenario, valid)
