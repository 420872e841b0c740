"""The real service: a process of its own, spoken to over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

GOOD = {"t2m_k": 285.1, "rh": 71}


@contextmanager
def running(*flags: str, until: str = "ready on ") -> Iterator[httpx.Client]:
    """A service with these flags, and a client of it, once it prints a line that begins with ``until``."""
    process = subprocess.Popen([sys.executable, "-m", "target", *flags], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith(until))
        limits = httpx.Limits(max_connections=200)
        with httpx.Client(base_url=line.split()[-1], timeout=20, limits=limits, trust_env=False) as client:
            client.pid = process.pid  # type: ignore[attr-defined]
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, "a stop by SIGTERM ends with exit code 0"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Two replicas, t(b) = 5 + 1 b ms, at most 4 at once, no delay, at most 8 waiting each; with an access log."""
    log = tmp_path_factory.mktemp("log") / "access.jsonl"
    config = {"a": "5ms", "c": "1ms", "max_batch": 4, "max_delay": 0, "max_queue": 8, "replicas": 2}
    with running("--config-json", json.dumps(config), "--access-log", str(log)) as client:
        client.log_file = log  # type: ignore[attr-defined]
        yield client


@pytest.fixture(autouse=True)
def no_faults_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that put faults in force on the shared service leaves none behind."""
    yield
    if "service" in request.fixturenames:
        request.getfixturevalue("service").delete("/faults")


def stages(answer: httpx.Response) -> dict[str, float]:
    """Server-Timing as {stage: ms}."""
    parts = (part.strip().split(";dur=") for part in answer.headers["server-timing"].split(","))
    return {name: float(value) for name, value in parts}


def put(service: httpx.Client, *faults: dict[str, Any]) -> None:
    """Put these faults in force instead of all others."""
    assert service.post("/faults", json={"faults": list(faults), "replace": True}).status_code == 201


def at_once(service: httpx.Client, count: int, body: Any = GOOD) -> list[httpx.Response]:
    """So many requests at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: service.post("/predict", json=body), range(count)))


def test_health_readiness_version(service: httpx.Client) -> None:
    """The three questions that a platform asks."""
    assert service.get("/healthz").json() == {"status": "ok"}
    assert (service.get("/readyz").status_code, service.get("/readyz").json()) == (200, {"status": "ready"})
    version = service.get("/version").json()
    assert version["model"]["name"] == "nowcast" and version["config"]["a"] == 0.005


def test_predict_answers_with_stages_replica_and_batch(service: httpx.Client) -> None:
    """A prediction in [0, 1]; planned device time is exactly a + c b; stages add up to less than the client saw."""
    begin = time.monotonic()
    answer = service.post("/predict", json=GOOD)
    seen_ms = (time.monotonic() - begin) * 1000
    body, told = answer.json(), stages(answer)
    assert answer.status_code == 200 and 0 <= body["prediction"] <= 1
    assert list(told) == ["queue", "preprocess", "inference", "postprocess"]
    assert told["inference"] == 6.0 and 6 <= sum(told.values()) < seen_ms
    assert answer.headers["x-batch-size"] == "1" == str(body["batch"])
    assert answer.headers["x-replica-id"] == body["replica"] in ("replica-0", "replica-1")


def test_same_input_same_prediction_alone_and_in_a_batch(service: httpx.Client) -> None:
    """The vectorised call gives every instance what it gets alone, in order."""
    rows = [{"t2m_k": 270.0 + i, "rh": 40.0 + i, "x": [i]} for i in range(5)]
    alone = [service.post("/predict", json=row).json()["prediction"] for row in rows]
    together = service.post("/predict_batch", json=rows).json()
    assert together["predictions"] == pytest.approx(alone, abs=2e-6)
    assert together["batch"] == 5 and len(set(alone)) == 5


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ('{"t2m_k": 12.0, "rh": 71}', {("t2m_k", "greater_than")}),
        ('{"t2m_k": NaN, "rh": 71}', {("t2m_k", "finite_number")}),
        ('{"t2m_k": 285, "rh": Infinity}', {("rh", "finite_number")}),
        ('{"rh": 71}', {("t2m_k", "missing")}),
        ("{}", {("t2m_k", "missing"), ("rh", "missing")}),
        ('{"t2m_k": 285.1, "rh": 71, "wind": 3}', {("wind", "extra_forbidden")}),
        ('{"t2m_k": 400, "rh": 171, "w": 3}', {("t2m_k", "less_than"), ("rh", "less_than_equal"), ("w", "extra_forbidden")}),
        ('{"t2m_k": "warm", "rh": 71}', {("t2m_k", "float_parsing")}),
        ('{"x": [1, "a"]}', {(1, "float_parsing"), ("t2m_k", "missing"), ("rh", "missing")}),
        ('{"t2m_k": 285, "rh": 71, "size": 0}', {("size", "greater_than")}),
        ("{", {("body", "json_invalid")}),
        ("", {("body", "json_invalid")}),
        ("[]", {("body", "model_type")}),
        ('{"%s": 1}' % ("k" * 100_000), {("k" * 60, "extra_forbidden"), ("t2m_k", "missing"), ("rh", "missing")}),
    ],
)  # fmt: skip
def test_422_with_every_reason(service: httpx.Client, body: str, reasons: set[tuple[Any, str]]) -> None:
    """Invalid input never reaches the model; every reason is told, and the input is not echoed."""
    answer = service.post("/predict", content=body)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert {(item["loc"][-1], item["type"]) for item in detail} == reasons
    assert len(answer.content) < 2000


def test_inputs_alone_are_enough(service: httpx.Client) -> None:
    """A body of further inputs only is valid: the two weather fields are required unless x is given."""
    assert service.post("/predict", json={"x": [1, 2, 3]}).status_code == 200


def test_size_scales_the_cost(service: httpx.Client) -> None:
    """t = a + c size: 5 + 1 x 20 ms."""
    assert stages(service.post("/predict", json={**GOOD, "size": 20}))["inference"] == 25.0


def test_batch_limits(service: httpx.Client) -> None:
    """64 instances in one call of 5 + 64 ms; 65 are 413, none are 422, a wrong one is told by its place."""
    most = service.post("/predict_batch", json=[GOOD] * 64)
    assert stages(most)["inference"] == 69.0 and most.headers["x-batch-size"] == "64" and len(most.json()["predictions"]) == 64
    assert service.post("/predict_batch", json=[GOOD] * 65).status_code == 413
    assert service.post("/predict_batch", json=[]).status_code == 422
    wrong = service.post("/predict_batch", json=[GOOD, {"rh": 3}])
    assert wrong.status_code == 422 and wrong.json()["detail"][0]["loc"] == ["body", 1, "t2m_k"]


def test_a_body_over_a_mebibyte_is_413(service: httpx.Client) -> None:
    """With and without a declared length."""
    large = b" " * (1 << 20) + b"{}"
    assert service.post("/predict", content=large).status_code == 413
    assert service.post("/predict", content=iter([large])).status_code == 413


def test_unknown_path_and_method(service: httpx.Client) -> None:
    """404 and 405 as anywhere."""
    assert service.get("/nowhere").status_code == 404
    assert service.get("/predict").status_code == 405


def test_requests_at_once_share_a_batch_and_replicas_take_turns(service: httpx.Client) -> None:
    """8 at once over two replicas: both answer, some batches are above 1, none above max_batch."""
    answers = [answer for _ in range(5) for answer in at_once(service, 8)]
    batches = [int(answer.headers["x-batch-size"]) for answer in answers]
    assert {answer.headers["x-replica-id"] for answer in answers} == {"replica-0", "replica-1"}
    assert 1 < max(batches) <= 4
    assert all(stages(answer)["inference"] == 5 + int(answer.headers["x-batch-size"]) for answer in answers)


def test_429_when_the_queue_is_full(service: httpx.Client) -> None:
    """60 at once: at least 8 + 1 places per replica are served, the rest refused with Retry-After; the service recovers."""
    answers = at_once(service, 60, {**GOOD, "size": 150})
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert 0 < len(refused) <= 60 - 2 * (8 + 1)
    assert all(int(answer.headers["retry-after"]) >= 1 and "queue full" in answer.json()["detail"] for answer in refused)
    assert service.post("/predict", json=GOOD).status_code == 200


def test_metrics_count_what_was_answered(service: httpx.Client) -> None:
    """Prometheus' own parser reads them; counters grow by what was sent; device figures are labelled simulated."""

    def samples() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        families = text_string_to_metric_families(service.get("/metrics").text)
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}

    before = samples()
    for _ in range(5):
        service.post("/predict", json=GOOD)
    service.post("/predict", json={})
    service.get("/a/stranger/1")
    grown = {key: value - before.get(key, 0) for key, value in samples().items()}
    assert grown["target_requests_total", (("path", "/predict"), ("status", "200"))] == 5
    assert grown["target_requests_total", (("path", "/predict"), ("status", "422"))] == 1
    assert ("target_requests_total", (("path", "other"), ("status", "404"))) in grown
    assert grown["target_stage_seconds_count", (("stage", "inference"),)] == 5
    assert grown["target_stage_seconds_sum", (("stage", "inference"),)] == pytest.approx(0.030)
    assert grown["target_stage_seconds_bucket", (("le", "0.01"), ("stage", "inference"))] == 5
    assert grown["target_stage_seconds_bucket", (("le", "0.005"), ("stage", "inference"))] == 0
    assert grown["target_batch_size_count", ()] == 5
    busy = [
        v
        for (name, labels), v in grown.items()
        if name == "target_device_busy_seconds_total" and ("source", "simulated") in labels
    ]
    assert len(busy) == 2 and sum(busy) == pytest.approx(0.030)


def test_device_figures(service: httpx.Client) -> None:
    """Busy seconds grow by exactly the work done; clock and power are those of an idle device in between; the source is named."""
    before = service.get("/device").json()
    service.post("/predict", json={**GOOD, "size": 95})
    after = service.get("/device").json()
    assert after["source"] == "simulated" and after["ready"]
    grown = [b["busy_seconds_total"] - a["busy_seconds_total"] for a, b in zip(before["devices"], after["devices"], strict=True)]
    assert sum(grown) == pytest.approx(0.100) and min(grown) == 0
    worked = after["devices"][grown.index(max(grown))]
    assert 0.09 <= worked["busy_share"] <= 1 and worked["power_w"] > 60
    assert worked["clock_mhz"] == worked["clock_max_mhz"] and worked["throttling"] is False


def test_access_log_has_every_arrival(service: httpx.Client) -> None:
    """Each answer is a line with time, path, status, duration and the arrival's id; hostile ids are cut and stay one line."""
    ids = ["17", "18", 'a"b\\' + "x" * 900]
    for text in ids:
        service.post("/predict", json=GOOD, headers={"x-truetail-arrival": text})
    deadline = time.monotonic() + 5
    lines: list[dict[str, Any]] = []
    while len(lines) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
        log: Path = service.log_file  # type: ignore[attr-defined]
        lines = [line for line in map(json.loads, log.read_text().splitlines()) if line["arrival"]]
    assert [line["arrival"] for line in lines] == [text[:256] for text in ids]
    assert all(line["status"] == 200 and line["path"] == "/predict" and line["duration_us"] > 5000 for line in lines)
    assert abs(lines[0]["arrived_wall_ns"] - time.time_ns()) < 60e9


def test_faults_can_be_put_listed_and_taken_out(service: httpx.Client) -> None:
    """POST adds (201), GET lists, DELETE takes one or all out; wrong ones change nothing and say everything that is wrong."""
    first = service.post("/faults", json={"faults": [{"kind": "throttle", "start": "1h"}]}).json()["ids"][0]
    service.post("/faults", json={"faults": [{"kind": "queue_delay", "delay": "1ms"}]})
    listed = service.get("/faults").json()
    assert [(fault["kind"], fault["active"]) for fault in listed["faults"]] == [("throttle", False), ("queue_delay", True)]
    assert "dependency_stall" in listed["kinds"]
    wrong = service.post("/faults", json={"faults": [{"kind": "pause"}, {"kind": "x"}, {"kind": "slow_replica", "replica": 9}]})
    assert wrong.status_code == 422 and len(wrong.json()["detail"]) == 2
    assert service.delete(f"/faults/{first}").status_code == 200
    assert service.delete(f"/faults/{first}").status_code == 404
    assert [fault["kind"] for fault in service.get("/faults").json()["faults"]] == ["queue_delay"]
    assert service.delete("/faults").json() == {"faults": []}


@pytest.mark.parametrize(
    ("fault", "stage", "least_ms"),
    [
        ({"kind": "throttle", "factor": 10}, "inference", 60),
        ({"kind": "memory_pressure", "factor": 8}, "inference", 48),
        ({"kind": "slow_replica", "replica": 0, "factor": 12}, "inference", 72),
        ({"kind": "cold_start", "requests": 1000, "factor": 11}, "inference", 66),
        ({"kind": "queue_delay", "delay": "60ms"}, "queue", 60),
        ({"kind": "slow_preprocess", "delay": "60ms"}, "preprocess", 60),
        ({"kind": "slow_preprocess", "delay": "60ms", "cpu": True}, "preprocess", 60),
        ({"kind": "dependency_stall", "delay": "60ms"}, "dependency", 60),
        ({"kind": "oversized_inputs", "share": 1, "size": 60}, "inference", 65),
    ],
)  # fmt: skip
def test_each_fault_shows_in_its_stage(service: httpx.Client, fault: dict[str, Any], stage: str, least_ms: float) -> None:
    """With the fault the stage is as long as it says, and the others are not; without it, it is short again."""
    put(service, fault)
    answers = [service.post("/predict", json=GOOD) for _ in range(2)]
    worst = max(answers, key=lambda answer: stages(answer)[stage])
    assert stages(worst)[stage] >= least_ms - 0.001
    if stage == "inference":
        assert stages(worst)[stage] == pytest.approx(least_ms)
    assert all(value < least_ms for name, value in stages(worst).items() if name != stage)
    service.delete("/faults")
    assert stages(service.post("/predict", json=GOOD)).get(stage, 0) < least_ms


def test_network_delay_is_seen_by_the_client_alone(service: httpx.Client) -> None:
    """The client waits 150 ms more than all of the server's stages say."""
    put(service, {"kind": "network_delay", "delay": "150ms"})
    begin = time.monotonic()
    answer = service.post("/predict", json=GOOD)
    assert (time.monotonic() - begin) * 1000 - sum(stages(answer).values()) >= 149


def test_throttling_and_memory_show_in_the_device_figures(service: httpx.Client) -> None:
    """Clock halved with its reason, memory at the share asked for, on the replica that it concerns."""
    put(service, {"kind": "throttle", "factor": 2, "replica": 1}, {"kind": "memory_pressure", "used": "95%", "replica": 0})
    first, second = service.get("/device").json()["devices"]
    assert second["clock_mhz"] == second["clock_max_mhz"] / 2 and second["throttle_reasons"] == ["thermal_slowdown"]
    assert not first["throttling"]
    assert first["memory_used_bytes"] == int(0.95 * first["memory_total_bytes"]) > second["memory_used_bytes"]


def test_pause_stops_the_world(service: httpx.Client) -> None:
    """During a pause not even /healthz answers; a request sent into it waits for its end."""
    put(service, {"kind": "pause", "start": "100ms", "duration": "700ms"})
    time.sleep(0.25)
    begin = time.monotonic()
    assert service.get("/healthz").status_code == 200
    assert time.monotonic() - begin > 0.3


def test_deploy_takes_one_replica_out_then_the_other(service: httpx.Client) -> None:
    """While replica 0 restarts replica 1 answers all; when both are out, readiness and predictions say 503."""
    put(service, {"kind": "deploy", "duration": "60s"})
    assert {service.post("/predict", json=GOOD).headers["x-replica-id"] for _ in range(4)} == {"replica-1"}
    assert service.get("/readyz").status_code == 200
    put(service, {"kind": "deploy", "replica": 0, "duration": "60s"}, {"kind": "deploy", "replica": 1, "duration": "60s"})
    assert service.get("/readyz").status_code == 503 and "deploy" in service.get("/readyz").json()["reason"]
    assert service.post("/predict", json=GOOD).status_code == 503


def test_overload_takes_the_devices_time(service: httpx.Client) -> None:
    """Other clients' 200 requests/s keep the devices busy though nobody here sends anything."""
    before = service.get("/device").json()["devices"]
    put(service, {"kind": "overload", "rate": "200/s"})
    time.sleep(1.0)
    after = service.get("/device").json()["devices"]
    busy = sum(b["busy_seconds_total"] - a["busy_seconds_total"] for a, b in zip(before, after, strict=True))
    assert busy > 0.2


def test_not_ready_before_the_model_is_loaded() -> None:
    """While a cold start loads: alive, 503 with the reason for readiness and predictions; the faults cannot be changed yet."""
    with running("--fault", "cold_start,load=60s", until="listening on ") as client:
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 503 and "loading" in ready.json()["reason"]
        assert client.post("/predict", json=GOOD).status_code == 503
        assert client.post("/predict_batch", json=[GOOD]).status_code == 503
        assert client.post("/faults", json={"faults": []}).status_code == 503
        assert client.get("/version").json()["service"] == "truetail-target"


def test_shared_mode_through_http() -> None:
    """One request of 50 ms takes 50 ms alone; four at once stretch each other far beyond it (200 ms if they meet exactly)."""
    with running("--mode", "shared", "--service", "fixed", "--service-mean", "50ms") as client:
        assert stages(client.post("/predict", json=GOOD))["inference"] == pytest.approx(50, abs=0.001)
        at_once(client, 4)  # connections are open now
        times = sorted(stages(answer)["inference"] for answer in at_once(client, 4))
        assert times[-1] > 120 and times[-1] <= 200.001


def test_least_loaded_avoids_the_slow_replica() -> None:
    """Round robin gives a replica that is 20 times slower half of the requests; least-loaded gives it few."""
    flags = ["--mode", "fifo", "--service", "fixed", "--service-mean", "10ms", "--replicas", "2", "--slow-replica", "1:20x"]
    with running(*flags, "--balance", "least-loaded") as client, ThreadPoolExecutor(2) as pool:
        names = list(pool.map(lambda _: client.post("/predict", json=GOOD).headers["x-replica-id"], range(40)))
    assert 1 <= names.count("replica-1") < 10


def test_port_file_and_fixed_port(tmp_path: Path) -> None:
    """The port is written whole to the file; a second service on the same port says so and exits 2."""
    port_file = tmp_path / "port"
    with running("--port-file", str(port_file)) as client:
        port = int(port_file.read_text())
        assert client.base_url.port == port
        second = subprocess.run([sys.executable, "-m", "target", "--port", str(port)], capture_output=True, text=True, timeout=30)
    assert second.returncode == 2 and f"port {port}" in second.stderr and "Traceback" not in second.stderr


def test_requests_in_flight_survive_a_stop() -> None:
    """SIGTERM while a request is in the device: it is still answered, and the process ends with 0."""
    with running("--a", "2s") as client, ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.post, "/predict", json=GOOD)
        while not client.get("/device").json()["devices"][0]["batch_size"]:
            time.sleep(0.05)
        os.kill(client.pid, signal.SIGTERM)  # type: ignore[attr-defined]
        assert not future.done()
        assert future.result(10).status_code == 200
