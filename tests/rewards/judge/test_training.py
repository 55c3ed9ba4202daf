"""A run that learns from a judge: scores and flags are in its folder, the key is not, and it can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.rewards.judge.judge_reward import FLAG, RulerRewardFunction
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute

SECRET = "sk-0123456789-do-not-tell"
SETTINGS = {
    "environment": "addition", "model_name": "tiny", "product": "language", "max_new_tokens": 4, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 0, "learning_rate": 1e-3, "threads": 1,
}  # fmt: skip


def judging_by_length(scripted: ModuleType) -> Any:
    def by_length(handler: Any, body: Any) -> None:
        marks = {name: min(1.0, len(text) / 100) for name, text in scripted.shown(body)}
        rows = [{"id": name, **dict.fromkeys(scripted.criteria(body), mark)} for name, mark in marks.items()]
        handler.say(json.dumps({"scores": rows}))

    return by_length


def test_a_run_learns_from_a_judge_and_keeps_its_key_to_itself(
    server: Any, scripted: ModuleType, tmp_path: Path
) -> None:
    def judge() -> RulerRewardFunction:
        settings = {"retries": 0, "api_key": SECRET, "base_url": server.url, "record_path": tmp_path / "record.jsonl"}
        return RulerRewardFunction("openai/gpt-4", fallback_enabled=True, **settings)

    by_length = judging_by_length(scripted)
    server.script = [by_length, by_length, scripted.refuse(401, f"wrong key {SECRET}")]
    server.always = by_length
    path = create_run(TrainingConfig.from_dict({**SETTINGS, "output_dir": str(tmp_path / "runs")}))
    for event in execute(path, lambda cfg: product.build(cfg, judge())):
        if event.type == "checkpoint" and event.step == 1:
            break
    resumed = judge()
    assert [event.type for event in execute(path, lambda cfg: product.build(cfg, resumed))][-1] == "end"
    assert resumed.metrics()["judge/calls"] == len(server.asked) == 4

    steps = [read_groups(file) for file in sorted((path / "groups").glob("*.parquet"))]
    assert [sum(FLAG in row["flags"] for row in rows) for rows in steps] == [0, 4]
    judged = [dict(row["parts"]) for rows in steps for row in rows if not row["flags"]]
    assert all({*parts} == {"goal", "efficiency", "honesty"} for parts in judged)
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"wrong key [key]" in kept
    assert SECRET.encode() not in kept


@pytest.mark.parametrize("evaluated", [0, 1])
def test_a_judge_that_cannot_be_used_stops_the_run_which_is_resumed_with_one_that_can(
    server: Any, scripted: ModuleType, tmp_path: Path, evaluated: int
) -> None:
    server.always = scripted.refuse(401, "wrong key")
    cfg = TrainingConfig.from_dict({
        **SETTINGS, "output_dir": str(tmp_path), "eval_steps": evaluated, "eval_episodes": 2, "num_episodes": 4,
        "reward_name": "ruler", "reward_options": {"model": "mine", "base_url": server.url, "retries": 0},
    })  # fmt: skip
    path, events = create_run(cfg), []
    with pytest.raises(GroupwiseError) as stopped:
        for event in execute(path, product.build):
            events.append(event)
    assert "HTTP 401: wrong key" in stopped.value.message
    assert "Check the API key" in stopped.value.hint
    assert "fallback_enabled = true" in stopped.value.hint
    assert [event.type for event in events] == ["start", "error"]
    server.always = judging_by_length(scripted)
    assert [event.type for event in execute(path, product.build)][-1] == "end"


@pytest.mark.parametrize("composed", [False, True])
def test_a_judge_without_a_key_is_refused_before_the_run_unless_a_fallback_was_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, composed: bool
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    components = {"components": ["length", "ruler"]} if composed else {}
    reward: dict[str, Any] = {"name": "multi_objective" if composed else "ruler", "options": components}
    cfg = TrainingConfig.from_dict({**SETTINGS, "output_dir": str(tmp_path), "reward": reward})
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set") as refused:
        product.check(cfg)
    assert "Set OPENAI_API_KEY" in refused.value.hint
    assert "fallback_enabled = true" in refused.value.hint
    product.check(cfg.replace(reward_options={**components, "fallback_enabled": True}))
