"""When requests are due, as a scenario says it: a rate and a spacing, or a trace."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from truetail.scenario_trace import Trace
from truetail.scenario_types import Duration, Part, Rate, Share, SomeDuration, SomeRate
from truetail.units import format_duration_s, format_rate_rps, shown

Align = Literal["start", "wall-clock"]


class Choice(Part):
    """One of several kinds, each a key of its own: ``{ramp: {...}}``; resolved as ``{"kind": "ramp", ...}``."""

    def chosen(self) -> tuple[str, Any]:
        """(kind, its value)."""
        return next((kind, value) for kind in self.one_of if (value := getattr(self, kind)) is not None)

    def resolved(self) -> dict[str, Any]:
        """``{"kind": ..., **settings}``."""
        kind, value = self.chosen()
        return {"kind": kind, **value.resolved()}


class Ramp(Part):
    """From one rate to another in a straight line, then the last rate on."""

    from_: Rate = Field(alias="from", description="Rate at the start.")
    to: Rate = Field(description="Rate at the end, and from then on.")
    over: SomeDuration = Field(description="How long the ramp takes.")

    @model_validator(mode="after")
    def _some(self) -> Ramp:
        if self.from_ == self.to == 0:
            raise ValueError("a ramp from 0 to 0 has no arrivals")
        return self


class Step(Part):
    """A rate and how long it lasts."""

    rate: Rate = Field(description="Rate of this step.")
    for_: SomeDuration = Field(alias="for", description="How long it lasts; the last step's rate holds on.")


class Diurnal(Part):
    """A day's curve: mean (1 + amplitude cos(2 pi (t - peak_at) / period))."""

    mean: SomeRate = Field(description="Mean rate over a period.")
    amplitude: Share = Field(description="Height of the peak above the mean, as a share of the mean.")
    period: SomeDuration = Field(default=86400.0, description="Length of the day.")
    peak_at: Duration = Field(default=0.0, description="When in the period the peak is.")

    @model_validator(mode="after")
    def _peak_within(self) -> Diurnal:
        if self.peak_at >= self.period:
            raise ValueError(
                f"peak_at ({format_duration_s(self.peak_at)}) must be less than period ({format_duration_s(self.period)})"
            )
        return self


class Jitter(Choice):
    """How far each client of an hour burst is from the exact instant."""

    one_of: ClassVar[tuple[str, ...]] = ("uniform", "exponential", "normal")
    uniform: SomeDuration | None = Field(default=None, description="Even over this width.")
    exponential: SomeDuration | None = Field(default=None, description="Exponential delay with this mean.")
    normal: SomeDuration | None = Field(default=None, description="Normal about the instant with this standard deviation.")

    def resolved(self) -> dict[str, Any]:
        """``{"kind": ..., "width_s": ...}``."""
        kind, width_s = self.chosen()
        return {"kind": kind, "width_s": width_s}


class HourBurst(Part):
    """A base rate, plus clients that each poll once a period at about the same instant."""

    base: Rate = Field(description="Rate beside the bursts.")
    clients: int = Field(ge=1, le=10**8, description="Clients that poll once a period.")
    period: SomeDuration = Field(default=3600.0, description="Time between bursts.")
    jitter: Jitter = Field(description="How far each client is from the exact instant.")
    align: Align = Field(default="start", description="Periods count from the start of the run, or stand on the wall clock.")
    offset: Duration = Field(default=0.0, description="When in the period the burst is.")

    @model_validator(mode="after")
    def _fits(self) -> HourBurst:
        for name, value in ((f"jitter.{self.jitter.chosen()[0]}", self.jitter.chosen()[1]), ("offset", self.offset)):
            if value >= self.period:
                raise ValueError(
                    f"{name} ({format_duration_s(value)}) must be less than period ({format_duration_s(self.period)})"
                )
        return self


class RateChoice(Choice):
    """lambda(t): a constant rate, or one of these."""

    one_of: ClassVar[tuple[str, ...]] = ("constant", "ramp", "steps", "diurnal", "hour_burst")
    constant: SomeRate | None = Field(default=None, description="The same rate all the time; `rate: 60/s` is short for it.")
    ramp: Ramp | None = Field(default=None, description="From one rate to another, then hold.")
    steps: list[Step] | None = Field(default=None, min_length=1, max_length=10_000, description="Rates one after the other.")
    diurnal: Diurnal | None = Field(default=None, description="A day's curve.")
    hour_burst: HourBurst | None = Field(default=None, description="A base rate plus clients that poll on the hour.")

    def resolved(self) -> dict[str, Any]:
        """``{"kind": ..., **settings}``; what `shapes` reads."""
        kind, value = self.chosen()
        if kind == "constant":
            return {"kind": kind, "rate_rps": value}
        if kind == "steps":
            return {"kind": kind, "steps": [step.resolved() for step in value]}
        return {"kind": kind, **value.resolved()}

    def greatest_rps(self) -> float:
        """The highest rate, bursts apart: their height depends on the jitter."""
        kind, value = self.chosen()
        match kind:
            case "constant":
                return float(value)
            case "ramp":
                return float(max(value.from_, value.to))
            case "steps":
                return float(max(step.rate for step in value))
            case "diurnal":
                return float(value.mean * (1 + value.amplitude))
        return float(value.base)

    @model_validator(mode="after")
    def _some(self) -> RateChoice:
        if self.steps and all(step.rate == 0 for step in self.steps):
            raise ValueError("every step has the rate 0: there are no arrivals")
        return self


class Nothing(Part):
    """No settings."""


class Gamma(Part):
    """Gamma gaps of unit mean: below 1 steadier than Poisson, above 1 burstier."""

    cv: float = Field(gt=0, le=100, description="Coefficient of variation of the gaps; 1 is Poisson.")


class GroupSpacing(Choice):
    """How groups are spaced; a group of groups would be a larger group."""

    one_of: ClassVar[tuple[str, ...]] = ("fixed", "poisson", "gamma")
    fixed: Nothing | None = Field(default=None, description="Equal gaps.")
    poisson: Nothing | None = Field(default=None, description="Exponential gaps: independent users.")
    gamma: Gamma | None = Field(default=None, description="Gamma gaps.")


def _rate(value: Any) -> Any:
    return value if isinstance(value, (dict, RateChoice)) else {"constant": value}


def _spacing(value: Any) -> Any:
    """``fixed`` stands for ``{fixed: {}}``; a word that is no spacing is answered here, with the nearest one."""
    if isinstance(value, (dict, GroupSpacing)):
        return value
    if value in ("fixed", "poisson"):
        return {value: {}}
    allowed = "fixed, poisson, {gamma: {cv: 2}} or {groups: {size: 4, spacing: fixed}}"
    if value in ("gamma", "groups"):
        raise ValueError(f"{value} needs its settings; allowed is {allowed}")
    near = difflib.get_close_matches(str(value), ("fixed", "poisson", "gamma", "groups"), 1)
    raise ValueError(f"found {shown(value)}; allowed is {allowed}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _group_spacing(value: Any) -> Any:
    if value == "groups" or (isinstance(value, dict) and "groups" in value):
        raise ValueError("groups cannot stand within groups; a larger size does the same")
    return _spacing(value)


class Groups(Part):
    """k arrivals at the same instant; the groups themselves are spaced."""

    size: int = Field(ge=1, le=100_000, description="Arrivals at the same instant.")
    spacing: Annotated[GroupSpacing, BeforeValidator(_group_spacing)] = Field(
        description="How the groups are spaced: fixed, poisson or {gamma: {cv: ...}}."
    )


class SpacingChoice(GroupSpacing):
    """How unit-rate arrivals are spaced; the rate then stretches time."""

    one_of: ClassVar[tuple[str, ...]] = ("fixed", "poisson", "gamma", "groups")
    groups: Groups | None = Field(default=None, description="Groups at the same instant.")


class Arrivals(Part):
    """A rate with a spacing, or a trace."""

    one_of: ClassVar[tuple[str, ...]] = ("rate", "trace")
    rate: Annotated[RateChoice | None, BeforeValidator(lambda value: None if value is None else _rate(value))] = Field(
        default=None, description="lambda(t): a rate like 60/s, or one of `ramp`, `steps`, `diurnal`, `hour_burst`."
    )
    spacing: Annotated[SpacingChoice | None, BeforeValidator(lambda value: None if value is None else _spacing(value))] = Field(
        default=None, description="`fixed`, `poisson` (when absent), `{gamma: {cv: 2}}` or `{groups: {size: 4, spacing: fixed}}`."
    )
    trace: Trace | None = Field(default=None, description="A recorded trace, in place of rate and spacing.")

    @model_validator(mode="after")
    def _alone(self) -> Arrivals:
        if self.trace is not None and self.spacing is not None:
            raise ValueError("a trace brings its own spacing: leave spacing out, or choose the trace's mode")
        return self

    def resolved(self) -> dict[str, Any]:
        """``{"rate": ..., "spacing": ...}`` or ``{"trace": ...}``; what `shapes` reads."""
        if self.trace is not None:
            return {"trace": self.trace.resolved()}
        assert self.rate is not None  # one_of
        return {"rate": self.rate.resolved(), "spacing": self.spacing.resolved() if self.spacing else {"kind": "poisson"}}

    def headline(self) -> str:
        """One line for people: ``poisson at 60/s``."""
        if self.trace is not None:
            return f"trace {self.trace.file} ({self.trace.mode}, {self.trace.speed:g}x)"
        assert self.rate is not None
        kind, value = self.rate.chosen()
        spacing = self.spacing.chosen()[0] if self.spacing else "poisson"
        return f"{spacing} at {format_rate_rps(value)}" if kind == "constant" else f"{spacing}, rate {kind}"
