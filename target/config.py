"""The service's options: one checked mapping, from flags or from a scenario's ``target.embedded``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from target.faults import Fault, SlowReplica, load_fault
from target.units import Duration, parse_factor

Positive = Annotated[int, Field(ge=1)]


def _faults(value: Any) -> tuple[Fault, ...]:
    """Checked faults from a list of mappings (or one mapping)."""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise ValueError("faults must be a list of mappings, each with a kind")
    if len(value) > 64:
        raise ValueError(f"{len(value)} faults; at most 64")
    found, wrong = [], []
    for item in value:
        try:
            found.append(load_fault(item))
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(found)


def _slow_replicas(value: Any) -> dict[int, float]:
    """{index: factor} from such a mapping, from "1:3x", or from a list of such texts."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        for text in value if isinstance(value, (list, tuple)) else [value]:
            index, colon, factor = str(text).partition(":")
            if not colon:
                raise ValueError(f"{text!r:.40} is not INDEX:FACTOR, such as 1:3x")
            pairs.append((index, factor))
    slow = {}
    for index, factor in pairs:
        if not str(index).strip().isdecimal():
            raise ValueError(f"replica {index!r:.20} is not an index (0, 1, ...)")
        slow[int(index)] = parse_factor(factor)
        if slow[int(index)] < 1:
            raise ValueError(f"factor {factor!r:.20} of replica {index}: it must be at least 1")
    return slow


class Config(BaseModel):
    """All options, in seconds and counts; docs/target.md says what each does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["batch", "fifo", "shared"] = "batch"
    a: Duration = 0.010
    c: Duration = 0.0005
    max_batch: Annotated[Positive, Field(le=4096)] = 16
    max_delay: Duration = 0.002
    max_queue: Annotated[Positive, Field(le=1_000_000)] = 1024
    service: Literal["exponential", "fixed", "lognormal"] = "exponential"
    service_mean: Duration = 0.020
    service_cv: Annotated[float, Field(ge=0, le=100)] = 1.0
    replicas: Annotated[Positive, Field(le=64)] = 1
    slow_replicas: Annotated[dict[int, float], BeforeValidator(_slow_replicas)] = {}
    balance: Literal["round-robin", "least-loaded"] = "round-robin"
    faults: Annotated[tuple[Fault, ...], BeforeValidator(_faults)] = ()
    seed: int = 0
    model: Literal["simulated", "torch-cpu", "torch-cuda"] = "simulated"
    workers: Annotated[Literal[1], BeforeValidator(lambda value: _one_process(value))] = 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        missing = [index for index in self.slow_replicas if index >= self.replicas]
        missing += [f.replica for f in self.faults if f.replica is not None and f.replica >= self.replicas]
        if missing:
            raise ValueError(f"replica {missing[0]} does not exist: replicas is {self.replicas}, they count from 0")
        if self.model != "simulated" and self.mode == "shared":
            raise ValueError("mode shared is simulated only; a torch model takes batch or fifo")
        return self

    def all_faults(self) -> tuple[Fault, ...]:
        """The faults, with those that ``slow_replicas`` is short for."""
        slow = tuple(SlowReplica(replica=index, factor=factor) for index, factor in sorted(self.slow_replicas.items()))
        return slow + self.faults


def _one_process(value: Any) -> int:
    if value != 1:
        raise ValueError("the service is one process, whose replicas are threads (replicas: N); workers can only be 1")
    return 1


class ConfigError(Exception):
    """Wrong options; ``faults`` has a line for each."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load(mapping: Any) -> Config:
    """Checked options. Raises ConfigError with every fault found: the option, what is wrong, what is allowed."""
    if not isinstance(mapping, dict):
        raise ConfigError(f"options must be a mapping of names to values, not {type(mapping).__name__}")
    try:
        return Config.model_validate(mapping)
    except ValidationError as error:
        raise ConfigError(*(_line(item) for item in error.errors())) from None


def _line(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{name!r:.60} is not an option; there are {', '.join(Config.model_fields)}"
    text = item["msg"].removeprefix("Value error, ")
    if not name:
        return str(text)
    return f"{name}: {text}" + ("" if item["type"] == "value_error" else f" (found {item['input']!r:.60})")
