"""The two requests of the migration guide, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupwise.training.groups import read_groups

TRAIN = {
    "prompts": ["Hello", "How are you?"],
    "strategy": "computational",
    "num_iterations": 10,
    "use_neural_rewards": True,
    "use_ruler_rewards": True,
}
CHAT = {"message": "I need help with my order", "strategy": "customer_service"}


def test_the_train_request_trains_and_says_that_no_judge_was_there(serve: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    service = serve()
    job = service.post("/api/train", TRAIN)
    assert job.status_code == 202
    found = service.wait_for(job.json()["id"], "finished", "failed", seconds=110)
    assert (found["state"], found["step"], found["error"]) == ("finished", 10, None)
    run = service.settings.runs_dir / found["run"]
    rows = read_groups(run / "groups" / "000010.parquet")
    assert {row["prompt"] for row in rows} == set(TRAIN["prompts"])
    assert all(any(flag.endswith("judge_fallback") for flag in row["flags"]) for row in rows)
    assert {"ruler_general", "neural", "customer_service"} <= {name for name, _ in rows[0]["parts"]}
    steps = service.get(f"/api/runs/{found['run']}/series").json()["series"]["eval/reward_mean"]["steps"]
    assert steps[0] == 0
    assert steps[-1] == 10


def test_the_chat_request_is_answered(service: Any) -> None:
    answer = service.post("/api/chat", CHAT, timeout=100).json()
    assert answer["conversation_id"]
    assert answer["strategy"] == "customer_service"
    assert answer["state"]["issue"] == "order"
