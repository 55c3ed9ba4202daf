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
    insist_on_key(settings)
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


def insist_on_key(settings: ServiceSettings) -> None:
    """Others may reach the service only once there is a key they must show."""
    if settings.is_local:
        return
    tables = Tables(settings.url)
    try:
        if any(key.revoked is None for key in Keys(tables).all()):
            return
    finally:
        tables.close()
    raise ConfigError(
        f"host = {settings.host!r} lets other machines in, and there is no key to ask them for",
        hint="Make one first: groupwise keys add NAME --scope admin.",
        field="host",
    )
