"""Faults on command: what each is, when it is active, and what its parameters mean. Pure description; ``effects`` applies them.

Every fault has a window: ``start`` after its origin (the service's readiness, or the moment of the POST), ``duration`` (none: for
ever) and ``period`` (none: once); ``replica`` narrows it to one replica where that makes sense.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from target.units import NEVER_NS, Duration, Factor, Rate, Share, to_ns

Index = Annotated[int, Field(ge=0, le=1023)]
AtLeastOne = Annotated[Factor, Field(ge=1, le=1e6)]


class Fault(BaseModel):
    """What all faults have in common: the window."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: str
    start: Duration = 0.0
    duration: Duration | None = None
    period: Duration | None = None
    replica: Index | None = None

    #: What the fault does to work on the device: its speed is divided by this while the fault is active.
    slowdown: ClassVar[bool] = False

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.period is not None and (self.duration is None or not 0 < self.duration < self.period):
            raise ValueError("a fault with a period needs a duration that is above 0 and shorter than the period")
        return self

    def window(self, since_origin_ns: int, shift_ns: int = 0) -> tuple[bool, int]:
        """Whether it is active at that time since its origin, and at which time that changes next (NEVER_NS: never)."""
        begin_ns = to_ns(self.start) + shift_ns
        since_ns = since_origin_ns - begin_ns
        if since_ns < 0:
            return False, begin_ns
        if self.duration is None:
            return True, NEVER_NS
        duration_ns = to_ns(self.duration)
        if self.period is None:
            active = since_ns < duration_ns
            return active, begin_ns + duration_ns if active else NEVER_NS
        period_ns = to_ns(self.period)
        turn, phase_ns = divmod(since_ns, period_ns)
        active = phase_ns < duration_ns
        return active, begin_ns + turn * period_ns + (duration_ns if active else period_ns)

    def hits(self, replica: int) -> bool:
        """Whether it concerns this replica."""
        return self.replica is None or self.replica == replica


class ColdStart(Fault):
    """Loading takes ``load`` (at start-up only), and each replica's first ``requests`` cost ``factor`` times the work."""

    kind: Literal["cold_start"] = "cold_start"
    load: Duration = 0.0
    requests: Annotated[int, Field(ge=0)] = 20
    factor: AtLeastOne = 5.0


class Pause(Fault):
    """Stop the world (as a garbage collection does): device and event loop both stand still for ``duration``."""

    kind: Literal["pause"] = "pause"
    duration: Annotated[Duration, Field(gt=0, le=60)] = 0.2


class Throttle(Fault):
    """The device's clock is lowered: work takes ``factor`` times as long; clock and throttling show in /device."""

    kind: Literal["throttle"] = "throttle"
    factor: AtLeastOne = 2.0
    slowdown: ClassVar[bool] = True


class MemoryPressure(Fault):
    """Device memory is ``used`` up to that share: work takes ``factor`` times as long, batches are at most ``max_batch``."""

    kind: Literal["memory_pressure"] = "memory_pressure"
    used: Share = 0.97
    factor: AtLeastOne = 1.5
    max_batch: Annotated[int, Field(ge=1)] | None = None
    slowdown: ClassVar[bool] = True


class SlowReplica(Fault):
    """One replica takes ``factor`` times as long."""

    kind: Literal["slow_replica"] = "slow_replica"
    replica: Index
    factor: AtLeastOne = 3.0
    slowdown: ClassVar[bool] = True


class QueueDelay(Fault):
    """Every request waits ``delay`` more before it may join a batch; told as queue time."""

    kind: Literal["queue_delay"] = "queue_delay"
    delay: Duration = 0.02


class SlowPreprocess(Fault):
    """Preprocessing takes ``delay`` more; with ``cpu`` it computes on the event loop and holds all other requests up."""

    kind: Literal["slow_preprocess"] = "slow_preprocess"
    delay: Duration = 0.02
    cpu: bool = False


class NetworkDelay(Fault):
    """``delay`` plus a uniform part of up to ``jitter`` before the request is seen: the server's own times do not show it."""

    kind: Literal["network_delay"] = "network_delay"
    delay: Duration = 0.05
    jitter: Duration = 0.0


class DependencyStall(Fault):
    """A call to another service, made before inference, takes ``delay``; told as the stage ``dependency``."""

    kind: Literal["dependency_stall"] = "dependency_stall"
    delay: Duration = 0.1


class OversizedInputs(Fault):
    """A ``share`` of the requests is ``size`` times as large as it says, and costs accordingly."""

    kind: Literal["oversized_inputs"] = "oversized_inputs"
    share: Share = 0.05
    size: Annotated[Factor, Field(ge=1, le=10_000)] = 20.0


class Overload(Fault):
    """Other clients send ``rate`` requests per second (Poisson) to the same replicas; nobody sees their answers."""

    kind: Literal["overload"] = "overload"
    rate: Annotated[Rate, Field(gt=0, le=5000)] = 100.0
    size: Annotated[Factor, Field(gt=0, le=10_000)] = 1.0


class Deploy(Fault):
    """Rolling restart: replica i takes no new requests for ``duration``, starting i times ``duration`` after ``start``."""

    kind: Literal["deploy"] = "deploy"
    duration: Annotated[Duration, Field(gt=0)] = 2.0


KINDS: dict[str, type[Fault]] = {
    model.model_fields["kind"].default: model
    for model in (
        ColdStart, Pause, Throttle, MemoryPressure, SlowReplica, QueueDelay, SlowPreprocess, NetworkDelay, DependencyStall,
        OversizedInputs, Overload, Deploy,
    )
}  # fmt: skip


def parse_fault(text: str) -> dict[str, Any]:
    """The mapping of a fault written on one line: ``throttle,factor=2,start=5s,duration=10s``. Values are checked later."""
    kind, *rest = (part.strip() for part in text.split(","))
    fault: dict[str, Any] = {"kind": kind}
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"--fault {text!r:.80}: {part!r:.40} is not key=value")
        fault[key.strip()] = value.strip()
    return fault


def load_fault(mapping: Any) -> Fault:
    """A checked fault. Raises ValueError naming every wrong field, and the kinds and fields there are."""
    kind = mapping.get("kind") if isinstance(mapping, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"fault kind {kind!r:.40} is unknown; there are {', '.join(sorted(KINDS))}")
    try:
        return KINDS[kind].model_validate(mapping)
    except ValidationError as error:
        raise ValueError("; ".join(f"fault {kind}: {fault_text(item, kind)}" for item in error.errors())) from None


def fault_text(item: Any, kind: str) -> str:
    """One pydantic error as people read it."""
    field = ".".join(str(part) for part in item["loc"]) or "fault"
    if item["type"] == "extra_forbidden":
        return f"{field!r:.40} is unknown; allowed are {', '.join(KINDS[kind].model_fields)}"
    return f"{field}: {item['msg'].removeprefix('Value error, ')}"
