"""The lesson's REST service: ``POST /predict`` and ``POST /predict_batch``, or whatever JSON the scenario's requests say.

With ``payload: {items: ...}`` a JSON body is sent as a list of so many copies of itself, as ``/predict_batch`` takes it.
"""

from __future__ import annotations

from locust import task

from truetail.http.user import HttpLoadUser
from truetail.open_loop import OpenLoop

OBSERVATION = {"t2m_k": 285.4, "rh": 72}


class RestUser(OpenLoop, HttpLoadUser):
    """One request of the mix per arrival."""

    default_requests = ({"name": "predict", "path": "/predict", "json": OBSERVATION},)
    replays_log = True

    @task
    def request(self) -> None:
        """Send what the arrival says."""
        self.send_entry()
