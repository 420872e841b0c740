"""KServe v2 over gRPC: against grpcio's own server in another process, and gevent keeps running meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time

import gevent
import pytest

from truetail import grpc_calls, inference_messages
from truetail.arrival import Arrival
from truetail.errors import TargetNotReady, UsageError
from truetail.exchange import Exchange
from truetail.plugin import engine_of
from truetail.records import FAILED, OK, TIMED_OUT
from truetail.tracing import Tracer

pytest.importorskip("grpc", reason="the extra grpc is not installed")

SERVER = """
import sys, time, grpc
from concurrent.futures import ThreadPoolExecutor
from truetail import inference_messages
M = inference_messages.load()

def note(context):
    told = dict(context.invocation_metadata()).get("traceparent")
    if told:
        with open(sys.argv[1], "a") as file:
            file.write(told + "\\n")

def infer(request, context):
    name = request.model_name
    note(context)
    if name == "slow":
        time.sleep(1.0)
    if name == "full":
        context.abort(grpc.StatusCode.UNAVAILABLE, "[request id: 7] Exceeds maximum queue size")
    if name == "wrong":
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape")
    if name == "broken":
        raise RuntimeError("boom")
    time.sleep(0.05)
    ok = len(request.raw_input_contents[0]) == 24 and list(request.inputs[0].shape) == [2, 3] and request.inputs[0].datatype == "FP32"
    outputs = [M["OutputTensor"](name="y", datatype="FP32", shape=[1])] if ok and name != "empty" else []
    return M["ModelInferResponse"](model_name=name, id=request.id, outputs=outputs, raw_output_contents=[bytes(4)])

def answer(name):
    return M["ModelStreamInferResponse"](infer_response=M["ModelInferResponse"](model_name=name, outputs=[
        M["OutputTensor"](name="y", datatype="FP32", shape=[1])], raw_output_contents=[bytes(4)]))

def stream(requests, context):
    note(context)
    for request in requests:
        name = request.model_name
        if name == "refused":
            yield M["ModelStreamInferResponse"](error_message="[request id: v3] Exceeds maximum queue size")
        if name == "mute":
            yield M["ModelStreamInferResponse"](infer_response=M["ModelInferResponse"](model_name=name))
        for n in range(0 if name in ("refused", "mute") else 5):
            time.sleep(0.03)
            yield answer(name)
            if name == "breaks" and n == 1:
                yield M["ModelStreamInferResponse"](error_message="CUDA error")
                return
            if name == "stops" and n == 1:
                context.abort(grpc.StatusCode.INTERNAL, "worker died")

def ready(request, context):
    if request.name == "absent":
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown model")
    return M["ModelReadyResponse"](ready=True)

def describe(request, context):
    return M["ModelMetadataResponse"](name=request.name, versions=["1"], platform="python")

def method(name, call):
    return grpc.unary_unary_rpc_method_handler(call, M[name + "Request"].FromString, M[name + "Response"].SerializeToString)

server = grpc.server(ThreadPoolExecutor(20))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {
    "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream, M["ModelInferRequest"].FromString,
        M["ModelStreamInferResponse"].SerializeToString), "ModelInfer": method("ModelInfer", infer), "ModelReady": method("ModelReady", ready),
    "ModelMetadata": method("ModelMetadata", describe)})])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""
TENSORS = [{"name": "x", "shape": [2, 3], "datatype": "FP32"}]


@pytest.fixture(scope="module")
def traceparents(tmp_path_factory):
    """The file in which the server notes each traceparent of its metadata."""
    return tmp_path_factory.mktemp("grpc") / "traceparents"


@pytest.fixture(scope="module")
def url(traceparents):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(traceparents)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield f"grpc://127.0.0.1:{process.stdout.readline().strip()}"
    process.stdin.close()
    process.wait(10)


def spec(model, **more):
    return {"name": model, "protocol": {"model": model}, "payload": {"tensors": TENSORS}, "deadline_s": 5.0, **more}


def test_inference_and_faults(bench, url):
    """A right answer, and each refusal with its class; the model's description is kept."""
    models = {"m": "", "full": "shed", "wrong": "http-4xx", "broken": "http-5xx", "empty": "wrong-content"}
    b = bench("kserve_grpc_users", url, {"requests": [spec(model) for model in models]})
    for model, error_class in models.items():
        (report,) = b.run(model, k=3)
        assert report.exchange.error_class == error_class
        assert report.exchange.outcome == (FAILED if error_class else OK)
        assert report.exchange.sent_ns < report.exchange.done_ns
    assert b.user.service.identity["m"]["platform"] == "python"


def test_deadline(bench, url):
    """The deadline of the request ends it."""
    b = bench("kserve_grpc_users", url, {"requests": [spec("slow", deadline_s=0.2)]})
    (report,) = b.run("slow")
    assert (report.exchange.outcome, report.exchange.error_class) == (TIMED_OUT, "timeout-first-byte")


def streamed(model, **more):
    return spec(model, **more) | {"protocol": {"model": model, "stream": True}}


def test_streams_and_their_faults(bench, url):
    """Each answer is a token at its own instant; an error within, an end by status, a refusal and a stream without outputs have their classes."""
    tokens = {"m": 5, "breaks": 2, "stops": 2, "refused": 0, "mute": 0}
    classes = {"m": "", "breaks": "wrong-content", "stops": "http-5xx", "refused": "shed", "mute": "wrong-content"}
    b = bench("kserve_grpc_users", url, {"requests": [streamed(model) for model in tokens]})
    for model, count in tokens.items():
        (report,) = b.run(model, k=3)
        x = report.exchange
        assert (x.error_class, x.tokens_out) == (classes[model], count)
        assert len(report.context["inter_token_ns"]) == max(0, count - 1)
        assert x.sent_ns < x.done_ns
        if count:
            assert x.sent_ns + 25e6 < x.first_byte_ns == x.first_token_ns < x.done_ns
            assert all(25e6 < gap < 1e9 for gap in report.context["inter_token_ns"])


def test_deadline_of_a_stream(bench, url):
    """It is total: the third token comes too late, and what came before it is kept."""
    b = bench("kserve_grpc_users", url, {"requests": [streamed("m", deadline_s=0.08)]})
    (report,) = b.run("m")
    assert (report.exchange.outcome, report.exchange.error_class) == (TIMED_OUT, "timeout-body")
    assert report.exchange.tokens_out <= 3


@pytest.mark.parametrize(
    ("protocol", "fault"),
    [
        ({"model": "m", "binary": True}, r"protocol\.binary is unknown"),
        ({"model": "m", "stream": "yes"}, r"protocol\.stream: found 'yes'"),
        ({}, r"protocol\.model is missing"),
    ],
)
def test_wrong_settings(bench, url, protocol, fault):
    """Found before anything is asked of the server."""
    with pytest.raises(UsageError, match=fault):
        bench("kserve_grpc_users", url, {"requests": [spec("m") | {"protocol": protocol}]})


def test_event_loop_runs_on(bench, url):
    """Ten calls of 50 ms at once: other greenlets run meanwhile (without init_gevent the loop would stand still)."""
    b = bench("kserve_grpc_users", url, {"requests": [streamed("m"), spec("m2")]})
    b.run("m")
    beats = []

    def beat():
        while True:
            beats.append(time.monotonic())
            gevent.sleep(0.002)

    heart = gevent.spawn(beat)
    cls = type(b.user)
    users = [cls(b.environment) for _ in range(10)]
    for user, request in zip(users, b.requests.values(), strict=False):
        user.arrival = Arrival(1, 0, 0, request)
    calls = [gevent.spawn(next(iter(cls.tasks)), user) for user in users]
    gevent.joinall(calls, raise_error=True)
    heart.kill()
    assert len(beats) >= 5
    assert len(b.reports) == 11


def test_absent_model_and_absent_server(bench, url):
    """A model that is not loaded and a port where nobody listens are refused before the run."""
    with pytest.raises(TargetNotReady, match=r"model absent is not loaded.*NOT_FOUND: unknown model"):
        bench("kserve_grpc_users", url, {"requests": [spec("absent")]})
    with pytest.raises(TargetNotReady, match="UNAVAILABLE"):
        bench("kserve_grpc_users", "grpc://127.0.0.1:1", {"requests": [spec("m")], "target": {"ready": {"deadline_s": 0.5}}})
    with pytest.raises(UsageError, match="target URL"):
        bench("kserve_grpc_users", "http://127.0.0.1:1", {"requests": [spec("m")]})


@pytest.mark.parametrize(
    ("code", "details", "error_class"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", "connect"),
        ("UNAVAILABLE", "Socket closed", "reset"),
        ("UNAVAILABLE", "Exceeds maximum queue size", "shed"),
        ("DEADLINE_EXCEEDED", "", "timeout-first-byte"),
        ("INTERNAL", "", "http-5xx"),
    ],
)
def test_status_to_class(code, details, error_class):
    """gRPC says UNAVAILABLE for three different things; the words tell them apart."""
    exchange = Exchange(0)
    grpc_calls.classify(exchange, code, details)
    assert exchange.error_class == error_class


def test_messages_are_those_of_the_protocol():
    """The bytes of a request, written by hand from the protocol's field numbers (wire format: number << 3 | type)."""
    of = inference_messages.load()
    request = of["ModelInferRequest"](
        model_name="m",
        id="v0",
        inputs=[of["InputTensor"](name="x", datatype="FP32", shape=[1, 300])],
        raw_input_contents=[b"\1\2"],
    )
    tensor = b"\x0a\x01x" + b"\x12\x04FP32" + b"\x1a\x03\x01\xac\x02"
    assert request.SerializeToString(deterministic=True) == (
        b"\x0a\x01m" + b"\x1a\x02v0" + b"\x2a" + bytes([len(tensor)]) + tensor + b"\x3a\x02\x01\x02"
    )


@pytest.mark.parametrize("streams", [False, True])
def test_sampled_requests_carry_a_traceparent(bench, url, traceparents, streams):
    """As metadata, for calls and streams; those that are not sampled carry none."""
    b = bench("kserve_grpc_users", url, {"requests": [(streamed if streams else spec)("m")]})
    engine_of(b.environment).tracer = tracer = Tracer("run", 0.5)
    traceparents.write_text("")
    for k in range(12):
        b.run("m", k=k)
    sent = [tracer.headers(k)["traceparent"] for k in range(12) if tracer.sampled(k)]
    assert 0 < len(sent) < 12
    assert traceparents.read_text().split() == sent
