"""Who sends, what is recorded beside, and what makes a run invalid."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from truetail.scenario_types import HttpUrl, Part, RunName, Share, SomeDuration, Unit
from truetail.units import shown


class Fleet(Part):
    """The workers and what holds them together."""

    workers: int = Field(default=1, ge=1, le=10_000, description="Worker processes; `--workers` sets it too.")
    on_loss: Literal["invalid", "repartition"] = Field(
        default="invalid",
        description="A worker is lost: the run goes on and is INVALID, or the others take over its future arrivals.",
    )
    join: Literal["refuse", "next-generation"] = Field(
        default="refuse",
        description="A worker that comes late is refused, or stands by until a lost worker's arrivals are divided anew.",
    )
    lease: SomeDuration = Field(default=5.0, description="A worker that hears no master for so long stops sending.")
    muster: SomeDuration = Field(default=30.0, description="How long the master waits for the workers at the start.")
    max_clock_residual: SomeDuration = Field(default=0.005, description="A clock known less well makes the run INVALID.")


class Prometheus(Part):
    """An endpoint whose metrics are recorded."""

    name: RunName = Field(description="What files and plots call it.")
    url: HttpUrl = Field(description="Where it is, path included.")
    families: list[str] | None = Field(
        default=None, min_length=1, max_length=1000, description="Only these metric families; all when absent."
    )
    preset: str | None = Field(default=None, max_length=32, description="A ready choice of families for a kind of server.")


def _names_once(sources: list[Prometheus]) -> list[Prometheus]:
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two endpoints are named {shown(name)}; names must be unique")
    return sources


class Collectors(Part):
    """What is recorded beside the latency."""

    gpu: Annotated[Literal["auto", True, False], Unit("", "auto, true or false")] = Field(
        default="auto", description="GPU figures through NVML: when there is a GPU, always (an error without), or never."
    )
    host: bool = Field(default=True, description="CPU, memory and network of this machine.")
    prometheus: Annotated[list[Prometheus], AfterValidator(_names_once)] = Field(
        default_factory=list, max_length=100, description="Endpoints whose metrics are recorded."
    )
    period: SomeDuration = Field(default=0.1, description="Time between samples.")


class Tracing(Part):
    """Sampled requests carry a W3C `traceparent`, and each becomes an OpenTelemetry span where `OTEL_EXPORTER_OTLP_ENDPOINT` is set (docs/tracing.md)."""

    sample: Share = Field(
        default=0.01, description="Share of the arrivals that are traced: which, is a function of the run and their number."
    )


class Validity(Part):
    """The generator's own limits: beyond them the run is INVALID, because it did not send what it says."""

    lateness_p99: SomeDuration = Field(default=0.005, description="p99 of lateness (intended to sent).")
    lateness_max: SomeDuration = Field(default=0.25, description="Greatest lateness.")
    dropped: Share = Field(default=0.0, description="Share of the arrivals that may be dropped.")
    lost: Share = Field(
        default=0.0,
        description="Share of the arrivals that may be lost with a worker, under `on_loss: repartition`. They stand in the ledger and in no percentile.",
    )
    rate_error: Share = Field(default=0.02, description="How far the sent rate may be from the scheduled one.")
