"""A fleet on several hosts: network namespaces on a bridge, made and removed by the test. Load goes only between them."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import record_files

HERE = Path(__file__).parent
NET = "10.213.77"
NUMBERS = itertools.count()


def sh(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True)


class Host:
    """One network namespace with an address on the bridge."""

    def __init__(self, prefix, number, bridge):
        self.name, self.address, self.bridge_end = f"{prefix}{number}", f"{NET}.{number + 1}", f"{prefix}v{number}"
        self.bridge, self._link = bridge, None
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", self.bridge_end, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        self._plug()

    def _plug(self):
        sh("ip", "link", "set", self.bridge_end, "master", self.bridge, "up")
        self.inside("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("ip", "link", "set", "lo", "up")

    def inside(self, *command):
        return sh("ip", "netns", "exec", self.name, *command)

    def command(self, *command):
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self):
        """Pull the plug; the processes live on."""
        sh("ip", "link", "set", self.bridge_end, "down")

    def heal(self):
        sh("ip", "link", "set", self.bridge_end, "up")

    def emulate(self, *settings):
        """From now on over tests/fleet/link.py instead of a wire; ``settings`` as :meth:`link` takes them."""
        sh("ip", "link", "del", self.bridge_end)
        command = [sys.executable, str(HERE / "link.py"), self.name, self.bridge_end]
        self._link = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self._link.stdout.readline() == "ready\n"
        self._plug()
        self.link(*settings)

    def link(self, delay_s=0.0, jitter_s=0.0, loss=0.0, back_s=None):
        """Delay from the host (and to it: ``back_s``, the same when None), jitter of both, share of frames lost."""
        self._link.stdin.write(f"{delay_s} {jitter_s} {loss} {delay_s if back_s is None else back_s}\n")

    def remove(self):
        if self._link is not None:
            self._link.stdin.close()
            self._link.wait(10)
            self._link.stdout.close()
        sh("ip", "netns", "del", self.name, check=False)


class FleetRun:
    """Target and master on host 0, a worker on each of the others."""

    def __init__(self, tmp_path, hosts, scenario, worker_env, target_args=()):
        self.tmp, self.hosts, self.workers, self.log = tmp_path, hosts, [], tmp_path / "access.jsonl"
        self._processes = []
        main = hosts[0]
        port_file = tmp_path / "port"
        self.target = self._start(
            main, "target", [sys.executable, "-m", "target", "--host", main.address, "--port", "8000", "--port-file", str(port_file),
            "--access-log", str(self.log), "--a", "4ms", "--c", "0.2ms", "--max-delay", "1ms", *target_args],
        )  # fmt: skip
        self._wait(port_file.exists, 30, "target")
        path = tmp_path / "scenario.yaml"
        path.write_text(
            json.dumps(scenario | {"target": {"url": f"http://{main.address}:8000"}, "users": str(HERE / "counted_users.py")})
        )
        truetail = [sys.executable, "-m", "truetail"]
        arguments = ["master", str(path), "--bind", main.address, "--out", str(tmp_path / "runs"), "--plain"]
        self.master = self._start(main, "master", [*truetail, *arguments])
        for i, host in enumerate(hosts[1:]):
            command = [*truetail, "worker", str(path), "--master", main.address, "--name", f"w{i}"]
            self.workers.append(self._start(host, f"w{i}", command, worker_env.get(i, {})))
        self._wait(self._begun, 90, "epoch")

    def join(self, host, name, timeout_s=30):
        """One more worker, late; returns when it stands by."""
        command = [sys.executable, "-m", "truetail", "worker", str(self.tmp / "scenario.yaml"), "--master", self.hosts[0].address]
        self._start(host, name, [*command, "--name", name])
        self._wait(lambda: any(event["kind"] == "joined" for event in self.events), timeout_s, "join")

    def _start(self, host, name, command, env=None):
        wrap = (env or {}).pop("WRAP", []) if env else []
        log = (self.tmp / f"{name}.log").open("wb")
        process = subprocess.Popen(
            host.command(*wrap, *command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(env or {})}
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _wait(self, done, timeout_s, what):
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, f"{what} did not come: " + "".join(
                p.read_text()[-800:] for p in self.tmp.glob("*.log")
            )
            time.sleep(0.1)

    @property
    def folder(self):
        return next(iter((self.tmp / "runs").glob("*")), None)

    def _begun(self):
        return self.folder and (self.folder / "events.jsonl").exists() and '"epoch"' in (self.folder / "events.jsonl").read_text()

    def pid_of(self, name):
        """The Locust process of a worker, from the manifest."""
        return next(worker["pid"] for worker in self.manifest["workers"] if worker["name"] == name)

    @property
    def manifest(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def events(self):
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]

    def finish(self, timeout_s=120):
        """Wait for the master's verdict; its exit code."""
        return self.master.wait(timeout_s)

    def rows(self):
        """Every record of an arrival's first request, over all workers."""
        return record_files.read(self.folder)

    def seen_by_server(self):
        """Arrival numbers in the order that the server answered them."""
        self.target.send_signal(signal.SIGTERM)
        self.target.wait(20)
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [int(line["arrival"]) for line in lines if str(line.get("arrival") or "").isdigit()]

    def end(self):
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


SCENARIO = {
    "name": "fleet-test",
    "requests": [{"name": "predict", "method": "POST", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}}],
    "arrivals": {"rate": "100/s", "spacing": "poisson"},
    "duration": "20s",
    "seed": 11,
    "pool": 50,
    "drain": "8s",
    "deadline": "5s",
    "fleet": {"workers": 4, "lease": "2s", "muster": "60s"},
    "collectors": {"gpu": False, "host": False},
    "validity": {"lateness_p99": "2s", "lateness_max": "10s"},
    "slos": ["p50 < 4s"],
}


@pytest.fixture
def hosts():
    """Five hosts on one bridge; removed whatever happens."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    # A new name each time: a namespace lives on for a moment after its deletion, and its devices' names with it.
    prefix = f"tt{os.getpid() % 1000}x{next(NUMBERS)}n"
    bridge = f"{prefix}br"
    sh("ip", "link", "add", bridge, "type", "bridge")
    sh("ip", "link", "set", bridge, "up")
    made = []
    try:
        for number in range(5):  # one by one, so that those made before a failure are removed
            host = Host(prefix, number, bridge)
            made.append(host)
        yield made
    finally:
        for host in made:
            host.remove()
        sh("ip", "link", "del", bridge, check=False)


@pytest.fixture
def fleet(tmp_path, hosts):
    """Start a fleet run; ended whatever happens."""
    started = []

    def start(worker_env=None, target_args=(), **changes):
        run = FleetRun(tmp_path, hosts, SCENARIO | changes, worker_env or {}, target_args)
        started.append(run)
        return run

    yield start
    for run in started:
        run.end()
