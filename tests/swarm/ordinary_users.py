"""An ordinary Locust file, made open loop by the mixin alone: on_start, weights, a nested TaskSet and a wait_time of its own."""

from typing import ClassVar

from locust import FastHttpUser, HttpUser, TaskSet, between, task

from truetail.open_loop import OpenLoop

BODY = {"t2m_k": 285.1, "rh": 71}


class Nested(TaskSet):
    """Two requests, then back."""

    wait_time = between(5, 10)

    @task
    def two(self):
        self.client.post("/predict", json=BODY, name="nested-1")
        self.client.post("/predict", json=BODY, name="nested-2")
        self.interrupt(reschedule=False)


class Fast(OpenLoop, FastHttpUser):
    """geventhttpclient underneath."""

    wait_time = between(5, 10)
    weight = 3
    tasks: ClassVar = {Nested: 1}

    def on_start(self):
        self.client.get("/healthz", name="login")

    @task(5)
    def predict(self):
        self.client.post("/predict", json=BODY, name="predict")

    @task(1)
    def broken(self):
        raise KeyError("no request was made")


class Plain(OpenLoop, HttpUser):
    """requests underneath."""

    @task
    def predict(self):
        self.client.post("/predict", json=BODY, name="predict")
