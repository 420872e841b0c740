"""Command lines of the processes that make up a run: Locust with our plugin, in each of its roles."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truetail.errors import UsageError

LOCUSTFILES = Path(__file__).parent.parent / "locustfiles"


def locustfile_of(users: str, scenario_file: Path) -> Path:
    """The locustfile that a scenario's ``users`` names: a stem of locustfiles/, or a path relative to the scenario file."""
    own = users.endswith(".py") or "/" in users
    path = (scenario_file.parent / users).resolve() if own else LOCUSTFILES / f"{users}_users.py"
    if not path.is_file():
        known = ", ".join(sorted(file.stem.removesuffix("_users") for file in LOCUSTFILES.glob("*_users.py")))
        raise UsageError(
            f"{scenario_file}: users: found {users!r}, but there is no {path}; allowed are a path to a locustfile, or one of: {known}"
        )
    return path


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _swarm(locustfile: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "truetail.swarm", "-f", str(locustfile), "--config", "/dev/null", *arguments]


def master(locustfile: Path, folder: Path, bind: tuple[str, int], view: Sequence[str] = ("--headless",)) -> list[str]:
    """The master: it waits for the scenario's workers itself, so Locust need not. ``view``: Locust's options for its web UI."""
    address = ["--master-bind-host", bind[0], "--master-bind-port", str(bind[1])]
    return _swarm(locustfile, ["--master", *address, *view, "--truetail-run", str(folder)])


def worker(locustfile: Path, name: str, at: tuple[str, int]) -> list[str]:
    """A worker that joins the master at this address."""
    return _swarm(locustfile, ["--worker", "--master-host", at[0], "--master-port", str(at[1]), "--truetail-worker-name", name])


def target(embedded: Mapping[str, Any], port_file: Path) -> list[str]:
    """The reference service on a free loopback port, which it writes to ``port_file``."""
    import json

    return [sys.executable, "-m", "target", "--port", "0", "--config-json", json.dumps(embedded), "--port-file", str(port_file)]


def sink(port_file: Path) -> list[str]:
    """A server that answers anything at once, on a free loopback port, which it writes to ``port_file``."""
    return [sys.executable, "-m", "truetail.sink", "--port-file", str(port_file)]


def target_check(embedded: Mapping[str, Any]) -> list[str]:
    """The reference service, which looks at its options and ends."""
    import json

    return [sys.executable, "-m", "target", "--check", "--config-json", json.dumps(embedded)]


def collector(resolved: Mapping[str, Any], folder: Path, url: str) -> list[str]:
    """The sidecar that files into ``folder`` and ends with its parent, however that ends. ``url`` is the target's.

    An embedded target's figures are taken from where they are what they are called: the simulated device's from /device, a real
    (torch) model's from /metrics, as a server's.
    """
    collectors, embedded = resolved["collectors"], resolved["target"].get("embedded")
    gpu = {True: "yes", False: "no"}.get(collectors["gpu"], "auto")
    command = [sys.executable, "-m", "collector", "--out", str(folder), "--period", f"{collectors['period_s']}s", "--gpu", gpu]
    command += ["--exit-with-parent", str(os.getpid())] + ([] if collectors["host"] else ["--no-host"])
    for source in collectors["prometheus"]:
        command += ["--prometheus", ",".join(filter(None, (f"{source['name']}={source['url']}", source.get("preset"))))]
    if embedded is None:
        return command
    if embedded.get("model", "simulated") == "simulated":
        return [*command, "--simulated", f"target={url}/device"]
    taken = {source["name"] for source in collectors["prometheus"]}
    name = next(name for name in ("target", *(f"target-{i}" for i in range(2, len(taken) + 3))) if name not in taken)
    return [*command, "--prometheus", f"{name}={url}/metrics,truetail-target"]
