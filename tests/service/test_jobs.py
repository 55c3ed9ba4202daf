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
from groupwise.service.jobs import (
    IdempotencyConflict,
    Job,
    JobNotFound,
    Jobs,
    JobState,
    OverQuota,
    QueueFull,
    RunTaken,
)
from groupwise.service.keys import LOCAL, OPERATOR, Keys, Unauthorised, Who
from groupwise.service.tables import JOBS, KEYS, DatabaseDown, Tables, _open

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


ANN, BOB = Who("ann", "ann", "train", "ann"), Who("bob", "bob", "train", "bob")


def named(jobs: Jobs, run: str, who: Who = ANN) -> Job:
    return jobs.add(run, "control", {"run": run}, who)[0]


def test_a_new_job_waits_and_is_as_it_was_asked_for(jobs: Jobs) -> None:
    job, new = jobs.add("a", "control", {"b": [1], "a": None}, ANN, "key")
    assert new
    assert job == jobs.get(job.id) == jobs.of_run("a")
    assert (job.run, job.product, job.request) == ("a", "control", {"b": [1], "a": None})
    assert (job.asked_by, job.scope, job.folder) == ("ann", "train", "/runs")
    assert (job.state, job.wanted, job.owner, job.lease) == ("queued", "run", None, 0.0)
    assert (job.starts, job.mark, job.since, job.error, job.is_over) == (0, 0, 0, None, False)
    assert 0 < job.created == job.updated
    again, new = jobs.add("z", "control", {"a": None, "b": [1]}, ANN, "key")  # the order of names means nothing
    assert (again, new) == (job, False)
    assert jobs.of_run("none") is None
    assert Jobs(jobs.tables, "/elsewhere").of_run("a") is None


def test_the_list_has_the_newest_first_of_its_folder_and_of_whoever_asks(jobs: Jobs) -> None:
    for run, who in (("a", ANN), ("b", BOB), ("c", ANN), ("d", OPERATOR)):
        named(jobs, run, who)
    Jobs(jobs.tables, "/elsewhere").add("e", "control", {}, ANN)
    jobs.cancel(str(getattr(jobs.of_run("c"), "id", "")))

    def runs(**more: object) -> str:
        return "".join(job.run for job in jobs.newest(**more))  # type: ignore[arg-type]

    assert runs() == "dcba"
    assert runs(limit=2) == "dc"
    assert (runs(who=ANN), runs(who=BOB), runs(who=OPERATOR)) == ("ca", "b", "dcba")
    assert (runs(state="queued"), runs(state="cancelled"), runs(state="running")) == ("dba", "c", "")
    assert runs(state="queued", who=ANN, limit=1) == "a"
    assert jobs.owners() == {"a": "ann", "b": "bob", "c": "ann", "d": "operator"}
    assert jobs.counts() == {"queued": 3, "running": 0, "finished": 0, "failed": 0, "cancelled": 1}


def test_the_oldest_are_claimed_first_and_no_more_than_asked_for(jobs: Jobs) -> None:
    made = [add(jobs).id for _ in range(4)]
    first = jobs.claim("one", 2, LEASE)
    assert sorted(job.id for job in first) == sorted(made[:2])
    assert all(job.state == "running" and job.owner == "one" for job in first)
    assert all(job.lease == pytest.approx(job.updated + LEASE) for job in first)
    assert {job.id for job in jobs.claim("two", 5, LEASE)} == set(made[2:])
    assert jobs.claim("three", 5, LEASE) == []
    assert {job.id for job in jobs.beat("one", LEASE)} == set(made[:2])


def test_a_beat_renews_the_leases_of_its_owner_alone(jobs: Jobs) -> None:
    add(jobs)
    (first,) = jobs.claim("one", 1, LEASE)
    add(jobs)
    (second,) = jobs.claim("two", 1, LEASE)
    (renewed,) = jobs.beat("two", 2 * LEASE)
    assert renewed.id == second.id
    assert renewed.lease >= second.lease + LEASE
    assert jobs.get(first.id) == first
    assert jobs.beat("nobody", LEASE) == []


def test_only_starts_without_progress_are_counted(jobs: Jobs) -> None:
    add(jobs)
    (job,) = jobs.claim("me", 1, LEASE)
    found = []
    for step in (0, 0, 3, 3, 2, 3, 4):
        started = jobs.started(job, step)
        job = jobs.get(job.id)
        assert (job.starts, job.mark) == (started, step)
        found.append(started)
    assert found == [1, 2, 1, 2, 3, 1, 1]


def test_a_job_that_is_over_has_no_owner_and_its_error_until_it_is_resumed(jobs: Jobs) -> None:
    add(jobs)
    (failed,) = jobs.claim("me", 1, LEASE)
    jobs.started(failed, 7)
    assert jobs.settle(failed, "failed", {"code": "run", "message": "it fell"})
    assert not jobs.settle(failed, "finished"), "it is over already"
    over = jobs.get(failed.id)
    assert (over.state, over.owner, over.lease, over.is_over) == ("failed", None, 0.0, True)
    with pytest.raises(JobState, match="already failed"):
        jobs.cancel(failed.id)
    again = jobs.resume(failed.id, 4)
    assert (again.state, again.wanted, again.owner, again.lease) == ("queued", "run", None, 0.0)
    assert (again.starts, again.mark, again.since, again.error) == (0, 0, 4, None)
    with pytest.raises(JobState, match=f"job {failed.id} is queued"):
        jobs.resume(failed.id, 4)


def test_what_is_finished_is_neither_cancelled_nor_resumed(jobs: Jobs) -> None:
    add(jobs)
    (job,) = jobs.claim("me", 1, LEASE)
    with pytest.raises(JobState, match="is running"):
        jobs.resume(job.id, 0)
    assert jobs.settle(job, "finished")
    assert jobs.get(job.id).error is None
    for act in (lambda: jobs.cancel(job.id), lambda: jobs.resume(job.id, 0)):
        with pytest.raises(JobState, match="finished"):
            act()


def test_cancelling_one_job_leaves_the_others(jobs: Jobs) -> None:
    running, queued, other = add(jobs), add(jobs), add(jobs)
    jobs.claim("me", 1, LEASE)
    stopping = jobs.cancel(running.id)
    assert (stopping.state, stopping.wanted, stopping.is_over) == ("running", "cancel", False)
    cancelled = jobs.cancel(queued.id)
    assert (cancelled.state, cancelled.wanted, cancelled.is_over) == ("cancelled", "cancel", True)
    assert jobs.get(other.id) == other
    assert jobs.claim("two", 5, LEASE)[0].id == other.id


def test_a_job_whose_end_is_wanted_is_not_queued_again_when_its_service_goes(jobs: Jobs) -> None:
    first, second = add(jobs), add(jobs)
    jobs.claim("me", 2, LEASE)
    jobs.cancel(first.id)
    jobs.release("another", [first.id, second.id])
    assert jobs.get(second.id).owner == "me"
    jobs.release("me", [first.id, second.id])
    assert [(jobs.get(one.id).state, jobs.get(one.id).owner) for one in (first, second)] == [
        ("running", None), ("queued", None),
    ]  # fmt: skip


def test_a_job_is_deleted_together_with_its_run_or_not_at_all(jobs: Jobs) -> None:
    job, other = add(jobs), add(jobs)
    removed: list[str] = []
    with pytest.raises(JobState, match="is not over"):
        jobs.delete(job, lambda: removed.append("too early"))
    jobs.cancel(job.id)

    def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        jobs.delete(job, fail)
    assert jobs.get(job.id).state == "cancelled"
    jobs.delete(job, lambda: removed.append("run"))
    assert removed == ["run"]
    assert [one.id for one in jobs.newest()] == [other.id]


def test_only_waiting_jobs_of_the_same_owner_count_against_its_share(jobs: Jobs) -> None:
    few = Jobs(jobs.tables, "/runs", most=6, most_per_key=2)
    for run, who in (("a", ANN), ("b", ANN), ("c", BOB)):
        named(few, run, who)
    with pytest.raises(OverQuota, match="2 of your jobs are waiting, and the limit is 2"):
        named(few, "d")
    few.claim("me", 1, LEASE)  # a runs
    named(few, "d")
    for run in "efg":
        named(few, run, OPERATOR)
    with pytest.raises(QueueFull, match="6 jobs are waiting, and the limit is 6"):
        named(few, "h", OPERATOR)


def test_a_repeated_request_is_answered_even_if_there_is_no_room_for_a_new_one(jobs: Jobs) -> None:
    few = Jobs(jobs.tables, "/runs", most=2, most_per_key=1)
    first, _ = few.add("a", "control", {"x": 1}, ANN, "key")
    with pytest.raises(OverQuota):
        few.add("b", "control", {"x": 1}, ANN, "other")
    assert few.add("b", "control", {"x": 1}, ANN, "key") == (first, False)
    named(few, "c", BOB)
    with pytest.raises(QueueFull):
        named(few, "d", OPERATOR)
    assert few.add("b", "control", {"x": 1}, ANN, "key") == (first, False)
    over = few.cancel(first.id)
    assert few.add("b", "control", {"x": 1}, ANN, "key") == (over, False)
    with pytest.raises(RunTaken, match="a run named 'c' already exists"):  # of another, and with a key of its own
        few.add("c", "control", {"x": 1}, ANN, "new")


def test_each_change_of_a_job_is_dated_and_a_beat_is_none(jobs: Jobs) -> None:
    job = named(jobs, "a")
    dates = [job.updated]

    def changed(now: Job) -> bool:
        dates.append(now.updated)
        assert now.created == job.created
        return dates[-1] > dates[-2]

    (claimed,) = jobs.claim("me", 1, LEASE)
    assert changed(claimed)
    (renewed,) = jobs.beat("me", LEASE)
    assert not changed(renewed)
    assert changed(jobs.cancel(job.id))
    assert jobs.settle(jobs.get(job.id), "cancelled")
    assert changed(jobs.get(job.id))
    assert changed(jobs.resume(job.id, 1))
    assert changed(jobs.cancel(job.id))


def test_a_job_whose_lease_ran_out_is_claimed_as_it_stands(jobs: Jobs) -> None:
    late, mine, new = (named(jobs, run) for run in "abc")
    (job,) = jobs.claim("gone", 1, -1.0)
    assert job.id == late.id
    jobs.started(job, 4)
    jobs.cancel(late.id)
    (other,) = jobs.claim("me", 1, LEASE)
    assert other.id == late.id, "it has waited for longest"
    assert (other.owner, other.wanted, other.starts, other.mark) == ("me", "cancel", 1, 4)
    assert [one.id for one in jobs.claim("me", 1, LEASE)] == [mine.id]
    assert [one.id for one in jobs.claim("another", 5, LEASE)] == [new.id], "what is over or held is not free"
    assert jobs.settle(other, "cancelled")
    assert jobs.claim("another", 5, LEASE) == []


@pytest.mark.parametrize("kind", ["postgresql", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg"])
def test_postgresql_is_reached_through_the_driver_that_is_installed(kind: str) -> None:
    engine = _open(f"{kind}://ann:secret@box:5433/name")
    assert (engine.dialect.name, engine.dialect.driver) == ("postgresql", "psycopg")
    assert (engine.url.host, engine.url.port, engine.url.username, engine.url.database) == ("box", 5433, "ann", "name")


@pytest.mark.parametrize("url", ["mysql://root:secret@localhost/x", "nonsense", "", "odd+driver://x"])
def test_another_database_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a supported database") as refused:
        _open(url)
    assert refused.value.field == "database"
    assert "secret" not in refused.value.message + refused.value.hint
