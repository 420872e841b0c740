"""Starting real servers, asking for their counters, and running Truetail against them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REAL = HERE.parents[1] / "build" / "real"


def free_ports(n):
    probes = [socket.socket() for _ in range(n)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def environment_of(name):
    folder = REAL / name
    if not (folder / ".ready").exists():
        pytest.skip(f"{name} is not installed: tests/real/install_{name}.sh")
    return folder


def wait_for(url, process, deadline_s=60, log=None):
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"the server ended with {process.returncode}: {log.read_text()[-2000:] if log else ''}")
        try:
            if urllib.request.urlopen(url, timeout=2).status == 200:
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    pytest.fail(f"{url} never answered 200")


@contextmanager
def running(command, log, ready_url, ready_s=60, variables=None):
    """A server of its own process group, ready; all of the group ends with the block. ``log`` takes what it prints."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **(variables or {})}, start_new_session=True
        )
    try:
        wait_for(ready_url, process, ready_s, log)
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)


def metric(url, name, *labels):
    """The sum of a Prometheus metric's samples that carry all the labels (as they stand in the text)."""
    text = urllib.request.urlopen(url, timeout=5).read().decode()
    lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in labels))


def truetail_run(tmp_path, scenario):
    """A whole run through the command; returns (exit code, run.json, rows)."""
    import pyarrow.parquet as pq

    done = _run(tmp_path, scenario)
    assert (tmp_path / "runs").exists(), done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    manifest = json.loads((folder / "run.json").read_text())
    rows = [row for part in sorted((folder / "records").glob("*.parquet")) for row in pq.read_table(part).to_pylist()]
    assert rows, done.stdout + done.stderr
    return done.returncode, manifest, rows


def refused_run(tmp_path, scenario):
    """A run that is expected to send nothing; returns (exit code, what it said)."""
    done = _run(tmp_path, scenario)
    return done.returncode, done.stdout + done.stderr


def _run(tmp_path, scenario):
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "truetail", "run", str(file), "--workers", "2", "--out", str(tmp_path / "runs")]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200"})
