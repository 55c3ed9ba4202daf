"""Programs in answers, run against tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.agents.program_reward import ProgramTestReward
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.sandbox import available
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Failed, Group, Score, Task

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def answered(*texts: str) -> tuple[Any, ...]:
    return tuple(attempt_of([{"role": "assistant", "content": text}]) for text in texts)


def test_a_group_of_programs_is_scored_with_parts_and_flags() -> None:
    task = Task("t", {"tests": "assert double(4) == 8"})
    texts = (
        "```python\ndef double(x):\n    return 2 * x\n```",
        "```python\ndef double(x):\n    return x\n```",
        "```python\ndef double(x):\n    while True: pass\n```",
        "Just double it.",
        "```python\nimport os\nos._exit(0)\n```",
    )
    [scored] = score_groups(ProgramTestReward(seconds=0.5), [Group("g", task, answered(*texts))])
    scores = [score for score in scored.scores if isinstance(score, Score)]
    assert [score.total for score in scores] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [score.parts["format"] for score in scores] == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert [score.flags[0] for score in scores] == [
        "program:passed", "program:wrong", "program:timed_out", "program:none", "program:raised",
    ]  # fmt: skip


def test_without_tests_an_attempt_has_failed() -> None:
    with pytest.raises(ContractError, match="the task has no tests"):
        asyncio.run(ProgramTestReward().score_group(Task("t", {}), answered("def f(x): return x")))
    with pytest.raises(ContractError, match="program has no tests"):
        ProgramTestReward().compute_reward([{"role": "assistant", "content": "def f(x): return x"}])


def test_unsound_tests_score_nobody() -> None:
    task = Task("t", {"tests": "f(1)"})
    [scored] = score_groups(ProgramTestReward(), [Group("g", task, answered("def f(x): return x"))])
    (failed,) = scored.scores
    assert isinstance(failed, Failed)
    assert "program cannot score t: a program that returns None passes its tests" in failed.failure.message
    with pytest.raises(ConfigError, match="tests cannot be used: a program that returns None passes"):
        ProgramTestReward(tests="f(1)")


def test_an_answer_that_redefines_a_helper_of_its_prompt_is_judged_by_the_prompts() -> None:
    prompt = 'def encode(x):\n    return x + 5\n\ndef decode(x):\n    """Undo encode."""\n'
    task = Task("t", {"prompt": prompt, "tests": "assert decode(encode(7)) == 7\nassert decode(encode(1)) == 1"})
    texts = ("def decode(x):\n    return x - 5", "def decode(x):\n    return x\ndef encode(x):\n    return x")
    [scored] = score_groups(ProgramTestReward(), [Group("g", task, answered(*texts))])
    assert [score.total for score in scored.scores if isinstance(score, Score)] == [1.0, 0.0]


def test_settings_name_it(tmp_path: Path) -> None:
    data = tmp_path / "programs.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}", "tests": "assert f(1) == 12"}) + "\n" for n in range(20)))
    settings = {
        "product": "language", "environment": str(data), "options": {"check": "none"}, "model_name": "tiny",
        "max_new_tokens": 5, "num_generations": 2, "tasks_per_step": 1, "num_episodes": 1, "eval_episodes": 2,
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "threads": 1, "output_dir": str(tmp_path),
    }  # fmt: skip
    cfg = TrainingConfig.from_dict({**settings, "reward": {"name": "program", "options": {"seconds": 1.0}}})
    events = list(execute(create_run(cfg), product.build))
    step = next(dict(event.data["metrics"]) for event in events if event.type == "step")
    assert step["reward/part/format"] == 0.0
    with pytest.raises(ConfigError, match="limits.seconds is -1"):
        product.check(TrainingConfig.from_dict({**settings, "reward": {"name": "program", "options": {"seconds": -1}}}))
