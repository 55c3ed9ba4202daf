"""Programs in answers, run against tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.agents.data.problems import Problem
from groupwise.agents.program_reward import ProgramTestReward, code_in, task_tests
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.sandbox import available
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Group, Score, Task

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)


def answered(*texts: str) -> tuple[Any, ...]:
    return tuple(attempt_of([{"role": "assistant", "content": text}]) for text in texts)


def test_the_code_is_the_last_block_or_a_text_that_defines_a_function() -> None:
    assert code_in("First:\n```python\na = 1\n```\nbetter:\n```\nb = 2\n```\nDone.") == "b = 2\n"
    assert code_in("def f(x):\n    return x") == "def f(x):\n    return x"
    assert code_in("I would sort the list.") == ""


def test_tests_come_with_the_task_under_the_names_of_the_usual_data() -> None:
    ours = Task("t", Problem("p", "", {"tests": ["assert f(1) == 1", "assert f(2) == 2"]}))
    mbpp = Task("t", {"test_list": ["assert f(1) == 1"], "test_setup_code": "import math"})
    human_eval = Task("t", {"test": "def check(candidate):\n    assert candidate(1)", "entry_point": "f"})
    assert task_tests(ours) == ("assert f(1) == 1\nassert f(2) == 2", "")
    assert task_tests(mbpp) == ("import math\nassert f(1) == 1", "")
    assert task_tests(human_eval) == ("def check(candidate):\n    assert candidate(1)\ncheck(f)", "f")


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
    with pytest.raises(ContractError, match="program has no tests"):
        asyncio.run(ProgramTestReward().score_group(Task("t", {}), answered("def f(x): return x")))


def test_settings_name_it(tmp_path: Path) -> None:
    data = tmp_path / "programs.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}", "tests": "assert f(1) == 1"}) + "\n" for n in range(20)))
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
