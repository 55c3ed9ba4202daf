"""A run that learns from a judge: scores and flags are in its folder, the key is not, and it can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.rewards.judge.judge_reward import FLAG, RulerRewardFunction
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute

SECRET = "sk-0123456789-do-not-tell"
SETTINGS = {
    "environment": "addition", "model_name": "tiny", "product": "language", "max_new_tokens": 4, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 0, "learning_rate": 1e-3, "threads": 1,
}  # fmt: skip


def test_a_run_learns_from_a_judge_and_keeps_its_key_to_itself(
    server: Any, scripted: ModuleType, tmp_path: Path
) -> None:
    def by_length(handler: Any, body: Any) -> None:
        marks = {name: min(1.0, len(text) / 100) for name, text in scripted.shown(body)}
        rows = [{"id": name, **dict.fromkeys(scripted.criteria(body), mark)} for name, mark in marks.items()]
        handler.say(json.dumps({"scores": rows}))

    def judge() -> RulerRewardFunction:
        settings = {"retries": 0, "api_key": SECRET, "base_url": server.url, "record_path": tmp_path / "record.jsonl"}
        return RulerRewardFunction("openai/gpt-4", **settings)

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
