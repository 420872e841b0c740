"""What an open system shows and a closed loop hides: a freeze of the target, a disk that is full."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.usefixtures("no_child_left")]


@pytest.fixture
def target(tmp_path):
    """The reference service as a process of its own, so that it can be frozen."""
    port_file = tmp_path / "target.port"
    command = [
        sys.executable,
        "-m",
        "target",
        "--a",
        "4ms",
        "--c",
        "0.2ms",
        "--max-delay",
        "1ms",
        "--max-batch",
        "64",
        "--max-queue",
        "4000",
    ]
    process = subprocess.Popen([*command, "--port-file", str(port_file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (port_file.exists() and port_file.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process, f"http://127.0.0.1:{port_file.read_text().strip()}"
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait(20)


@pytest.mark.slow
def test_freeze_shows_as_an_open_system_would(runs, target):
    """6 s of SIGSTOP in 30 s at 200/s: about 1,200 requests are late, the longest about 6 s, the ledger balances.

    A closed loop would show as many late requests as it has users. Each arrival during the freeze waits for the rest of it, so
    their response times are spread evenly from 0 to 6 s: about 1,000 above 1 s and about 600 above 3 s.
    """
    process, url = target
    settings = {
        "arrivals": {"rate": "200/s", "spacing": "poisson"},
        "pool": 1500,
        "lateness_deadline": "10s",
        "deadline": "20s",
        "drain": "20s",
    }
    started, outcome = runs.start(target={"url": url}, duration="30s", slos=["p50 < 10s"], **settings)
    outcome.wait_for_epoch(started)
    time.sleep(8)
    process.send_signal(signal.SIGSTOP)
    time.sleep(6)
    process.send_signal(signal.SIGCONT)
    done = runs.finish(started, outcome)
    ledger = done.summary["ledger"]["fleet"]
    assert done.summary["ledger"]["balanced"]
    assert ledger["ok"] == ledger["scheduled"], ledger
    rows = done.rows()
    response_s = (rows["done_ns"] - rows["intended_ns"]) / 1e9
    late = {limit: int((response_s > limit).sum()) for limit in (0.2, 1, 3)}
    print(f"late by more than 0.2 s: {late[0.2]}, 1 s: {late[1]}, 3 s: {late[3]}; longest {response_s.max():.2f} s")
    # Poisson counts: 1,200 +- 4 sd of 35, and what the catching up adds.
    assert 1000 <= late[0.2] <= 1700
    assert 850 <= late[1] <= 1500
    assert 480 <= late[3] <= 1000
    assert 5.5 <= response_s.max() <= 8.5


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_is_a_clear_error(runs, tmp_path):
    """The disk fills while the run lasts: it stops, says so, exit 3, no traceback."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(disk)], check=True)
    try:
        started, outcome = runs.start(out=disk / "runs", arrivals={"rate": "300/s", "spacing": "poisson"}, duration="20s")
        done = runs.finish(started, outcome)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert done.code == 3, done.err
    assert "Traceback" not in done.err + done.out
    assert "space" in (done.err + done.out).lower()


def test_response_time_in_locust_is_from_the_intended_instant(runs):
    """Locust's own statistics get the response time from the intended instant at three digits: with one user, queueing shows in them."""
    done = runs.run(
        pool=1, lateness_deadline="30s", arrivals={"rate": "220/s", "spacing": "poisson"}, duration="4s", fleet={"workers": 1}
    )
    rows = done.rows()
    response_ms = np.sort((rows["done_ns"] - rows["intended_ns"]) / 1e6)
    service_ms = np.sort((rows["done_ns"] - rows["sent_ns"]) / 1e6)
    table = (done.folder / "logs" / "master.log").read_text()
    (line,) = [
        row
        for row in table.split("Response time percentiles")[-1].splitlines()
        if row.strip().startswith("POST") and "predict" in row
    ]
    p50 = float(line.split()[2])
    assert abs(p50 - response_ms[len(response_ms) // 2]) <= max(2.0, 0.02 * p50)
    assert p50 > 3 * service_ms[len(service_ms) // 2]


def test_events_and_progress_are_strict_json(runs):
    """Every line a run writes while it lasts is JSON without NaN."""
    done = runs.run(duration="3s")

    def refuse(constant):
        raise ValueError(constant)

    for name in ("events.jsonl", "progress.jsonl", "summary.json", "run.json"):
        text = (done.folder / name).read_text()
        for line in text.splitlines() if name.endswith("l") else [text]:
            json.loads(line, parse_constant=refuse)
