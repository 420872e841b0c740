"""KServe v2 (Open Inference Protocol) over HTTP: Triton, MLServer, KServe, OpenVINO.

``protocol: {model: m, version: "1", binary: true, outputs: [y], variants: 16}`` and ``payload: {tensors: [{name: x, shape: [1, 4], datatype: FP32}]}``.
So many variants of the request are built once; each arrival sends one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locust import task

from truetail.errors import UsageError
from truetail.http import binary_tensors, readiness
from truetail.http.errors import Failure
from truetail.http.mix import Entry
from truetail.http.request import PreparedRequest
from truetail.http.user import HttpLoadUser, Service
from truetail.open_loop import OpenLoop
from truetail.payloads import tensors
from truetail.payloads.tensors import Tensor

VARIANTS = 16


class KServeUser(OpenLoop, HttpLoadUser):
    """One inference per arrival."""

    protocol_keys = ("model", "version", "binary", "outputs", "variants")
    default_requests = ({"name": "infer", "protocol": {"model": "model"}},)

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """With every variant of every entry built, and every model asked for."""
        requests = [{**spec, "method": "POST"} for spec in scenario.get("requests") or cls.default_requests]
        service = super().make_service({**scenario, "requests": requests}, url)
        for entry in service.entries.values():
            path = model_path(entry)
            deadline_s = readiness.ready_deadline_s(scenario)
            readiness.wait_for(service.client, f"{path}/ready", deadline_s, f"model {entry.protocol['model']} is loaded")
            service.identity[entry.name] = readiness.document(service.client, path)
            service.prepared[entry.name] = _variants(entry, path, input_tensors(entry, scenario))
        return service

    @task
    def infer(self) -> None:
        """Send one variant; a right answer has outputs."""
        entry = self.entry()
        variants: list[PreparedRequest] = self.service.prepared[entry.name]
        k = self.arrival.k if self.arrival is not None else -1
        answer = self.send(entry, variants[int(entry.payload.uniform(k, "variant") * len(variants))])
        entry.check.judge(answer)
        if not answer.failed:
            try:
                binary_tensors.outputs_of(answer)
            except Failure as failure:
                answer.fail(failure)
        self.report(entry, answer.exchange)


def model_path(entry: Entry) -> str:
    """``/v2/models/MODEL`` or ``/v2/models/MODEL/versions/VERSION``. Raises UsageError where the model's name is missing."""
    if not entry.protocol.get("model"):
        raise UsageError(f"requests {entry.name}: protocol.model is missing: the model's name at the server")
    version = f"/versions/{entry.protocol['version']}" if entry.protocol.get("version") else ""
    return f"/v2/models/{entry.protocol['model']}{version}"


def input_tensors(entry: Entry, scenario: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of an entry's payload, or of the scenario's."""
    payload = {**(scenario.get("payload") or {}), **(entry.spec.get("payload") or {})}
    return tensors.parse(payload.get("tensors"), f"requests {entry.name}: payload.tensors")


def variants_of(entry: Entry) -> range:
    """The numbers of the variants to build."""
    count = entry.protocol.get("variants", VARIANTS)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1000:
        raise UsageError(f"protocol.variants: found {count!r}; allowed is a whole number from 1 to 1000")
    return range(count)


def _variants(entry: Entry, path: str, inputs: list[Tensor]) -> list[PreparedRequest]:
    binary, outputs = bool(entry.protocol.get("binary")), entry.protocol.get("outputs") or ()
    built = []
    for variant in variants_of(entry):
        body, head = binary_tensors.encode(inputs, entry.payload.seed, variant, binary, outputs)
        headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
        if binary:
            headers[binary_tensors.LENGTH_HEADER] = str(head)
        built.append(entry.client.prepare("POST", f"{path}/infer", headers, body))
    return built
