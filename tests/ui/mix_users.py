"""A locustfile of the tests: one request of the scenario's mix for each arrival."""

from locust import FastHttpUser, task

from truetail.open_loop import OpenLoop


class Mix(OpenLoop, FastHttpUser):
    """Sends what the schedule says."""

    @task
    def one(self):
        request = self.arrival.request
        self.client.request(request["method"], request["path"], json=request["json"], name=request["name"])
