"""The models that an OpenAI-compatible server lists (``GET /v1/models``): a run against one that is not among them is refused.

Some servers answer whatever model is asked for with the one that they have (llama.cpp), others answer each request with 404: neither
is the test that was meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gevent

from truetail.errors import TargetNotReady, UsageError
from truetail.http.checks import parse_json
from truetail.http.client import HttpClient
from truetail.http.errors import Failure
from truetail.http.mix import Entry
from truetail.http.readiness import ATTEMPT_S, STEP_S, ready_deadline_s
from truetail.payloads import template

ENDPOINTS = ("/chat/completions", "/completions", "/embeddings")
UNLISTED = (404, 405, 501)
"""Answers of a server that has no list of models: then nothing can be checked."""
MOST_SHOWN = 20
MOST_FACTS = 30
MOST_TEXT = 300


def wait_for(client: HttpClient, scenario: Mapping[str, Any], entries: Iterable[Entry]) -> dict[str, Mapping[str, Any]]:
    """What the server tells of each entry's model, by the entry's name; empty where it lists no models.

    Waits up to ``target.ready.deadline`` for a list. Raises TargetNotReady naming what is loaded when a model is not (``protocol.check_model: false``
    spares an entry of that: gateways route to models that they do not list), or when no list comes.
    """
    wanted: dict[str, list[Entry]] = {}
    for entry in entries:
        path = list_path(str(entry.spec.get("path") or ""))
        if path and _model(entry) and _checked(entry):
            wanted.setdefault(path, []).append(entry)
    return {
        name: facts
        for path, asking in wanted.items()
        for name, facts in _wait_for_list(client, path, asking, ready_deadline_s(scenario)).items()
    }


def list_path(endpoint: str) -> str:
    """Where the models of an endpoint are listed: ``/v1/chat/completions`` has ``/v1/models``; '' for an endpoint that is none of ours."""
    base = next((endpoint.removesuffix(end) for end in ENDPOINTS if endpoint.endswith(end)), None)
    return "" if base is None else f"{base}/models"


def _model(entry: Entry) -> str:
    """The model that an entry asks for; '' where its name differs by arrival or stands in no place that we know."""
    body = entry.spec.get("json")
    model = str(entry.protocol.get("model") or (body.get("model") if isinstance(body, Mapping) else None) or "")
    return "" if template.names(model) else model


def _checked(entry: Entry) -> bool:
    wanted = entry.protocol.get("check_model", True)
    if not isinstance(wanted, bool):
        raise UsageError(f"requests {entry.name}: protocol.check_model: found {wanted!r}; allowed are true and false")
    return wanted


def _wait_for_list(client: HttpClient, path: str, entries: list[Entry], deadline_s: float) -> dict[str, Mapping[str, Any]]:
    request = client.prepare("GET", path)
    last = ""
    for _ in range(max(1, int(deadline_s / STEP_S))):
        answer = client.send(request, ATTEMPT_S)
        if not answer.failed and answer.status in UNLISTED:
            return {}
        if answer.failed:
            last = f"{answer.exchange.error_class} {answer.exchange.error_detail}".strip()
        elif answer.status != 200:
            last = f"it answered {answer.status}: {answer.body[:200].decode(errors='replace')!r}"
            if answer.status in (401, 403):
                break  # waiting does not let us in
        else:
            told = _listed(answer.body)
            if told is None:
                return {}  # a page, but not this one
            if told:
                return _found(told, entries, path, answer.headers.get("server", ""))
            last = "it lists no model"
        gevent.sleep(STEP_S)
    models = ", ".join(sorted({_model(entry) for entry in entries}))
    raise TargetNotReady(f"model {models}: GET {path} did not list it within {deadline_s:g} s; last attempt: {last}")


def _listed(body: bytes) -> list[Mapping[str, Any]] | None:
    """The models of a list by the OpenAI API; None for a body that is none."""
    try:
        told = parse_json(body)
    except Failure:
        return None
    data = told.get("data") if isinstance(told, dict) else None
    if not isinstance(data, list):
        return None
    return [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]


def _found(told: list[Mapping[str, Any]], entries: list[Entry], path: str, server: str) -> dict[str, Mapping[str, Any]]:
    by_name = {name: model for model in reversed(told) for name in _names(model)}
    missing = sorted({_model(entry) for entry in entries} - by_name.keys())
    if missing:
        loaded = [str(model["id"])[:MOST_TEXT] for model in told]
        more = f" and {len(loaded) - MOST_SHOWN} more" if len(loaded) > MOST_SHOWN else ""
        raise TargetNotReady(
            f"model {', '.join(missing)} is not loaded: GET {path} lists {', '.join(loaded[:MOST_SHOWN])}{more}"
            " (protocol.check_model: false sends to it all the same)"
        )
    return {entry.name: _facts(by_name[_model(entry)], server) for entry in entries}


def _names(model: Mapping[str, Any]) -> Iterator[str]:
    yield model["id"]
    aliases = model.get("aliases")
    yield from (alias for alias in (aliases if isinstance(aliases, list) else ()) if isinstance(alias, str))


def _facts(model: Mapping[str, Any], server: str) -> dict[str, Any]:
    """What is worth keeping in a manifest: plain values, those of one level below too, cut short (the server's word is untrusted)."""
    pairs = [*([("server", server)] if server else []), *model.items()]
    flat = [
        (f"{key}.{inner}", value) if inner else (key, value)
        for key, held in pairs
        for inner, value in (held.items() if isinstance(held, dict) else [("", held)])
    ]
    facts = {str(key)[:MOST_TEXT]: value[:MOST_TEXT] if isinstance(value, str) else value for key, value in flat if _plain(value)}
    return dict(list(facts.items())[:MOST_FACTS])


def _plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) < 2**53)
