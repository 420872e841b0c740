"""The worker's role: hello, plan, pool, epoch, dispatch, snapshots, drain. Design section 4."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import WorkerRunner

from shapes.traces.drops import TraceError
from truetail import messages, request_event, task_errors, tracing
from truetail.arrival import Arrival
from truetail.assignment import Assignment
from truetail.clock_exchange import boot_id
from truetail.dispatcher import Dispatcher
from truetail.errors import UsageError
from truetail.feed import Feed
from truetail.http.user import connection_counts, identities
from truetail.loop_health import LoopHealth
from truetail.messages import Drained, Hello, Ledger, Planned, Pong, Pooled, Snapshot, Took
from truetail.recorder import Recorder
from truetail.records import ABANDONED, DROPPED, FAILED, OUTCOMES
from truetail.share import Share
from truetail.shipping import Shipped, Shipper
from truetail.warm_up import WarmUp

if TYPE_CHECKING:
    from truetail.plugin import Engine

log = logging.getLogger("truetail.worker")

REPEAT_S = 1.0
SNAPSHOT_S = 1.0
FLUSH_S = 0.25
INTERRUPT_DRAIN_S = 5.0
UNANSWERED = 60
"""Snapshots whose sending time is remembered for an answer."""


class WorkerRole:
    """One worker's part of a run. Messages come in through Locust's runner; users through :meth:`take`."""

    def __init__(self, engine: Engine, runner: Any, name: str) -> None:
        self._engine = engine
        self._runner = runner
        self.name = name
        self._plan: dict[str, Any] | None = None
        self._slot_count = 0
        self._stands_by_until_ns = 0
        self._ready = Event()
        self._dispatcher: Dispatcher | None = None
        self._warm_up = WarmUp((), 0.0)
        self._recorder: Recorder | None = None
        self._assigned: Assignment | None = None
        self._shipper: Shipper | None = None
        self._health = LoopHealth()
        self._seq = 0
        self._acked = Event()
        self._stopping = False
        self._ended = False
        self._snapshot_sent_ns: dict[int, int] = {}
        self._lease_ns = 0
        self._leased = isinstance(runner, WorkerRunner)
        self._trouble = ""

    def begin(self) -> None:
        """Register the messages, then say hello until a plan comes."""
        for kind, listener, concurrent in (
            (messages.PLAN, self._on_plan, True),
            (messages.PING, self._on_ping, False),
            (messages.GO, self._on_go, False),
            (messages.LEASE, self._on_lease, False),
            (messages.SHIPPED, self._on_shipped, False),
            (messages.TAKEOVER, self._on_takeover, True),
            (messages.STOP, self._on_stop, False),
            (messages.ACK, self._on_ack, False),
        ):
            self._runner.register_message(kind, listener, concurrent=concurrent)
        request_event.wrap(
            self._engine.environment.events.request, lambda: self._recorder, lambda *told: self._warm_up.note(*told)
        )
        self._engine.environment.events.spawning_complete.add_listener(lambda **_: gevent.spawn(self._say_pooled))
        self._engine.environment.events.user_error.add_listener(task_errors.note)
        gevent.spawn(self._say_hello)

    def _say_hello(self) -> None:
        hello = Hello(
            name=self.name,
            host=os.uname().nodename,
            pid=os.getpid(),
            boot_id=boot_id(),
            versions={package: importlib.metadata.version(package) for package in ("locust", "numpy", "truetail")},
        )
        while self._plan is None:
            self._send(messages.HELLO, hello.model_dump())
            gevent.sleep(REPEAT_S)

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        self._runner.send_message(kind, data)

    def _on_ping(self, environment: Environment, msg: Any, **_: Any) -> None:
        self._send(messages.PONG, Pong(seq=msg.data["seq"], mono_ns=time.monotonic_ns()).model_dump())

    def _on_plan(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self._plan is not None:
            return
        self._plan = plan = dict(msg.data)
        try:
            planned = self._make_plan(plan)
        except UsageError as error:
            planned = Planned(digest="0" * 64, count=0, slot_count=0, fault="; ".join(error.faults)[:300], refused=True)
        except TraceError as error:  # the master has read it already, so here the file is another one or absent
            fault = f"{error} (on this worker's host: the trace must lie at the scenario's path on each)"
            planned = Planned(digest="0" * 64, count=0, slot_count=0, fault=fault[:300], refused=True)
        except Exception as error:  # whatever it is, the master must hear of it, or the muster hangs
            log.exception("planning failed")
            planned = Planned(digest="0" * 64, count=0, slot_count=0, fault=f"{type(error).__name__}: {error}"[:300])
        self._send(messages.PLANNED, planned.model_dump())

    def _make_plan(self, plan: dict[str, Any]) -> Planned:
        assigned = Assignment(plan)
        pool = gevent.get_hub().threadpool
        digest = pool.apply(assigned.schedule.digest)
        self._slot_count = pool.apply(assigned.count, (assigned.share,))
        self._stands_by_until_ns = pool.apply(assigned.end_ns) if assigned.share.is_empty else 0
        feed = assigned.feed(assigned.share)
        records = assigned.folder / "records"
        self._recorder = Recorder(records, self.name, int(assigned.seconds("warmup") * 1e9))
        if not assigned.has_shared_folder:
            self._shipper = Shipper(records, self.name, lambda chunk: self._send(messages.CHUNK, chunk))
        self._dispatcher = Dispatcher(feed, int(assigned.seconds("lateness_deadline") * 1e9), self._on_drop)
        self._lease_ns = int(assigned.scenario["fleet"]["lease_s"] * 1e9)
        self._assigned = assigned
        self._engine.scenario = assigned.scenario
        self._engine.tracer = tracing.tracer_of(assigned.scenario, str(plan["trace_key"]))
        self._engine.target_url = self._engine.environment.host = assigned.target_url
        self._engine.set_up_users()
        gevent.spawn(self._plan_ahead, feed)
        self._warm_up = WarmUp(pool.apply(assigned.warm_up), assigned.scenario["fleet"]["muster_s"])
        self._ready.set()
        models = {name[:300]: dict(told) for name, told in list(identities(self._engine.environment).items())[:50]}
        return Planned(digest=digest, count=assigned.schedule.count(), slot_count=self._slot_count, models=models)

    def _plan_ahead(self, feed: Feed) -> None:
        feed.plan_ahead(lambda step: gevent.get_hub().threadpool.apply(step), lambda: gevent.sleep(0.05))

    def _say_pooled(self) -> None:
        """Every user has run its on_start and waits: only then may the epoch be set."""
        self._ready.wait()
        assert self._dispatcher is not None
        # Locust tells the fleet's total; this worker's own users are what counts, and those whose on_start failed are gone.
        while self._dispatcher.idle < self._runner.user_count and not self._dispatcher.started:
            gevent.sleep(0.02)
        pooled = Pooled(users=self._dispatcher.idle, warm_up=self._warm_up.told)
        while not self._dispatcher.started and not self._stopping:
            self._send(messages.POOLED, pooled.model_dump())
            gevent.sleep(REPEAT_S)

    def _on_go(self, environment: Environment, msg: Any, **_: Any) -> None:
        dispatcher, recorder = self._dispatcher, self._recorder
        if dispatcher is None or recorder is None or dispatcher.started or self._stopping:
            return
        # Users are made; what lives now lives till the end, so the collector need not walk it during the run.
        gc.collect()
        gc.freeze()
        recorder.epoch_mono_ns = int(msg.data["epoch_mono_ns"])
        if self._leased:
            dispatcher.lease_until_ns = max(time.monotonic_ns(), recorder.epoch_mono_ns) + self._lease_ns
        dispatcher.start(recorder.epoch_mono_ns)
        self._health.start()
        for greenlet in (self._report, self._flush, self._watch_drain):
            gevent.spawn(greenlet)

    def _on_lease(self, environment: Environment, msg: Any, **_: Any) -> None:
        """The master has seen a snapshot: we may send until one lease after that snapshot was *sent*.

        Counting from the sending makes it safe: answers that lay in a socket while this process was frozen renew nothing.
        """
        sent_ns = self._snapshot_sent_ns.pop(msg.data.get("seq"), None)
        if sent_ns is not None and self._dispatcher is not None and self._leased:
            self._dispatcher.lease_until_ns = max(self._dispatcher.lease_until_ns, sent_ns + self._lease_ns)

    def _on_takeover(self, environment: Environment, msg: Any, **_: Any) -> None:
        """Arrivals of a lost worker, from an instant in the future on."""
        dispatcher, assigned = self._dispatcher, self._assigned
        if dispatcher is None or assigned is None or self._ended or self._stopping:
            return
        more = 0
        for data in msg.data["shares"]:
            share = Share.model_validate(data)
            feed = assigned.feed(share)
            more += gevent.get_hub().threadpool.apply(assigned.count, (share,))
            gevent.spawn(self._plan_ahead, feed)
            dispatcher.add(feed)
        self._slot_count += more
        self._send(messages.TOOK, Took(generation=msg.data["generation"], scheduled=more).model_dump())

    def take(self, user: Any) -> Arrival:
        """See :class:`truetail.plugin.Engine`."""
        self._ready.wait()
        assert self._dispatcher is not None
        return self._warm_up.take() or self._dispatcher.take()

    def finish(self, arrival: Arrival) -> None:
        """The arrival's task is over; one that made no request is recorded as such, so that the ledger balances."""
        if arrival.k < 0:
            self._warm_up.finish(arrival, task_errors.of(arrival))
            return
        assert self._dispatcher is not None and self._recorder is not None
        if self._dispatcher.finish(arrival) and arrival.parts == 0:
            error = task_errors.of(arrival)
            self._recorder.without_request(
                arrival, FAILED, f"task-error: {error}" if error else "no-request", arrival.due_mono_ns
            )

    def _on_drop(self, arrival: Arrival) -> None:
        if self._recorder is not None:
            self._recorder.without_request(arrival, DROPPED, "")

    def _flush(self) -> None:
        while not self._ended:
            gevent.sleep(FLUSH_S)
            self._flush_now()
            if self._shipper is not None:
                self._shipper.pump()

    def _flush_now(self) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.flush()
        except OSError as error:
            if not self._trouble:
                self._trouble = f"records cannot be written: {error.strerror} ({self._recorder.rows_path.name})"
                log.error(self._trouble)

    def _on_shipped(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self._shipper is not None:
            self._shipper.acknowledged(Shipped.model_validate(msg.data))

    def _report(self) -> None:
        due = time.monotonic()
        # Several snapshots a lease, so that one late answer does not stop the worker.
        period_s = min(SNAPSHOT_S, self._lease_ns / 4e9)
        while not self._ended:
            due += period_s
            gevent.sleep(max(0.0, due - time.monotonic()))
            if not self._ended:
                self._flush_now()  # what a snapshot tells of is on disk, should this process be killed in the next instant
                snapshot = self._snapshot()
                self._snapshot_sent_ns[snapshot.seq] = time.monotonic_ns()
                self._snapshot_sent_ns.pop(snapshot.seq - UNANSWERED, None)
                self._send(messages.SNAPSHOT, snapshot.model_dump())

    def _ledger(self) -> Ledger:
        recorder, dispatcher = self._recorder, self._dispatcher
        assert recorder is not None and dispatcher is not None
        counts = recorder.counts
        return Ledger(
            scheduled=self._slot_count,
            sent=dispatcher.handed,
            dropped=counts[OUTCOMES[DROPPED]],
            unsent=max(0, self._slot_count - dispatcher.handed - counts[OUTCOMES[DROPPED]]),
            ok=counts["ok"],
            failed=counts["failed"],
            timed_out=counts["timed_out"],
            abandoned=counts["abandoned"],
        )

    def _snapshot(self) -> Snapshot:
        recorder, dispatcher = self._recorder, self._dispatcher
        assert recorder is not None and dispatcher is not None
        self._seq += 1
        series = dict(list(recorder.histograms.items())[: messages.MAX_SERIES])
        return Snapshot(
            seq=self._seq,
            at_ns=time.monotonic_ns() - recorder.epoch_mono_ns,
            ledger=self._ledger(),
            in_flight=len(dispatcher.in_flight),
            idle=dispatcher.idle,
            backlog=dispatcher.backlog,
            last_handed_k=dispatcher.last_handed_k,
            generator=self._health.read(),
            series={name: histogram.to_wire() for name, histogram in series.items()},
            trouble=self._trouble,
        )

    def _on_stop(self, environment: Environment, msg: Any, **_: Any) -> None:
        """Stop early: nothing more is handed over, what is in flight may finish for a short while."""
        self._stopping = True
        self._warm_up.stop()
        if self._dispatcher is not None:
            self._dispatcher.stop()

    def _watch_drain(self) -> None:
        dispatcher = self._dispatcher
        assert dispatcher is not None and self._assigned is not None
        while not dispatcher.exhausted or (self._stands_by and not dispatcher.stopped):
            dispatcher.check_lease()
            gevent.sleep(0.02)
        if dispatcher.lapsed:
            log.error("no word from the master for %g s: sending has stopped", self._lease_ns / 1e9)
        drain_s = self._assigned.seconds("drain")
        deadline = time.monotonic() + (min(drain_s, INTERRUPT_DRAIN_S) if self._stopping else drain_s)
        while dispatcher.in_flight and time.monotonic() < deadline:
            if self._stopping:
                deadline = min(deadline, time.monotonic() + INTERRUPT_DRAIN_S)
            gevent.sleep(0.02)
        self._end(dispatcher)

    @property
    def _stands_by(self) -> bool:
        """Whether a worker that joined late may still be given arrivals."""
        begun_ns = self._recorder.epoch_mono_ns if self._recorder is not None else 0
        return self._stands_by_until_ns > 0 and time.monotonic_ns() < begun_ns + self._stands_by_until_ns

    def _end(self, dispatcher: Dispatcher) -> None:
        recorder = self._recorder
        assert recorder is not None
        for arrival in list(dispatcher.in_flight.values()):
            dispatcher.finish(arrival)
            if arrival.parts == 0:
                recorder.without_request(arrival, ABANDONED, "", arrival.due_mono_ns)
        dispatcher.stop()
        self._health.stop()
        self._flush_now()
        self._ended = True
        used = connection_counts(self._engine.environment)
        drained = Drained(
            snapshot=self._snapshot(),
            rows=recorder.rows_written,
            connections_opened=used.opened,
            resent=used.resent,
            lapsed=dispatcher.lapsed,
        ).model_dump()
        self._recorder = None  # a request that ends after this is no longer part of the run
        try:
            recorder.close()
        except OSError as error:
            log.error("records could not be closed: %s", error.strerror)
        while self._shipper is not None and not self._shipper.pump():
            self._send(messages.SNAPSHOT, drained["snapshot"])  # alive, though it has no more to say
            gevent.sleep(FLUSH_S)
        while not self._acked.is_set():
            self._send(messages.DRAINED, drained)
            self._acked.wait(REPEAT_S)
        if self._assigned is not None and not self._assigned.has_shared_folder:
            shutil.rmtree(self._assigned.folder, ignore_errors=True)

    def _on_ack(self, environment: Environment, msg: Any, **_: Any) -> None:
        self._acked.set()
