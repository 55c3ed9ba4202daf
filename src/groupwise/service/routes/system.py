"""The service itself: health, who the caller is, metrics, and how many workers running jobs have."""

import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from sqlalchemy import text

from groupwise import __version__
from groupwise.errors import StorageError
from groupwise.files import is_locked
from groupwise.service.jobs import RUNNING
from groupwise.service.keys import Who
from groupwise.service.metrics import machine
from groupwise.service.refusals import refusals
from groupwise.service.schemas import Order, ScaleAnswer, ScaleRequest
from groupwise.service.state import Asker, ServiceState, Shared
from groupwise.training.control_file import send_command
from groupwise.training.folder import inspect_run

router = APIRouter(tags=["system"])


class Health(BaseModel):
    ok: bool
    version: str


class Me(BaseModel):
    name: str
    scope: str
    keys_required: bool


class Ready(BaseModel):
    ok: bool
    database: str
    supervisor: str


@router.get("/health")
async def health() -> Health:
    """Alive: the process responds."""
    return Health(ok=True, version=__version__)


@router.get("/api/me", responses=refusals())
async def me(parts: Shared, who: Asker) -> Me:
    """Who you are to the service, and your scope."""
    return Me(name=who.name, scope=who.scope, keys_required=parts.keys.required)


@router.get("/ready", responses={503: {"model": Ready, "description": "Something the service needs is unavailable."}})
def ready(response: Response, parts: Shared) -> Ready:
    """Ready: the database answers and the supervisor is running."""
    database, supervisor = "ok", parts.supervisor.failing or ("ok" if parts.supervisor.alive else "not running")
    try:
        with parts.tables.reading() as link:
            link.execute(text("SELECT 1"))
    except StorageError as error:
        database = error.message
    ok = database == supervisor == "ok"
    response.status_code = 200 if ok else 503
    return Ready(ok=ok, database=database, supervisor=supervisor)


class MetricsView(BaseModel):
    uptime: float
    jobs: dict[str, int]
    requests: dict[str, float]
    websocket: dict[str, float]
    chat: dict[str, Any]
    machine: dict[str, float]
    runs: dict[str, dict[str, float | None]] = Field(description="Latest metrics of running jobs.")


@router.get("/api/metrics", responses=refusals())
def metrics(parts: Shared, who: Asker) -> MetricsView:
    """The state of the service, and of those running jobs that you may see."""
    return MetricsView.model_validate(snapshot(parts, who))


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


def snapshot(parts: ServiceState, who: Who) -> dict[str, Any]:
    runs, counting = {}, parts.counting
    sent, dropped = counting.sent._value.get(), counting.dropped._value.get()
    for job in parts.jobs.newest(RUNNING, 50, who):
        path = parts.settings.runs_dir / job.run
        if (path / "status.json").exists():
            runs[job.run] = dict(inspect_run(path).metrics)
    return {
        "uptime": round(time.time() - parts.began, 1),
        "jobs": parts.jobs.counts(),
        "requests": counting.requests(),
        "websocket": {"clients": len(parts.clients), "sent": sent, "dropped": dropped},
        "chat": parts.chat_models.state(),
        "machine": machine(),
        "runs": runs,
    }
