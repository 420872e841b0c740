"""The outermost layer (plain ASGI): stamps the arrival, applies the network's delay, counts and logs every answer."""

from __future__ import annotations

import asyncio
import time

from fastapi import FastAPI, Request
from starlette.types import Message, Receive, Scope, Send

from target.access_log import ARRIVAL_HEADER, AccessLog
from target.predict import ENTERED, predict
from target.service import Service


class Door:
    """ASGI middleware around the app. A network delay lies before the arrival stamp: the server does not see it.

    POST /predict goes straight to its endpoint. The app has it as a route as well, but FastAPI's middleware and routing take
    twice as long as all the rest of a request, and that time would be added to every other request of the same batch.
    """

    def __init__(self, app: FastAPI, service: Service, log: AccessLog | None) -> None:
        self.app = app
        self.service = service
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        delay_s = self.service.effects.network_s(time.monotonic_ns())
        if delay_s and scope["path"].startswith("/predict"):
            await asyncio.sleep(delay_s)
        entered_ns = scope[ENTERED] = time.monotonic_ns()
        wall_ns = time.time_ns()
        status = 0

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["path"] == "/predict" and scope["method"] == "POST":
                scope["app"] = self.app
                response = await predict(Request(scope, receive))
                await response(scope, receive, noting_status)
            else:
                await self.app(scope, receive, noting_status)
        finally:
            self.service.metrics.answered(scope["path"], status)
            if self.log is not None:
                arrival = next((value for name, value in scope["headers"] if name == ARRIVAL_HEADER), None)
                duration_us = (time.monotonic_ns() - entered_ns) // 1000
                self.log.write(wall_ns, duration_us, scope["method"], scope["path"], status, arrival)
