"""The two requests of the migration guide, word for word."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.training.group_files import read_groups

TRAIN = {
    "prompts": ["Hello", "How are you?"],
    "strategy": "computational",
    "num_iterations": 10,
    "use_neural_rewards": True,
    "use_ruler_rewards": True,
}
CHAT = {"message": "I need help with my order", "strategy": "customer_service"}


@pytest.mark.timeout(300)
def test_the_train_request_trains_says_that_no_judge_was_there_and_can_be_stopped(
    serve: Callable[..., Any], monkeypatch: Any
) -> None:
    """`benchmarks/service_learning.py` runs it to its end, over three seeds."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    service = serve()
    answer = service.anyone.post("/api/train", json=TRAIN)  # without a key or the token
    assert answer.status_code == 202
    job = answer.json()["id"]
    while (found := service.anyone.get(f"/api/jobs/{job}").json())["step"] < 1 and found["state"] != "failed":
        time.sleep(0.05)
    assert (found["state"], found["total"], found["error"]) == ("running", 10, None)
    assert service.anyone.post(f"/api/jobs/{job}/cancel").json()["cancelling"]
    rows = read_groups(service.settings.runs_dir / found["run"] / "groups" / "000001.parquet")
    assert {row["prompt"] for row in rows} == set(TRAIN["prompts"])
    assert all(any(flag.endswith("judge_fallback") for flag in row["flags"]) for row in rows)
    assert {"ruler_general", "neural", "customer_service"} <= {name for name, _ in rows[0]["parts"]}
    ended = service.wait_for(job, "cancelled", "failed")
    assert (ended["state"], ended["error"]) == ("cancelled", None)
    assert "eval/reward_mean" in ended["metrics"]
    events = service.anyone.get(f"/api/runs/{found['run']}/events").json()["events"]
    flagged = next(event["data"] for event in events if event["data"].get("code") == "judge_fallback")
    assert "the fallback did: OPENAI_API_KEY is not set" in flagged["message"]
    assert service.post(f"/api/jobs/{job}/cancel").status_code == 409


def test_the_chat_request_is_answered(service: Any) -> None:
    answer = service.anyone.post("/api/chat", json=CHAT, timeout=600).json()
    assert answer["conversation_id"]
    assert answer["strategy"] == "customer_service"
    assert answer["state"]["issue"] == "order"
