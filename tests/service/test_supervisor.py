"""The supervisor, one decision at a time: what it starts, within which limits, and how a job ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import StorageError
from groupwise.files import lock_file
from groupwise.service.job_slots import JobProcess
from groupwise.service.jobs import Job, Jobs, OverQuota, RunTaken
from groupwise.service.keys import OPERATOR, Who
from groupwise.service.ownership import Ownership
from groupwise.service.settings import Quotas, ServiceSettings
from groupwise.service.supervisor import MOST_STARTS, SMALLEST_FILE, Supervisor
from groupwise.service.tables import Tables
from groupwise.training.events import EventLog
from groupwise.training.folder import create_run
from groupwise.types import Event
from tests.service.conftest import CART, until

ANN = Who("ann", "ann", "train", "ann")
MIB = 1 << 20


class World:
    """A supervisor whose thread was never started, and a program that stands for Python."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        quotas = Quotas(memory_per_job=123 * MIB, cpu_hours_per_job=0.5, disk_per_key=10 * MIB)
        self.settings = ServiceSettings(runs_dir=folder / "runs", quotas=quotas, niceness=0, **settings)
        self.tables = Tables(f"sqlite:///{folder / 'jobs.sqlite'}")
        self.jobs = Jobs(self.tables, "/runs")
        self.supervisor = Supervisor(self.jobs, self.settings, Ownership(self.settings, self.jobs))
        self.runs = self.settings.runs_dir

    def job(self, run: str = "r", who: Who = ANN, **changes: Any) -> Job:
        """A job that the supervisor has claimed, as the table might have it."""
        job, _ = self.jobs.add(run, "control", {"config": CART}, who)
        (job,) = self.jobs.claim(self.supervisor.id, 1, 100.0)
        return replace(job, **changes)

    def run(self, state: str, attempt: int = 1, name: str = "r", events: tuple[tuple[str, int, Any], ...] = ()) -> Path:
        """The folder of a run in that state, with events of these types, attempts and data."""
        path = create_run(TrainingConfig.from_dict({**CART, "output_dir": str(self.runs), "run_name": name}))
        log = EventLog(path / "events.jsonl")
        for kind, of, data in events:
            log.append(Event(name, log.count, of, 1.0, 5, kind, data))
        log.close()
        status = {"state": state, "step": 5, "total": 9, "attempt": attempt, "updated": 1.0, "metrics": {}}
        (path / "status.json").write_text(json.dumps(status))
        return path

    def printed(self, job: Job, code: str) -> None:
        self.supervisor.places.output(job.id).write_text(json.dumps({"error": {"code": code, "message": f"{code}!"}}))

    def end(self, job: Job) -> tuple[bool, str, str]:
        """Whether the job is over, its state in the table, and the code of its error."""
        over, found = self.supervisor._outcome(job), self.jobs.get(job.id)
        return over, found.state, (found.error or {}).get("code", "")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.tables.close()


STOP = ("control", 1, {"op": "stop"})
FELL = ("error", 1, {"error": {"code": "fell", "message": "it fell"}})
ON = (False, "running", "")


@pytest.mark.parametrize(("run", "changes", "said", "end"), [
    # A run that has ended decides, if it ended since the job was asked for.
    (("finished", 1, ()), {}, "", (True, "finished", "")),
    (("finished", 1, ()), {"wanted": "cancel"}, "", (True, "finished", "")),
    (("finished", 1, ()), {"since": 1}, "", ON),
    (("finished", 2, ()), {"since": 1}, "", (True, "finished", "")),
    (("finished", 1, ()), {"since": 1, "wanted": "cancel"}, "", (True, "cancelled", "")),
    (("failed", 1, (FELL,)), {}, "printed", (True, "failed", "fell")),
    (("failed", 1, ()), {}, "printed", (True, "failed", "printed")),
    (("failed", 1, (FELL,)), {"since": 1}, "", ON),
    # A run that was stopped is cancelled only if somebody meant it; otherwise its process was, and the run goes on.
    (("stopped", 1, ()), {}, "", ON),
    (("stopped", 1, ()), {"wanted": "cancel"}, "", (True, "cancelled", "")),
    (("stopped", 1, (STOP,)), {}, "", (True, "cancelled", "")),
    (("stopped", 2, (STOP,)), {}, "", ON),
    (("stopped", 1, (STOP, ("control", 1, {"op": "checkpoint"}))), {}, "", ON),
    (("stopped", 1, (("control", 1, {"op": "checkpoint"}), STOP)), {}, "", (True, "cancelled", "")),
    (("interrupted", 1, ()), {"starts": 1}, "", ON),
    (("interrupted", 1, ()), {"wanted": "cancel"}, "", (True, "cancelled", "")),
    # Without a run the process failed at its settings, unless the disk or a lock was to blame.
    (None, {}, "config", ON),
    (None, {"wanted": "cancel"}, "", (True, "cancelled", "")),
    (None, {"starts": 1}, "", ON),
    (None, {"starts": 1}, "config", (True, "failed", "config")),
    (None, {"starts": 1}, "storage", ON),
    (None, {"starts": 1}, "run", ON),
    (None, {"starts": MOST_STARTS - 1}, "storage", ON),
    (None, {"starts": MOST_STARTS}, "storage", (True, "failed", "storage")),
    # With one, it is tried again until it has died too often.
    (("interrupted", 1, ()), {"starts": MOST_STARTS - 1}, "config", ON),
    (("interrupted", 1, ()), {"starts": MOST_STARTS}, "config", (True, "failed", "config")),
    (("interrupted", 1, ()), {"starts": MOST_STARTS}, "", (True, "failed", "job_dies")),
    (None, {"starts": MOST_STARTS}, "", (True, "failed", "job_dies")),
])  # fmt: skip
def test_how_a_job_without_a_process_stands(
    world: World, run: tuple[Any, ...] | None, changes: dict[str, Any], said: str, end: tuple[bool, str, str]
) -> None:
    job = world.job(**changes)
    if run is not None:
        world.run(*run[:2], events=run[2])
    if said:
        world.printed(job, said)
    assert world.end(job) == end


def test_the_last_error_of_a_run_is_the_jobs(world: World) -> None:
    job = world.job()
    world.run("failed", events=(("error", 1, {"error": {"code": "old", "message": "m"}}), FELL, ("hint", 1, {})))
    world.supervisor._outcome(job)
    assert world.jobs.get(job.id).error == {"code": "fell", "message": "it fell", "hint": "", "field": ""}


@pytest.mark.parametrize("damage", ["settings", "checkpoints", "nothing"])
@pytest.mark.parametrize("starts", [0, 1])
def test_a_run_that_nothing_can_resume_is_set_aside_and_begun_again(world: World, damage: str, starts: int) -> None:
    job = world.job(starts=starts)
    path = world.run("interrupted")
    if damage == "settings":
        (path / "config.toml").write_text("broken")
    world.printed(job, "checkpoint" if damage == "checkpoints" else "storage")
    assert world.end(job) == ON
    aside = starts == 1 and damage != "nothing"
    assert path.exists() is not aside
    assert world.supervisor.places.output(job.id).exists() is not aside
    kept = list((world.settings.folder / "damaged").glob("r-*")) if aside else []
    assert len(kept) == aside


@pytest.mark.parametrize(("spent", "used", "cpu", "size"), [
    (0.0, 0, 1800, 10 * MIB), (1000.5, MIB, 799, 9 * MIB), (1799.5, 10 * MIB, 1, SMALLEST_FILE),
    (1799.5, 11 * MIB, 1, SMALLEST_FILE), (1800.0, 0, None, None), (2000.0, 0, None, None),
])  # fmt: skip
def test_a_process_is_held_to_what_is_left_of_its_keys_quotas(
    world: World, spent: float, used: int, cpu: int | None, size: int | None
) -> None:
    job = world.job()
    (world.runs / "r").mkdir(parents=True)
    (world.runs / "r" / "file").write_bytes(b"x" * used)
    world.supervisor.places.cpu(job.id).write_text(str(spent))
    if cpu is None:
        with pytest.raises(OverQuota, match=r"the job used its 0\.5 hours of processor time"):
            world.supervisor._limits(job)
        return
    assert world.supervisor._limits(job) == {
        "RLIMIT_DATA": 123 * MIB, "RLIMIT_CPU": cpu, "RLIMIT_FSIZE": size, "RLIMIT_CORE": 0,
    }  # fmt: skip
    assert world.supervisor._limits(replace(job, scope="admin")) == {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [2.0]  # a machine that has just started
    monkeypatch.setattr("groupwise.service.supervisor.time.monotonic", lambda: now[0])
    monkeypatch.setattr("groupwise.service.ownership.FRESH", 0.0)
    return now


@pytest.fixture
def busy() -> Iterator[JobProcess]:
    code = "import time\nwhile time.process_time() < 0.05: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield JobProcess(started)
        started.kill()


def test_what_a_job_uses_is_measured_every_few_seconds(world: World, clock: list[float], busy: JobProcess) -> None:
    job, file = world.job(), world.runs / "r" / "file"
    cpu = world.supervisor.places.cpu(job.id)
    file.parent.mkdir(parents=True)
    world.supervisor._spent_before[job.id] = 100.0
    world.supervisor._measure(replace(job, scope="admin"), busy)
    assert not cpu.exists()
    world.supervisor._measure(job, busy)
    assert float(cpu.read_text()) == pytest.approx(100.0 + busy.cpu_seconds, abs=0.02)
    assert float(cpu.read_text()) > 100.0
    file.write_bytes(b"x" * (10 * MIB + 1))
    found = []
    for clock[0] in (2.0, 6.9, 7.0):
        world.supervisor._measure(job, None)
        found.append(job.id in world.supervisor._over)
    assert found == [False, False, True]
    assert "0.01 GiB on disk, and the limit is 0.01 GiB" in world.supervisor._over[job.id].message


def test_a_share_of_the_disk_that_is_just_full_stops_nothing(world: World, clock: list[float]) -> None:
    job, file = world.job(), world.runs / "r" / "file"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 10 * MIB)
    world.supervisor._measure(job, None)
    assert world.supervisor._over == {}


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of Python's, which waits until it is told to end."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


@pytest.mark.parametrize(("before", "pause"), [
    (0, 0.0), (1, 0.0), (2, 0.5), (3, 1.0), (4, 2.0), (5, 4.0), (7, 16.0), (8, 30.0), (50, 30.0),
])  # fmt: skip
def test_a_job_that_dies_at_once_is_started_ever_more_slowly(
    world: World, python: Path, clock: list[float], before: int, pause: float
) -> None:
    python.write_text("#!/bin/sh\nexit 1\n")
    job = world.job(starts=before)
    world.supervisor._begin(job)
    assert world.supervisor._not_before[job.id] == clock[0] + pause
    assert world.jobs.get(job.id).starts == before + 1
    world.supervisor._children[job.id].wait(600)
    child = world.supervisor._children[job.id]
    world.supervisor._look_after(replace(job, starts=0))  # as if it had not been started yet
    again = world.supervisor._children[job.id]
    assert (again is child) is (pause > 0)
    again.wait(600)


def test_a_job_begins_with_its_settings_and_goes_on_with_its_run(world: World) -> None:
    job, places = world.job(), world.supervisor.places
    (world.runs / "r").mkdir(parents=True)  # a process was killed before it wrote anything
    assert world.supervisor._info(job) is None
    assert world.supervisor._words(job, None) == ["train", str(places.config(job.id)), "--json", "--quiet"]
    assert not (world.runs / "r").exists()
    written = json.loads(places.config(job.id).read_text())
    assert (written["run"]["run_name"], written["run"]["output_dir"]) == ("r", str(world.runs.resolve()))
    assert written["training"]["num_episodes"] == CART["num_episodes"]
    path = world.run("interrupted")
    info = world.supervisor._info(job)
    assert info is not None
    begun = replace(job, starts=1)
    assert world.supervisor._words(begun, info) == ["resume", str(path.resolve()), "--json", "--quiet"]
    with pytest.raises(RunTaken, match="made elsewhere while the job waited"):
        world.supervisor._words(job, info)
    # The service died after it had started the process, before it could note that.
    (path / "env.json").write_text(json.dumps({"command": ["train", f"{job.id}.json"]}))
    assert world.supervisor._words(job, info)[0] == "resume"


def test_what_cannot_begin_fails_the_job_unless_the_disk_is_to_blame(
    world: World, clock: list[float], python: Path
) -> None:
    job = world.job()
    world.supervisor.places.cpu(job.id).write_text("99999")
    world.supervisor._begin(job)
    assert world.jobs.get(job.id).error == {
        "code": "quota", "message": "the job used its 0.5 hours of processor time", "field": "",
        "hint": "Ask the operator for more (groupwise serve --cpu-hours), then resume the job.",
    }  # fmt: skip
    other = world.job("other")
    world.supervisor.places.output(other.id).mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        world.supervisor._begin(other)
    assert world.jobs.get(other.id).state == "running"
    assert world.supervisor._not_before[other.id] == clock[0] + 1.0
    assert world.supervisor._children == {}


def test_a_process_that_used_up_its_time_ends_its_job(world: World, python: Path) -> None:
    python.write_text("#!/bin/sh\nkill -XCPU $$\n")
    job = world.job()
    world.supervisor._begin(job)
    assert world.supervisor._children[job.id].wait(600)
    assert world.supervisor._children[job.id].exit_status == -signal.SIGXCPU
    world.supervisor._look_after(job)
    found = world.jobs.get(job.id)
    assert (found.state, (found.error or {})["code"]) == ("failed", "quota")
    assert world.supervisor._children == {}


def test_a_run_is_told_to_stop_once_in_a_while_and_only_if_it_listens(
    world: World, clock: list[float], python: Path
) -> None:
    job = world.job(wanted="cancel", scope="admin")
    path = world.run("running")
    alone = lock_file(world.supervisor.places.lock(job.id))  # a process of an earlier service
    assert alone is not None
    world.supervisor._look_after(job)
    assert not (path / "control.jsonl").exists()
    listening = lock_file(path / "lock")
    assert listening is not None
    told = []
    for clock[0] in (2.0, 4.9, 5.0):
        world.supervisor._look_after(job)
        told.append(len((path / "control.jsonl").read_text().splitlines()))
    assert told == [1, 1, 2]
    world.supervisor._look_after(replace(job, wanted="run"))
    assert len((path / "control.jsonl").read_text().splitlines()) == 2
    assert json.loads((path / "control.jsonl").read_text().splitlines()[0])["op"] == "stop"
    assert world.supervisor._children == {}, "it has a process already"
    alone.release()
    listening.release()


def test_no_more_jobs_run_at_once_than_there_are_workers(tmp_path: Path, python: Path) -> None:
    world = World(tmp_path, workers=2)
    jobs = [world.jobs.add(run, "control", {"config": CART}, OPERATOR)[0].id for run in "abc"]
    for _ in range(2):
        world.supervisor._tick()
        assert set(world.supervisor._children) == set(jobs[:2])
    os.kill(world.supervisor._children[jobs[0]].pid, signal.SIGKILL)
    world.jobs.cancel(jobs[0])
    until(lambda: world.supervisor._tick() or jobs[2] in world.supervisor._children)  # type: ignore[func-returns-value]
    assert set(world.supervisor._children) == set(jobs[1:])
    assert world.jobs.get(jobs[0]).state == "cancelled"
    world.supervisor.close()
    world.tables.close()


def test_a_service_that_ends_stops_its_processes_and_hands_their_jobs_over(world: World, python: Path) -> None:
    ids = []
    for run in ("waits", "unwanted", "done"):
        ids.append(world.job(run).id)
        world.supervisor._begin(world.jobs.get(ids[-1]))
    world.jobs.cancel(ids[1])
    world.run("finished", name="done")
    processes = list(world.supervisor._children.values())
    world.supervisor.close()
    assert [process.exit_status for process in processes] == [-signal.SIGTERM] * 3
    assert [(world.jobs.get(one).state, world.jobs.get(one).owner) for one in ids] == [
        ("queued", None), ("cancelled", None), ("finished", None),
    ]  # fmt: skip


def test_a_process_of_a_job_that_another_took_over_is_kept_until_it_ends(world: World, python: Path) -> None:
    job = world.job()
    world.supervisor._begin(job)
    child = world.supervisor._children[job.id]
    world.jobs.release(world.supervisor.id)
    world.jobs.claim("another", 5, 100.0)
    world.supervisor._tick()
    assert world.supervisor._children == {job.id: child}
    child.ask_to_stop()
    assert child.wait(600)
    world.supervisor._tick()
    assert world.supervisor._children == world.supervisor._not_before == {}


def remembered(supervisor: Supervisor) -> list[dict[str, Any]]:
    """Everything the supervisor remembers of jobs that it looks after."""
    return [value for name, value in vars(supervisor).items() if isinstance(value, dict) and name.startswith("_")]


def test_a_job_that_was_over_its_quota_starts_anew_once_it_is_resumed(
    world: World, python: Path, clock: list[float]
) -> None:
    python.write_text("#!/bin/sh\nkill -XCPU $$\n")
    job = world.job()
    world.supervisor._begin(job)
    assert world.supervisor._children[job.id].wait(600)
    world.supervisor._asked[job.id] = world.supervisor._measured[job.id] = clock[0]
    world.supervisor._look_after(job)
    assert len(remembered(world.supervisor)) == 6
    assert not any(remembered(world.supervisor)), "nothing is left of a job that is over"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    world.jobs.resume(job.id, 0)
    world.supervisor._tick()
    child = world.supervisor._children[job.id]
    assert child.exit_status is None
    assert world.jobs.get(job.id).state == "running"
    world.supervisor.close()
    assert child.exit_status == -signal.SIGTERM


def test_a_job_whose_runs_fill_the_disk_is_stopped_and_fails(world: World, python: Path, clock: list[float]) -> None:
    job = world.job()
    world.supervisor._begin(job)
    path = world.run("running")
    (path / "file").write_bytes(b"x" * (10 * MIB + 1))
    listening = lock_file(path / "lock")
    assert listening is not None
    world.supervisor._look_after(job)
    assert json.loads((path / "control.jsonl").read_text())["op"] == "stop"
    assert world.jobs.get(job.id).state == "running", "it has a process"
    listening.release()
    world.supervisor._children[job.id].ask_to_stop()
    assert world.supervisor._children[job.id].wait(600)
    world.supervisor._look_after(job)
    found = world.jobs.get(job.id)
    assert (found.state, (found.error or {})["code"]) == ("failed", "quota")
    assert not any(remembered(world.supervisor))


@pytest.mark.parametrize(("mark", "starts", "pause"), [(4, 1, 0.0), (5, 5, 2.0), (6, 5, 2.0)])
def test_the_step_of_the_run_says_whether_the_last_process_got_further(
    world: World, python: Path, clock: list[float], mark: int, starts: int, pause: float
) -> None:
    python.write_text("#!/bin/sh\nexit 1\n")
    job = world.job(starts=4, mark=mark)
    world.run("interrupted")  # at step 5
    world.supervisor._begin(job)
    found = world.jobs.get(job.id)
    assert (found.starts, found.mark) == (starts, 5)
    assert world.supervisor._not_before[job.id] == clock[0] + pause
    world.supervisor._children[job.id].wait(600)


def test_a_job_that_has_a_process_already_is_not_started_and_not_counted(world: World, python: Path) -> None:
    job = world.job()
    held = lock_file(world.supervisor.places.lock(job.id))
    assert held is not None
    world.supervisor._begin(job)
    assert world.supervisor._children == {}
    assert world.jobs.get(job.id).starts == 0
    held.release()


def test_a_folder_that_is_not_empty_is_not_removed_to_begin_a_run(world: World) -> None:
    job = world.job()
    (world.runs / "r").mkdir(parents=True)
    (world.runs / "r" / "notes").touch()
    assert world.supervisor._info(job) is None
    assert world.supervisor._words(job, None)[0] == "train"
    assert (world.runs / "r" / "notes").exists()
    for name in ("events.jsonl", "config.toml"):  # either makes it a run
        world.runs.joinpath("r", "notes").rename(world.runs / "r" / name)
        assert world.supervisor._info(job) is not None
        (world.runs / "r" / name).rename(world.runs / "r" / "notes")


def test_a_process_that_does_not_end_in_time_keeps_its_job(
    world: World, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.supervisor.FAREWELL", 0.2)
    python.write_text("#!/bin/sh\ntrap '' TERM\necho up\nexec sleep 600\n")
    job = world.job()
    world.supervisor._begin(job)
    child = world.supervisor._children[job.id]
    until(lambda: world.supervisor.places.last_words(job.id) == "up\n")
    world.supervisor.close()
    found = world.jobs.get(job.id)
    assert (child.exit_status, found.state, found.owner) == (None, "running", None)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(600)


def test_trouble_with_the_disk_is_told_until_it_is_over(
    world: World, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, told, ended = world.supervisor, list[str | None](), iter((1, 2, 3))

    def looked(seconds: float) -> None:
        """In the place of the pause between two looks."""
        told.append(supervisor.failing)
        place = supervisor.places.output(job.id)
        if next(ended) == 1:
            place.rmdir()
            supervisor._not_before.clear()
        else:
            supervisor._end.set()

    job, _ = world.jobs.add("r", "control", {"config": CART}, ANN)
    supervisor.places.output(job.id).mkdir()
    monkeypatch.setattr(supervisor._wake, "wait", looked)
    supervisor._run()
    assert told[0] is not None
    assert "Is a directory" in told[0]
    assert told[1:] == [None]
    supervisor.close()


@pytest.mark.parametrize(("state", "wanted", "end"), [
    ("finished", "run", "finished"), ("failed", "run", "failed"), ("interrupted", "cancel", "cancelled"),
])  # fmt: skip
def test_nothing_is_remembered_of_a_job_that_is_over(
    world: World, python: Path, clock: list[float], state: str, wanted: str, end: str
) -> None:
    python.write_text("#!/bin/sh\nexit 0\n")
    job = world.job(wanted=wanted)
    world.supervisor._begin(job)
    world.supervisor._children[job.id].wait(600)
    world.supervisor._asked[job.id] = world.supervisor._measured[job.id] = clock[0]
    world.run(state)
    world.supervisor._look_after(job)
    assert world.jobs.get(job.id).state == end
    assert not any(remembered(world.supervisor))
