"""Runs, their curves, groups and attempts over HTTP; jobs from being asked for to their end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import product
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
    ({}, 422, "give either prompts or config"),
    ({"prompts": ["a"], "config": {}}, 422, "give either prompts or config"),
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
