"""`groupwise serve`: the application on a port."""

from __future__ import annotations

import gc
import logging
import sys

import uvicorn

from groupwise.errors import ConfigError
from groupwise.service.app import create_app
from groupwise.service.heads import Heads
from groupwise.service.keys import Keys
from groupwise.service.settings import ServiceSettings
from groupwise.service.tables import Tables

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
        create_app(settings), host=settings.host, port=settings.port, http=Heads, log_config=None, log_level="warning",
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
