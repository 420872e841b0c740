"""The mixin that takes any Locust user class open loop: ``class MyUser(OpenLoop, FastHttpUser)``.

A Locust user is a closed loop: it sends, waits for the answer, pauses, and sends again, so a slow server slows the load.
With this mixin the user takes an arrival of the planned schedule where it would have paused: inside ``wait_time()``, in
Locust's state "waiting", so that idle users stop at once and busy ones may finish. Tasks, weights, ``on_start``, ``on_stop`` and clients stay as they are;
only a ``wait_time`` has no meaning any more. Within a task ``self.arrival`` says what was planned.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import gevent
from locust.user.task import TaskSet

from truetail import plugin, stock_clients
from truetail.arrival import Arrival

if TYPE_CHECKING:
    from locust import User as _Base
else:
    _Base = object

CURRENT: ContextVar[Arrival | None] = plugin.CURRENT
"""The arrival whose task is running; greenlets spawned by the task inherit it."""


class OpenLoop(_Base):
    """Mixin for a Locust User class; name it first among the bases."""

    abstract = True
    arrival: Arrival | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _forget_wait_times(getattr(cls, "tasks", []))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Set on the instance: a class body that defines wait_time would hide a method of a mixin.
        self.wait_time = self._take_arrival  # type: ignore[method-assign]
        self._their_on_start, self.on_start = self.on_start, self._start_idle  # type: ignore[method-assign]
        self._their_on_stop, self.on_stop = self.on_stop, self._stop  # type: ignore[method-assign]
        stock_clients.trace(self)

    def trace_headers(self, part: int | None = None) -> dict[str, str]:
        """See :func:`truetail.plugin.trace_headers`: for clients that are neither ours nor Locust's own, ``client.get(path, headers=self.trace_headers())``."""
        return plugin.trace_headers(self, part)

    def _start_idle(self) -> None:
        """Locust runs a user's first task before its first wait; there is no arrival for it yet, so wait first."""
        self._their_on_start()
        if self._taskset_instance is not None:
            self._taskset_instance._sleep = _sleep_if_any  # type: ignore[method-assign]
        self.wait()  # type: ignore[no-untyped-call]

    def _take_arrival(self) -> float:
        engine = plugin.engine_of(self.environment)
        self._finish(engine)
        arrival = engine.take(self)
        self.arrival = arrival
        CURRENT.set(arrival)
        return 0.0

    def _finish(self, engine: plugin.Engine) -> None:
        arrival, self.arrival = self.arrival, None
        CURRENT.set(None)
        if arrival is not None:
            engine.finish(arrival)

    def _stop(self) -> None:
        """A user that ends between its task and its next wait (StopUser in a task) still finishes its arrival."""
        engine = plugin.engine_of(self.environment)
        if self.arrival is not None and self.arrival.parts:
            self._finish(engine)
        self._their_on_stop()  # type: ignore[no-untyped-call]


def _sleep_if_any(seconds: float) -> None:
    """TaskSet's pause after wait_time(), without the extra turn of the event loop that gevent.sleep(0) would cost."""
    if seconds > 0:
        gevent.sleep(seconds)


def _forget_wait_times(tasks: Any) -> None:
    """A nested TaskSet's own wait_time would pause it instead of taking an arrival: remove it."""
    for task in tasks:
        if isinstance(task, type) and issubclass(task, TaskSet):
            if "wait_time" in vars(task):
                task.wait_time = TaskSet.wait_time  # type: ignore[method-assign]
            _forget_wait_times(task.tasks)
