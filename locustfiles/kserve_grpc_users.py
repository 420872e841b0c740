"""KServe v2 (Open Inference Protocol) over gRPC, gevent-safe; needs the extra ``grpc`` (``pip install 'truetail[grpc]'``).

The same settings as kserve_users.py, without ``binary``; the target is ``grpc://host:port`` (``grpcs://`` with TLS). All users of a worker share
one channel, as a service's client does. ``stream: true`` is for models that answer many times (Triton's decoupled ones): each arrival opens a
stream, sends its request, and reads until the server ends it; every answer with outputs is a token.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from locust import User, task
from locust.env import Environment

from truetail import grpc_calls, inference_messages
from truetail.arrival import Arrival
from truetail.errors import TargetNotReady, UsageError
from truetail.http.errors import Failure
from truetail.http.readiness import ready_deadline_s
from truetail.http.target import header_values
from truetail.open_loop import OpenLoop
from truetail.payloads import tensors
from truetail.payloads.payload import Payload

VARIANTS = 16
MAX_MESSAGE_BYTES = 64 * 2**20
KEYS = ("model", "version", "outputs", "variants", "stream")


class GrpcService:
    """Channel, calls and requests that the users of one process share."""

    def __init__(self, scenario: Mapping[str, Any], url: str) -> None:
        grpc = _grpc()
        self.messages = inference_messages.load()
        self.grpc = grpc
        self.metadata = _metadata(scenario.get("target") or {})
        channel = _channel(grpc, url, (scenario.get("target") or {}).get("tls"))
        self.infer = self._call(channel, "ModelInfer")
        self.stream_infer = channel.stream_stream(
            f"{inference_messages.SERVICE}/ModelStreamInfer",
            response_deserializer=self.messages["ModelStreamInferResponse"].FromString,
        )
        self._ready = self._call(channel, "ModelReady")
        self._describe = self._call(channel, "ModelMetadata")
        self.deadline_s = float(scenario.get("deadline_s") or 10.0)
        seed = int((scenario.get("seed") or {}).get("payload", 0))
        self.payload = Payload({}, seed, Path())
        self.entries: dict[str, tuple[Mapping[str, Any], list[Any]]] = {}
        self.identity: dict[str, Mapping[str, Any]] = {}
        for spec in scenario.get("requests") or ():
            protocol = {**(scenario.get("protocol") or {}), **(spec.get("protocol") or {})}
            payload = {**(scenario.get("payload") or {}), **(spec.get("payload") or {})}
            _check(spec["name"], protocol)
            self._wait_for(str(protocol.get("model")), str(protocol.get("version") or ""), ready_deadline_s(scenario))
            self.entries[spec["name"]] = {**spec, "protocol": protocol}, self._variants(spec["name"], protocol, payload, seed)
        if not self.entries:
            raise UsageError(
                "requests: is empty; name a model: requests: [{name: infer, protocol: {model: m}, payload: {tensors: [...]}}]"
            )

    def _call(self, channel: Any, name: str) -> Any:
        return channel.unary_unary(
            f"{inference_messages.SERVICE}/{name}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=self.messages[f"{name}Response"].FromString,
        )

    def _wait_for(self, model: str, version: str, deadline_s: float) -> None:
        last = "nothing was tried"
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            try:
                request = self.messages["ModelReadyRequest"](name=model, version=version)
                if self._ready(request, timeout=5, metadata=self.metadata).ready:
                    request = self.messages["ModelMetadataRequest"](name=model, version=version)
                    told = self._describe(request, timeout=5, metadata=self.metadata)
                    self.identity[model] = {"name": told.name, "versions": list(told.versions), "platform": told.platform}
                    return
                last = "it says that the model is not ready"
            except self.grpc.RpcError as error:
                last = f"{error.code().name}: {str(error.details())[:200]}"
                if error.code().name in ("NOT_FOUND", "INVALID_ARGUMENT"):
                    break
            time.sleep(0.2)
        raise TargetNotReady(f"model {model} is not loaded; last attempt: {last}")

    def _variants(self, name: str, protocol: Mapping[str, Any], payload: Mapping[str, Any], seed: int) -> list[Any]:
        inputs = tensors.parse(payload.get("tensors"), f"requests {name}: payload.tensors")
        of = self.messages
        built = []
        for variant in range(int(protocol.get("variants", VARIANTS))):
            request = of["ModelInferRequest"](
                model_name=str(protocol["model"]), model_version=str(protocol.get("version") or ""), id=f"v{variant}",
                inputs=[of["InputTensor"](name=x.name, datatype=x.datatype, shape=x.shape) for x in inputs],
                outputs=[of["RequestedOutput"](name=output) for output in protocol.get("outputs") or ()],
                raw_input_contents=[x.as_bytes(x.values(seed, variant)) for x in inputs],
            )  # fmt: skip
            built.append(request.SerializeToString())
        return built


class KServeGrpcUser(OpenLoop, User):
    """One inference per arrival."""

    arrival: Arrival | None = None
    _services: ClassVar[WeakKeyDictionary[Environment, GrpcService]] = WeakKeyDictionary()

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.service = self.set_up(environment)

    @classmethod
    def set_up(cls, environment: Environment) -> GrpcService:
        """The process's service, made on the first call. Raises UsageError for anything that the scenario gets wrong."""
        if environment not in cls._services:
            engine = getattr(environment, "truetail", None)
            url = getattr(engine, "target_url", "") or environment.host or ""
            cls._services[environment] = GrpcService(getattr(engine, "scenario", None) or {}, url)
        return cls._services[environment]

    @task
    def infer(self) -> None:
        """Send one variant; a right answer has outputs, and so has a right stream."""
        service, times = self.service, None
        if self.arrival is None or self.arrival.request is None:
            spec, variants = next(iter(service.entries.values()))
            k = -1
        else:
            spec, variants = service.entries[str(self.arrival.request["name"])]
            k = self.arrival.k
        metadata = (*service.metadata, *self.trace_headers().items())
        message = variants[int(service.payload.uniform(k, "variant") * len(variants))]
        deadline_s = float(spec.get("deadline_s") or service.deadline_s)
        if spec["protocol"].get("stream"):
            exchange, times = grpc_calls.stream(service.grpc, service.stream_infer, message, deadline_s, metadata)
        else:
            exchange = grpc_calls.call(service.grpc, service.infer, message, deadline_s, metadata)
        self.environment.events.request.fire(
            request_type="GRPC", name=spec["name"], response_time=(exchange.done_ns - exchange.sent_ns) / 1e6,
            response_length=exchange.response_bytes, exchange=exchange,
            context={**self.context(), "inter_token_ns": times.gaps_ns} if times else self.context(),
            exception=Failure(exchange.error_class, exchange.error_detail) if exchange.error_class else None,
        )  # fmt: skip


def _check(name: str, protocol: Mapping[str, Any]) -> None:
    """Raises UsageError for a setting that is unknown, or whose value is."""
    faults = [
        f"requests {name}: protocol.{key} is unknown to KServeGrpcUser; allowed are {', '.join(KEYS)}"
        for key in protocol
        if key not in KEYS
    ]
    if not isinstance(protocol.get("stream", False), bool):
        faults.append(f"requests {name}: protocol.stream: found {protocol['stream']!r}; allowed are true and false")
    if not protocol.get("model"):
        faults.append(f"requests {name}: protocol.model is missing: the model's name at the server")
    if faults:
        raise UsageError(*faults)


def _grpc() -> Any:
    try:
        import grpc
        from grpc.experimental import gevent as grpc_gevent
    except ImportError:
        raise UsageError("gRPC is not installed: pip install 'truetail[grpc]'") from None
    grpc_gevent.init_gevent()  # without it the first call freezes the event loop of the whole worker
    return grpc


def _channel(grpc: Any, url: str, tls: Mapping[str, Any] | None) -> Any:
    parts = urlsplit(url)
    if parts.scheme not in ("grpc", "grpcs") or not parts.netloc:
        raise UsageError(f"target URL: found {url!r}; allowed are grpc://host:port and grpcs://host:port")
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
    if parts.scheme == "grpc":
        return grpc.insecure_channel(parts.netloc, options=options)
    tls = tls or {}
    if tls.get("verify") is False:
        raise UsageError("target.tls.verify: found false; gRPC always checks the certificate: name its authority as tls.ca")
    files = {key: Path(tls[key]).read_bytes() if tls.get(key) else None for key in ("ca", "key", "cert")}
    credentials = grpc.ssl_channel_credentials(files["ca"], files["key"], files["cert"])
    return grpc.secure_channel(parts.netloc, credentials, options=options)


def _metadata(target: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = header_values(target.get("headers") or {}, "target.headers")
    if target.get("auth"):
        headers |= header_values({"authorization": target["auth"]}, "target.auth")
    return tuple((name.lower(), value) for name, value in headers.items())
