"""The fleet as the master knows it: who holds which slot, and how far each has come. No I/O; time is an argument.

A slot is a share of the schedule (arrivals k with k mod n_slots = slot). It is given to a worker by name when it says hello, never derived from
Locust's worker index, which is not reused and says nothing about who is alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from truetail.histogram import Histogram
from truetail.messages import Drained, Hello, Planned, Snapshot, WarmedUp
from truetail.share import NEVER_NS, Share


class State(StrEnum):
    """How far a worker has come."""

    HELLO = "hello"
    PLANNED = "planned"
    POOLED = "pooled"
    RUNNING = "running"
    DRAINED = "drained"
    LOST = "lost"


@dataclass(slots=True)
class Member:
    """One worker and its slot; one that ``joined`` late has the next number, and no arrivals until a generation gives it some."""

    client_id: str
    hello: Hello
    slot: int
    shares: list[Share]
    joined: bool = False
    state: State = State.HELLO
    planned: Planned | None = None
    warm_up: WarmedUp | None = None
    clock_offset_ns: int = 0
    clock_residual_ns: int = 0
    snapshot: Snapshot | None = None
    histograms: dict[str, Histogram] = field(default_factory=dict)
    drained: Drained | None = None
    lost_at_ns: int | None = None
    heard_at_ns: int = 0
    given_away: int = 0

    @property
    def responsible_for(self) -> int | None:
        """Arrivals that are this worker's: its slot and what it took over, less what others took over from it. None before it has planned."""
        if self.snapshot is not None:
            return self.snapshot.ledger.scheduled - self.given_away
        return self.planned.slot_count - self.given_away if self.planned else None

    @property
    def ended(self) -> bool:
        """Nothing more will come from this worker."""
        return self.state in (State.DRAINED, State.LOST)


class Fleet:
    """The slot map and every member's progress. Methods return a fault in words where there is one."""

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.generation = 0
        self._lost_by_generation: dict[int, Member] = {}
        self.members: dict[str, Member] = {}

    @property
    def by_slot(self) -> list[Member]:
        """Members in the order of their slots."""
        return sorted(self.members.values(), key=lambda member: member.slot)

    def hello(self, client_id: str, hello: Hello, late: bool = False) -> Member | str:
        """Seat a worker; the same member again for a repeated hello; a refusal in words otherwise. ``late``: with an empty share."""
        known = self.members.get(client_id)
        if known is not None:
            return known
        if any(member.hello.name == hello.name for member in self.members.values()):
            return f"a worker named {hello.name} is already in the fleet; names must differ"
        if late:
            empty = Share(slot=0, n_slots=self.n_slots).divided(1, NEVER_NS)
            slot = max(member.slot for member in self.members.values()) + 1
            joined = self.members[client_id] = Member(client_id, hello, slot, empty, joined=True)
            return joined
        free = set(range(self.n_slots)) - {member.slot for member in self.members.values()}
        if not free:
            return f"the fleet of {self.n_slots} is complete; {hello.name} is refused"
        slot = min(free)
        member = self.members[client_id] = Member(client_id, hello, slot, [Share(slot=slot, n_slots=self.n_slots)])
        return member

    @property
    def complete(self) -> bool:
        """Every slot has a worker."""
        return len(self.members) >= self.n_slots

    def all_at_least(self, state: State) -> bool:
        """Every slot has a worker, and each has come as far as ``state`` (or is lost)."""
        order = list(State)
        return self.complete and all(order.index(member.state) >= order.index(state) for member in self.members.values())

    def planned(self, client_id: str, planned: Planned, digest: str, count: int) -> str:
        """Note a worker's plan; '' or why it does not match the master's."""
        member = self.members[client_id]
        member.planned = planned
        if planned.fault:
            return f"{member.hello.name}: {planned.fault}"
        if (planned.digest, planned.count) != (digest, count):
            return (
                f"{member.hello.name} planned another schedule ({planned.count} arrivals, digest {planned.digest[:12]}) than the master "
                f"({count} arrivals, digest {digest[:12]}): its code, numpy or files differ"
            )
        member.state = State.PLANNED
        return ""

    def snapshot(self, client_id: str, snapshot: Snapshot) -> str:
        """Keep a worker's newest snapshot; older ones are ignored. '' or why it was refused (ValueError text)."""
        member = self.members[client_id]
        if member.snapshot is not None and snapshot.seq <= member.snapshot.seq:
            return ""
        try:
            histograms = snapshot.histograms()
        except ValueError as error:
            return f"{member.hello.name}: {error}"
        member.snapshot, member.histograms = snapshot, histograms
        return snapshot.trouble

    def drained(self, client_id: str, drained: Drained) -> str:
        """A worker's last word; '' or why it was refused."""
        fault = self.snapshot(client_id, drained.snapshot)
        member = self.members[client_id]
        member.drained = drained
        if member.state is not State.LOST and not drained.lapsed:
            member.state = State.DRAINED
        return fault

    def silent(self, now_ns: int, patience_ns: int) -> list[Member]:
        """Members that should speak (they run, or have lapsed) and were not heard of for longer than ``patience_ns``."""
        return [m for m in self.by_slot if m.state is State.RUNNING and now_ns - m.heard_at_ns > patience_ns]

    def lost(self, client_id: str, at_ns: int) -> Member | None:
        """A worker is gone: its member the first time, None when that was known or it had drained."""
        member = self.members.get(client_id)
        if member is None or member.ended:
            return None
        member.state, member.lost_at_ns = State.LOST, at_ns
        return member

    def redistribute(self, dead: Member, from_ns: int, whole: bool) -> dict[str, list[Share]]:
        """Give a lost worker's arrivals from an instant on to the living: new shares by client id; {} when nobody is left.

        ``whole``: a share goes to one worker undivided, because its sessions must stay together. One step is one generation.
        """
        living = [member for member in self.by_slot if member.state is State.RUNNING]
        if not living:
            return {}
        self.generation += 1
        self._lost_by_generation[self.generation] = dead
        given: dict[str, list[Share]] = {}
        for turn, share in enumerate(dead.shares):
            parts = share.divided(1 if whole else len(living), from_ns)
            for i, part in enumerate(parts):
                taker = living[(turn + self.generation + i) % len(living)]
                taker.shares.append(part)
                given.setdefault(taker.client_id, []).append(part)
        return given

    def took(self, generation: int, count: int) -> None:
        """A living worker has taken over so many arrivals of the worker that was lost in this generation."""
        dead = self._lost_by_generation.get(generation)
        if dead is not None:
            dead.given_away += count

    @property
    def ended(self) -> bool:
        """Every worker has drained or is lost."""
        return bool(self.members) and all(member.ended for member in self.members.values())

    def merged(self) -> dict[str, Histogram]:
        """Every series merged over the workers: true fleet-wide counts."""
        fleet: dict[str, Histogram] = {}
        for member in self.members.values():
            for series, histogram in member.histograms.items():
                fleet.setdefault(series, Histogram()).merge(histogram)
        return fleet

    def ledger(self, scheduled: int) -> dict[str, int]:
        """The fleet's ledger over ``scheduled`` arrivals. What a lost worker leaves open and nobody took over is ``lost``."""
        names = ("sent", "dropped", "unsent", "ok", "failed", "timed_out", "abandoned")
        total = {"scheduled": scheduled, "lost": 0} | dict.fromkeys(names, 0)
        for member in self.members.values():
            if member.snapshot is None:
                continue
            ledger = member.snapshot.ledger.model_dump()
            if member.state is State.LOST:
                # What was in flight at a dead worker's last word has no outcome: lost, until its records tell more.
                ledger |= {"unsent": 0, "sent": sum(ledger[name] for name in ("ok", "failed", "timed_out", "abandoned"))}
            for name in names:
                total[name] += ledger[name]
        open_still = scheduled - total["sent"] - total["dropped"]
        if any(member.state is State.LOST for member in self.members.values()):
            total["unsent"] = min(total["unsent"], open_still)
            total["lost"] = open_still - total["unsent"]
        else:
            total["unsent"] = open_still
        return total
