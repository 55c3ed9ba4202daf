"""The application: all routes behind the guard; `serve` runs it on a port."""

import asyncio
import errno
import gc
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from groupwise import __version__
from groupwise.errors import ConfigError
from groupwise.service import openapi
from groupwise.service.guard import Guard, HeaderLimits
from groupwise.service.keys import Keys
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.refusals import install
from groupwise.service.routes import chat, jobs, page, runs, system, workflows
from groupwise.service.routes import websocket as live
from groupwise.service.settings import ServiceSettings
from groupwise.service.state import ServiceState
from groupwise.service.tables import Tables


def create_app(settings: ServiceSettings) -> FastAPI:
    """Build the application. Its parts are created on startup and closed on shutdown."""
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
    openapi.install(app)
    app.add_middleware(Guard, settings=settings, counting=counting)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["*"], allow_headers=["*"]
        )
    # Curves and the page's scripts shrink to a third. Small answers, which are many, are sent as they are.
    app.add_middleware(GZipMiddleware, minimum_size=4000, compresslevel=6)
    # The page answers every other address, so it comes last.
    for router in (
        jobs.router, runs.router, chat.router, chat.openai_router, workflows.router, live.router, system.router,
        page.docs_router, page.router,
    ):  # fmt: skip
        app.include_router(router)
    return app


IDLE = 15  # seconds an unused connection stays open


def serve(settings: ServiceSettings) -> None:
    """Serve until Ctrl-C or SIGTERM; running jobs save first."""
    check(settings)
    refuse_taken_port(settings)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    print(greeting(settings), file=sys.stderr, flush=True)
    server = uvicorn.Server(server_config(settings))
    # Everything loaded so far stays until the end. Scanning it again and again for garbage delayed every answer.
    gc.collect()
    gc.freeze()
    server.run()


def greeting(settings: ServiceSettings) -> str:
    """Where the service is, with the token as long as there are no keys to use instead."""
    address = f"http://{settings.host}:{settings.port}"
    tables = Tables(settings.url)
    try:
        keys = Keys(tables, settings.is_local)
        keys.refresh()
    finally:
        tables.close()
    if keys.required:
        return f"Groupwise is running at {address} (press Ctrl-C to stop)"
    return (
        f"Groupwise is running at {address}/?token={settings.token} (press Ctrl-C to stop)\n"
        "This address gives you every right. Without the token, requests from this machine may train and chat with "
        "built-in tasks and models."
    )


def server_config(settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(settings), host=settings.host, port=settings.port, http=HeaderLimits, log_config=None,
        log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5,
        timeout_keep_alive=IDLE, ws_max_size=1 << 20, ws_per_message_deflate=False, backlog=512,
    )  # fmt: skip


def refuse_taken_port(settings: ServiceSettings) -> None:
    """Uvicorn would only log the error of the operating system and exit."""
    host, port = settings.host, settings.port
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    hint = "Stop the program that uses it, or choose another port with --port."
                    raise ConfigError(f"port {port} on {host} is already in use", hint=hint, field="port") from None


def check(settings: ServiceSettings) -> None:
    """Refuse to start without a working database, or open to other machines without a key."""
    tables = Tables(settings.url)
    try:
        open_to_others = not settings.is_local and all(key.revoked is not None for key in Keys(tables).all())
    finally:
        tables.close()
    if open_to_others:
        message = f"host = {settings.host!r} lets other machines connect, but no key exists to protect the service"
        raise ConfigError(message, hint="Create one first: groupwise keys add NAME --scope admin.", field="host")
