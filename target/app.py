"""The FastAPI app: its endpoints, and the lifespan that loads the model once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict

from target.access_log import AccessLog
from target.disturbances import other_clients, stop_the_world
from target.faults import KINDS, load_fault
from target.predict import router as predict_router
from target.service import Service

API_VERSION = "1"
MOST_FAULTS = 64

router = APIRouter()


def json_response(content: Any, status: int = 200) -> Response:
    """Strict JSON: NaN and infinity are refused."""
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def service_of(request: Request) -> Service:
    """The service in the request's app."""
    service: Service = request.app.state.service
    return service


@router.get("/healthz")
async def healthz() -> Response:
    """Liveness: the process answers. Never touches the model."""
    return json_response({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Readiness: 200 when requests are taken, 503 with the reason before (and while every replica restarts)."""
    reason = service_of(request).why_unready()
    return json_response({"status": "unready", "reason": reason}, 503) if reason else json_response({"status": "ready"})


@router.get("/version")
async def version(request: Request) -> Response:
    """Which artifact answers, and with which options (durations in seconds)."""
    service = service_of(request)
    model = service.model
    told = None if model is None else {"name": model.name, "version": model.version, "digest": model.digest}
    return json_response(
        {"service": "truetail-target", "version": API_VERSION, "model": told, "config": service.config.model_dump(mode="json")}
    )


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/device")
async def device(request: Request) -> Response:
    """What a monitor of the (simulated) devices would show; see docs/target.md."""
    return json_response(service_of(request).device())


class FaultList(BaseModel):
    """Body of POST /faults: ``faults`` are put in force from now on, after taking all others out if ``replace``."""

    model_config = ConfigDict(extra="forbid")
    faults: list[dict[str, Any]]
    replace: bool = False


@router.get("/faults")
async def get_faults(request: Request) -> Response:
    """The faults in force, and the kinds there are with their parameters and defaults."""
    kinds = {
        name: {field: info.get_default() if not info.is_required() else "required" for field, info in model.model_fields.items()}
        for name, model in KINDS.items()
    }
    return json_response({"faults": service_of(request).describe_faults(), "kinds": kinds})


@router.post("/faults")
async def post_faults(request: Request, asked: FaultList) -> Response:
    """Put faults in force; their windows count from now. All are checked before any is. 503 before readiness."""
    service = service_of(request)
    if service.unready:
        return json_response({"detail": service.unready}, 503)
    found, wrong = [], []
    for item in asked.faults:
        try:
            found.append(load_fault(item))
        except ValueError as error:
            wrong.append(str(error))
    replicas = len(service.replicas)
    wrong += [f"replica {f.replica} does not exist" for f in found if f.replica is not None and f.replica >= replicas]
    if len(found) + (0 if asked.replace else len(service.effects.placed)) > MOST_FAULTS:
        wrong.append(f"more than {MOST_FAULTS} faults")
    if wrong:
        return json_response({"detail": wrong}, 422)
    if asked.replace:
        service.effects.clear()
    ids = [service.place(fault) for fault in found]
    return json_response({"ids": ids, "faults": service.describe_faults()}, 201)


@router.delete("/faults")
async def delete_faults(request: Request) -> Response:
    """Take all faults out."""
    service_of(request).effects.clear()
    return json_response({"faults": []})


@router.delete("/faults/{fault_id}")
async def delete_fault(request: Request, fault_id: int) -> Response:
    """Take one fault out by the id that POST gave; 404: there is none."""
    service = service_of(request)
    if not service.effects.remove(fault_id):
        return json_response({"detail": f"no fault {fault_id}"}, 404)
    return json_response({"faults": service.describe_faults()})


async def _flush(log: AccessLog) -> None:
    while True:
        await asyncio.sleep(0.5)
        await asyncio.to_thread(log.flush)


def build_app(service: Service, log: AccessLog | None = None) -> FastAPI:
    """The app around a service. The model is loaded when the app starts, while /healthz and /readyz answer already."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        work = [service.start(), stop_the_world(service), other_clients(service)]
        tasks = [asyncio.create_task(coroutine) for coroutine in [*work, *([_flush(log)] if log else [])]]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(service.stop)
        if log is not None:
            log.close()

    app = FastAPI(title="Truetail reference inference service", version=API_VERSION, lifespan=lifespan)
    app.state.service = service
    app.include_router(router)
    app.include_router(predict_router)
    return app
