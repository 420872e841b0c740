"""POST /predict and /predict_batch: validation, the stages of a request, and the answer with its Server-Timing.

The handlers take the raw request and validate the bytes themselves: FastAPI's own parsing would cost the event loop, which also
hands out the device's results, as much again as all the rest.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from target.model import Row
from target.observation import LARGEST_BODY_BYTES, Observation, Rejected, read_list, read_one
from target.service import Answer, NotReady, QueueFull, Service
from target.units import NS

ENTERED = "truetail.entered_ns"
"""Key of the scope: monotonic ns at which the request was seen."""

router = APIRouter()

_SCHEMA = Observation.model_json_schema()
_ONE_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}
_LIST_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "array", "maxItems": 64, "items": _SCHEMA}}},
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    413: {"description": "body or batch too large"},
    422: {"description": "the body does not match the schema; detail has the reasons"},
    429: {"description": "queue full; see Retry-After"},
    503: {"description": "not ready; detail has the reason"},
}


@dataclass(slots=True)
class Stages:
    """Instants of a request (monotonic ns) at which its stages before the queue end."""

    entered_ns: int
    preprocessed_ns: int = 0
    queued_ns: int = 0


@router.post("/predict", openapi_extra=_ONE_BODY, responses=_ANSWERS, response_model=None)
async def predict(request: Request) -> Response:
    """One instance: chance of rain, the batch it ran in, and the replica."""
    service: Service = request.app.state.service
    stages = Stages(request.scope[ENTERED])
    try:
        if service.unready:
            raise NotReady(service.unready)
        instance = read_one(await read_body(request))
        size = instance.size
        if service.effects.placed:
            size *= service.effects.size_factor(stages.entered_ns)
        answer = await _infer(service, [instance.row()], size, stages)
    except (Rejected, NotReady, QueueFull) as refusal:
        return refuse(refusal)
    body = f'{{"prediction":{answer.predictions[0]:.6f},"batch":{answer.batch},"replica":"{answer.replica}","size":{size:g}}}'
    return _answered(service, body, answer, stages)


@router.post("/predict_batch", openapi_extra=_LIST_BODY, responses=_ANSWERS, response_model=None)
async def predict_batch(request: Request) -> Response:
    """A list of at most 64 instances: one call of the model for all of them."""
    service: Service = request.app.state.service
    stages = Stages(request.scope[ENTERED])
    try:
        if service.unready:
            raise NotReady(service.unready)
        instances = read_list(await read_body(request))
        factor = service.effects.size_factor(stages.entered_ns) if service.effects.placed else 1.0
        size = sum(instance.size for instance in instances) * factor
        answer = await _infer(service, [instance.row() for instance in instances], size, stages)
    except (Rejected, NotReady, QueueFull) as refusal:
        return refuse(refusal)
    predictions = ",".join(f"{value:.6f}" for value in answer.predictions)
    body = f'{{"predictions":[{predictions}],"batch":{answer.batch},"replica":"{answer.replica}","size":{size:g}}}'
    return _answered(service, body, answer, stages)


async def read_body(request: Request) -> bytes:
    """The body, at most LARGEST_BODY_BYTES; Rejected (413) as soon as it is longer."""
    parts, length, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Rejected(422, "the client went away before the body was whole")
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        parts.append(part)
        length += len(part)
        if length > LARGEST_BODY_BYTES:
            raise Rejected(413, f"the body is longer than {LARGEST_BODY_BYTES} bytes")
    return b"".join(parts)


async def _infer(service: Service, rows: Sequence[Row], size: float, stages: Stages) -> Answer:
    """Preprocessing, dependency and queue, with what faults add to them, then the device."""
    effects = service.effects
    queue_s = 0.0
    if effects.placed:
        wait_s, compute_s = effects.preprocess(stages.entered_ns)
        if wait_s:
            await asyncio.sleep(wait_s)
        if compute_s:
            _compute(compute_s)
    stages.preprocessed_ns = stages.queued_ns = time.monotonic_ns()
    if effects.placed:
        dependency_s = effects.dependency_s(stages.preprocessed_ns)
        if dependency_s:
            await asyncio.sleep(dependency_s)
        stages.queued_ns = time.monotonic_ns()
        queue_s = effects.queue_s(stages.queued_ns)
        if queue_s:
            await asyncio.sleep(queue_s)
    return await service.infer(rows, size, time.monotonic_ns() if queue_s else stages.queued_ns)


def _compute(seconds: float) -> None:
    """Hold the event loop as a computation would, and the interpreter with it."""
    end_ns = time.monotonic_ns() + round(seconds * NS)
    while time.monotonic_ns() < end_ns:
        pass


def _answered(service: Service, body: str, answer: Answer, stages: Stages) -> Response:
    """200 with the stages in milliseconds; they add up to the time from the arrival to here. Postprocessing includes the way back
    from the device's thread."""
    queue_ns = answer.start_ns - stages.queued_ns
    inference_ns = answer.end_ns - answer.start_ns
    preprocess_ns = stages.preprocessed_ns - stages.entered_ns
    dependency_ns = stages.queued_ns - stages.preprocessed_ns
    postprocess_ns = max(0, time.monotonic_ns() - answer.end_ns)
    timing = (
        f"queue;dur={queue_ns / 1e6:.3f}, preprocess;dur={preprocess_ns / 1e6:.3f}, "
        f"inference;dur={inference_ns / 1e6:.3f}, postprocess;dur={postprocess_ns / 1e6:.3f}"
    )
    stage = service.metrics.stage
    stage["queue"].observe(queue_ns / NS)
    stage["preprocess"].observe(preprocess_ns / NS)
    stage["inference"].observe(inference_ns / NS)
    stage["postprocess"].observe(postprocess_ns / NS)
    if dependency_ns:
        timing += f", dependency;dur={dependency_ns / 1e6:.3f}"
        stage["dependency"].observe(dependency_ns / NS)
    headers = {"server-timing": timing, "x-replica-id": answer.replica, "x-batch-size": str(answer.batch)}
    return Response(body, headers=headers, media_type="application/json")


def refuse(refusal: Rejected | NotReady | QueueFull) -> Response:
    """413 or 422 for the content, 503 not ready, 429 queue full with Retry-After."""
    headers: dict[str, str] = {}
    detail: Any = str(refusal)
    if isinstance(refusal, Rejected):
        status, detail = refusal.status, refusal.detail
    elif isinstance(refusal, QueueFull):
        status, headers = 429, {"retry-after": str(refusal.retry_after_s)}
    else:
        status = 503
    return Response(json.dumps({"detail": detail}, allow_nan=False), status, headers, media_type="application/json")
