"""The desk: the form on which a run is chosen, edited, checked and started. It serves between two runs, on the port of the live view.

A run's schedule, slots and records belong to its processes, so each run has a master of its own, with Locust's UI inside. While there
is none, this small server answers in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Flask, Response, jsonify, redirect, request, session
from flask_login import LoginManager, login_required
from werkzeug.serving import make_server

from truetail import roles
from truetail.errors import RunFailed, UsageError
from truetail.scenario import Scenario, loads
from truetail.scenario_preview import NOTHING_PLANNED
from truetail.scenario_rules import warnings
from truetail.ui import guard, login
from truetail.ui.curve import planned_curve

MOST_TEXT = 200_000
LET_GO_S = 0.3
"""How long the answer to the start may take to reach the page before the port is handed over."""


@dataclass(frozen=True, slots=True)
class Order:
    """A run that was asked for: the checked scenario, its text, and the file that it began as."""

    scenario: Scenario
    text: str
    file: Path


class Desk:
    """The form's state: which files may be chosen, what happened to the last order, and the order itself once it is given."""

    def __init__(self, files: Sequence[Path], chosen: Path | None, turn: int, notice: Sequence[str]) -> None:
        self.files = {file.name: file for file in files}
        if chosen is not None:
            self.files[chosen.name] = chosen
        self._chosen = chosen.name if chosen is not None else next(iter(self.files), "")
        self._turn = turn
        self._notice = list(notice)
        self.order: Order | None = None
        self.ordered = threading.Event()

    def scenarios(self) -> Response:
        """What may be chosen, and what became of the last order (``turn`` tells one desk from the next)."""
        return jsonify({"files": sorted(self.files), "chosen": self._chosen, "turn": self._turn, "notice": self._notice})

    def text(self) -> tuple[Response, int]:
        """The text of a file of the list."""
        file = self.files.get(request.args.get("file", ""))
        if file is None:
            return jsonify({"faults": ["no such scenario"]}), 404
        try:
            return jsonify({"text": file.read_text(encoding="utf-8")[:MOST_TEXT]}), 200
        except (OSError, UnicodeDecodeError) as error:
            return jsonify({"faults": [f"{file.name}: cannot be read: {error}"]}), 422

    def check(self) -> tuple[Response, int]:
        """Faults, or the plan: figures, doubts and the rate over time. Nothing is sent."""
        try:
            order = self._asked()
            curve = planned_curve(order.scenario.resolved(), time.time())
        except UsageError as error:
            return jsonify({"faults": list(error.faults)[:50]}), 422
        except (ValueError, OSError) as error:
            return jsonify({"faults": [f"the arrivals cannot be planned: {error}"]}), 422
        if curve["count"] == 0 and curve["until_s"] == curve["duration_s"]:
            return jsonify({"faults": [NOTHING_PLANNED]}), 422
        scenario = order.scenario
        about = {
            "name": scenario.name,
            "arrivals": scenario.arrivals.headline(),
            "target": scenario.target.url or "the reference service, started with the run",
            "workers": scenario.fleet.workers,
            "pool": scenario.pool,
            "warmup_s": scenario.warmup,
            "slos": scenario.slos,
        }
        return jsonify({"plan": curve, "about": about, "doubts": list(warnings(scenario))}), 200

    def start(self) -> tuple[Response, int]:
        """Take the order if it has no faults."""
        try:
            self.order = self._asked()
        except UsageError as error:
            return jsonify({"faults": list(error.faults)[:50]}), 422
        self.ordered.set()
        return jsonify({"ok": True}), 202

    def _asked(self) -> Order:
        """The form's scenario. Raises UsageError with every fault."""
        asked: Any = request.get_json(force=True, silent=True)
        if not isinstance(asked, dict) or not isinstance(asked.get("text"), str) or len(asked["text"]) > MOST_TEXT:
            raise UsageError(f"expected a scenario's text of at most {MOST_TEXT} characters")
        file = self.files.get(str(asked.get("file")))
        if file is None:
            raise UsageError("choose one of the scenarios; the edited text is looked at from where that file lies")
        workers = asked.get("workers")
        overrides = [f"fleet.workers={workers}"] if isinstance(workers, int) and not isinstance(workers, bool) else []
        scenario = loads(asked["text"], file.name, overrides, file)
        roles.locustfile_of(scenario.users, file)
        return Order(scenario, asked["text"], file)


def application(desk: Desk, with_login: bool) -> Flask:
    """The desk as a Flask app, behind the login where one is asked for."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = guard.MOST_FORM_BYTES
    guard.refuse_strangers(app, loopback=True)
    app.after_request(guard.strict)
    views: list[tuple[str, Any, str]] = [
        ("/", lambda: guard.static("desk.html"), "GET"),
        ("/desk/scenarios", desk.scenarios, "GET"),
        ("/desk/text", desk.text, "GET"),
        ("/desk/check", desk.check, "POST"),
        ("/desk/start", desk.start, "POST"),
    ]
    if with_login:
        manager = LoginManager(app)
        manager.login_view = "login"
        manager.login_message = None
        submit = login.guard(app, manager, "/", "/login")
        app.add_url_rule("/login", "login", lambda: guard.static("login.html"))
        app.add_url_rule("/login", "submit", submit, methods=["POST"])
        app.add_url_rule("/login/error", "error", lambda: jsonify({"error": session.pop("auth_error", "")}))
        views.append(("/logout", lambda: login.leave("/login"), "POST"))
    for rule, view, method in views:
        app.add_url_rule(
            rule, f"{method} {rule}".replace(".", "-"), login_required(view) if with_login else view, methods=[method]
        )
    app.add_url_rule("/desk/login", "has-login", lambda: jsonify({"login": with_login}))
    app.add_url_rule("/static/<path:path>", "static-files", guard.static)
    app.add_url_rule("/fleet/", "no-run", lambda: redirect("/"))
    return app


def take_order(desk: Desk, port: int, with_login: bool) -> Order:
    """Serve the desk on 127.0.0.1 until a run is ordered. Raises RunFailed when the port is taken, KeyboardInterrupt on Ctrl-C."""
    try:
        server = make_server("127.0.0.1", port, application(desk, with_login), threaded=True)
    except (OSError, SystemExit):  # werkzeug leaves the process where a port is taken
        raise RunFailed(f"port {port} is taken; choose another with --ui-port") from None
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    serving.start()
    try:
        desk.ordered.wait()
        time.sleep(LET_GO_S)
    finally:
        server.shutdown()
        server.server_close()
    assert desk.order is not None
    return desk.order
