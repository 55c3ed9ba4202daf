"""`groupwise serve`: the application on a port."""

from __future__ import annotations

import uvicorn

from groupwise.service.app import create_app
from groupwise.service.settings import ServiceSettings


def serve(settings: ServiceSettings) -> None:
    """Serve until Ctrl-C or SIGTERM; jobs under way save first."""
    config = uvicorn.Config(
        create_app(settings), host=settings.host, port=settings.port, log_level="warning", access_log=False,
        timeout_graceful_shutdown=5, server_header=False, ws_max_size=1 << 20,
    )  # fmt: skip
    uvicorn.Server(config).run()
