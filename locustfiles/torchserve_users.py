"""TorchServe: ``POST /predictions/MODEL``. ``protocol: {model: m, version: "1.0"}``; the body is the request's json or body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locust import task

from truetail.errors import UsageError
from truetail.http import readiness
from truetail.http.user import HttpLoadUser, Service
from truetail.open_loop import OpenLoop


class TorchServeUser(OpenLoop, HttpLoadUser):
    """One prediction per arrival."""

    protocol_keys = ("model", "version")
    default_requests = ({"name": "predict", "json": {"x": [1, 2, 3]}},)

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """With the path of each entry's model, and the server's health asked for."""
        requests = [_with_path(spec, scenario.get("protocol") or {}) for spec in scenario.get("requests") or cls.default_requests]
        service = super().make_service({**scenario, "requests": requests}, url)
        readiness.wait_for(service.client, "/ping", readiness.ready_deadline_s(scenario), "TorchServe is healthy")
        return service

    @task
    def predict(self) -> None:
        """Send what the arrival says."""
        self.send_entry()


def _with_path(spec: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    protocol = {**shared, **(spec.get("protocol") or {})}
    if spec.get("path", "/") != "/":
        return dict(spec)
    if not protocol.get("model"):
        raise UsageError(f"requests {spec.get('name')}: protocol.model is missing: the name under which TorchServe has the model")
    version = f"/{protocol['version']}" if protocol.get("version") else ""
    return {**spec, "method": "POST", "path": f"/predictions/{protocol['model']}{version}"}
