"""A model whose calls take real time (as torch's do) behind the same door, with a stand-in network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from target.config import load
from target.model import Nowcast, Row
from target.service import Answer, Service


class Slow(Nowcast):
    """Takes 30 ms a call, whatever the batch; fails on rows below 200 K."""

    measured = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def predict(self, rows: Sequence[Row]) -> list[float]:
        """Sleep, then predict."""
        self.calls.append(len(rows))
        time.sleep(0.03)
        if any(row[0] < 200 for row in rows):
            raise ArithmeticError("too cold")
        return super().predict(rows)


async def serve(model: Slow, rows: list[Row]) -> tuple[list[Answer | BaseException], dict[str, object]]:
    """All rows at once, as a request each; the answers and the device's figures."""
    service = Service(load({"max_delay": "5ms"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("target.service.load", lambda kind, seed: model)
        await service.start()
    try:
        asked = [service.infer([row], 1.0, time.monotonic_ns()) for row in rows]
        return await asyncio.gather(*asked, return_exceptions=True), service.device()
    finally:
        service.stop()


def test_calls_are_batched_and_timed() -> None:
    """Five rows, one call of at least 30 ms, each with its own prediction; the device tells no clock or power."""
    model = Slow()
    rows = [(270.0 + i, 50.0, 0.0) for i in range(5)]
    answers, device = asyncio.run(serve(model, rows))
    assert model.calls == [5]
    for row, answer in zip(rows, answers, strict=True):
        assert isinstance(answer, Answer)
        assert list(answer.predictions) == pytest.approx(Nowcast().predict([row]))
        assert answer.batch == 5 and answer.end_ns - answer.start_ns >= 30_000_000
    assert device["source"] == "service"
    assert "clock_mhz" not in device["devices"][0] and device["devices"][0]["busy_seconds_total"] >= 0.03  # type: ignore[index]


def test_a_failing_call_fails_its_batch_only() -> None:
    """The model raises: every request of that batch gets the error, and the device goes on."""
    model = Slow()

    async def twice() -> tuple[list[object], list[object]]:
        service = Service(load({"max_delay": 0, "max_batch": 1}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("target.service.load", lambda kind, seed: model)
            await service.start()
        try:
            bad = await asyncio.gather(service.infer([(190.0, 1.0, 0.0)], 1.0, time.monotonic_ns()), return_exceptions=True)
            good = await asyncio.gather(service.infer([(290.0, 1.0, 0.0)], 1.0, time.monotonic_ns()), return_exceptions=True)
            return list(bad), list(good)
        finally:
            service.stop()

    bad, good = asyncio.run(twice())
    assert isinstance(bad[0], ArithmeticError) and isinstance(good[0], Answer)
