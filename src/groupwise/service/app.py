"""The application: all routes behind the guard, and `serve`, which puts it on a port."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from groupwise import __version__
from groupwise.errors import ConfigError
from groupwise.service.guard import Guard
from groupwise.service.keys import Keys
from groupwise.service.limits import HeaderLimits
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.refusals import install
from groupwise.service.routes import chat, completions, docs, jobs, live, metrics, page, runs, system, workflows
from groupwise.service.settings import ServiceSettings
from groupwise.service.state import ServiceState
from groupwise.service.tables import Tables


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application; its parts are made when it starts, and closed when it ends."""
    counting = ServiceMetrics()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.parts = parts = await run_in_threadpool(ServiceState, settings, counting)
        parts.start()
        telling = asyncio.create_task(live.broadcast(parts))
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
            await parts.close()

    app = FastAPI(
        title="Groupwise", version=__version__, lifespan=life, summary="Train, chat, design and watch.", docs_url=None,
        redoc_url=None,
    )  # fmt: skip
    install(app)
    app.add_middleware(Guard, settings=settings, counting=counting)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["*"], allow_headers=["*"]
        )
    for routes in (jobs, runs, chat, completions, workflows, live, metrics, system, docs, page):  # the page comes last
        app.include_router(routes.router)
    return app


IDLE = 15  # seconds an unused connection stays open


def serve(settings: ServiceSettings) -> None:
    """Serve until Ctrl-C or SIGTERM; jobs under way save first."""
    check(settings)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    print(f"Groupwise is at http://{settings.host}:{settings.port} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server = uvicorn.Server(server_config(settings))
    # What is loaded stays to the end. Looking through it for garbage, again and again, held up every answer.
    gc.collect()
    gc.freeze()
    server.run()


def server_config(settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(settings), host=settings.host, port=settings.port, http=HeaderLimits, log_config=None, log_level="warning",
        access_log=False, server_header=False, timeout_graceful_shutdown=5, timeout_keep_alive=IDLE,
        ws_max_size=1 << 20, ws_per_message_deflate=False, backlog=512,
    )  # fmt: skip


def check(settings: ServiceSettings) -> None:
    """The database answers, and others may reach the service only once there is a key they must show."""
    tables = Tables(settings.url)
    try:
        open_to_others = not settings.is_local and all(key.revoked is not None for key in Keys(tables).all())
    finally:
        tables.close()
    if open_to_others:
        raise ConfigError(
            f"host = {settings.host!r} lets other machines in, and there is no key to ask them for",
            hint="Make one first: groupwise keys add NAME --scope admin.",
            field="host",
        )
