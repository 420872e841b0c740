"""Any HTTP service: method, path, headers and body templates with ``${names}``, and checks of the answer, all from the scenario's requests."""

from __future__ import annotations

from locust import task

from truetail.http.user import HttpLoadUser
from truetail.open_loop import OpenLoop


class AnyHttpUser(OpenLoop, HttpLoadUser):
    """One request of the mix per arrival; ``GET /`` where there is none, or what a replayed log says."""

    replays_log = True

    @task
    def request(self) -> None:
        """Send what the arrival says."""
        self.send_entry()
