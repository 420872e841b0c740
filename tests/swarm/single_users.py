"""An ordinary user with one request, made open loop by the mixin."""

from locust import FastHttpUser, task

from truetail.open_loop import OpenLoop


class Single(OpenLoop, FastHttpUser):
    @task
    def predict(self):
        self.client.post("/predict", json={"t2m_k": 285.1, "rh": 71}, name="predict")
