"""Health checks, and who the caller is."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlalchemy import text

from groupwise import __version__
from groupwise.errors import StorageError
from groupwise.service.refusals import refusals
from groupwise.service.state import Asker, Shared

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
