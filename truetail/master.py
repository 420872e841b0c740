"""The master's role: muster the fleet, set the epoch, watch, drain, and write the manifest. Design section 4."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import numpy as np
from gevent.event import Event
from gevent.lock import Semaphore
from locust.runners import STATE_INIT, STATE_RUNNING, STATE_SPAWNING

from shapes.schedule import Schedule
from truetail import locust_traps, manifest, messages, plugin, tracing, warm_up
from truetail.clock_exchange import ClockExchange
from truetail.fleet import Fleet, Member, State
from truetail.inbox import Inbox
from truetail.live import Live, progress_line
from truetail.run_shape import RunShape, scenario_of_shape
from truetail.scenario_preview import NOTHING_PLANNED

if TYPE_CHECKING:
    from truetail.plugin import Engine

log = logging.getLogger("truetail.master")

GO_LEAD_S = 0.5
"""How far in the future the epoch lies: time for the message to reach every worker."""
WALL_CLOCK_LEAD_S = 10.0
"""The same when the schedule is aligned to the wall clock: the epoch is fixed before the muster, since the plan depends on it."""
LOSS_MARGIN_S = 1.0
"""How much longer than a lease the master waits for a word before it gives a worker up."""
HAND_OVER_LEAD_S = 2.0
"""How far ahead the living take over a lost worker's arrivals: time to plan up to there."""
LIVELY = (STATE_INIT, STATE_SPAWNING, STATE_RUNNING)
"""States of Locust's runner in which a run is under way or may yet begin; in the others its workers are gone already."""
AFTER_DRAIN_S = 10.0
"""How long after the drain deadline a worker's last word is waited for."""


class MasterRole:
    """The master's part of a run, from the muster to the final manifest."""

    def __init__(self, engine: Engine, runner: Any, folder: Path | None) -> None:
        self._engine = engine
        self._runner = runner
        self.folder = folder if folder is not None else scenario_of_shape(engine.environment)
        self.document = manifest.read(self.folder)
        scenario: Mapping[str, Any] = self.document["scenario"]
        self.scenario = engine.scenario = scenario
        engine.target_url = engine.environment.host = self.document["target"]["url"]
        self.fleet = Fleet(scenario["fleet"]["workers"] if hasattr(runner, "clients") else 1)
        self.asked_for = Event()
        self.pool_may_fill = Event()
        self.finished = False
        self.stop_reason = ""
        self.planned_per_s: list[int] = []
        self.epoch_mono_ns = 0
        self.clock = ClockExchange()
        self.live = Live(self)
        self._events = manifest.events(self.folder)
        self._progress = manifest.Log(self.folder / "progress.jsonl")
        self.digest = ""
        self.count = 0
        self._epoch_wall_ns = 0
        self._written = False
        self._joining = Semaphore()

    # -- begin ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Register messages and signals, put the run's shape in place, and start conducting."""
        Inbox(self, self._runner).register()
        shape = RunShape(self)
        shape.runner = self._runner
        self._engine.environment.shape_class = shape
        # Locust dies at once on SIGTERM while a shape runs headless, telling no worker: CI and Kubernetes send just that.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            gevent.signal_handler(number, self._on_signal, number)
        self._engine.environment.events.quitting.add_listener(self._on_quitting)
        gevent.spawn(self._conduct)

    def _on_signal(self, number: int) -> None:
        if self.stop_reason or self.finished:
            if not self.finished:
                log.warning("second signal: leaving at once")
            self.write_end()
            self.finished = True
            self.pool_may_fill.set()
            self.leave()
        self.stop("interrupted")
        if number == signal.SIGINT and self._engine.environment.web_ui is not None:
            gevent.spawn(self._leave_after_drain)

    def _leave_after_drain(self) -> None:
        """Locust's page would outlive the run. (After SIGTERM, Locust's own handler ends the process once ``_on_quitting`` returns.)"""
        while not self.finished:
            gevent.sleep(0.1)
        self.leave()

    def leave(self) -> None:
        """End this process: Locust's main waits for the runner, or for its web UI where there is one."""
        self._runner.quit()
        if self._engine.environment.web_ui is not None:
            self._engine.environment.web_ui.stop()

    def _on_quitting(self, **_: Any) -> None:
        """Locust is about to end. With a web UI it does so on SIGTERM in the midst of a run: what is in flight drains first."""
        if self._runner.state in LIVELY:
            self.stop("interrupted")
            self._wait_for(lambda: self.finished, time.monotonic() + self.scenario["drain_s"] + 2 * AFTER_DRAIN_S)
        self.write_end()

    def stop(self, reason: str, text: str = "") -> None:
        """End the run early: no more arrivals, what is in flight drains. ``reason`` goes into the manifest (the first one stays)."""
        if self.stop_reason or self.finished:
            return
        self.stop_reason = reason
        self.document["stop_text"] = text[:1000]
        self.document["stopped_at_ns"] = self.now_ns if self.epoch_mono_ns else 0
        self.event("stopped", text or reason)
        self._runner.send_message(messages.STOP, {})

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.monotonic_ns() - self.epoch_mono_ns

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Write an event, and tell the terminal's log."""
        log.info("%s: %s", kind, text)
        at_ns = self.now_ns if self.epoch_mono_ns else None
        self._events.add(at_ns=at_ns, wall_ns=time.time_ns(), kind=kind, text=text[:1000], **fields)

    # -- conduct ----------------------------------------------------------------------------------------------------

    def _conduct(self) -> None:
        """The whole run, in order. Whatever goes wrong ends it with a reason: a run must never hang or look complete."""
        closed = [cls.__name__ for cls in self._engine.environment.user_classes if not plugin.is_open(cls)]
        if closed:
            text = f"the locustfile's {', '.join(closed)} would be a closed loop: add the mixin, class {closed[0]}(OpenLoop, ...)"
            self.stop("scenario", text)
        try:
            self._await_start()
            self._muster()
            if not self.stop_reason:
                self._go()
                self._watch()
        except Exception as error:
            log.exception("the master failed")
            self.stop("error", f"{type(error).__name__}: {error}")
        self.write_end()
        self.finished = True
        self.pool_may_fill.set()

    @property
    def waits_for_start(self) -> bool:
        """Whether somebody must press Start on Locust's page first: plain Locust with its web UI, before that."""
        environment = self._engine.environment
        pressed = environment.web_ui is None or getattr(environment.parsed_options, "autostart", False)
        return not pressed and not self.asked_for.is_set() and not self.stop_reason

    def _await_start(self) -> None:
        while self.waits_for_start:
            gevent.sleep(0.05)

    def _muster(self) -> None:
        if self.stop_reason:
            return
        self._plan_schedule()
        deadline = time.monotonic() + self.scenario["fleet"]["muster_s"]
        if not self._wait(lambda: self.fleet.complete, deadline):
            self.stop("muster", f"{len(self.fleet.members)} of {self.fleet.n_slots} workers said hello in time")
            return
        for member in self.fleet.by_slot:
            self._exchange_clock(member)
            self._send_plan(member)
        if not self._wait(lambda: self.fleet.all_at_least(State.PLANNED), time.monotonic() + self.scenario["fleet"]["muster_s"]):
            self.stop("muster", "not every worker has planned its schedule in time")
            return
        self.pool_may_fill.set()
        deadline = time.monotonic() + self.scenario["fleet"]["muster_s"] + warm_up.longest_s(self.scenario)
        if not self._wait(lambda: self.fleet.all_at_least(State.POOLED), deadline):
            self.stop("muster", "not every worker has filled its pool in time: does an on_start block or fail?")
        told = [member.warm_up for member in self.fleet.by_slot if member.warm_up is not None]
        if told:
            counts = {key: sum(getattr(one, key) for one in told) for key in ("done", "failed", "unsent")}
            first = next((f" ({one.error})" for one in told if one.error), "")
            self.event("warm-up", f"{counts['done']} requests before the start, {counts['failed']} failed{first}", **counts)

    def _plan_schedule(self) -> None:
        scenario = self.scenario
        aligned = "wall-clock" in manifest.canonical(scenario["arrivals"])
        self._epoch_wall_ns = time.time_ns() + int(WALL_CLOCK_LEAD_S * 1e9) if aligned else 0
        schedule = Schedule(scenario["arrivals"], scenario["duration_s"], scenario["seed"]["schedule"], self._epoch_wall_ns / 1e9)
        pool = gevent.get_hub().threadpool
        self.digest, self.count = pool.apply(schedule.digest), pool.apply(schedule.count)
        self.planned_per_s = pool.apply(_per_second, (schedule, scenario["duration_s"]))
        self.document["schedule"] = {
            "digest": self.digest,
            "count": self.count,
            "expected_count": float(schedule.expected_count),
            "duration_s": scenario["duration_s"],
            "epoch_wall_s": self._epoch_wall_ns / 1e9,
        }
        manifest.write(self.folder, self.document)
        if self.count == 0:
            self.stop("scenario", NOTHING_PLANNED)

    def _wait(self, done: Any, deadline: float) -> bool:
        """Until ``done()``, the deadline or a stop; whether it was done."""
        return self._wait_for(lambda: done() or self.stop_reason, deadline) and bool(done())

    def _wait_for(self, done: Any, deadline: float) -> bool:
        while not done():
            if time.monotonic() > deadline:
                return False
            gevent.sleep(0.02)
        return True

    def _exchange_clock(self, member: Member) -> None:
        member.clock_offset_ns, member.clock_residual_ns = self.clock.measure(
            lambda seq: self._runner.send_message(messages.PING, {"seq": seq}, member.client_id), same_boot=member.hello.boot_id
        )

    def _send_plan(self, member: Member) -> None:
        plan = {
            "scenario": self.scenario,
            "run_id": self.document["run_id"],
            "sha256": self.document["scenario_sha256"],
            "trace_key": tracing.key_of(self.document),
            "share": member.shares[0].model_dump(),
            "epoch_wall_s": self._epoch_wall_ns / 1e9,
            "folder": str(self.folder.resolve()),
            "target_url": self._engine.target_url,
        }
        self._runner.send_message(messages.PLAN, plan, member.client_id)

    def _go(self) -> None:
        lead_ns = int(GO_LEAD_S * 1e9)
        if self._epoch_wall_ns:
            lead_ns = self._epoch_wall_ns - time.time_ns()
            if lead_ns < 0:
                self.stop("muster", "the muster took longer than the lead of a schedule aligned to the wall clock")
                return
        self.epoch_mono_ns = time.monotonic_ns() + lead_ns
        self.document["epoch_wall_ns"] = time.time_ns() + lead_ns
        for member in self.fleet.by_slot:
            self._send_go(member)
        locust_traps.keep_pool(self._runner)
        self.document["state"] = "running"
        self._write()
        self.event(
            "epoch", f"{self.count} arrivals planned over {self.scenario['duration_s']:g} s on {self.fleet.n_slots} workers"
        )

    def _send_go(self, member: Member) -> None:
        self._runner.send_message(messages.GO, {"epoch_mono_ns": self.epoch_mono_ns + member.clock_offset_ns}, member.client_id)
        member.state = State.RUNNING
        member.heard_at_ns = max(time.monotonic_ns(), self.epoch_mono_ns)

    @property
    def takes_in(self) -> bool:
        """Whether a worker that says hello now joins a run under way."""
        running = self.document["state"] == "running" and not self.stop_reason and not self.finished
        return running and bool(self.scenario["fleet"]["join"] == "next-generation")

    def take_in(self, member: Member) -> None:
        """The muster of a worker that comes late. It stands by with an empty share: the next generation counts it among the living.

        What fails here concerns this worker alone: it is lost before it has had anything to send, and the run goes on.
        """
        with self._joining:  # the clock exchange is with one worker at a time
            self._exchange_clock(member)
        self._send_plan(member)
        patience_s = self.scenario["fleet"]["muster_s"]
        planned = self._wait(lambda: member.state is State.PLANNED, time.monotonic() + patience_s)
        if planned:
            locust_traps.spawn_pool(self._runner, member.client_id, int(self.scenario["pool"]))
            self._wait(lambda: locust_traps.has_pool(self._runner, member.client_id), time.monotonic() + patience_s)
        if not planned or not self._wait(lambda: member.state is State.POOLED, time.monotonic() + patience_s):
            self.event("join-failed", f"{member.hello.name} has not come through its muster", worker=member.hello.name)
            self.fleet.members.pop(member.client_id, None)
            return
        self._send_go(member)
        self.event("joined", f"{member.hello.name} stands by for the next generation", worker=member.hello.name)

    def _watch(self) -> None:
        allowed_s = self.scenario["duration_s"] + self.scenario["drain_s"] + AFTER_DRAIN_S
        next_line_s = 1.0
        while not self.fleet.ended:
            gevent.sleep(0.1)
            self._look_for_lost()
            now_s = self.now_ns / 1e9
            if now_s >= next_line_s:
                next_line_s = int(now_s) + 1.0
                self._progress.add(**progress_line(self, now_s))
            if now_s > allowed_s or (
                self.stop_reason and now_s > self.document["stopped_at_ns"] / 1e9 + self.scenario["drain_s"] + AFTER_DRAIN_S
            ):
                for member in self.fleet.by_slot:
                    self._lose(member, "has not drained in time")
        self._progress.add(**progress_line(self, self.now_ns / 1e9))  # with every worker's last word in it

    def _look_for_lost(self) -> None:
        """A worker's lease runs from the sending of a snapshot, so it has surely stopped one lease after we last heard one."""
        if not hasattr(self._runner, "clients"):
            return
        lease_s = self.scenario["fleet"]["lease_s"]
        for member in self.fleet.silent(time.monotonic_ns(), int((lease_s + LOSS_MARGIN_S) * 1e9)):
            self._lose(member, f"was not heard of for {lease_s + LOSS_MARGIN_S:g} s")
        for member in self.fleet.by_slot:
            if member.drained is not None and member.drained.lapsed:
                self._lose(member, "stopped by itself: its lease had run out")

    def _lose(self, member: Member, why: str) -> None:
        if not self.fleet.lost(member.client_id, self.now_ns):
            return
        self.event("worker-lost", f"{member.hello.name} (slot {member.slot}) {why}", worker=member.hello.name)
        if self.scenario["fleet"]["on_loss"] == "repartition" and not self.stop_reason:
            self._hand_over(member)

    def _hand_over(self, dead: Member) -> None:
        """The living take over from an instant in the future on. What lies before it is lost: sent late, it would be a burst that nobody planned."""
        from_ns = self.now_ns + int(HAND_OVER_LEAD_S * 1e9)
        given = self.fleet.redistribute(dead, from_ns, whole="trace" in self.scenario["arrivals"])
        for client_id, shares in given.items():
            data = {"generation": self.fleet.generation, "shares": [share.model_dump() for share in shares]}
            self._runner.send_message(messages.TAKEOVER, data, client_id)
        if given:
            text = f"{len(given)} workers take over the arrivals of {dead.hello.name} from {from_ns / 1e9:.3f} s on"
            self.event("repartition", text, generation=self.fleet.generation, from_ns=from_ns, worker=dead.hello.name)

    # -- end --------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        models = next((member.planned.models for member in self.fleet.by_slot if member.planned and member.planned.models), None)
        self.document["target"]["models"] = models
        self.document["workers"] = [_worker_entry(member, self.fleet.n_slots) for member in self.fleet.by_slot]
        self.document["ledger"] = self.fleet.ledger(self.count) if self.fleet.members else None
        try:
            manifest.write(self.folder, self.document)
        except OSError as error:
            log.error("run.json cannot be written: %s", error.strerror)

    def write_end(self) -> None:
        """The final manifest; once."""
        if self._written:
            return
        self._written = True
        locust_traps.free_pool(self._runner)
        # A late worker that was lost while it stood by took nothing with it.
        lost = any(m.state is State.LOST and not (m.joined and not m.responsible_for) for m in self.fleet.members.values())
        self.document["state"] = "ended"
        self.document["stop_reason"] = self.stop_reason or ("worker-lost" if lost else "completed")
        self.document["ended_wall_ns"] = time.time_ns()
        self._write()


def _per_second(schedule: Schedule, duration_s: float) -> list[int]:
    """Planned arrivals in each second of the run."""
    counts = np.zeros(int(duration_s) + 1, np.int64)
    for block in schedule.blocks():
        counts += np.bincount(block.offsets_ns // 1_000_000_000, minlength=len(counts))
    return [int(count) for count in counts]


def _worker_entry(member: Member, n_slots: int) -> dict[str, Any]:
    snapshot = member.snapshot
    return {
        "name": member.hello.name,
        "slot": member.slot,
        "n_slots": n_slots,
        "from_k": 0,
        "host": member.hello.host,
        "pid": member.hello.pid,
        "versions": member.hello.versions,
        "state": str(member.state),
        "lost_at_ns": member.lost_at_ns,
        "clock_offset_ns": member.clock_offset_ns,
        "clock_residual_ns": member.clock_residual_ns,
        "warm_up": member.warm_up.model_dump() if member.warm_up else None,
        "scheduled": member.responsible_for,
        "ledger": snapshot.ledger.model_dump() if snapshot else None,
        "last_handed_k": snapshot.last_handed_k if snapshot else -1,
        "generator": snapshot.generator.model_dump() if snapshot else None,
        "rows": member.drained.rows if member.drained else None,
        "connections_opened": member.drained.connections_opened if member.drained else None,
        "resent": member.drained.resent if member.drained else None,
    }
