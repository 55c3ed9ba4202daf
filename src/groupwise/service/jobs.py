"""The job table: one row per job, with a lease that says which service is responsible for it.

    queued ──claim──► running ──settle──► finished | failed | cancelled
       ▲                │ lease ran out: any service may claim it
       └────resume──────┴─ (cancelled, failed)

The table records intent. What became of a job is read from its run folder.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from groupwise.errors import GroupwiseError
from groupwise.service.keys import Who
from groupwise.service.tables import JOBS, Tables

QUEUED, RUNNING, FINISHED, FAILED, CANCELLED = "queued", "running", "finished", "failed", "cancelled"
STATES = (QUEUED, RUNNING, FINISHED, FAILED, CANCELLED)
OVER = (FINISHED, FAILED, CANCELLED)


class JobNotFound(GroupwiseError):
    code = "job_not_found"


class JobState(GroupwiseError):
    """The job's state does not allow the request."""

    code = "job_state"


class IdempotencyConflict(GroupwiseError):
    code = "idempotency_conflict"


class RunTaken(GroupwiseError):
    code = "run_exists"


class QueueFull(GroupwiseError):
    code = "queue_full"


class OverQuota(GroupwiseError):
    """The key has used up what it may use."""

    code = "quota"


@dataclass(frozen=True)
class Job:
    """One row of the job table."""

    id: str
    folder: str
    run: str
    product: str
    request: Mapping[str, Any]
    asked_by: str
    scope: str
    state: str
    wanted: str
    owner: str | None
    lease: float
    starts: int
    mark: int
    since: int
    error: Mapping[str, str] | None
    created: float
    updated: float

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def has_begun(self) -> bool:
        """Whether a process was ever started for it."""
        return bool(self.starts or self.since) or self.mark < 0 or self.state == FINISHED


@dataclass(frozen=True)
class JobBrief:
    """What the list of runs says of a job."""

    id: str
    run: str
    product: str
    asked_by: str
    state: str
    wanted: str
    updated: float
    error: Mapping[str, str] | None


class Jobs:
    """The jobs in one database whose runs are kept in `folder`."""

    def __init__(self, tables: Tables, folder: str, most: int = 1000, most_per_key: int = 100) -> None:
        self.tables, self.folder, self.most, self.most_per_key = tables, folder, most, most_per_key
        self._briefs: tuple[object, Mapping[str, JobBrief]] = (None, {})

    def add(
        self, run: str, product: str, request: Mapping[str, Any], who: Who, key: str | None = None
    ) -> tuple[Job, bool]:
        """Add a job and return (job, True); a known idempotency `key` returns (its earlier job, False)."""
        asked = json.dumps(request, sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()
        # Two callers may choose the same idempotency key, and neither must get the other's job.
        key = None if key is None else hashlib.sha256(f"{who.owner} {key}".encode()).hexdigest()
        try:
            with self.tables.writing() as link:
                # Inside the write transaction, so that two requests with one key cannot both miss it.
                known = self._by_key(link, key)
                if known is not None:
                    return _same(known, digest), False
                self._insist_on_room(link, who)
                now = self.tables.now(link)
                row = {
                    "id": uuid.uuid4().hex[:16], "folder": self.folder, "run": run, "product": product,
                    "request": asked, "idempotency_key": key, "digest": digest,
                    "asked_by": who.owner, "scope": who.scope, "state": QUEUED, "wanted": "run", "lease": 0.0,
                    "starts": 0, "mark": 0, "since": 0, "created": now, "updated": now,
                }  # fmt: skip
                link.execute(JOBS.insert().values(**row))
        except IntegrityError:  # a concurrent request used the same key, or the run's name is taken
            with self.tables.reading() as link:
                known = self._by_key(link, key)
            if known is None:
                raise RunTaken(f"a run named {run!r} already exists", hint="Choose another run.run_name.") from None
            return _same(known, digest), False
        return self.get(str(row["id"])), True

    def _insist_on_room(self, link: Any, who: Who) -> None:
        waiting = select(func.count()).where(JOBS.c.state == QUEUED)
        in_all = link.execute(waiting).scalar_one()
        if in_all >= self.most:
            raise QueueFull(
                f"the queue is full: {in_all} jobs are waiting, and the limit is {self.most}", hint="Try again later."
            )
        own = link.execute(waiting.where(JOBS.c.asked_by == who.owner)).scalar_one()
        if own >= self.most_per_key and not who.may("admin"):
            raise OverQuota(
                f"{own} of your jobs are waiting, and the limit is {self.most_per_key}",
                hint="Wait until one has started, or cancel one.",
            )

    def get(self, job_id: str) -> Job:
        with self.tables.reading() as link:
            row = link.execute(select(JOBS).where(JOBS.c.id == job_id)).one_or_none()
        if row is None:
            raise JobNotFound(f"there is no job {job_id!r:.60}", hint="GET /api/jobs lists them.")
        return _job(row)

    def of_run(self, run: str) -> Job | None:
        with self.tables.reading() as link:
            row = link.execute(select(JOBS).where(JOBS.c.run == run, JOBS.c.folder == self.folder)).one_or_none()
        return None if row is None else _job(row)

    def newest(
        self, state: str | None = None, limit: int = 100, who: Who | None = None, begin: int = 0
    ) -> Sequence[Job]:
        """Newest first, from number `begin` on; with `who`, only those that it may see."""
        query = self._seen(select(JOBS), state, who).order_by(JOBS.c.created.desc(), JOBS.c.id)
        with self.tables.reading() as link:
            return [_job(row) for row in link.execute(query.offset(begin).limit(limit))]

    def count(self, state: str | None = None, who: Who | None = None) -> int:
        with self.tables.reading() as link:
            return int(link.execute(self._seen(select(func.count()), state, who)).scalar_one())

    def _seen(self, query: Select[Any], state: str | None, who: Who | None) -> Select[Any]:
        query = query.where(JOBS.c.folder == self.folder)
        if state is not None:
            query = query.where(JOBS.c.state == state)
        if who is not None and not who.may("admin"):
            query = query.where(JOBS.c.asked_by == who.owner)
        return query

    def briefs(self) -> Mapping[str, JobBrief]:
        """Every job in brief, by its run; read again only when one of them has changed."""
        own = JOBS.c.folder == self.folder
        columns = [getattr(JOBS.c, name) for name in JobBrief.__dataclass_fields__]
        with self.tables.reading() as link:
            counts = select(JOBS.c.state, JOBS.c.wanted, func.count(), func.max(JOBS.c.updated)).where(own)
            mark = tuple(map(tuple, link.execute(counts.group_by(JOBS.c.state, JOBS.c.wanted))))
            if mark != self._briefs[0]:
                found = [dict(row._mapping) for row in link.execute(select(*columns).where(own))]
                for row in found:
                    row["error"] = json.loads(row["error"]) if row["error"] else None
                self._briefs = (mark, {row["run"]: JobBrief(**row) for row in found})
        return self._briefs[1]

    def owners(self) -> dict[str, str]:
        """The owner of every run that a job made."""
        with self.tables.reading() as link:
            found = link.execute(select(JOBS.c.run, JOBS.c.asked_by).where(JOBS.c.folder == self.folder))
            return {run: owner for run, owner in found}

    def counts(self) -> dict[str, int]:
        query = select(JOBS.c.state, func.count()).where(JOBS.c.folder == self.folder).group_by(JOBS.c.state)
        with self.tables.reading() as link:
            return {**dict.fromkeys(STATES, 0), **{state: count for state, count in link.execute(query)}}

    def cancel(self, job_id: str) -> Job:
        """A queued job ends at once; a running one finishes its step and saves."""
        job = self.get(job_id)
        if job.is_over or job.wanted == "cancel":
            state = job.state if job.is_over else "being cancelled"
            raise JobState(f"job {job_id} is already {state}", hint="Only a queued or running job can be cancelled.")
        with self.tables.writing() as link:
            now = self.tables.now(link)
            change = update(JOBS).where(JOBS.c.id == job_id)
            # Whether it was still queued is decided by the update itself: a service may claim it at this moment.
            waiting = change.where(JOBS.c.state == QUEUED).values(state=CANCELLED, wanted="cancel", updated=now)
            if not link.execute(waiting).rowcount:
                link.execute(change.where(JOBS.c.state == RUNNING).values(wanted="cancel", updated=now))
        return self.get(job_id)

    def resume(self, job_id: str, attempt: int) -> Job:
        """Queue a cancelled or failed job again, after attempt `attempt` of its run."""
        over = update(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_((CANCELLED, FAILED)))
        # Below 0, so that a job whose run had no attempt yet is still known to have begun.
        mark = -1 if not attempt and self.get(job_id).has_begun else 0
        afresh = over.values(state=QUEUED, wanted="run", starts=0, mark=mark, since=attempt, error=None, owner=None)
        with self.tables.writing() as link:
            changed = link.execute(afresh.values(lease=0.0, updated=self.tables.now(link))).rowcount
        job = self.get(job_id)
        if not changed:
            raise JobState(f"job {job_id} is {job.state}", hint="Only a cancelled or failed job can be resumed.")
        return job

    def delete(self, job: Job, remove: Callable[[], None]) -> None:
        """Delete a job that is over, together with what `remove` takes away; both or neither."""
        with self.tables.writing() as link:
            over = (JOBS.c.id == job.id) & JOBS.c.state.in_(OVER)
            if not link.execute(delete(JOBS).where(over)).rowcount:
                raise JobState(f"job {job.id} is not over", hint="Cancel it first, and wait until it has stopped.")
            remove()

    def claim(self, owner: str, limit: int, lease: float) -> Sequence[Job]:
        """Claim up to `limit` jobs for `owner`: queued ones, and those whose lease has run out."""
        with self.tables.writing() as link:
            now = self.tables.now(link)
            # A job whose lease ran out stays `running`: its process may be alive, only its service is gone.
            free = or_(JOBS.c.state == QUEUED, (JOBS.c.state == RUNNING) & (JOBS.c.lease < now))
            query = select(JOBS.c.id).where(free, JOBS.c.folder == self.folder).order_by(JOBS.c.created).limit(limit)
            # SQLite writers exclude each other (BEGIN IMMEDIATE); on PostgreSQL rows that others hold are skipped.
            if not self.tables.is_sqlite:
                query = query.with_for_update(skip_locked=True)
            ids = [row.id for row in link.execute(query)]
            if not ids:
                return []
            claimed = update(JOBS).where(JOBS.c.id.in_(ids))
            link.execute(claimed.values(state=RUNNING, owner=owner, lease=now + lease, updated=now))
            return [_job(row) for row in link.execute(select(JOBS).where(JOBS.c.id.in_(ids)))]

    def beat(self, owner: str, lease: float) -> Sequence[Job]:
        """Renew `owner`'s leases and return the jobs it still owns."""
        with self.tables.writing() as link:
            now = self.tables.now(link)
            mine = (JOBS.c.owner == owner) & (JOBS.c.state == RUNNING)
            link.execute(update(JOBS).where(mine).values(lease=now + lease))
            return [_job(row) for row in link.execute(select(JOBS).where(mine))]

    def started(self, job: Job, step: int) -> int:
        """Count one more process of the job; returns how many have run without progress."""
        # Only starts without progress count: a job may be killed any number of times while it advances.
        starts = 1 if step > job.mark else job.starts + 1
        with self.tables.writing() as link:
            link.execute(update(JOBS).where(JOBS.c.id == job.id).values(starts=starts, mark=step))
        return starts

    def settle(self, job: Job, state: str, error: Mapping[str, str] | None = None) -> bool:
        """Record that the job is over, unless another service has claimed it in the meantime."""
        # A service that was silent for too long has lost the job to another, which alone may settle it.
        mine = update(JOBS).where(JOBS.c.id == job.id, JOBS.c.owner == job.owner, JOBS.c.state == RUNNING)
        ended = mine.values(state=state, error=json.dumps(dict(error)) if error else None, owner=None, lease=0.0)
        with self.tables.writing() as link:
            return bool(link.execute(ended.values(updated=self.tables.now(link))).rowcount)

    def release(self, owner: str, waiting: Collection[str] = ()) -> None:
        """Give up `owner`'s jobs on shutdown, for any service to claim; `waiting` ones have no process left."""
        with self.tables.writing() as link:
            mine = (JOBS.c.owner == owner) & (JOBS.c.state == RUNNING)
            # The others still have a process: they stay `running`, and the next service finds it by its lock.
            back = mine & JOBS.c.id.in_(list(waiting)) & (JOBS.c.wanted == "run")
            link.execute(update(JOBS).where(back).values(state=QUEUED, owner=None, lease=0.0))
            link.execute(update(JOBS).where(mine).values(owner=None, lease=0.0))

    def _by_key(self, link: Any, key: str | None) -> Row[Any] | None:
        if key is None:
            return None
        found: Row[Any] | None = link.execute(select(JOBS).where(JOBS.c.idempotency_key == key)).one_or_none()
        return found


def _same(row: Row[Any], digest: str) -> Job:
    if row.digest != digest:
        message = f"this idempotency key was used for another request, job {row.id}"
        raise IdempotencyConflict(message, hint="Use a new key for a new request.")
    return _job(row)


def _job(row: Row[Any]) -> Job:
    values = dict(row._mapping)
    del values["idempotency_key"], values["digest"]
    values["request"] = json.loads(values["request"])
    values["error"] = json.loads(values["error"]) if values["error"] else None
    return Job(**values)
