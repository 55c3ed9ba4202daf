"""The service: train, chat, design and watch over HTTP, with jobs that survive being killed.

from groupwise.service import main
main()                                 # the same as `groupwise serve`

app        the routes put together          jobs         what was asked for: a table with leases
supervisor one thread that looks after jobs  children     their processes: the command line itself
runs       run folders read for people       stream       the WebSocket
keys       who may do what                   sidecar      models and designs in processes of their own
"""

from __future__ import annotations

from typing import Any


def main(**settings: Any) -> None:
    """Serve until Ctrl-C; the keyword arguments are those of `groupwise.service.settings.ServiceSettings`."""
    from groupwise.service.app import serve
    from groupwise.service.settings import ServiceSettings

    serve(ServiceSettings(**settings))
