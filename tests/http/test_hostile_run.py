"""Hostile servers through a whole run: every fault with its class in the records, and the ledger balanced to the last arrival."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile import CHUNKED, OK, Server, chunk, read_request, reset, with_length

ANSWERS = {
    "/fine": (with_length(b"fine"), ""),
    "/shed": (with_length(b"busy", status=b"429 Too Many"), "shed"),
    "/early": (b"", "reset"),
    "/cut": (OK + b"Content-Length: 10\r\n\r\nabc", "truncated"),
    "/chunks": (CHUNKED + chunk(b"abc") + b"zz\r\n", "malformed"),
    "/garbage": (b"\x00\x01\x02 hello", "malformed"),
    "/long": (OK + b"Content-Length: 2000000\r\n\r\n" + bytes(2_000_000), "too-large"),
    "/loop": (with_length(b"", b"Location: /loop", status=b"302 Found"), "redirect"),
    "/silent": (None, "timeout-first-byte"),
    "/half": (None, "timeout-body"),
}


def fault(sock):
    while request := read_request(sock):
        path = request.split(b" ", 2)[1].decode()
        answer, _ = ANSWERS.get(path, (with_length(b"", status=b"404 Not Found"), ""))
        if answer is None:
            sock.sendall(OK + b"Content-Length: 5\r\n\r\na" if path == "/half" else b"")
            sock.recv(1)
            return
        sock.sendall(answer)
        if path == "/early":
            reset(sock)
            return
        if path in ("/cut", "/chunks", "/garbage"):
            return


@pytest.mark.swarm
def test_ledger_balances_whatever_the_server_does(tmp_path):
    """Ten behaviours in one mix: the records hold each with its class, and every planned arrival is accounted for."""
    with Server(fault) as server:
        scenario = {
            "name": "hostile", "target": {"url": server.url}, "users": "http", "duration": "5s", "seed": 3, "pool": 60,
            "deadline": "2s", "protocol": {"max_response": "1MB", "follow_redirects": 2},
            "requests": [{"name": path, "method": "POST", "path": path, "body": "x"} for path in ANSWERS],
            "arrivals": {"rate": "30/s", "spacing": "poisson"}, "lateness_deadline": "20s",
        }  # fmt: skip
        (tmp_path / "s.yaml").write_text(json.dumps(scenario), encoding="utf-8")
        command = [sys.executable, "-m", "truetail", "run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "runs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    (folder,) = (tmp_path / "runs").iterdir()
    ledger = json.loads((folder / "run.json").read_text())["ledger"]
    rows = [row for part in (folder / "records").glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    classes = defaultdict(set)
    for row in rows:
        classes[row["name"]].add(row["error"].partition(":")[0])
    assert dict(classes) == {path: {expected} for path, (_, expected) in ANSWERS.items()}, done.stdout + done.stderr
    assert ledger["scheduled"] == ledger["sent"] == len(rows)
    assert ledger["sent"] == ledger["ok"] + ledger["failed"] + ledger["timed_out"]
    assert ledger["timed_out"] == sum(row["name"] in ("/silent", "/half") for row in rows)
    assert ledger["ok"] == sum(row["name"] == "/fine" for row in rows)
