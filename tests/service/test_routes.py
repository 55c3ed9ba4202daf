"""What routes do with the parts of a service, called directly: models, orders, caches, pages and a worker process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response
from starlette.exceptions import HTTPException

from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError
from groupwise.files import lock_file
from groupwise.service.chat_models import ModelNotFound, _step
from groupwise.service.jobs import JobNotFound, RunTaken
from groupwise.service.keys import LOCAL, OPERATOR, Who
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.routes import jobs as job_routes
from groupwise.service.routes import page
from groupwise.service.routes import runs as run_routes
from groupwise.service.routes.jobs import job_view, run_info
from groupwise.service.routes.system import scale, snapshot
from groupwise.service.schemas import ScaleRequest, TrainRequest
from groupwise.service.settings import ServiceSettings
from groupwise.service.sidecar import Sidecar, SidecarLost
from groupwise.service.state import ServiceState, asker_of
from groupwise.training.events import EventLog
from groupwise.training.folder import create_run, write_config
from groupwise.types import Event

ANN, BOB = Who("ann", "ann", "train", "ann"), Who("bob", "bob", "train", "bob")


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ServiceState]:
    """The parts of a service that was never started."""
    made = ServiceState(ServiceSettings(runs_dir=tmp_path / "runs", niceness=0, model="base"), ServiceMetrics())
    yield made
    asyncio.run(made.close())


def language_run(parts: ServiceState, name: str, who: Who | None, *steps: int, product: str = "language") -> Path:
    settings = {"product": product, "output_dir": str(parts.settings.runs_dir), "run_name": name}
    path = create_run(TrainingConfig.from_dict(settings))
    for step in steps:
        (path / "checkpoints" / str(step)).mkdir(parents=True)
        (path / "checkpoints" / str(step) / "COMPLETE").touch()
    if who is not None:
        job, _ = parts.jobs.add(name, product, {}, who)
        parts.jobs.started(job, 0)
    return path


def test_the_newest_checkpoint_is_the_highest_complete_one(tmp_path: Path) -> None:
    assert _step(tmp_path) is None
    for name in ("000009", "000010", "x11", "1" * 16):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "COMPLETE").touch()
    (tmp_path / "checkpoints" / "000012").mkdir()
    assert _step(tmp_path) == 10


def test_one_may_chat_with_the_base_models_and_ones_own_trained_runs(parts: ServiceState) -> None:
    language_run(parts, "anns", ANN, 9, 10)
    language_run(parts, "bobs", BOB, 3)
    language_run(parts, "untrained", ANN)
    language_run(parts, "cart", ANN, 5, product="control")
    language_run(parts, "nobodys", None, 7)
    base = [{"id": "base", "kind": "base", "step": None}, {"id": "tiny", "kind": "base", "step": None}]

    def own(who: Who) -> list[tuple[str, int]]:
        found = parts.chat_models.models(who)
        assert found[:2] == base
        assert all(model["kind"] == "run" for model in found[2:])
        return [(model["id"], model["step"]) for model in found[2:]]

    assert own(ANN) == [("anns", 10)]
    assert own(BOB) == [("bobs", 3)]
    assert own(OPERATOR) == [("anns", 10), ("bobs", 3), ("nobodys", 7)]
    assert [parts.chat_models.find(name, ANN) for name in (None, "", "base", "tiny", "anns")] == [
        "base", "base", "base", "tiny", "anns",
    ]  # fmt: skip
    for name in ("bobs", "untrained", "cart", "nobodys", "none", "../runs/anns", "anns/x", "."):
        with pytest.raises(ModelNotFound, match="there is no model") as refused:
            parts.chat_models.find(name, ANN)
        assert refused.value.hint == "Available: base, tiny, anns."


def test_a_run_whose_settings_change_is_looked_at_again(parts: ServiceState) -> None:
    path = language_run(parts, "anns", ANN, 1)
    assert parts.chat_models._speaks(path)
    cfg = TrainingConfig.from_dict({"product": "control", "output_dir": str(path.parent), "run_name": "anns"})
    write_config(path, cfg)
    assert not parts.chat_models._speaks(path)
    (path / "config.toml").unlink()
    assert not parts.chat_models._speaks(path)


def test_workers_are_ordered_of_running_jobs_that_listen(parts: ServiceState) -> None:
    ids = {run: parts.jobs.add(run, "control", {}, OPERATOR)[0].id for run in "abc"}
    parts.jobs.claim("me", 2, 100.0)
    locks = []
    for run in "ac":  # c waits, although something has locked its folder
        (parts.settings.runs_dir / run).mkdir()
        locks.append(lock_file(parts.settings.runs_dir / run / "lock"))

    def runs(**more: Any) -> list[str]:
        return [order.run for order in scale(ScaleRequest(workers=3, **more), parts).orders]

    assert runs() == ["a"]
    assert [runs(job=ids[run]) for run in "abc"] == [["a"], [], []]
    with pytest.raises(JobNotFound):
        runs(job="nothing")
    lines = (parts.settings.runs_dir / "a" / "control.jsonl").read_text().splitlines()
    assert [json.loads(line)["args"] for line in lines] == [{"workers": 3}] * 2
    assert all(lock is not None for lock in locks)
    for lock in locks:
        lock.release()  # type: ignore[union-attr]


def test_the_state_of_a_job_is_that_of_its_row_and_its_run(parts: ServiceState) -> None:
    parts.jobs.add("r", "control", {"config": {}}, ANN)
    (job,) = parts.jobs.claim("me", 1, 100.0)
    view = job_view(parts, job)
    assert (view.state, view.cancelling, view.step, view.total, view.attempt, view.metrics) == (
        "running", False, 0, 0, 0, {},
    )  # fmt: skip
    assert run_info(parts, job) is None
    path = language_run(parts, "r", None)
    status = {"state": "running", "step": 5, "total": 9, "attempt": 2, "updated": 1.0, "metrics": {"a": 1.0}}
    (path / "status.json").write_text(json.dumps(status))
    parts.jobs.cancel(job.id)
    view = job_view(parts, parts.jobs.get(job.id))
    assert (view.state, view.cancelling, view.step, view.total, view.attempt) == ("running", True, 5, 9, 2)
    assert (view.metrics, view.request, view.run) == ({"a": 1.0}, {"config": {}}, "r")
    assert snapshot(parts, ANN)["runs"] == snapshot(parts, OPERATOR)["runs"] == {"r": {"a": 1.0}}
    assert snapshot(parts, BOB)["runs"] == {}
    assert snapshot(parts, BOB)["jobs"]["running"] == 1
    parts.jobs.settle(job, "cancelled")
    assert not job_view(parts, parts.jobs.get(job.id)).cancelling
    assert snapshot(parts, OPERATOR)["runs"] == {}


def test_a_change_of_a_job_is_seen_at_once_by_all_who_may_see_it(
    parts: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.state.STATUS_FRESH", 600.0)
    job, _ = parts.jobs.add("r", "control", {}, ANN)

    async def ask(word: bytes) -> list[bytes]:
        return [await parts.status_cache.of(f"{job.id} {view}", lambda: word) for view in ("", "ann", "bob")]

    assert asyncio.run(ask(b"old")) == [b"old"] * 3
    parts.job_changed(job)
    assert asyncio.run(ask(b"new")) == [b"new", b"new", b"old"]


def test_whoever_no_guard_has_seen_is_the_local_user() -> None:
    def asked(**state: Any) -> Any:
        return SimpleNamespace(state=SimpleNamespace(**state))

    assert asker_of(asked(who=ANN)) == ANN
    assert asker_of(asked(who=None)) == asker_of(asked()) == LOCAL


def test_the_page_is_sent_for_every_address_that_is_not_the_apis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path / "built")
    (tmp_path / "built" / "assets").mkdir(parents=True)
    (tmp_path / "secret").touch()
    assert b"has not been built" in page.page("anything").body
    (tmp_path / "built" / "index.html").touch()
    (tmp_path / "built" / "assets" / "a.js").touch()
    for path in ("", "runs/x", "index.html", "../secret", "/etc/passwd"):
        answer: Any = page.page(path)
        assert (answer.path, answer.headers["cache-control"]) == (tmp_path / "built" / "index.html", "no-cache")
    asset: Any = page.page("assets/a.js")
    assert (asset.path, "immutable" in asset.headers["cache-control"]) == (tmp_path / "built" / "assets" / "a.js", True)
    for path in ("assets/none", "assets/../../secret", "api/x", "v1/x", "ws", "docs/x", "openapi.json", "health/x",
                 "ready/x", "metrics/x"):  # fmt: skip
        with pytest.raises(HTTPException) as refused:
            page.page(path)
        assert refused.value.status_code == 404


def test_an_answer_comes_piece_by_piece_and_a_lost_process_is_told_and_replaced(tmp_path: Path) -> None:
    process = Sidecar("tests.worker_handlers", [str(tmp_path)])

    async def pieces(what: str, request: Any, seconds: float | None = None) -> list[Any]:
        return [piece async for piece in process.ask(what, request, seconds)]

    async def work() -> None:
        assert (process.pid, process.starts) == (None, 0)
        assert await pieces("counts", 4) == [0, 1, 2, 3]
        assert await process.answer("counts", 3) == 2
        assert (process.starts, process.waiting) == (1, 0)
        with pytest.raises(GroupwiseError, match="cannot count further"):
            await pieces("counts", 6)
        with pytest.raises(SidecarLost, match="the process that was working on this request ended"):
            await pieces("exits", 3)
        assert await process.answer("counts", 1) == 0
        assert process.starts == 2
        with pytest.raises(GroupwiseError, match="took longer than 0.2 s") as late:
            await pieces("hangs", "", 0.2)
        assert late.value.code == "took_too_long"
        listening = asyncio.create_task(pieces("waits_until_cancelled", "mark"))
        while not (tmp_path / "mark").exists():
            await asyncio.sleep(0.01)
        listening.cancel()  # whoever stops listening stops the work
        while not (tmp_path / "mark-cancelled").exists():
            await asyncio.sleep(0.01)
        await process.close()

    asyncio.run(work())


def logged(parts: ServiceState, name: str, steps: int) -> None:
    log = EventLog(language_run(parts, name, None) / "events.jsonl")
    for step in range(1, steps + 1):
        metrics = {"reward/mean": float(step % 3), "loss": -float(step)}
        log.append(Event(name, log.count, 1, 1.0, step, "step", {"metrics": metrics}))
    log.close()


def test_the_questions_about_a_run_reach_its_log_as_they_were_asked(parts: ServiceState) -> None:
    logged(parts, "r", 9)
    found = run_routes.series("r", parts, ["loss"], 3, 4)
    assert (found.series.keys(), found.series["loss"].steps) == ({"loss"}, [4, 6, 9])
    assert run_routes.series("r", parts, None, 1000, 8).series["reward/mean"].steps == [8, 9]

    def page(**more: Any) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(bytes(run_routes.events("r", parts, **more).body))
        return {**told, "events": [event["seq"] for event in told["events"]]}

    about = {"run": "r", "attempt": 1, "count": 9}
    assert page(begin=2, limit=3, points=None) == {**about, "events": [2, 3, 4], "next": 5, "thinned": False}
    assert page(begin=8, limit=3, points=None) == {**about, "events": [8], "next": 9, "thinned": False}
    assert page(begin=9, limit=3, points=None) == {**about, "events": [], "next": 9, "thinned": False}
    # Thinned, it is always all of it up to the end, whatever the limit of a page is.
    assert page(begin=5, limit=1, points=3) == {**about, "events": [5, 6, 8], "next": 9, "thinned": True}
    logged(parts, "s", 1)
    assert [run.id for run in run_routes.list_runs(parts, OPERATOR, limit=1).runs] == ["r"]
    assert [run.id for run in run_routes.list_runs(parts, OPERATOR, limit=2).runs] == ["r", "s"]
    whole = run_routes.run_state("r", parts)
    assert (whole.job, whole.events) == (None, 9)


def test_asking_for_a_job_and_changing_one_wake_the_supervisor(parts: ServiceState) -> None:
    def woken() -> bool:
        found = parts.supervisor._wake.is_set()
        parts.supervisor._wake.clear()
        return found

    asked, answer = TrainRequest(config={"run_name": "mine"}), Response()
    view = job_routes.train(asked, answer, parts, ANN, "key")
    assert (view.run, view.state, answer.status_code, woken()) == ("mine", "queued", 202, True)
    again = job_routes.train(asked, answer, parts, ANN, "key")
    assert (again.id, answer.status_code) == (view.id, 200)
    parts.supervisor._wake.clear()
    job = parts.jobs.get(view.id)
    assert (job.request, job.asked_by, job.product) == ({"config": {"run_name": "mine"}}, "ann", "control")
    assert (job_routes.cancel(job, parts).state, woken()) == ("cancelled", True)
    path = language_run(parts, "mine", None)
    status = {"state": "stopped", "step": 5, "total": 9, "attempt": 3, "updated": 1.0, "metrics": {}}
    (path / "status.json").write_text(json.dumps(status))
    assert (job_routes.resume(job, parts, ANN).state, woken()) == ("queued", True)
    assert parts.jobs.get(job.id).since == 3, "what its three attempts came to says nothing of the next"
    assert [one.id for one in job_routes.list_jobs(parts, ANN, "queued", 0, 5).jobs] == [job.id]
    assert [one.id for one in job_routes.list_jobs(parts, ANN, "cancelled", 0, 5).jobs] == []
    assert [one.id for one in job_routes.list_jobs(parts, BOB, None, 0, 5).jobs] == []
    parts.jobs.cancel(job.id)
    assert job_routes.delete(job, parts, ANN).status_code == 204
    assert (woken(), path.exists()) == (True, False)


def test_a_run_that_no_job_made_keeps_its_name(parts: ServiceState) -> None:
    language_run(parts, "cart", None)
    with pytest.raises(RunTaken, match="a run named 'cart' already exists"):
        job_routes.train(TrainRequest(config={}, name="cart"), Response(), parts, OPERATOR)
    assert parts.jobs.newest() == []
