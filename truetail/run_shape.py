"""The LoadTestShape of every Truetail run: one constant pool from the muster to the last drained worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust import LoadTestShape
from locust.env import Environment

from truetail.errors import UsageError
from truetail.prepare import prepare

if TYPE_CHECKING:
    from truetail.master import MasterRole

log = logging.getLogger("truetail")


class RunShape(LoadTestShape):
    """Waits for the muster, then asks for the same pool until the run has ended.

    A pool that changed during the run would stall every worker at each change, and a shrinking one would kill busy users.
    """

    abstract = True

    def __init__(self, master: MasterRole) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._master = master

    def tick(self) -> tuple[int, float] | None:
        """Called about once a second by Locust, in a greenlet of its own, so it may wait."""
        self._master.asked_for.set()
        self._master.pool_may_fill.wait()
        if self._master.finished:
            return None
        pool = int(self._master.scenario["pool"]) * self._master.fleet.n_slots
        return pool, float(pool)


def scenario_of_shape(environment: Environment) -> Path:
    """A run folder for plain ``locust -f my_users.py,shapes/poisson.py``: the shape and Locust's options are the scenario."""
    from truetail import scenario

    shape: Any = environment.shape_class
    options: Any = environment.parsed_options
    if not environment.host:
        raise UsageError("no target: give locust --host http://...")
    document: Mapping[str, Any] = {
        "name": type(shape).__name__.lower(),
        "target": {"url": environment.host},
        "users": str(Path(options.locustfile.split(",")[0]).resolve()),
        "requests": [{"name": "task", "path": "/"}],
        "duration": shape.duration_s,
        "pool": shape.pool,
        "seed": shape.seed,
        "drain": shape.drain_s,
        "arrivals": {"rate": 1, "spacing": "poisson"},
        "slos": [],
        "fleet": {"workers": getattr(options, "expect_workers", 1) or 1},
    }
    resolved = scenario.loads(json.dumps(document)).resolved() | {
        "arrivals": shape.arrivals(),
        "requests": [],
    }
    folder = prepare(Path(options.truetail_out), resolved, scenario_file="", target_url=str(environment.host))
    log.info("run folder: %s (afterwards: truetail report %s)", folder, folder)
    return folder
