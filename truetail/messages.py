"""The fleet's messages, checked field by field before anything uses them.

Locust's message port has no authentication, so a message is an untrusted document: types, sizes and ranges are checked here and
nowhere else. The master never sends code, only the scenario; see docs/fleet.md.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from truetail.histogram import Histogram

HELLO, PLAN, PLANNED, POOLED, PING, PONG, GO, SNAPSHOT, LEASE, TAKEOVER, TOOK, CHUNK, SHIPPED, STOP, DRAINED, ACK = (
    f"truetail_{name}"
    for name in (
        "hello",
        "plan",
        "planned",
        "pooled",
        "ping",
        "pong",
        "go",
        "snapshot",
        "lease",
        "takeover",
        "took",
        "chunk",
        "shipped",
        "stop",
        "drained",
        "ack",
    )
)

Count = Annotated[int, Field(ge=0, le=1 << 53)]
Nanoseconds = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
MAX_TEXT = 300
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

MAX_SERIES = 200


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Hello(_Message):
    """A worker that has registered its messages and asks for a plan; repeated until it gets one."""

    name: Name
    host: Text
    pid: Count
    boot_id: Text
    versions: dict[Name, Text] = Field(max_length=20)


class Planned(_Message):
    """A worker's answer to the plan: what it would send."""

    digest: Digest
    count: Count
    slot_count: Count
    fault: Text = ""
    models: dict[Text, dict[Text, Any]] = Field(default_factory=dict, max_length=50)
    """What the server told of the model behind each request of the mix."""
    refused: bool = False
    """The fault is the scenario's or the locustfile's: the user's to mend, not a failure of ours."""


class WarmedUp(_Message):
    """Requests before the epoch: whose task ended, how many of those failed (with the first one's error), how many time left no room for."""

    done: Count
    failed: Count
    unsent: Count
    error: Text = ""


class Pooled(_Message):
    """Every user of the worker is idle and waits for its first arrival; and what became of its warm-up requests."""

    users: Count
    warm_up: WarmedUp | None = None


class Pong(_Message):
    """Answer to a clock ping: the worker's CLOCK_MONOTONIC when it saw the ping."""

    seq: Count
    mono_ns: Nanoseconds


class Took(_Message):
    """A worker has taken over shares of a lost one: so many arrivals more."""

    generation: Count
    scheduled: Count


class Ledger(_Message):
    """A worker's arrivals by what became of them."""

    scheduled: Count
    sent: Count
    dropped: Count
    unsent: Count
    ok: Count
    failed: Count
    timed_out: Count
    abandoned: Count


class Generator(_Message):
    """How the worker itself fares: its share of a core, and how late its event loop ran."""

    cpu_share: Share
    cpu_share_max: Share
    loop_stall_max_ms: Share
    loop_stall_p99_ms: Share


class Snapshot(_Message):
    """Everything since the epoch (cumulative): a lost message loses nothing."""

    seq: Count
    at_ns: Nanoseconds
    ledger: Ledger
    in_flight: Count
    idle: Count
    backlog: Count
    last_handed_k: Annotated[int, Field(ge=-1, le=1 << 53)]
    generator: Generator
    series: dict[Annotated[str, Field(max_length=330)], dict[str, Any]] = Field(max_length=MAX_SERIES)
    trouble: Text = ""

    def histograms(self) -> dict[str, Histogram]:
        """The series as histograms; ValueError for one that is not sane."""
        return {name: Histogram.from_json(data) for name, data in self.series.items()}


class Drained(_Message):
    """A worker's last word: its final snapshot, sent again until it is acknowledged. ``lapsed``: it stopped because its lease ran out."""

    snapshot: Snapshot
    rows: Count
    connections_opened: Count = 0
    resent: Count = 0
    lapsed: bool = False


M = TypeVar("M", bound=_Message)


def parse(kind: type[M], data: Any) -> M:
    """The message, or ValueError with one line per fault (values are cut short: they may be hostile)."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        faults = (f"{'.'.join(str(part)[:40] for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()[:5])
        raise ValueError(f"{kind.__name__.lower()}: " + "; ".join(faults)) from None
