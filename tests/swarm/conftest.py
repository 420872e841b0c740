"""Real runs: the command `truetail run` as a person types it, on the embedded reference service."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from benchmarks import record_files

SCENARIO = {
    "name": "swarm-test",
    "target": {"embedded": {"mode": "batch", "a": "4ms", "c": "0.2ms", "max_batch": 16, "max_delay": "1ms"}},
    "users": str(Path(__file__).parent / "single_users.py"),
    "requests": [{"name": "predict", "method": "POST", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}}],
    "arrivals": {"rate": "60/s", "spacing": "poisson"},
    "duration": "5s",
    "warmup": "1s",
    "seed": 3,
    "pool": 60,
    "drain": "5s",
    "fleet": {"workers": 2},
    "collectors": {"gpu": False, "host": False},
    # A shared machine: these runs prove ledgers and verdicts, not the generator's punctuality.
    "validity": {"lateness_p99": "2s", "lateness_max": "5s"},
    "slos": ["p50 < 5s"],
}


@dataclass
class Outcome:
    """What a run left behind."""

    code: int
    out: str
    err: str
    folder: Path | None

    @property
    def manifest(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def events(self):
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]

    def rows(self):
        """Every record of an arrival's first request, over all workers."""
        return record_files.read(self.folder)

    def wait_for_epoch(self, process, timeout_s=60):
        """Until the run has begun; the manifest then names the workers' processes."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and process.poll() is None:
            self.folder = next(iter(self.folder_root.glob("*")), None)
            if (
                self.folder
                and (self.folder / "events.jsonl").exists()
                and '"epoch"' in (self.folder / "events.jsonl").read_text()
            ):
                return
            time.sleep(0.1)
        raise AssertionError(f"the run did not begin: {process.poll()}")

    folder_root: Path = Path()


class Runs:
    """Starts runs in a folder of the test's own."""

    def __init__(self, tmp_path):
        self._tmp = tmp_path
        self._processes = []

    def scenario(self, **changes):
        path = self._tmp / "scenario.yaml"
        path.write_text(json.dumps(SCENARIO | changes))
        return path

    def start(self, *args, out=None, **changes):
        """Start `truetail run`; the process and an Outcome to be filled."""
        out = out or self._tmp / "runs"
        command = [sys.executable, "-m", "truetail", "run", str(self.scenario(**changes)), "--out", str(out), "--plain", *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._processes.append(process)
        return process, Outcome(-1, "", "", None, out)

    def finish(self, process, outcome, timeout_s=180):
        outcome.out, outcome.err = process.communicate(timeout=timeout_s)
        outcome.code = process.returncode
        outcome.folder = next(iter(sorted(outcome.folder_root.glob("*"))), None) if outcome.folder_root.is_dir() else None
        return outcome

    def run(self, *args, **changes):
        """A whole run."""
        process, outcome = self.start(*args, **changes)
        return self.finish(process, outcome)

    def of_file(self, scenario, *args):
        """A whole run of a scenario file."""
        out = self._tmp / "runs"
        command = [sys.executable, "-m", "truetail", "run", str(scenario), "--out", str(out), "--plain", *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._processes.append(process)
        return self.finish(process, Outcome(-1, "", "", None, out), 1500)

    def end(self):
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def runs(tmp_path):
    """Real runs; whatever a test left running is ended."""
    made = Runs(tmp_path)
    yield made
    made.end()


@pytest.fixture
def no_child_left(tmp_path):
    """After the test no process of ours mentions its folder."""
    yield
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [p.info for p in psutil.process_iter(["pid", "cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
        if not left:
            return
        time.sleep(0.2)
    raise AssertionError(f"left running: {left}")
