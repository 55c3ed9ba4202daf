"""What the routes share: the parts of the service, created once and closed once, and a cache for callers that poll."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import ValidationError

from groupwise.errors import ContractError
from groupwise.files import disk
from groupwise.service.chat_models import ChatModels
from groupwise.service.designs import Designs
from groupwise.service.event_stream import Followers, RunLog
from groupwise.service.guard import FAILURES_PER_SECOND, Rates
from groupwise.service.jobs import Job, Jobs
from groupwise.service.keys import LOCAL, Keys, Who
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.ownership import Ownership
from groupwise.service.run_list import RunListing
from groupwise.service.runs import Runs
from groupwise.service.schemas import ChatRequest
from groupwise.service.settings import ServiceSettings
from groupwise.service.sidecar import Sidecar
from groupwise.service.supervisor import Supervisor
from groupwise.service.tables import Tables
from groupwise.service.websocket_connection import LiveClient, Topics

STATUS_FRESH = 0.1  # seconds a result stays valid
MOST = 1000


class StatusCache:
    """The last result for each name. Only `forget` may be called outside the event loop."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, bytes]] = {}
        self._looks: dict[str, asyncio.Task[bytes]] = {}

    async def of(self, name: str, look: Callable[[], bytes]) -> bytes:
        """The result of `look`, at most a tenth of a second old.

        `look` runs in a thread; if it raises, every waiting caller gets the error.
        """
        seen = self._seen.get(name)
        # Polling pages ask for the same job many times a second; one answer serves them all.
        if seen is not None and time.monotonic() - seen[0] <= STATUS_FRESH:
            return seen[1]
        under_way = self._looks.get(name)
        if under_way is None:
            under_way = self._looks[name] = asyncio.create_task(self._look(name, look))
        return await asyncio.shield(under_way)  # one caller may disconnect while others still wait

    async def _look(self, name: str, look: Callable[[], bytes]) -> bytes:
        try:
            found = await asyncio.to_thread(look)
            if self._looks.get(name) is asyncio.current_task():  # it was not invalidated in the meantime
                self._seen[name] = (time.monotonic(), found)
                while len(self._seen) > MOST:
                    self._seen.pop(next(iter(self._seen)))
            return found
        finally:
            if self._looks.get(name) is asyncio.current_task():
                self._looks.pop(name, None)

    def forget(self, name: str) -> None:
        """Invalidate a name: later callers get a fresh result."""
        self._looks.pop(name, None)
        self._seen.pop(name, None)


class ServiceState:
    """The parts of one running service."""

    def __init__(self, settings: ServiceSettings, counting: ServiceMetrics) -> None:
        self.settings, self.counting = settings, counting
        self.began = time.time()
        self.clients: set[LiveClient] = set()
        self.status_cache = StatusCache()
        self.failures = Rates(FAILURES_PER_SECOND)
        """Wrong keys, counted by address."""
        with disk(settings.folder):  # a database elsewhere would not create it
            settings.folder.mkdir(parents=True, exist_ok=True)
        self.tables = Tables(settings.url)
        self.keys = Keys(self.tables, settings.is_local, settings.token)
        self.keys.refresh()
        most, most_per_key = settings.largest_queue, settings.quotas.queued_per_key
        self.jobs = Jobs(self.tables, str(settings.runs_dir.resolve()), most, most_per_key)
        self.ownership = Ownership(settings, self.jobs)
        self.runs = Runs(settings.runs_dir)
        self.run_list = RunListing(self.runs.index, self.jobs, self.keys)
        self.followers = Followers(self._log_to_follow, self._job_of)
        self.topics = Topics()
        self.chat_models = ChatModels(settings, counting, self.ownership)
        self.designs = Designs(settings)
        # A process of its own, started by the first request: the mathematics needs torch.
        self.laboratory = Sidecar("groupwise.reporting.recorded_step", [])
        self.supervisor = Supervisor(self.jobs, settings, self.ownership)

    def _log_to_follow(self, run: str) -> RunLog:
        """The log of a run; of a job that waits, one that nothing has been written to yet."""
        return self.runs.log(run, begun=self.jobs.of_run(run) is None)

    def _job_of(self, run: str) -> str | None:
        job = self.jobs.of_run(run)
        return None if job is None else job.id

    def start(self) -> None:
        self.supervisor.start()

    def job_changed(self, job: Job) -> None:
        """Have the job looked at again, by the supervisor and by whoever asks for its state."""
        for view in ("", job.asked_by):
            self.status_cache.forget(f"{job.id} {view}")
        self.supervisor.wake()

    async def close(self) -> None:
        self.followers.close()
        await self.chat_models.close()
        await self.designs.close()
        await self.laboratory.close()
        await asyncio.to_thread(self.supervisor.close)
        self.tables.close()

    async def chat_events(self, request: Mapping[str, Any], who: Who) -> AsyncIterator[Mapping[str, Any]]:
        """Answer a chat request that came over the WebSocket."""
        try:
            asked = ChatRequest.model_validate(request)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ContractError(f"{field}: {first['msg']}", field=field) from None
        async for event in self.chat_models.chat(asked, who):
            yield event


def state_of(request: Request) -> ServiceState:
    found: ServiceState = request.app.state.parts
    return found


def asker_of(request: Request) -> Who:
    """The caller, as identified by the guard."""
    return getattr(request.state, "who", None) or LOCAL


Shared = Annotated[ServiceState, Depends(state_of)]
Asker = Annotated[Who, Depends(asker_of)]
