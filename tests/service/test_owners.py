"""Ownership without a server: who sees what, what it takes on disk, and what deleting takes away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.errors import RunNotFound
from groupwise.files import lock_file
from groupwise.service.jobs import Job, JobNotFound, Jobs, JobState, OverQuota
from groupwise.service.keys import OPERATOR, Who
from groupwise.service.ownership import Ownership
from groupwise.service.settings import GIB, Quotas, ServiceSettings
from groupwise.service.tables import Tables

ANN, BOB = Who("ann", "ann", "train", "ann"), Who("bob", "bob", "train", "bob")
WATCHER = Who("w", "w", "read", "ann")


class World:
    """A folder of runs, a table of jobs, and their owners."""

    def __init__(self, folder: Path) -> None:
        self.settings = ServiceSettings(
            runs_dir=folder / "runs", quotas=Quotas(disk_per_key=1000), model="base", allow_models=("a/b", "c")
        )
        self.tables = Tables(f"sqlite:///{folder / 'jobs.sqlite'}")
        self.jobs = Jobs(self.tables, "/runs")
        self.ownership = Ownership(self.settings, self.jobs)

    def run(self, name: str, who: Who | None = None, size: int = 0) -> Path:
        """A run's folder, of a job that is over if somebody asked for it."""
        if who is not None:
            job, _ = self.jobs.add(name, "control", {}, who)
            self.jobs.started(job, 0)
            self.jobs.cancel(job.id)
        path = self.settings.runs_dir / name
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "file").write_bytes(b"x" * size)
        return path

    def job(self, run: str) -> Job:
        found = self.jobs.of_run(run)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.tables.close()


def test_a_job_or_run_of_another_is_one_that_does_not_exist(world: World) -> None:
    world.run("anns", ANN), world.run("bobs", BOB), world.run("nobodys")
    job = world.job("anns")
    for who in (ANN, WATCHER, OPERATOR):
        assert world.ownership.job(job.id, who) == job
        assert world.ownership.run("anns", who) == "anns"
    with pytest.raises(JobNotFound, match=f"there is no job '{job.id}'"):
        world.ownership.job(job.id, BOB)
    for run in ("anns", "nobodys", "none"):
        with pytest.raises(RunNotFound, match=f"there is no run '{run}'"):
            world.ownership.run(run, BOB)
    assert world.ownership.run("nobodys", OPERATOR) == "nobodys"


def test_the_size_of_a_keys_runs_is_that_of_its_own_files(world: World, tmp_path: Path) -> None:
    one, _, _ = world.run("one", ANN, 100), world.run("two", ANN, 30), world.run("bobs", BOB, 7)
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (one / "link").symlink_to(tmp_path / "large")
    (one / ".hidden").write_bytes(b"12")
    link = os.lstat(one / "link").st_size
    assert world.ownership.disk_used("ann") == 132 + link
    assert world.ownership.disk_used("bob") == 7
    assert world.ownership.disk_used("nobody") == 0
    world.jobs.add("not started", "control", {}, BOB)
    assert Ownership(world.settings, world.jobs).disk_used("bob") == 7


def test_a_size_is_measured_again_after_a_few_seconds_or_a_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [3.0]  # a machine that has just started
    monkeypatch.setattr("groupwise.service.ownership.time.monotonic", lambda: now[0])
    path = world.run("one", ANN, 100)
    found = []
    for now[0], size in ((3.0, 100), (7.9, 200), (8.0, 300)):
        (path / "sub" / "file").write_bytes(b"x" * size)
        found.append(world.ownership.disk_used("ann"))
    assert found == [100, 100, 300]
    world.ownership.delete("one", ANN)
    assert world.ownership.disk_used("ann") == 0


@pytest.mark.parametrize(("size", "refused"), [(999, False), (1000, True), (1001, True)])
def test_a_full_share_of_the_disk_is_refused_to_all_but_administrators(world: World, size: int, refused: bool) -> None:
    world.run("one", ANN, size)
    world.ownership.insist_on_space(BOB)
    world.ownership.insist_on_space(Who("x", "x", "admin", "ann"))
    if not refused:
        world.ownership.insist_on_space(ANN)
        return
    with pytest.raises(OverQuota, match=f"your runs take {size / GIB:.2f} GiB on disk, and the limit is"):
        world.ownership.insist_on_space(ANN)


def test_a_train_key_may_name_its_own_runs_and_the_models_of_the_service(world: World, tmp_path: Path) -> None:
    assert world.ownership.reach("ann", "admin") is None
    reach = world.ownership.reach("ann", "train")
    assert reach is not None
    assert world.ownership.reach("ann", "read") is not None
    assert (reach.data, reach.models) == (None, ("base", "a/b", "c"))
    own = world.run("anns", ANN)
    world.run("bobs", BOB), world.run("nobodys"), world.run(".service/anns")
    assert reach.run("anns") == own
    for name in ("bobs", "nobodys", "none", ".service", "../runs/anns", "anns/", "anns/sub", "", ".", "anns\n"):
        assert reach.run(name) is None, name


def test_deleting_takes_the_run_its_job_and_the_jobs_files_and_nothing_else(world: World) -> None:
    gone, kept = world.run("gone", ANN), world.run("kept", ANN)
    files = world.settings.folder / "jobs"
    files.mkdir(parents=True)
    job, other = world.job("gone"), world.job("kept")
    for name in (f"{job.id}.json", f"{job.id}.out", f"{other.id}.json"):
        (files / name).touch()
    with pytest.raises(RunNotFound):
        world.ownership.delete("gone", BOB)
    assert gone.is_dir()
    world.ownership.delete("gone", ANN)
    assert (gone.exists(), kept.is_dir(), world.jobs.of_run("gone")) == (False, True, None)
    assert os.listdir(files) == [f"{other.id}.json"]
    assert os.listdir(world.settings.folder / "deleted") == []
    with pytest.raises(RunNotFound):
        world.ownership.delete("gone", OPERATOR)


def test_a_run_without_a_job_and_a_job_without_a_run_can_be_deleted(world: World) -> None:
    path = world.run("nobodys")
    world.ownership.delete("nobodys", OPERATOR)
    assert not path.exists()
    world.jobs.cancel(world.jobs.add("never", "control", {}, ANN)[0].id)
    world.ownership.delete("never", ANN)
    assert world.jobs.of_run("never") is None


def test_what_runs_or_waits_is_not_deleted(world: World) -> None:
    path = world.run("busy", ANN)
    lock = lock_file(path / "lock")
    assert lock is not None
    with pytest.raises(JobState, match="run busy is running"):
        world.ownership.delete("busy", ANN)
    assert world.job("busy").state == "cancelled"
    assert path.is_dir()
    lock.release()
    world.ownership.delete("busy", ANN)
    waiting = world.jobs.add("waits", "control", {}, ANN)[0]
    with pytest.raises(JobState, match=f"job {waiting.id} is not over"):
        world.ownership.delete("waits", ANN)


def test_deleting_a_link_leaves_what_it_leads_to(world: World, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    world.jobs.cancel(world.jobs.add("link", "control", {}, ANN)[0].id)
    world.settings.runs_dir.mkdir()
    (world.settings.runs_dir / "link").symlink_to(tmp_path / "elsewhere")
    world.ownership.delete("link", OPERATOR)
    assert not os.path.lexists(world.settings.runs_dir / "link")
    assert (tmp_path / "elsewhere" / "file").exists()
    assert os.listdir(world.settings.folder / "deleted") == []


def test_a_run_made_elsewhere_does_not_belong_to_the_job_that_waits_under_its_name(world: World) -> None:
    waiting, _ = world.jobs.add("cartpole-1", "control", {}, ANN)
    assert world.ownership.run("cartpole-1", ANN) == "cartpole-1"
    world.run("cartpole-1")
    with pytest.raises(RunNotFound):
        world.ownership.run("cartpole-1", ANN)
    with pytest.raises(RunNotFound):
        world.ownership.delete("cartpole-1", ANN)
    reach = world.ownership.reach(ANN.owner, ANN.scope)
    assert reach is not None
    assert reach.run("cartpole-1") is None
    assert world.ownership.run("cartpole-1", OPERATOR) == "cartpole-1"
    world.jobs.cancel(waiting.id)
    assert not world.jobs.resume(waiting.id, 0).has_begun
    world.jobs.started(waiting, 0)
    assert world.ownership.run("cartpole-1", ANN) == "cartpole-1"
    world.jobs.cancel(waiting.id)
    assert world.jobs.resume(waiting.id, 0).has_begun
