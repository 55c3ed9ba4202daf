"""What the routes share: the service's parts, made once and closed once."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Depends, Request

from groupwise.service.jobs import Jobs
from groupwise.service.runs import Runs
from groupwise.service.settings import ServiceSettings
from groupwise.service.supervisor import Supervisor
from groupwise.service.tables import Tables


class Parts:
    """The parts of one running service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.began = time.time()
        self.tables = Tables(settings.url)
        self.jobs = Jobs(self.tables, str(settings.runs_dir.resolve()), settings.largest_queue)
        self.runs = Runs(settings.runs_dir)
        self.supervisor = Supervisor(self.jobs, settings)

    def start(self) -> None:
        self.supervisor.start()

    def close(self) -> None:
        self.supervisor.close()
        self.tables.close()


def parts_of(request: Request) -> Parts:
    found: Parts = request.app.state.parts
    return found


Shared = Annotated[Parts, Depends(parts_of)]
