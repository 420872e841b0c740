"""What one worker can send here: the ladder's logic, the sink, and real ladders (short ones) with real workers."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from truetail import generator_check
from truetail.children import Children
from truetail.errors import UsageError
from truetail.generator_check import Capacity, Step, ladder, measure
from truetail.scenario import load

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def capacity(held, rates=(200, 260, 338, 439)):
    """A ladder with these rungs held."""
    steps = [Step(rate, 100, 0, 1.0 if good else 50.0, good) for rate, good in zip(rates, held, strict=False)]
    return Capacity(steps, 5.0, 400, 0, "")


@pytest.mark.parametrize(
    ("held", "sustained", "at_top"),
    [
        ([True, True, True, True], 439, True),
        ([True, True, False, False], 260, False),
        ([True, False, True, False], 338, False),
        ([True, False, False, True], 200, False),
        ([False, False, True, True], 0, False),
        ([False, True, False, False], 260, False),
    ],
)
def test_sustained_is_the_last_step_before_two_misses(held, sustained, at_top):
    """One missed step alone is the machine's other work; two in a row are the worker's limit."""
    found = capacity(held)
    assert (found.sustained_rps, found.at_top) == (sustained, at_top)


def test_workers_needed():
    """Each worker at four fifths of what it sustains; none when it sustains nothing."""
    found = capacity([True, True, False, False])  # 260/s, so 208/s each
    assert [found.workers_for(peak) for peak in (1, 208, 209, 1000)] == [1, 1, 2, 5]
    assert capacity([False] * 4).workers_for(10) is None


def test_ladder_goes_nowhere_else(tmp_path):
    """Neither the target's address, its credentials, nor fan-out backends are in the ladder's scenario; all its rates are."""
    file = tmp_path / "s.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "x", "users": "fanout", "duration": "5s", "slos": ["p50 < 1s"], "arrivals": {"rate": "5/s"},
                "target": {"url": "https://secret.example:8443", "auth": {"env": "TOKEN"}, "headers": {"X-Key": {"env": "KEY"}}},
                "requests": [{"name": "a", "headers": {"X-Other": {"env": "OTHER"}, "X-Plain": "1"},
                              "protocol": {"backends": ["https://one.example", "https://two.example"]}}],
            }
        )
    )  # fmt: skip
    made = ladder(load(file, []).resolved(), "http://127.0.0.1:1")
    text = json.dumps(made)
    assert not re.search("example|TOKEN|KEY|OTHER", text)
    assert made["requests"][0]["protocol"]["backends"] == 2
    assert made["requests"][0]["headers"] == {"X-Plain": "1"}
    rates = [step["rate_rps"] for step in made["arrivals"]["rate"]["steps"]]
    assert rates == generator_check.rates_rps()
    assert np.allclose(np.diff(np.log(rates)), np.log(generator_check.FACTOR), atol=0.01)


def test_grpc_needs_a_host(tmp_path):
    """The sink speaks HTTP: a gRPC target is refused with what to do."""
    resolved = load(SCENARIOS / "smoke.yaml", ["target.embedded=null", "target.url=grpc://127.0.0.1:1"]).resolved()
    with pytest.raises(UsageError, match="--host"):
        measure(resolved, SCENARIOS / "smoke.yaml")


def ask(port, data, until, chunks=1):
    """Send bytes (in pieces) to the sink; what came back until a mark or the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        size = -(-len(data) // chunks)
        for i in range(chunks):
            connection.sendall(data[i * size : (i + 1) * size])
        told = b""
        while until not in told and (more := connection.recv(65536)):
            told += more
        return told


def test_sink_answers_each_protocol(tmp_path):
    """Whole, torn and pipelined requests; streamed tokens in number as asked; a head without an end closes the connection."""
    with Children(tmp_path / "logs") as children:
        port = int(generator_check.start_sink(tmp_path, children).rpartition(":")[2])
        post = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
        assert b'"outputs"' in ask(port, post % (b"/v2/models/m/infer", 2, b"{}"), b"}]}")
        assert ask(
            port,
            post % (b"/x", 5, b"01234") * 3,
            b"\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}HTTP",
            7,
        )
        assert ask(port, b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", b"{}").startswith(b"HTTP/1.1 404")
        body = b'{"stream": true, "max_tokens": 5}'
        streamed = ask(port, post % (b"/v1/chat/completions", len(body), body), b"0\r\n\r\n")
        assert streamed.count(b"data: {") == 5
        assert b"[DONE]" in streamed
        assert ask(port, b"x" * 100_000, b"never") == b""


@pytest.fixture
def short(monkeypatch):
    """Three rungs of half a second."""
    for name, value in {"STEPS": 3, "STEP_S": 0.5}.items():
        monkeypatch.setattr(generator_check, name, value)


@pytest.mark.swarm
@pytest.mark.parametrize(
    ("users", "requests"),
    [
        ("rest", [{"name": "predict", "path": "/predict", "json": {"t2m_k": 285.4}}]),
        ("openai", [{"name": "chat", "protocol": {"model": "m"}, "payload": {"tokens": 5, "max_tokens": 3}}]),
        ("kserve", [{"name": "i", "protocol": {"model": "m"}, "payload": {"tensors": [{"name": "x", "shape": [1], "datatype": "FP32"}]}}]),
    ],
)  # fmt: skip
def test_short_ladder(tmp_path, short, users, requests):
    """A real worker climbs: every arrival is answered by the sink, in the number that was planned at each rung; the target is never asked."""
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps({"name": "x", "users": users, "duration": "5s", "slos": ["p50 < 1s"], "arrivals": {"rate": "5/s"},
                                "target": {"url": "http://127.0.0.1:9"}, "pool": 100, "requests": requests}))  # fmt: skip
    found = measure(load(file, []).resolved(), file)
    assert found.failed == 0, found.error
    assert found.answered == sum(step.sent for step in found.steps) > 0.8 * 0.5 * sum(generator_check.rates_rps())
    assert [step.rate_rps for step in found.steps] == [200, 260, 338]
    assert all(step.lateness_p99_ms > 0 for step in found.steps)


@pytest.mark.swarm
def test_check_tells_how_many_workers(tmp_path):
    """The command as a user types it, in JSON: a scenario that asks for a hundred thousand a second is told how many workers that takes."""
    command = [sys.executable, "-m", "truetail", "check", str(SCENARIOS / "smoke.yaml"), "--generator", "--json"]
    command += ["--set", "arrivals.rate=100000/s", "--set", "duration=2s", "--set", "warmup=0s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["generator"]["workers_needed"] >= 2
    assert any("workers are needed" in warning for warning in told["warnings"])


def test_host_without_generator_is_refused():
    """`check` alone sends nothing, so --host means nothing there."""
    command = [sys.executable, "-m", "truetail", "check", str(SCENARIOS / "smoke.yaml"), "--host", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--generator" in done.stderr
