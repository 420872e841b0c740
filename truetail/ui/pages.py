"""Our page in Locust's web UI: ``fleet/`` beside Locust's own pages, its data, stop, report and /metrics."""

from __future__ import annotations

import json
import time

import gevent
from flask import Blueprint, Response, jsonify, redirect, request
from gevent.event import Event
from locust.env import Environment
from locust.web import WebUI

from truetail import metrics
from truetail.live import Live
from truetail.ui import guard, login, stock
from truetail.ui.payload import Payload

WATCHED_S = 5.0
"""A page that asked so lately is still open."""
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; font-src data:"
)


class Page:
    """The views, and who looks at them."""

    def __init__(self, live: Live, web_ui: WebUI) -> None:
        self._live = live
        self._web_ui = web_ui
        self.payload = Payload(live)
        self.last_look = Event()
        self._asked_at = 0.0

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        return time.monotonic() - self._asked_at < WATCHED_S

    def index(self) -> Response:
        """The page; its address ends in a slash, so that what it names is beside it."""
        return guard.static("fleet.html") if request.path.endswith("/") else redirect(request.path + "/")  # type: ignore[return-value]

    def data(self) -> Response:
        """Everything that the page shows. The final figures are marked: after them there is nothing to ask for."""
        self._asked_at = time.monotonic()
        ended = self._live.master.finished  # before the figures are taken, so that what follows is final
        told = {**self.payload.build(), "can_start": stock.supervised(), "login": self._web_ui.web_login}
        # Not jsonify: Locust runs Flask in debug mode, which indents.
        answer = Response(json.dumps(told, allow_nan=False, separators=(",", ":")), content_type="application/json")
        if ended:
            gevent.spawn_later(0.2, self.last_look.set)
        return answer

    def stop(self) -> Response:
        """No more arrivals; what is in flight drains. As Ctrl-C does."""
        self._live.master.stop("interrupted", "stopped from the web page")
        return jsonify({"ok": True})

    def new(self) -> tuple[Response, int]:
        """Leave, so that the supervisor (`truetail ui`) serves the form for the next run."""
        if not stock.supervised() or not self._live.master.finished:
            return jsonify(
                {"ok": False, "why": "a run is under way, or nobody would serve the form: start with `truetail ui`"}
            ), 409
        gevent.spawn_later(0.3, self.leave)
        return jsonify({"ok": True}), 200

    def leave(self) -> None:
        """End the master's process."""
        self._live.master.leave()

    def report(self) -> Response:
        """The report of this run once it is built; it runs in a sandbox, cut off from this page."""
        path = self._live.master.folder / "report.html"
        if not path.is_file():
            return Response("the report is not built yet", 404, content_type="text/plain")
        answer = Response(path.read_bytes(), content_type="text/html; charset=utf-8")
        answer.headers["Content-Security-Policy"] = REPORT_POLICY
        return answer

    def metrics(self) -> Response:
        """For Prometheus."""
        return Response(metrics.exposition(self._live), content_type=metrics.CONTENT_TYPE)


def attach(live: Live, environment: Environment) -> Page:
    """Register everything on Locust's app, behind its login when it has one."""
    web_ui = environment.web_ui
    assert web_ui is not None and web_ui.app is not None
    page = Page(live, web_ui)
    base = str(getattr(environment.parsed_options, "web_base_path", None) or "").rstrip("/")
    guard.refuse_strangers(web_ui.app, guard.is_loopback(web_ui.host))
    web_ui.app.config["MAX_CONTENT_LENGTH"] = guard.MOST_FORM_BYTES
    views = Blueprint("truetail", __name__, url_prefix=base or None)
    views.after_request(guard.strict)
    for rule, view, method in (
        ("/fleet", page.index, "GET"),
        ("/fleet/", page.index, "GET"),
        ("/fleet/static/<path:path>", guard.static, "GET"),
        ("/fleet/data", page.data, "GET"),
        ("/fleet/report", page.report, "GET"),
        ("/fleet/stop", page.stop, "POST"),
        ("/fleet/new", page.new, "POST"),
        ("/metrics", page.metrics, "GET"),
    ):
        name = rule.replace("/", "-").partition("<")[0]
        views.add_url_rule(rule, name, web_ui.auth_required_if_enabled(view), methods=[method], strict_slashes=True)
    if web_ui.web_login:
        submit = login.guard(web_ui.app, web_ui.login_manager, f"{base}/fleet/", f"{base}/login")
        web_ui.auth_args["username_password_callback"] = f"{base}/fleet/login"
        views.add_url_rule("/fleet/login", "login", submit, methods=["POST"])
        views.add_url_rule("/fleet/logout", "logout", lambda: login.leave(f"{base}/login"), methods=["POST"])
    web_ui.app.register_blueprint(views)
    stock.extend(web_ui, page.payload, live)
    return page
