"""The routes put together into one application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from groupwise import __version__
from groupwise.service.counting import Counting
from groupwise.service.guard import Guard
from groupwise.service.parts import Parts
from groupwise.service.refusals import install
from groupwise.service.routes import chat, completions, docs, jobs, live, metrics, page, runs, system, workflows
from groupwise.service.settings import ServiceSettings


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application; its parts are made when it starts, and closed when it ends."""
    counting = Counting()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.parts = parts = await run_in_threadpool(Parts, settings, counting)
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
