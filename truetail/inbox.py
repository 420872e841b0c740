"""What the master does with each message of a worker: checked, then told to the fleet's state machine."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import gevent
from locust.env import Environment
from pydantic import ValidationError

from truetail import messages
from truetail.fleet import Member, State
from truetail.messages import Drained, Hello, Planned, Pong, Pooled, Snapshot, Took
from truetail.shipping import Chunk, Receiver

if TYPE_CHECKING:
    from truetail.master import MasterRole

MOST_REFUSALS = 100
"""Refused messages that are written down; a flood of them must not fill the disk."""


class Inbox:
    """Listeners for the workers' messages."""

    def __init__(self, master: MasterRole, runner: Any) -> None:
        self._master = master
        self._fleet = master.fleet
        self._runner = runner
        self._refusals = 0
        self._receiver = Receiver(master.folder / "records")

    def register(self) -> None:
        """Listen to every message that a worker may send."""
        for kind, listener in (
            (messages.HELLO, self._on_hello),
            (messages.PLANNED, self._on_planned),
            (messages.POOLED, self._on_pooled),
            (messages.PONG, self._on_pong),
            (messages.SNAPSHOT, self._on_snapshot),
            (messages.DRAINED, self._on_drained),
            (messages.TOOK, self._on_took),
            (messages.CHUNK, self._on_chunk),
        ):
            self._runner.register_message(kind, listener)

    def _member(self, msg: Any) -> Member | None:
        return self._fleet.members.get(msg.node_id)

    def _refuse(self, what: str) -> None:
        self._refusals += 1
        if self._refusals <= MOST_REFUSALS:
            self._master.event("message-refused", what)

    def _parsed(self, kind: type[messages.M], msg: Any) -> messages.M | None:
        try:
            return messages.parse(kind, msg.data)
        except ValueError as error:
            self._refuse(str(error))
            return None

    def _on_hello(self, environment: Environment, msg: Any, **_: Any) -> None:
        hello = self._parsed(Hello, msg)
        if hello is None:
            return
        new = msg.node_id not in self._fleet.members
        seated = self._fleet.hello(msg.node_id, hello, late=self._master.takes_in)
        if isinstance(seated, str):
            self._refuse(seated)
        elif seated.joined and new:
            gevent.spawn(self._master.take_in, seated)

    def _on_pong(self, environment: Environment, msg: Any, **_: Any) -> None:
        pong = self._parsed(Pong, msg)
        if pong is not None:
            self._master.clock.pong(pong.seq, pong.mono_ns)

    def _on_planned(self, environment: Environment, msg: Any, **_: Any) -> None:
        planned = self._parsed(Planned, msg)
        if planned is not None and self._member(msg):
            fault = self._fleet.planned(msg.node_id, planned, self._master.digest, self._master.count)
            if fault and self._fleet.members[msg.node_id].joined:
                self._refuse(fault)
            elif fault:
                reason = "scenario" if planned.refused else "error" if planned.fault else "schedule-mismatch"
                self._master.stop(reason, fault)

    def _on_pooled(self, environment: Environment, msg: Any, **_: Any) -> None:
        member, pooled = self._member(msg), self._parsed(Pooled, msg)
        if member is not None and pooled is not None and member.state is State.PLANNED:
            member.state = State.POOLED
            member.warm_up = pooled.warm_up

    def _on_snapshot(self, environment: Environment, msg: Any, **_: Any) -> None:
        snapshot, member = self._parsed(Snapshot, msg), self._member(msg)
        if snapshot is None or member is None:
            return
        member.heard_at_ns = time.monotonic_ns()
        self._take(msg.node_id, member, self._fleet.snapshot(msg.node_id, snapshot))
        if member.state is State.RUNNING:
            self._runner.send_message(messages.LEASE, {"seq": snapshot.seq}, msg.node_id)

    def _on_took(self, environment: Environment, msg: Any, **_: Any) -> None:
        took, member = self._parsed(Took, msg), self._member(msg)
        if took is not None and member is not None:
            self._fleet.took(took.generation, took.scheduled)
            text = f"{member.hello.name} has {took.scheduled} arrivals more"
            self._master.event("took-over", text, worker=member.hello.name, generation=took.generation)

    def _on_chunk(self, environment: Environment, msg: Any, **_: Any) -> None:
        member = self._member(msg)
        try:
            chunk = Chunk.model_validate(msg.data)
        except ValidationError as error:
            self._refuse(f"chunk: {error.error_count()} faults")
            return
        if member is None:
            return
        member.heard_at_ns = time.monotonic_ns()
        try:
            shipped = self._receiver.take(member.hello.name, chunk)
        except OSError as error:
            self._master.stop("error", f"shipped records cannot be written: {error.strerror}")
            return
        self._runner.send_message(messages.SHIPPED, shipped.model_dump(), msg.node_id)

    def _on_drained(self, environment: Environment, msg: Any, **_: Any) -> None:
        drained, member = self._parsed(Drained, msg), self._member(msg)
        if drained is None or member is None:
            return
        self._take(msg.node_id, member, self._fleet.drained(msg.node_id, drained))
        self._runner.send_message(messages.ACK, {}, msg.node_id)

    def _take(self, client_id: str, member: Member, trouble: str) -> None:
        """Keep the newest snapshot on disk, for a report without the worker's records; stop the run when the worker is in trouble."""
        if trouble:
            self._master.stop("error", trouble)
        snapshot = member.snapshot
        if snapshot is None:
            return
        # Cumulative, so the newest alone says everything: the file is replaced, and its size does not grow with the run.
        series = {name: histogram.to_json() for name, histogram in member.histograms.items()}
        line = {"seq": snapshot.seq, "at_ns": snapshot.at_ns, "ledger": snapshot.ledger.model_dump(), "series": series}
        folder = self._master.folder / "snapshots"
        try:
            folder.mkdir(exist_ok=True)
            scratch = folder / f"{member.hello.name}.part"
            scratch.write_text(json.dumps(line, allow_nan=False) + "\n", encoding="utf-8")
            scratch.replace(folder / f"{member.hello.name}.jsonl")
        except OSError as error:
            self._master.stop("error", f"snapshots cannot be written: {error.strerror}")
