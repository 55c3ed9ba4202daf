"""Whatever is killed, every accepted job ends, and as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from groupwise import __version__
from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.service.jobs import Job
from groupwise.service.supervisor import Supervisor
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from tests.service.conftest import CART, free_port, until

LONGER = {**CART, "num_episodes": 400, "save_steps": 10, "eval_steps": 200}


class Apart:
    """A service in a process of its own, which can be killed."""

    def __init__(self, runs: Path, *words: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "groupwise.cli", "serve", "--port", str(self.port), "--runs-dir", str(runs)]
        self.process = subprocess.Popen(
            [*command, "--lease", "1", "--niceness", "0", *words], stderr=subprocess.DEVNULL
        )
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=600)
        while not self.answers():
            assert self.process.poll() is None, "the service ended"
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            return bool(self.http.get("/health").status_code == 200)
        except httpx2.TransportError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.http.close()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Callable[..., Apart]]:
    started: list[Apart] = []

    def start(*words: str) -> Apart:
        started.append(Apart(tmp_path / "runs", *words))
        return started[-1]

    yield start
    for service in started:
        service.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, numbers: Callable[[Path], Any]) -> Any:
    cfg = TrainingConfig.from_dict({**LONGER, "output_dir": str(tmp_path_factory.mktemp("calm")), "run_name": "calm"})
    path = create_run(cfg)
    list(execute(path, build))
    return numbers(path)


def wait_for_step(path: Path, step: int, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(event.step >= step for event in read_events(path / "events.jsonl")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not reach step {step}")


def pid_of(run: Path) -> int:
    return int(json.loads((run / "lock").read_text())["pid"])


@pytest.mark.timeout(1200)
def test_a_job_outlives_its_service_and_its_process(
    apart: Callable[..., Apart],
    serve: Callable[..., Any],
    tmp_path: Path,
    undisturbed: Any,
    numbers: Callable[[Path], Any],
) -> None:
    first = apart()
    asked = {"name": "storm", "config": LONGER}
    job = first.http.post("/api/train", json=asked, headers={"Idempotency-Key": "k"}).json()["id"]
    run = tmp_path / "runs" / "storm"
    wait_for_step(run, 6)
    alone = pid_of(run)
    os.kill(alone, signal.SIGSTOP)  # so that it cannot end while nobody looks after it
    first.kill()

    service = serve(lease=1.0)
    again = service.anyone.post("/api/train", json=asked, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == job
    until(lambda: service.parts.jobs.get(job).owner == service.parts.supervisor.id)
    found = service.get(f"/api/jobs/{job}").json()
    assert (found["state"], found["attempt"], pid_of(run)) == ("running", 1, alone)  # the orphan is looked after

    os.kill(alone, signal.SIGKILL)
    with open(run / "events.jsonl", "r+b") as log:
        log.truncate(max(0, log.seek(0, os.SEEK_END) - 11))
    found = service.wait_for(job, "finished", "failed", seconds=900)
    assert (found["state"], found["attempt"], found["error"]) == ("finished", 2, None)
    assert [event.seq for event in read_events(run / "events.jsonl")] == list(
        range(len(read_events(run / "events.jsonl")))
    )
    assert numbers(run) == undisturbed


def test_a_job_that_makes_no_progress_fails_with_its_last_words(serve: Callable[..., Any], monkeypatch: Any) -> None:
    service = serve()
    monkeypatch.setattr(Supervisor, "_words", lambda *_: ["--version"])
    monkeypatch.setattr("groupwise.service.supervisor.MOST_STARTS", 2)
    job = service.post("/api/train", {"config": CART}).json()["id"]
    found = service.wait_for(job, "failed")
    assert "2 times without progress" in found["error"]["message"]
    assert __version__ in found["error"]["message"]


def test_settings_that_a_product_refuses_fail_the_job_with_the_products_words(serve: Callable[..., Any]) -> None:
    service = serve()
    job = service.post("/api/train", {"config": {**CART, "environment": "NoSuchEnvironment-v9"}}).json()["id"]
    error = service.wait_for(job, "failed")["error"]
    assert error["code"] == "config"
    assert "NoSuchEnvironment" in error["message"]


def test_a_dead_database_and_a_full_disk_leave_the_service_up(serve: Callable[..., Any], monkeypatch: Any) -> None:
    service = serve(poll=60.0)
    job = service.post("/api/train", {"config": CART, "name": "before"}).json()["id"]
    file = service.settings.folder / "service.sqlite"
    service.parts.tables.engine.dispose()
    file.rename(file.with_suffix(".away"))
    file.mkdir()
    for answer in (service.get(f"/api/jobs/{job}"), service.post("/api/train", {"config": CART})):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
        assert "cannot use" in answer.json()["error"]["message"]
    assert (service.get("/health").status_code, service.get("/ready").status_code) == (200, 503)
    file.rmdir()
    file.with_suffix(".away").rename(file)
    assert service.get(f"/api/jobs/{job}").json()["id"] == job
    assert service.get("/ready").status_code in (200, 503)


def test_what_is_written_to_a_database_that_was_removed_is_not_accepted(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0)
    assert service.post("/api/train", {"config": CART, "name": "before"}).status_code == 202
    file = service.settings.folder / "service.sqlite"
    file.rename(file.with_suffix(".away"))
    for answer in (service.post("/api/train", {"config": CART}), service.get("/api/jobs")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
    file.with_suffix(".away").rename(file)
    assert [job["run"] for job in service.get("/api/jobs").json()["jobs"]] == ["before"]


def test_one_job_in_trouble_does_not_keep_others_waiting(serve: Callable[..., Any]) -> None:
    service = serve(poll=60.0, workers=2)
    supervisor = service.parts.supervisor
    supervisor._end.set()
    supervisor.wake()
    supervisor._thread.join()
    first, second = (service.post("/api/train", {"config": CART, "name": name}).json()["id"] for name in ("a", "b"))
    run = service.settings.runs_dir / "a"
    run.mkdir()
    (run / "config.toml").touch()
    (run / "lock").symlink_to(run / "lock")
    (run / "status.json").write_text(
        '{"state": "running", "step": 1, "total": 9, "attempt": 1, "updated": 1.0, "metrics": {}}'
    )
    with pytest.raises(OSError, match="symbolic links"):
        supervisor._tick()
    assert set(supervisor._children) == {second} != {first}


def test_a_job_taken_over_is_not_settled_by_what_was_before_it(serve: Callable[..., Any], tmp_path: Path) -> None:
    """A run that failed and is asked for again: its old end says nothing about the new attempt."""
    service = serve(poll=60.0)
    supervisor = service.parts.supervisor
    cfg = TrainingConfig.from_dict({**CART, "num_episodes": 1, "output_dir": str(tmp_path / "runs"), "run_name": "old"})
    list(execute(create_run(cfg), build))
    base = {"id": "j", "folder": "", "run": "old", "product": "control", "request": {"config": CART}, "asked_by": "",
            "scope": "admin", "state": "running", "wanted": "run", "owner": None, "lease": 0.0, "starts": 0, "mark": 0,
            "error": None, "created": 0.0, "updated": 0.0}  # fmt: skip
    assert supervisor._outcome(Job(**base, since=0))
    assert not supervisor._outcome(Job(**base, since=1))
