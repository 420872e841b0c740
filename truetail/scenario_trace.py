"""Arrivals from a recorded trace, as a scenario says it; `shapes.traces` reads the resolved form."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from truetail.scenario_types import Duration, FilePath, OptionalDuration, Part, Share, SomeDuration, Unit, matching
from truetail.units import format_duration_s, shown

TraceFormat = Annotated[str, matching(r"[a-z0-9][a-z0-9_-]{0,31}", "auto or the name of a format (`truetail trace --help`)")]


def _timezone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError(f"found {shown(name)}; allowed is a time zone like UTC or Europe/Berlin")
    return name


class Window(Part):
    """A part of the trace, counted from its first arrival."""

    from_: Duration = Field(default=0.0, alias="from", description="Start of the window.")
    to: OptionalDuration = Field(default=None, description="End of the window; the end of the trace when absent.")

    @model_validator(mode="after")
    def _ordered(self) -> Window:
        if self.to is not None and self.from_ >= self.to:
            raise ValueError(f"from ({format_duration_s(self.from_)}) must be less than to ({format_duration_s(self.to)})")
        return self


class Trace(Part):
    """Arrivals from a recorded trace."""

    file: FilePath = Field(description="The trace, relative to the scenario's folder.")
    format: TraceFormat = Field(default="auto", description="Its format; `auto` finds out.")
    mode: Literal["exact", "poisson", "fixed", "model"] = Field(
        default="exact",
        description="`exact` replays every timestamp; `poisson` and `fixed` space arrivals at the trace's rate; "
        "`model` fits rate, spacing and dispersion.",
    )
    speed: float = Field(default=1.0, ge=1e-6, le=1e6, description="Time is compressed by this factor.")
    thin: Share = Field(default=1.0, description="Share of the arrivals that is kept, drawn by the seed.")
    copies: int = Field(default=1, ge=1, le=1000, description="Copies laid over each other, each begun at another place.")
    window: Window = Field(default_factory=Window, description="Only this part of the trace.")
    loop: bool = Field(default=False, description="Start again when the trace ends before the run does.")
    offset: Duration = Field(default=0.0, description="When in the run the trace starts.")
    align: Literal["start", "wall-clock"] = Field(
        default="start", description="The trace starts with the run, or at its own time of day."
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="For plain CSV, JSONL and Parquet: our name of a column to the file's."
    )
    fit_window: OptionalDuration = Field(
        default=None, description="Width of the windows in which `poisson`, `fixed` and `model` fit the rate; chosen when absent."
    )
    rows: Literal["in-order", "bootstrap"] = Field(
        default="in-order", description="What a modelled arrival carries: the trace's rows in order, or drawn from them."
    )
    order: Literal["window", "sort"] = Field(
        default="window", description="Rows out of order: put right within `reorder_window`, or sort the whole file first."
    )
    reorder_window: SomeDuration = Field(default=60.0, description="How far out of order a row may be.")
    time_unit: Literal["auto", "iso", "clf", "s", "ms", "us", "ns"] = Field(default="auto", description="How times are written.")
    timezone: Annotated[str, AfterValidator(_timezone), Unit("", "time zone")] = Field(
        default="UTC", description="Zone of times that say none."
    )
    time_is: Literal["auto", "start", "end"] = Field(
        default="auto", description="Whether a row's time is the request's arrival or the end of its answer."
    )
    strict: bool = Field(default=False, description="Stop at the first bad row in place of counting it.")

    @model_validator(mode="after")
    def _fits(self) -> Trace:
        if self.thin == 0:
            raise ValueError("thin is 0: no arrival would be kept")
        if self.align == "wall-clock" and self.speed != 1:
            raise ValueError(f"speed is {self.speed:g}, and align is wall-clock: only speed 1 keeps to the clock")
        return self

    def resolved(self) -> dict[str, Any]:
        """Flat, in the terms of `shapes.traces.spec`: the window as ``window_from_s`` and ``window_to_s``."""
        result = super().resolved()
        window = result.pop("window")
        return result | {"window_from_s": window["from_s"], "window_to_s": window["to_s"]}
