"""What answers are worth by the section `reward` of the settings, in place of the task's own grade."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.reporting.report import write_report
from groupwise.training.folder import create_run
from groupwise.training.session import execute

LANGUAGE = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 2, "eval_episodes": 4,
    "learning_rate": 1e-3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "threads": 1,
}  # fmt: skip
MINE = "def varied(turns):\n    return len(set(turns[-1]['content'])) / 5\n"


@pytest.fixture
def language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainingConfig]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def make(**changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**LANGUAGE, "output_dir": str(tmp_path / "runs"), **changes})

    return make


def metrics_of(events: list[Any], kind: str) -> dict[str, Any]:
    return next(dict(event.data["metrics"]) for event in reversed(events) if event.type == kind)


def test_a_reward_from_the_settings_takes_the_place_of_the_tasks_own_grade(
    language: Callable[..., TrainingConfig],
) -> None:
    components = ["python:mine.py:varied", "numeric"]
    options = {"components": components, "weights": [1, 1], "normalization_method": "normalize_then_sum"}
    cfg = language(reward={"name": "multi_objective", "options": options})
    product.check(cfg)
    events = list(execute(create_run(cfg), product.build))
    step, evaluation = metrics_of(events, "step"), metrics_of(events, "eval")
    parts = {name.rpartition("/")[2] for name in step if name.startswith("reward/part/")}
    assert parts == {"average", "varied", "numeric", "numeric.correct", "numeric.format"}
    assert step["reward/mean"] == pytest.approx(0.0, abs=1e-9)
    assert step["reward/part_std/varied"] > 0
    # A greedy answer has no group: evaluation tells the average of the parts, and right from wrong by the task's check.
    assert 0 < evaluation["eval/reward_mean"] < 1
    assert evaluation["eval/accuracy"] == 0.0
    assert 0 <= evaluation["eval/check_mean"] < 0.3


@pytest.mark.parametrize("samples", [1, 2])
def test_a_reward_of_1_never_makes_an_answer_right(
    language: Callable[..., TrainingConfig], tmp_path: Path, samples: int
) -> None:
    (tmp_path / "mine.py").write_text("def all_right(turns):\n    return 1.0\n")
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{n}+1", "answer": "?"}) + "\n" for n in range(20))
    )
    cfg = language(environment="sums.jsonl", reward_name="python:mine.py:all_right", eval_samples=samples)
    evaluation = next(e.data for e in execute(create_run(cfg), product.build) if e.type == "eval")
    metrics = evaluation["metrics"]
    assert (metrics["eval/reward_mean"], metrics["eval/check_mean"], metrics["eval/accuracy"]) == (1.0, 0.0, 0.0)
    assert samples == 1 or metrics["eval/pass@2"] == 0.0
    assert [shown["correct"] for shown in evaluation["samples"]] == [False] * len(evaluation["samples"]) != []


PARTS = """from groupwise import RewardFunction, Score
class Claims(RewardFunction):
    def compute_reward(self, turns):
        return Score(0.5, {"correct": 1.0})
"""


@pytest.mark.parametrize(("source", "name", "accuracy"), [(MINE, "varied", None), (PARTS, "Claims", 1.0)])
def test_without_a_check_only_a_part_called_correct_says_what_is_right(
    language: Callable[..., TrainingConfig], tmp_path: Path, source: str, name: str, accuracy: float | None
) -> None:
    (tmp_path / "mine.py").write_text(source.replace("/ 5", "* 0 + 1"))
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+{n}"}) + "\n" for n in range(20)))
    cfg = language(environment="prompts.jsonl", options={"check": "none"}, reward_name=f"python:mine.py:{name}")
    evaluation = next(e.data for e in execute(create_run(cfg), product.build) if e.type == "eval")
    assert evaluation["metrics"].get("eval/accuracy") == accuracy
    assert "eval/check_mean" not in evaluation["metrics"]
    assert {shown["correct"] for shown in evaluation["samples"]} == {None if accuracy is None else True}


def test_a_check_that_fails_beside_a_reward_is_counted_by_itself(
    language: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(f"{MINE}def odd(text, n):\n    return 1 / (n % 2)\n")
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+1", "n": n}) + "\n" for n in range(40)))
    cfg = language(
        environment="sums.jsonl", options={"check": "mine.py:odd", "held_out_share": 0.5},
        reward_name="python:mine.py:varied", eval_episodes=40,
    )  # fmt: skip
    metrics = metrics_of(list(execute(create_run(cfg), product.build)), "eval")
    assert 0 < metrics["eval/check_failed_share"] < 1 == metrics["eval/accuracy"] == metrics["eval/check_mean"]
    assert "eval/failed_share" not in metrics


def test_prompts_without_answers_are_enough_where_a_reward_is_named(
    language: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}+{n}"}) + "\n" for n in range(20)))
    only_prompts = {"environment": str(data), "options": {"check": "none"}, "num_episodes": 1}
    events = list(execute(create_run(language(**only_prompts, reward_name="python:mine.py:varied")), product.build))
    assert metrics_of(events, "step")["reward/mean"] > 0
    assert metrics_of(events, "eval")["eval/reward_mean"] > 0


def test_a_wrong_name_is_refused_before_there_is_a_run(language: Callable[..., TrainingConfig]) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'customer_service'"):
        product.check(language(reward_name="customerservice"))


FRAGILE = """def helper(text):
    return 1 / 0


def fragile(turns):
    return helper(turns[-1]["content"])


def sometimes(turns):
    return helper("") if turns[0]["content"].startswith("1") else 1.0
"""


def traced(events: list[Any]) -> list[tuple[int, str]]:
    return [(e.step, e.data["traceback"]) for e in events if e.type == "hint" and "traceback" in e.data]


@pytest.mark.parametrize("evaluated", [0, 1])
def test_a_reward_that_always_raises_ends_the_run_with_the_frames_of_its_file(
    language: Callable[..., TrainingConfig], tmp_path: Path, evaluated: int
) -> None:
    (tmp_path / "mine.py").write_text(FRAGILE)
    events: list[Any] = []
    with pytest.raises(GroupwiseError, match="python:mine.py:fragile raised ZeroDivisionError"):
        execute_into(events, language(reward_name="python:mine.py:fragile", eval_steps=evaluated))
    [(step, shown)] = traced(events)
    assert step == 1 - evaluated
    assert shown.count("mine.py") == 2
    assert "return 1 / 0" in shown
    assert events[-1].type == "error"
    assert "Correct it, then resume the run." in events[-1].data["error"]["hint"]


def execute_into(events: list[Any], cfg: TrainingConfig) -> None:
    """Run it to its end or its error; its events are kept either way."""
    for event in execute(create_run(cfg), product.build):
        events.append(event)


def test_a_place_that_raises_is_shown_once_and_in_the_report(
    language: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(FRAGILE)
    cfg = language(reward_name="python:mine.py:sometimes", num_episodes=3, tasks_per_step=8, eval_episodes=16)
    path = create_run(cfg)
    events = list(execute(path, product.build))
    assert len(traced(events)) == 1
    assert events[-1].type == "end"
    page = write_report(path).read_text()
    assert "return helper(&quot;&quot;) if" in page


def test_a_check_of_ones_own_that_raises_is_shown_too(language: Callable[..., TrainingConfig], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{FRAGILE}def check(text, prompt):\n    return helper(text)\n")
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+1"}) + "\n" for n in range(20)))
    events: list[Any] = []
    with pytest.raises(GroupwiseError, match="mine.py:check raised ZeroDivisionError"):
        execute_into(events, language(environment="sums.jsonl", options={"check": "mine.py:check"}, eval_steps=0))
    assert ["in check" in shown and "in helper" in shown for _, shown in traced(events)] == [True]


TRL = """def right(completions, answer, **columns):
    return [float(said == expected) for said, expected in zip(completions, answer)]


def solved(completions, solution):
    return [1.0 for _ in completions]


def misread(text, answer):
    return 1.0
"""


def test_a_reward_as_trl_writes_it_gets_the_columns_of_the_data(
    language: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TRL)
    rows = [{"prompt": f"{n}+1", "answer": str(n + 1), **({"solution": ""} if n % 2 else {})} for n in range(40)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cfg = language(environment="sums.jsonl", reward_name="python:mine.py:right", num_episodes=1)
    step = metrics_of(list(execute(create_run(cfg), product.build)), "step")
    assert (step["groups/failed_share"], step["reward/mean"]) == (0.0, 0.0)
    # Rows without a column that the reward needs are left out by name; if all lack it, there is no run.
    half = {"environment": "sums.jsonl", "options": {"held_out_share": 0.5}}
    some = product.build(language(**half, reward_name="python:mine.py:solved"))
    assert "20 of 40 tasks are left out" in some.notes[0]
    some.source.close()
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({**row, "solution": None}) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"none of the \d+ training tasks .* needs the column 'solution'"):
        product.check(language(environment="sums.jsonl", reward_name="python:mine.py:solved"))
    with pytest.raises(ConfigError, match=r"python:mine.py:misread\(text, answer\) is not the signature of a reward"):
        product.check(language(reward_name="python:mine.py:misread"))
