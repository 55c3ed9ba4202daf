"""Metrics of the service and of running jobs, and how many workers the jobs have."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from groupwise.files import is_locked
from groupwise.service.jobs import RUNNING
from groupwise.service.metrics import machine
from groupwise.service.refusals import refusals
from groupwise.service.schemas import Order, ScaleAnswer, ScaleRequest
from groupwise.service.state import ServiceState, Shared
from groupwise.training.control_file import send_command
from groupwise.training.folder import inspect_run

router = APIRouter(tags=["system"])


class MetricsView(BaseModel):
    uptime: float
    jobs: dict[str, int]
    requests: dict[str, float]
    websocket: dict[str, float]
    chat: dict[str, Any]
    machine: dict[str, float]
    runs: dict[str, dict[str, float | None]] = Field(description="Latest metrics of running jobs.")


@router.get("/api/metrics", responses=refusals())
def metrics(parts: Shared) -> MetricsView:
    """The state of the service and of its running jobs."""
    return MetricsView.model_validate(snapshot(parts))


@router.get("/metrics", responses={**refusals(), 200: {"content": {"text/plain": {}}}}, response_class=Response)
def prometheus(parts: Shared) -> Response:
    """The same metrics in Prometheus's format."""
    for state, count in parts.jobs.counts().items():
        parts.counting.jobs.labels(state).set(count)
    return Response(parts.counting.exposition(), media_type="text/plain; version=0.0.4")


@router.post("/api/scale", responses=refusals(404))
def scale(request: ScaleRequest, parts: Shared) -> ScaleAnswer:
    """Ask running jobs to change their number of workers. Each does so between two steps, or reports why it cannot."""
    jobs = [parts.jobs.get(request.job)] if request.job else parts.jobs.newest(RUNNING, 1000)
    args = request.model_dump(exclude_none=True, exclude={"job"})
    orders = []
    for job in jobs:
        path = parts.settings.runs_dir / job.run
        if job.state == RUNNING and is_locked(path / "lock"):
            orders.append(Order(job=job.id, run=job.run, order=send_command(path, "scale", args).id))
    return ScaleAnswer(orders=orders)


def snapshot(parts: ServiceState) -> dict[str, Any]:
    counting = parts.counting
    runs = {}
    for job in parts.jobs.newest(RUNNING, 50):
        path = parts.settings.runs_dir / job.run
        if (path / "status.json").exists():
            runs[job.run] = dict(inspect_run(path).metrics)
    return {
        "uptime": round(time.time() - parts.began, 1),
        "jobs": parts.jobs.counts(),
        "requests": counting.requests(),
        "websocket": {
            "clients": len(parts.clients),
            "sent": counting.sent._value.get(),
            "dropped": counting.dropped._value.get(),
        },
        "chat": parts.chat_models.state(),
        "machine": machine(),
        "runs": runs,
    }
