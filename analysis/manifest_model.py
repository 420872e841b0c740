"""``run.json`` as the analysis reads it: every field that a figure or a decision rests on, checked.

The file may come from another machine or from a run that died: nothing in it is believed before it has the right type and range.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from analysis.text import plain
from truetail.errors import UsageError

MOST_BYTES = 64 << 20
FAULTS_SHOWN = 20


class RunFolderError(UsageError):
    """A run folder that cannot be read at all: says which file, line and field, what was found and what is allowed."""


Count = Annotated[int, Field(ge=0, le=1 << 53)]
Nanoseconds = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=10_000), BeforeValidator(lambda value: plain(value) if isinstance(value, str) else value)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Validity(_Part):
    """The generator's limits."""

    lateness_p99_s: Seconds = 0.005
    lateness_max_s: Seconds = 0.25
    dropped: Share = 0.0
    lost: Share = 0.0
    rate_error: Share = 0.02


class Fleet(_Part):
    """What the fleet was asked to be."""

    workers: Count = 1
    on_loss: Text = "invalid"
    max_clock_residual_s: Seconds = 0.005


class Seeds(_Part):
    """One seed a dimension."""

    schedule: int
    payload: int = 0
    mix: int = 0


class Scenario(_Part):
    """The resolved scenario, as far as it decides anything here."""

    name: Text
    description: Text = ""
    arrivals: dict[str, Any]
    requests: list[dict[str, Any]] = []
    duration_s: Annotated[float, Field(gt=0, le=1e10, allow_inf_nan=False)]
    warmup_s: Seconds = 0.0
    drain_s: Seconds = 0.0
    seed: Seeds
    fleet: Fleet = Fleet()
    slos: list[str] = []
    validity: Validity = Validity()


class Schedule(_Part):
    """The plan's fingerprint."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    count: Count
    expected_count: Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)] | None = None
    epoch_wall_s: Seconds = 0.0


class Ledger(_Part):
    """Arrivals by what became of them."""

    scheduled: Count
    sent: Count
    dropped: Count
    lost: Count = 0
    unsent: Count
    ok: Count
    failed: Count
    timed_out: Count
    abandoned: Count


class Generator(_Part):
    """How a worker itself fared."""

    cpu_share_max: Share = 0.0
    loop_stall_max_ms: Share = 0.0
    loop_stall_p99_ms: Share = 0.0


class Worker(_Part):
    """One worker and its slot."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    slot: Count
    n_slots: Count = 1
    host: Text = ""
    state: Text = ""
    clock_offset_ns: Nanoseconds = 0
    clock_residual_ns: Nanoseconds = 0
    scheduled: Count | None = None
    ledger: Ledger | None = None
    generator: Generator | None = None
    rows: Count | None = None


class Manifest(_Part):
    """The whole; ``raw`` is the document itself, for what is only shown."""

    format: Literal[1]
    run_id: Text
    scenario: Scenario
    scenario_sha256: Text = ""
    scenario_file: Text = ""
    schedule: Schedule | None = None
    state: Literal["planned", "running", "ended"]
    stop_text: Text = ""
    stop_reason: Text | None = None
    stopped_at_ns: Nanoseconds | None = None
    epoch_wall_ns: Nanoseconds | None = None
    started_wall_ns: Nanoseconds | None = None
    ended_wall_ns: Nanoseconds | None = None
    workers: list[Worker] = Field(default=[], max_length=10_000)
    ledger: Ledger | None = None
    raw: dict[str, Any] = {}

    @property
    def end_ns(self) -> int:
        """Until when arrivals were due: the planned duration, or the instant at which the run was stopped."""
        planned_ns = round(self.scenario.duration_s * 1e9)
        return planned_ns if self.stopped_at_ns is None else max(0, min(planned_ns, self.stopped_at_ns))

    @property
    def warmup_ns(self) -> int:
        """Arrivals intended before this are not in percentiles."""
        return round(self.scenario.warmup_s * 1e9)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder. Raises RunFolderError: not there, not JSON, or a field that is wrong."""
    path = folder / "run.json"
    try:
        size = path.stat().st_size
        text = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror}); a run folder holds a run.json") from None
    if size > MOST_BYTES:
        raise RunFolderError(f"{path}: {size} bytes; a manifest has at most {MOST_BYTES}")
    document = parse_json(text, str(path))
    if not isinstance(document, dict):
        raise RunFolderError(f"{path}: found {type(document).__name__}; a manifest is a JSON object")
    try:
        return Manifest.model_validate(document | {"raw": document})
    except ValidationError as error:
        faults = [
            f"{path}: {_where(fault['loc'])}: {fault['msg']}; found {plain(repr(fault['input']), 60)}" for fault in error.errors()
        ]
        raise RunFolderError(*faults[:FAULTS_SHOWN]) from None


def parse_json(text: bytes, where: str) -> Any:
    """Strict JSON (no NaN, no Infinity, UTF-8). Raises RunFolderError with the line and column."""

    def refuse(constant: str) -> NoReturn:
        raise RunFolderError(f"{where}: {constant} is not JSON")

    try:
        return json.loads(text.decode("utf-8"), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise RunFolderError(f"{where}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise RunFolderError(f"{where}: byte {error.start} is not UTF-8") from None
    except (RecursionError, ValueError) as error:
        raise RunFolderError(f"{where}: not a document of ours: {plain(error, 100)}") from None


def _where(location: tuple[int | str, ...]) -> str:
    return plain(".".join(str(part) for part in location), 120)
