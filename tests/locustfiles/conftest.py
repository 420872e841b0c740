"""An environment with a scenario, users of a locustfile in it, and what they report; and a small server that answers by path."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import locust  # noqa: F401  patches the standard library, as in every Locust process
import pytest
from gevent.pywsgi import WSGIServer
from locust.env import Environment

from truetail.arrival import Arrival
from truetail.plugin import engine_of

LOCUSTFILES = Path(__file__).parents[2] / "locustfiles"


def user_class(stem):
    """The one user class of a locustfile."""
    spec = importlib.util.spec_from_file_location(f"lf_{stem}", LOCUSTFILES / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    from locust import User

    (cls,) = [
        value for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, User) and value.abstract is False and value.__module__ == spec.name
    ]  # fmt: skip
    return cls


class Bench:
    """Runs single tasks of a locustfile's user outside of a fleet."""

    def __init__(self, stem, url, scenario):
        self.environment = Environment(host=url)
        engine = engine_of(self.environment)
        engine.scenario = {"deadline_s": 2.0, "seed": {"payload": 7}, **scenario}
        engine.target_url = url
        self.reports = []
        self.environment.events.request.add_listener(lambda **told: self.reports.append(SimpleNamespace(**told)))
        self.user = user_class(stem)(self.environment)
        self.requests = {spec["name"]: spec for spec in scenario.get("requests", ())}

    def run(self, name=None, k=0, row=None):
        """One arrival; returns the reports it made."""
        spec = self.requests[name] if name else next(iter(self.requests.values()), None)
        self.user.arrival = Arrival(k, 0, 0, spec, row)
        before = len(self.reports)
        (task,) = self.user.tasks
        task(self.user)
        return self.reports[before:]


@pytest.fixture
def bench():
    return Bench


class Service:
    """Answers with ``routes[path](request)``; ``seen`` holds (method, path, headers, body) of every request."""

    def __init__(self, routes):
        self.routes, self.seen = routes, []
        self.server = WSGIServer(("127.0.0.1", 0), self.answer, log=None)
        self.server.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def posted(self):
        """The requests of the load: models are asked for with GET."""
        return [request for request in self.seen if request.method == "POST"]

    def answer(self, environ, start):
        path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        body = environ["wsgi.input"].read()
        headers = {key[5:].lower().replace("_", "-"): value for key, value in environ.items() if key.startswith("HTTP_")}
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        request = SimpleNamespace(method=environ["REQUEST_METHOD"], path=path, query=query, headers=headers, body=body)
        self.seen.append(request)
        route = self.routes.get(path)
        found = route(request) if callable(route) else route
        status, headers, body = found if isinstance(found, tuple) else (200, {}, found) if found is not None else (404, {}, b"")
        if isinstance(body, dict | list):
            headers, body = {"Content-Type": "application/json", **headers}, json.dumps(body).encode()
        start(f"{status} x", list(headers.items()))
        return [body] if isinstance(body, bytes) else body


@pytest.fixture
def service():
    made = []

    def make(routes):
        made.append(Service(routes))
        return made[-1]

    yield make
    for each in made:
        each.server.stop()
