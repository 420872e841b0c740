"""A user that tells the server which arrival each request is, so that the server's log can be held against the ledger."""

from locust import FastHttpUser, task

from truetail.open_loop import OpenLoop


class Counted(OpenLoop, FastHttpUser):
    """One request per arrival, with its number in a header."""

    @task
    def predict(self):
        headers = {"x-truetail-arrival": str(self.arrival.k)}
        self.client.post("/predict", json={"t2m_k": 285.1, "rh": 71}, headers=headers, name="predict")
