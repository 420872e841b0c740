"""The live view put into a master's process: page, tables and metrics."""

from __future__ import annotations

import os

import gevent
from locust.env import Environment

from truetail import metrics
from truetail.live import Live
from truetail.ui import pages

LEAVE_AFTER_S = 4.0
"""How long a page that is open may take to fetch the final figures before the server goes."""


def attach(live: Live, environment: Environment) -> None:
    """Add the live view to Locust's web UI if there is one, and serve /metrics where it is asked for.

    ``truetail run`` sets TRUETAIL_UI_LEAVE: the master then ends with the run. Without it the page stays until it is told to go,
    as Locust's own does.
    """
    port = os.environ.get("TRUETAIL_METRICS_PORT")
    if port:
        metrics.serve(live, int(port))
    if environment.web_ui is None:
        return
    page = pages.attach(live, environment)
    if os.environ.get("TRUETAIL_UI_LEAVE"):
        gevent.spawn(_leave, live, environment, page)


def _leave(live: Live, environment: Environment, page: pages.Page) -> None:
    """End this process when the run has ended and whoever watches has seen its last figures."""
    while not live.master.finished:
        gevent.sleep(0.2)
    page.last_look.wait(LEAVE_AFTER_S if page.watched else 0.0)
    page.leave()
