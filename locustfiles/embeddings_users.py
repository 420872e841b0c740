"""Embeddings, OpenAI-compatible: ``POST /v1/embeddings``.

``protocol: {model: m, options: {dimensions: 256}}`` with ``payload: {tokens: ..., items: ...}``: each request embeds so many texts.
A right answer has as many vectors of one length as there were texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locust import task

from truetail.errors import UsageError
from truetail.http import served_models
from truetail.http.checks import parse_json
from truetail.http.errors import Failure
from truetail.http.mix import as_json
from truetail.http.user import HttpLoadUser, Service
from truetail.open_loop import OpenLoop

ITEM_OFFSET = 1 << 40
"""Texts of one request beyond its first are drawn as arrivals far beyond any schedule would."""


class EmbeddingsUser(OpenLoop, HttpLoadUser):
    """One request for embeddings per arrival."""

    protocol_keys = ("model", "options", "check_model")
    default_requests = ({"name": "embed", "protocol": {"model": "model"}, "payload": {"tokens": 100}},)

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """With the path of each entry, and every model found in the server's list."""
        requests = [{**spec, "method": "POST", "path": _path(spec)} for spec in scenario.get("requests") or cls.default_requests]
        service = super().make_service({**scenario, "requests": requests}, url)
        for entry in service.entries.values():
            if not entry.protocol.get("model") or not entry.payload.has("tokens"):
                raise UsageError(f"requests {entry.name}: protocol.model and payload.tokens are due")
        service.identity |= served_models.wait_for(service.client, scenario, service.entries.values())
        return service

    @task
    def embed(self) -> None:
        """Send texts; count vectors."""
        entry = self.entry()
        k, row = (self.arrival.k, self.arrival.row) if self.arrival is not None else (-1, None)
        count = max(1, entry.payload.size("items", k, row)) if entry.payload.has("items") else 1
        texts = [entry.payload.text(k + item * ITEM_OFFSET, row) for item in range(count)]
        body = as_json({"model": entry.protocol["model"], "input": texts, **(entry.protocol.get("options") or {})})
        answer = self.send(entry, entry.build(body, self.arrival))
        entry.check.judge(answer)
        if not answer.failed:
            try:
                answer.exchange.tokens_in = _judge(parse_json(answer.body), count)
            except Failure as failure:
                answer.fail(failure)
        self.report(entry, answer.exchange)


def _path(spec: Mapping[str, Any]) -> str:
    path = str(spec.get("path", "/"))
    return "/v1/embeddings" if path == "/" else path


def _judge(document: Any, count: int) -> int:
    """The prompt tokens that the server counted (0: it does not say). Raises Failure wrong-content."""
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or len(data) != count:
        raise Failure("wrong-content", "another number of embeddings than of texts")
    vectors = [item.get("embedding") if isinstance(item, dict) else None for item in data]
    if not all(isinstance(vector, list | str) and vector for vector in vectors) or len({len(vector) for vector in vectors}) != 1:  # type: ignore[arg-type]
        raise Failure("wrong-content", "embeddings are no vectors of one length")
    tokens = (document.get("usage") or {}).get("prompt_tokens")
    return tokens if isinstance(tokens, int) and 0 <= tokens < 2**32 else 0
