"""How much one worker can send on this machine with a scenario's locustfile: a ladder of rates against a sink that answers at once.

It is a real run: master, one worker, the scenario's users and requests, its schedule replaced by Poisson arrivals at rates that rise by a
factor a step. A step is held when its lateness p99 is within the scenario's ``validity.lateness_p99`` and nothing was dropped.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truetail import manifest, roles
from truetail.children import Children, wait_until
from truetail.errors import RunFailed, UsageError
from truetail.prepare import prepare
from truetail.records import DROPPED, RECORD

LOWEST_RPS, FACTOR, STEPS, STEP_S = 200.0, 1.3, 16, 1.5
HEADROOM = 0.8
"""Of the sustained rate, the most that is advised for a worker: a run has bursts, and a machine other work."""
START_S = 30.0


@dataclass(frozen=True, slots=True)
class Step:
    """One rung: the planned rate, arrivals sent, and the p99 of their lateness (None: nothing was sent)."""

    rate_rps: float
    sent: int
    dropped: int
    lateness_p99_ms: float | None
    held: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the ladder showed. ``sustained_rps`` is the highest rate held before two that were not; 0 when not even the lowest was."""

    steps: Sequence[Step]
    limit_ms: float
    answered: int
    failed: int
    error: str

    @property
    def sustained_rps(self) -> float:
        """Rate of the last step that was held before two in a row were not: one alone may be the machine's other work."""
        best = 0.0
        for i, step in enumerate(self.steps):
            if step.held:
                best = step.rate_rps
            elif not any(later.held for later in self.steps[i + 1 : i + 2]):
                break
        return best

    @property
    def at_top(self) -> bool:
        """The ladder ended before the worker did."""
        return bool(self.steps) and self.sustained_rps == self.steps[-1].rate_rps

    def workers_for(self, peak_rps: float) -> int | None:
        """Workers needed for a peak, each at most at four fifths of what it sustains; None when one sustains nothing."""
        return max(1, math.ceil(peak_rps / (HEADROOM * self.sustained_rps))) if self.sustained_rps else None

    def as_json(self, peak_rps: float) -> dict[str, Any]:
        """Plain values."""
        return {
            "sustained_rps": self.sustained_rps, "at_least": self.at_top, "lateness_p99_limit_ms": self.limit_ms, "peak_rps": peak_rps,
            "workers_needed": self.workers_for(peak_rps), "answered": self.answered, "failed": self.failed, "error": self.error,
            "steps": [asdict(step) for step in self.steps],
        }  # fmt: skip


def rates_rps() -> list[float]:
    """The rungs."""
    return [round(LOWEST_RPS * FACTOR**i) for i in range(STEPS)]


def ladder(resolved: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The scenario with its target replaced by ``url`` and its schedule by the ladder. No credentials, no expectations of the answers, no collector.

    Addresses in ``protocol.backends`` become as many requests to the same place.
    """
    made = copy.deepcopy(dict(resolved))
    made["name"] = "generator-check"
    target: dict[str, Any] = {"url": url, "embedded": None, "auth": None, "tls": None, "proxy": None, "headers": {}}
    made["target"] |= target | {"ready": {"path": None, "deadline_s": START_S}}
    steps = [{"rate_rps": float(rate), "for_s": STEP_S} for rate in rates_rps()]
    made["arrivals"] = {"rate": {"kind": "steps", "steps": steps}, "spacing": {"kind": "poisson"}}
    made |= {"duration_s": STEPS * STEP_S, "warmup_s": 0.0, "warmup_requests": 0, "slos": [], "tracing": None}
    made["lateness_deadline_s"] = min(made["lateness_deadline_s"], 1.0)
    made["drain_s"] = min(made["drain_s"], 5.0)
    made["fleet"] |= {"workers": 1, "on_loss": "invalid", "join": "refuse"}
    made["collectors"] |= {"gpu": False, "host": False, "prometheus": []}
    for request in made["requests"]:
        request["expect"] = {"status": None, "contains": None, "json": None}
        request["headers"] = {name: value for name, value in request["headers"].items() if isinstance(value, str)}
    for protocol in (made["protocol"], *(request["protocol"] for request in made["requests"])):
        if isinstance(protocol.get("backends"), list):
            protocol["backends"] = max(1, len(protocol["backends"]))
    return made


def measure(resolved: Mapping[str, Any], scenario_file: Path, host: str | None = None) -> Capacity:
    """Climb the ladder (24 s and the start). ``host``: send to this server in place of the sink; it gets the whole load.

    Raises UsageError for what a sink cannot answer, RunFailed when the ladder did not run.
    """
    url = str(resolved["target"].get("url") or "")
    if host is None and url.startswith(("grpc://", "grpcs://")):
        raise UsageError("--generator: the sink speaks HTTP only; for a gRPC target give a server that may be loaded with --host")
    locustfile = roles.locustfile_of(str(resolved["users"]), scenario_file)
    with tempfile.TemporaryDirectory(prefix="truetail-generator-") as scratch:
        with Children(Path(scratch) / "logs") as children:
            made = ladder(resolved, host or start_sink(Path(scratch), children))
            folder = prepare(Path(scratch), made, scenario_file.name, made["target"]["url"])
            at = ("127.0.0.1", roles.free_port())
            master = children.start("master", roles.master(locustfile, folder, at))
            children.start("worker-0", roles.worker(locustfile, "worker-0", at))
            longest_s = made["duration_s"] + made["drain_s"] + 2 * made["fleet"]["muster_s"] + START_S
            ended = wait_until(lambda: master.poll() is not None, longest_s)
            document = manifest.read(folder)
            if not ended or document["stop_reason"] != "completed":
                why = document.get("stop_text") or f"the run of the ladder did not end well ({document['stop_reason']})"
                raise RunFailed(f"--generator: {why}", children.log_tail("worker-0"))
        return judged(folder, made["validity"]["lateness_p99_s"], document["ledger"])


def start_sink(folder: Path, children: Children) -> str:
    """The sink's address once it listens."""
    port_file = folder / "sink.port"
    child = children.start("sink", roles.sink(port_file))
    wait_until(lambda: port_file.exists() or child.poll() is not None, START_S)
    if not port_file.exists():
        raise RunFailed("--generator: the sink did not start:", children.log_tail("sink"))
    return f"http://127.0.0.1:{port_file.read_text(encoding='ascii')}"


def judged(folder: Path, limit_s: float, ledger: Mapping[str, int]) -> Capacity:
    """The rungs from the worker's records."""
    rows = np.fromfile(folder / "records" / "worker-0.rec", RECORD)
    rows = rows[(rows["k"] >= 0) & (rows["part"] == 0)]
    rung = np.minimum((rows["intended_ns"] / (STEP_S * 1e9)).astype(np.int64), STEPS - 1)
    steps = []
    for i, rate in enumerate(rates_rps()):
        here = rows[rung == i]
        sent = here[here["sent_ns"] >= 0]
        dropped = int((here["outcome"] == DROPPED).sum())
        p99_ms = (
            float(np.percentile(sent["sent_ns"] - sent["intended_ns"], 99, method="inverted_cdf")) / 1e6 if len(sent) else None
        )
        held = p99_ms is not None and p99_ms <= limit_s * 1e3 and not dropped
        steps.append(Step(rate, len(sent), dropped, p99_ms, held))
    return Capacity(steps, limit_s * 1e3, ledger["ok"], ledger["failed"] + ledger["timed_out"], _first_error(folder))


def _first_error(folder: Path) -> str:
    """The first error that the worker recorded, beside drops."""
    try:
        lines = (folder / "records" / "worker-0.names.jsonl").read_text(encoding="utf-8").splitlines()
        return next((str(told["text"])[:200] for told in map(json.loads, lines) if told.get("table") == "error"), "")
    except (OSError, ValueError, KeyError):
        return ""
