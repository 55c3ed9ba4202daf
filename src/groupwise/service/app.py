"""The routes put together into one application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from groupwise import __version__
from groupwise.service.parts import Parts
from groupwise.service.refusals import install
from groupwise.service.routes import jobs, runs, system
from groupwise.service.settings import ServiceSettings


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application; its parts are made when it starts, and closed when it ends."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.parts = parts = await run_in_threadpool(Parts, settings)
        parts.start()
        try:
            yield
        finally:
            await run_in_threadpool(parts.close)

    app = FastAPI(title="Groupwise", version=__version__, lifespan=life, summary="Train, chat, design and watch.")
    install(app)
    for routes in (jobs, runs, system):
        app.include_router(routes.router)
    return app
