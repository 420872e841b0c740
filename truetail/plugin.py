"""Truetail inside a Locust process: options, listeners and the engine that the process's role needs.

Importing this module (which the :class:`~truetail.open_loop.OpenLoop` mixin does) registers the listeners, once. The engine is
``environment.truetail``; its parts are the master's role, the worker's, or both in a process without a fleet.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from truetail import locust_traps
from truetail.arrival import Arrival
from truetail.errors import ExitCode, UsageError
from truetail.tracing import Tracer

if TYPE_CHECKING:
    from truetail.master import MasterRole
    from truetail.worker import WorkerRole

log = logging.getLogger("truetail")

CURRENT: ContextVar[Arrival | None] = ContextVar("truetail_arrival", default=None)


class Engine:
    """What user classes, shapes and the web UI see of Truetail in this process."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.master: MasterRole | None = None
        self.worker: WorkerRole | None = None
        self.scenario: Mapping[str, Any] = {}
        self.target_url = ""
        self.tracer: Tracer | None = None

    def set_up_users(self) -> None:
        """Let user classes make ready what the scenario asks of them; a fault of theirs is the plan's, told before anything is sent."""
        for cls in self.environment.user_classes:
            set_up = getattr(cls, "set_up", None)
            if set_up is not None:
                set_up(self.environment)

    def take(self, user: Any) -> Arrival:
        """Block the user's greenlet until an arrival is handed to it."""
        return self._worker().take(user)

    def finish(self, arrival: Arrival) -> None:
        """The arrival's task is over."""
        self._worker().finish(arrival)

    def finished(self) -> bool:
        """The run is over: every worker has drained, or is lost, or the run was given up. Shapes then return None."""
        return self.master is None or self.master.finished

    def _worker(self) -> WorkerRole:
        if self.worker is None:
            raise RuntimeError("no worker role in this process: users cannot run here")
        return self.worker


def engine_of(environment: Environment) -> Engine:
    """The environment's engine; made on first use, so that user classes also load where no run is under way."""
    engine = getattr(environment, "truetail", None)
    if engine is None:
        engine = Engine(environment)
        environment.truetail = engine  # type: ignore[attr-defined]
    assert isinstance(engine, Engine)
    return engine


def trace_headers(user: Any, part: int | None = None) -> dict[str, str]:
    """The ``traceparent`` of the request that the user's task sends next, where its arrival is sampled; else {}.

    ``part`` is for requests that are under way at once (0: the arrival's first); one after the other they are numbered by themselves.
    """
    arrival: Arrival | None = getattr(user, "arrival", None)
    tracer = engine_of(user.environment).tracer
    if tracer is None or arrival is None:
        return {}
    return tracer.headers(arrival.k, arrival.parts if part is None else part)


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument(
        "--truetail-run",
        default="",
        env_var="TRUETAIL_RUN",
        include_in_web_ui=False,
        help="Run folder prepared by `truetail run` or `truetail master`; empty: take the arrivals from the shape",
    )
    parser.add_argument(
        "--truetail-worker-name",
        default="",
        env_var="TRUETAIL_WORKER_NAME",
        include_in_web_ui=False,
        help="Name of this worker in the run folder (default: host and process id)",
    )
    parser.add_argument(
        "--truetail-out",
        default="runs",
        env_var="TRUETAIL_OUT",
        include_in_web_ui=False,
        help="Where plain locust runs with a Truetail shape put their run folders",
    )


@events.init.add_listener
def _init(environment: Environment, runner: Any, **_: Any) -> None:
    locust_traps.mend(runner)
    options: Any = environment.parsed_options
    if not _wanted(environment, runner, options):
        return
    try:
        _take_roles(engine_of(environment), runner, options)
    except UsageError as error:
        raise SystemExit("\n".join(error.faults)) from None
    except Exception:
        # Locust would log a listener's exception and carry on without us: a closed loop that looks like a run of ours.
        log.exception("Truetail could not start")
        raise SystemExit(ExitCode.INVALID) from None


def _take_roles(engine: Engine, runner: Any, options: Any) -> None:
    if isinstance(runner, MasterRunner | LocalRunner):
        from truetail.master import MasterRole

        engine.master = MasterRole(engine, runner, Path(options.truetail_run) if options.truetail_run else None)
    if isinstance(runner, WorkerRunner | LocalRunner):
        from truetail.worker import WorkerRole

        engine.worker = WorkerRole(engine, runner, options.truetail_worker_name or _default_name(runner))
    if engine.master is not None:
        engine.master.begin()
    if engine.worker is not None:
        engine.worker.begin()
    if engine.master is not None:
        from truetail.ui.attach import attach

        attach(engine.master.live, engine.environment)


def _wanted(environment: Environment, runner: Any, options: Any) -> bool:
    """Only open-loop runs get an engine; anything else that imports us stays plain Locust."""
    if isinstance(runner, WorkerRunner):
        return any(is_open(cls) for cls in environment.user_classes)
    if options.truetail_run:
        return True
    if not hasattr(environment.shape_class, "schedule"):
        return False
    if not any(is_open(cls) for cls in environment.user_classes):
        log.warning("The shape plans arrivals, but no user class has the OpenLoop mixin to take them: this run is a closed loop.")
        return False
    return True


def is_open(cls: type) -> bool:
    """Whether a user class takes its arrivals from the schedule (has the OpenLoop mixin)."""
    return any(base.__name__ == "OpenLoop" for base in cls.__mro__)


def _default_name(runner: Any) -> str:
    return "local" if isinstance(runner, LocalRunner) else f"{os.uname().nodename}-{os.getpid()}"
