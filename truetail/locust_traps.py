"""What Truetail changes in Locust itself, in one place, each with its reason (measured on 2.47)."""

from __future__ import annotations

import functools
import time
from typing import Any

import locust.runners
import locust.stats
from locust import argument_parser
from locust.runners import STATE_RUNNING, MasterRunner, WorkerNode

from truetail.fast_keepalive import mend as mend_keepalive


def three_digits(response_time: float) -> float:
    """Bucket of a response time in ms: three significant digits (Locust keeps two: 1365 and 1442 ms would both print as 1400)."""
    if response_time <= 0:
        return 0
    if response_time >= 1000:
        return float(round(response_time, 2 - len(str(int(response_time))) + 1))
    if response_time >= 100:
        return float(round(response_time))
    return round(response_time, 1 if response_time >= 10 else 2)


def keep_pool(runner: Any) -> None:
    """Once the pool is filled the master spawns no more: a worker that joins late would make Locust take users from the others."""
    if isinstance(runner, MasterRunner):
        runner.start = _keep  # type: ignore[method-assign]


def free_pool(runner: Any) -> None:
    """The run is over: a next one may fill its pool."""
    vars(runner).pop("start", None)


def _keep(*_: Any, **__: Any) -> None:
    """In place of MasterRunner.start."""


def spawn_pool(runner: MasterRunner, client_id: str, pool: int) -> None:
    """Give one worker a pool of its own, in the classes' proportions, and leave the others' as they are."""
    environment = runner.environment
    node = WorkerNode(client_id)
    dispatcher = environment.dispatcher_class(worker_nodes=[node], user_classes=runner.user_classes)
    dispatcher.new_dispatch(target_user_count=pool, spawn_rate=pool)
    users: dict[str, int] = {}
    for dispatched in dispatcher:
        users = dispatched[client_id]
    spawn = {
        "timestamp": time.time(), "user_classes_count": users, "host": environment.host, "stop_timeout": environment.stop_timeout,
        "parsed_options": vars(environment.parsed_options) if environment.parsed_options else {},
    }  # fmt: skip
    runner.send_message("spawn", spawn, client_id)


def has_pool(runner: MasterRunner, client_id: str) -> bool:
    """Whether a worker has said that its users are made; it is told then, as after a start, that the fleet's are."""
    node = runner.clients.get(client_id)
    if node is None or node.state != STATE_RUNNING:
        return False
    runner.send_message("spawning_complete", {"user_count": node.user_count}, client_id)
    return True


def mend(runner: Any) -> None:
    """Apply every change; harmless when called twice."""
    # A worker rebuilds its whole option parser once per option on every spawn message: 65 ms of frozen event loop.
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    locust.stats.bucket_response_time = three_digits  # type: ignore[assignment]  # floats work in all of Locust's outputs
    mend_keepalive()
    if isinstance(runner, MasterRunner):
        # A minute after a worker's death Locust forgets it and restarts the ramp from zero users on the living.
        locust.runners.HEARTBEAT_DEAD_INTERNAL = -(10**9)
