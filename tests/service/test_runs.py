"""Runs, their curves, groups and attempts over HTTP; jobs from being asked for to their end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.session import execute


def test_a_job_runs_to_its_end_and_its_run_is_there(service: Any) -> None:
    (job,) = (job for job in service.get("/api/jobs").json()["jobs"] if job["run"] == "cart")
    assert (job["state"], job["run"], job["step"], job["total"], job["attempt"]) == ("finished", "cart", 6, 6, 1)
    assert job["metrics"]["reward/mean"] > 5
    run = service.get("/api/runs/cart").json()
    assert (run["state"], run["job"], run["config"]["training"]["num_episodes"]) == ("finished", job["id"], 6)
    assert "cart" in [one["id"] for one in service.get("/api/runs").json()["runs"]]
    refused = service.post(f"/api/jobs/{job['id']}/cancel")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "job_state")
    assert service.post(f"/api/jobs/{job['id']}/resume").status_code == 409


def test_events_come_page_by_page_or_thinned_out(service: Any) -> None:
    whole = read_events(service.settings.runs_dir / "cart" / "events.jsonl")
    page = service.get("/api/runs/cart/events", params={"from": 2, "limit": 4}).json()
    assert [event["seq"] for event in page["events"]] == [2, 3, 4, 5]
    assert (page["next"], page["count"], page["thinned"]) == (6, len(whole), False)
    assert page["events"][0]["data"] == whole[2].data
    thin = service.get("/api/runs/cart/events", params={"points": 2}).json()
    kinds = [event["type"] for event in thin["events"]]
    assert kinds.count("step") == 2
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert service.get("/api/runs/cart/events", params={"from": 10_000}).json()["events"] == []


def test_curves_are_the_numbers_of_the_log(service: Any) -> None:
    found = service.get("/api/runs/cart/series", params={"names": ["reward/mean", "eval/reward_mean"]}).json()
    assert found["series"]["reward/mean"]["steps"] == [1, 2, 3, 4, 5, 6]
    assert found["series"]["eval/reward_mean"]["steps"] == [0, 3, 6]
    assert "policy/entropy" in found["names"]
    assert service.get("/api/runs/cart/series").json()["series"].keys() == set(found["names"])


def test_groups_of_a_control_run(service: Any) -> None:
    assert service.get("/api/runs/cart/groups").json()["steps"] == [1, 2, 3, 4, 5, 6]
    (first, second) = service.get("/api/runs/cart/groups/1").json()["groups"]
    assert first["size"] == len(second["attempts"]) == 4
    totals = [attempt["total"] for attempt in first["attempts"]]
    assert first["mean"] == pytest.approx(sum(totals) / 4)
    assert first["zero_signal"] is (len(set(totals)) == 1)
    name = first["attempts"][0]["trajectory_id"]
    attempt = service.get(f"/api/runs/cart/trajectories/{name}").json()
    assert (attempt["group_id"], attempt["total"], attempt["turns"]) == (first["id"], totals[0], [])


def test_an_attempt_of_a_language_run_token_by_token(service: Any, small_config: Callable[..., TrainingConfig]) -> None:
    cfg = small_config(
        product="language", environment="addition", model_name="tiny", max_new_tokens=5, num_generations=2,
        tasks_per_step=1, num_episodes=1, eval_steps=0, estimator="outcome", run_name="words",
        output_dir=str(service.settings.runs_dir),
    )  # fmt: skip
    list(execute(create_run(cfg), product.build))
    (group,) = service.get("/api/runs/words/groups/1").json()["groups"]
    shown = group["attempts"][0]
    attempt = service.get(f"/api/runs/words/trajectories/{shown['trajectory_id']}", params={"step": 1}).json()
    asked, said = attempt["turns"]
    assert (asked["role"], said["role"]) == ("context", "policy")
    assert attempt["prompt"] in "".join(token["text"] for token in asked["tokens"])
    assert "".join(token["text"] for token in said["tokens"]).removesuffix("<|end|>") == attempt["text"]
    assert {token["advantage"] for token in asked["tokens"]} == {None}
    assert all(token["advantage"] == pytest.approx(attempt["advantage"], abs=1e-5) for token in said["tokens"])
    assert "words" in [model["id"] for model in service.get("/api/models").json()["models"]]


def test_asking_twice_with_one_key_is_asking_once(serve: Callable[..., Any], tmp_path: Path) -> None:
    service = serve(poll=60.0)
    service.parts.supervisor._end.set()
    asked = {"prompts": ["Hello"], "name": "once"}
    first = service.post("/api/train", asked, headers={"Idempotency-Key": "abc"})
    again = service.post("/api/train", asked, headers={"Idempotency-Key": "abc"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json()
    other = service.post("/api/train", {**asked, "seed": 1}, headers={"Idempotency-Key": "abc"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
    taken = service.post("/api/train", asked)
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "run_exists")
    cancelled = service.post(f"/api/jobs/{first.json()['id']}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert service.post(f"/api/jobs/{first.json()['id']}/resume").json()["state"] == "queued"


@pytest.mark.parametrize(("body", "status", "words"), [
    ({}, 422, "send exactly one of prompts and config"),
    ({"prompts": ["a"], "config": {}}, 422, "send exactly one of prompts and config"),
    ({"prompts": []}, 422, "at least 1"),
    ({"prompts": ["a"], "strategy": "magic"}, 422, "strategy"),
    ({"prompts": ["a"], "num_iterations": "many"}, 422, "num_iterations"),
    ({"prompts": ["a"], "nonsense": 1}, 422, "nonsense"),
    ({"prompts": ["a"], "name": "../up"}, 422, "name"),
    ({"config": {"learning_rat": 1}}, 422, "learning_rate"),
    ({"config": {"output_dir": "/etc"}}, 422, "output_dir"),
    ({"config": {"num_episodes": -1}}, 422, "num_episodes"),
])  # fmt: skip
def test_a_wrong_request_says_what_is_wrong(service: Any, body: dict[str, Any], status: int, words: str) -> None:
    answer = service.post("/api/train", body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.keys() == {"code", "message", "hint", "field"}
    assert words in json.dumps(error)


def status(**changes: Any) -> str:
    usual = {"state": "finished", "step": 1, "total": 1, "attempt": 1, "updated": 1.0, "metrics": {"a": 1.0}}
    return json.dumps({**usual, **changes})


def in_place_of(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return plant


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


def other_columns(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"step": ["x"]}), path)


PLANTED = {
    "words for numbers": in_place_of("status.json", lambda path: path.write_text(status(metrics={"a": "text"}))),
    "half a character": in_place_of("status.json", lambda path: path.write_text(status(state="\ud800"))),
    "no state": in_place_of("status.json", lambda path: path.write_text(status(state=[1]))),
    "a pipe for a status": in_place_of("status.json", os.mkfifo),
    "a pipe for a log": in_place_of("events.jsonl", os.mkfifo),
    "a pipe for settings": in_place_of("config.toml", os.mkfifo),
    "a pipe for a lock": in_place_of("lock", os.mkfifo),
    "a huge status": in_place_of("status.json", sparse),
    "a huge log": in_place_of("events.jsonl", sparse),
    "huge settings": in_place_of("config.toml", sparse),
    "a folder for a log": in_place_of("events.jsonl", Path.mkdir),
    "a log that leads to itself": in_place_of("events.jsonl", lambda path: path.symlink_to(path)),
    "a log of somebody else": in_place_of("events.jsonl", lambda path: path.symlink_to("/etc/passwd")),
    "a log of nonsense": in_place_of("events.jsonl", lambda path: path.write_bytes(os.urandom(9999))),
    "broken lines": lambda run: (run / "events.jsonl").write_text(
        (run / "events.jsonl").read_text().replace(", ", ",\r"), newline=""
    ),
    "groups that are none": in_place_of("groups/000001.parquet", lambda path: path.write_bytes(b"PAR1xPAR1")),
    "groups of another kind": in_place_of("groups/000001.parquet", other_columns),
    "a name that is none": lambda run: run.rename(os.fsdecode(os.fsencode(run.parent) + b"/\xff")),
    "a checkpoint without a number": in_place_of("checkpoints/²", Path.mkdir),
}


@pytest.fixture(scope="module")
def among(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from groupwise.service.settings import ServiceSettings
    from tests.service.conftest import serving

    with serving(ServiceSettings(port=0, runs_dir=tmp_path_factory.mktemp("planted"), poll=60.0)) as running:
        running.http.timeout = 300
        yield running


@pytest.mark.parametrize("plant", PLANTED)
def test_a_run_that_somebody_planted_harms_nobody(among: Any, plant: str) -> None:
    base = among.settings.runs_dir
    run = create_run(TrainingConfig.from_dict({"output_dir": str(base), "run_name": "planted"}))
    event = {
        "v": 1,
        "run": "r",
        "seq": 0,
        "attempt": 1,
        "time": 1.0,
        "step": 0,
        "type": "step",
        "data": {"metrics": {}},
    }
    (run / "events.jsonl").write_text(json.dumps(event) + "\n")
    (run / "status.json").write_text(status(state="running"))
    PLANTED[plant](run)
    try:
        for path in ("/api/runs", "/api/models", "/api/jobs", "/api/metrics"):
            assert among.get(path).status_code == 200, path
        for more in ("", "/events", "/events?points=5", "/series", "/groups", "/groups/1", "/trajectories/x?step=1"):
            answer = among.get(f"/api/runs/planted{more}")
            assert answer.status_code in (200, 404, 422), more
            assert "root:" not in answer.text
            assert answer.status_code == 200 or answer.json()["error"]["message"]
    finally:
        for left in base.iterdir():
            if left.name != ".service":
                left.rename(base / ".service" / f"{plant}-{os.urandom(4).hex()}")
