"""The table of jobs: what was asked for is kept, and every job has one owner at a time. On SQLite and PostgreSQL."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import delete

from groupwise.errors import ConfigError
from groupwise.service.jobs import IdempotencyConflict, Job, JobNotFound, Jobs, JobState, QueueFull, RunTaken
from groupwise.service.keys import LOCAL, Keys, Unauthorised
from groupwise.service.tables import JOBS, KEYS, DatabaseDown, Tables

LEASE = 100.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    tables = Tables(url)
    with tables.writing() as link:
        link.execute(delete(JOBS))
        link.execute(delete(KEYS))
    yield Jobs(tables, "/runs", most=5)
    tables.close()


def add(jobs: Jobs, key: str | None = None, **request: object) -> Job:
    return jobs.add(f"run-{uuid.uuid4().hex}", "control", request, LOCAL, key)[0]


def test_the_same_key_and_request_are_the_same_job(jobs: Jobs) -> None:
    first, new = jobs.add("a", "control", {"x": 1}, LOCAL, "key")
    again, newer = jobs.add("b", "control", {"x": 1}, LOCAL, "key")
    assert (new, newer) == (True, False)
    assert first == again
    with pytest.raises(IdempotencyConflict):
        jobs.add("c", "control", {"x": 2}, LOCAL, "key")
    assert len(jobs.newest()) == 1


def test_many_requests_with_one_key_at_once_make_one_job(jobs: Jobs) -> None:
    made: list[str] = []

    def ask() -> None:
        made.append(jobs.add(f"run-{uuid.uuid4().hex}", "control", {}, LOCAL, "key")[0].id)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1


def test_a_run_belongs_to_one_job_and_the_queue_has_an_end(jobs: Jobs) -> None:
    jobs.add("mine", "control", {}, LOCAL)
    with pytest.raises(RunTaken):
        jobs.add("mine", "control", {}, LOCAL)
    for _ in range(4):
        add(jobs)
    with pytest.raises(QueueFull, match="5 jobs are waiting"):
        add(jobs)


def test_of_many_services_one_gets_a_job(jobs: Jobs, url: str) -> None:
    wanted = {add(jobs).id for _ in range(4)}
    taken: list[tuple[str, str]] = []

    def serve(name: str) -> None:
        own = Jobs(Tables(url), "/runs")
        for _ in range(5):
            taken.extend((job.id, name) for job in own.claim(name, 1, LEASE))
        own.tables.close()

    threads = [threading.Thread(target=serve, args=(f"service-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job for job, _ in taken) == sorted(wanted)


def test_a_silent_service_loses_its_jobs_and_can_do_nothing_to_them_any_more(jobs: Jobs) -> None:
    add(jobs)
    (job,) = jobs.claim("first", 5, -1.0)
    assert jobs.claim("second", 5, LEASE)[0].id == job.id
    assert jobs.beat("first", LEASE) == []
    assert not jobs.settle(job, "finished")
    assert jobs.get(job.id).state == "running"
    assert jobs.claim("third", 5, LEASE) == []


def test_jobs_of_other_folders_are_not_taken(jobs: Jobs) -> None:
    add(jobs)
    assert Jobs(jobs.tables, "/elsewhere").claim("me", 5, LEASE) == []


def test_a_service_that_goes_hands_its_jobs_over_at_once(jobs: Jobs) -> None:
    waiting, running = add(jobs), add(jobs)
    jobs.claim("first", 5, LEASE)
    jobs.release("first", [waiting.id])
    assert jobs.get(waiting.id).state == "queued"
    assert jobs.get(running.id).state == "running"
    assert {job.id for job in jobs.claim("second", 5, LEASE)} == {waiting.id, running.id}


def test_what_cannot_be_done_in_a_state_is_refused(jobs: Jobs) -> None:
    job = add(jobs)
    with pytest.raises(JobState, match="queued"):
        jobs.resume(job.id, 0)
    assert jobs.cancel(job.id).state == "cancelled"
    with pytest.raises(JobState, match="already cancelled"):
        jobs.cancel(job.id)
    assert jobs.resume(job.id, 3).since == 3
    (job,) = jobs.claim("me", 1, LEASE)
    assert jobs.cancel(job.id).state == "running"
    with pytest.raises(JobState, match="being cancelled"):
        jobs.cancel(job.id)
    assert jobs.settle(job, "failed", {"code": "run", "message": "it fell"})
    assert jobs.get(job.id).error == {"code": "run", "message": "it fell"}
    with pytest.raises(JobNotFound):
        jobs.get("nobody")


def test_keys_are_kept_as_hashes_and_can_be_revoked(jobs: Jobs) -> None:
    keys = Keys(jobs.tables)
    keys.refresh()
    assert keys.who(None).scope == "train"
    text, key = keys.add("ann", "train")
    keys.refresh()
    assert (keys.who(text).name, keys.who(text).may("train"), keys.who(text).may("admin")) == ("ann", True, False)
    with jobs.tables.reading() as link:
        stored = str(link.execute(KEYS.select()).all())
    assert text not in stored
    assert text.removeprefix("gw_") not in stored
    keys.revoke(key.id)
    keys.refresh()
    for shown in (text, "gw_guess", "", None):
        with pytest.raises(Unauthorised):
            keys.who(shown)
    with pytest.raises(ConfigError, match="no key 'zzz'"):
        keys.revoke("zzz")


def test_a_database_that_keeps_everybody_waiting_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    tables = Tables(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    tables.engine.pool._timeout = 0.05  # type: ignore[attr-defined]
    with ExitStack() as held:
        for _ in range(15):
            held.enter_context(tables.reading())
        with pytest.raises(DatabaseDown, match="QueuePool limit"), tables.reading():
            pass
    tables.close()


def test_a_database_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DatabaseDown, match="cannot use the service's database"):
        Tables("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(ConfigError, match="is not a supported database"):
        Tables("mysql://root@localhost/x")
