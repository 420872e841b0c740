"""OpenAI-compatible servers (vLLM, llama.cpp, SGLang, TGI, ...): chat and plain completions, streamed or whole.

``protocol: {api: chat, model: m, stream: true, options: {temperature: 0}, turns: 3, think: 2s}`` with ``payload: {tokens: ..., max_tokens: ...}``
or a pool of prompts. ``json`` of a request replaces the body that is built here. The run begins only when the server lists the model
(``check_model: false`` spares that). With ``turns`` an arrival begins a conversation: each further turn is sent after the think time with
all that was said before, and is recorded as a further request of the same arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gevent
from locust import task

from truetail.errors import UsageError
from truetail.http import served_models
from truetail.http.mix import Entry, as_json
from truetail.http.openai_stream import Completion
from truetail.http.user import HttpLoadUser, Service
from truetail.open_loop import OpenLoop
from truetail.payloads import template
from truetail.units import parse_duration_s

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
TURN_OFFSET = 1 << 40
"""Further turns draw their texts as arrivals far beyond any schedule would."""


class OpenAiUser(OpenLoop, HttpLoadUser):
    """One completion, or one conversation, per arrival."""

    protocol_keys = ("api", "model", "stream", "options", "turns", "think", "prompt", "check_model")
    default_requests = ({"name": "chat", "protocol": {"model": "model"}, "payload": {"tokens": 100, "max_tokens": 50}},)

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """With the body of each entry as a template, and every model found in the server's list."""
        shared = scenario.get("protocol") or {}, scenario.get("payload") or {}
        requests = [_with_body(spec, *shared) for spec in scenario.get("requests") or cls.default_requests]
        service = super().make_service({**scenario, "requests": requests}, url)
        service.identity |= served_models.wait_for(service.client, scenario, service.entries.values())
        return service

    @task
    def complete(self) -> None:
        """One turn after the other; a failed one ends the conversation."""
        entry = self.entry()
        turns = int(entry.protocol.get("turns", 1))
        if turns == 1:
            self._turn(entry, entry.request(self.arrival))
            return
        k, row = (self.arrival.k, self.arrival.row) if self.arrival is not None else (-1, None)
        body = template.fill(entry.spec["json"], entry.payload.values(self.arrival))
        for turn in range(1, turns + 1):
            said = self._turn(entry, entry.build(as_json(body), self.arrival))
            if said is None or turn == turns:
                return
            gevent.sleep(parse_duration_s(entry.protocol.get("think", 0)))
            next_question = entry.payload.text(k + turn * TURN_OFFSET, row)
            body["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": next_question}]

    def _turn(self, entry: Entry, request: Any) -> str | None:
        """Send and report one request; what the server said, or None where it failed."""
        streamed = bool(entry.spec["json"].get("stream"))
        completion = Completion()
        answer = self.send(entry, request, completion if streamed else None)
        entry.check.judge(answer)
        if streamed:
            completion.finish(answer)
        else:
            completion.whole(answer)
        self.report(entry, answer.exchange, {"inter_token_ns": completion.times.gaps_ns})
        return None if answer.failed else "".join(completion.text)


def _with_body(spec: Mapping[str, Any], protocol: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    protocol, payload = {**protocol, **(spec.get("protocol") or {})}, {**payload, **(spec.get("payload") or {})}
    place = f"requests {spec.get('name')}"
    api = protocol.get("api", "chat")
    if api not in PATHS:
        raise UsageError(f"{place}: protocol.api: found {api!r}; allowed are chat and completions")
    turns = protocol.get("turns", 1)
    if not isinstance(turns, int) or isinstance(turns, bool) or not 1 <= turns <= 1000 or (turns > 1 and api != "chat"):
        raise UsageError(f"{place}: protocol.turns: found {turns!r} with api {api}; allowed is 1 to 1000, with chat")
    if turns > 1 and "tokens" not in payload:
        raise UsageError(
            f"{place}: protocol.turns: found {turns}, but payload.tokens is missing: further turns are texts of that size"
        )
    json = spec.get("json") or _body(api, protocol, payload, place)
    path = spec.get("path", "/")
    return {**spec, "method": "POST", "path": PATHS[api] if path == "/" else path, "json": json}


def _body(api: str, protocol: Mapping[str, Any], payload: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not protocol.get("model"):
        raise UsageError(f"{place}: protocol.model is missing: the model's name at the server")
    prompt = protocol.get("prompt") or ("${line.prompt}" if "file" in payload else "${text}")
    stream = protocol.get("stream", True)
    body: dict[str, Any] = {"model": protocol["model"], "stream": bool(stream)}
    if stream:
        body["stream_options"] = {"include_usage": True}
    if api == "chat":
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    if "max_tokens" in payload:
        body["max_tokens"] = "${max_tokens}"
    options = protocol.get("options") or {}
    if not isinstance(options, Mapping):
        raise UsageError(f"{place}: protocol.options: found {options!r}; allowed is a mapping that goes into the body")
    return {**body, **options}
