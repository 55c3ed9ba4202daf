"""Conversations through the one loop: a run that learns, resumes, and says what is wrong with its settings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents import agent_product
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.orders import Orders
from groupwise.agents.environments.task import TaskEnvironment
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import End, Event, Failed, Failure, Group, Sample, Score, ScoredGroup, Task, Trajectory

FILE = """
from groupwise.agents.environments.contract import Observation, Transition
from groupwise.types import End

class Polite:
    async def reset(self, task):
        return Observation(({"role": "user", "content": "hi"},))
    async def step(self, reply):
        return Transition((), float("a" in reply.content), End.FINISHED)

class Scenarios:
    name = "polite"
    def __init__(self, eagerness=1): self.eagerness = eagerness
    def training(self, seed, number): return number
    def held_out(self, seed, count): return list(range(-count, 0))
    def make(self): return Polite()
"""


class Letters:
    """Two turns; each earns the share of the letter asked for among what was said."""

    name = "letters"

    def training(self, seed: int, number: int) -> str:
        return random.Random(f"{seed}/{number}").choice("ab")

    def held_out(self, seed: int, count: int) -> Sequence[str]:
        return ["a", "b"] * (count // 2)

    def make(self) -> Letters:
        return Letters()

    async def reset(self, task: Task) -> Observation:
        self.letter, self.left = task.payload, 2
        return Observation(({"role": "user", "content": self.letter},))

    async def step(self, reply: Reply) -> Transition:
        self.left -= 1
        share = reply.content.count(self.letter) / max(1, len(reply.content))
        end = End.FINISHED if self.left == 0 else None
        return Transition(({"role": "user", "content": self.letter},), share / 2, end, {"letters": share / 2})


def config(tmp_path: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{
        "product": "agent", "environment": "letters", "model_name": "tiny", "output_dir": str(tmp_path),
        "max_new_tokens": 4, "num_generations": 8, "tasks_per_step": 4, "learning_rate": 2e-3, "num_episodes": 25,
        "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 1, "eval_steps": 25, "eval_episodes": 4, "threads": 1, "save_steps": 10,
        **changes,
    })  # fmt: skip


def run(cfg: TrainingConfig, **given: Any) -> list[Event]:
    return list(execute(create_run(cfg), lambda settings: agent_product.build(settings, **given), cfg))


@pytest.mark.parametrize("estimator", ["outcome", "turns"])
def test_scores_of_conversations_teach(tmp_path: Path, estimator: str) -> None:
    events = run(config(tmp_path, estimator=estimator), scenarios=Letters())
    rewards = [event.data["metrics"]["reward/mean"] for event in events if event.type == "step"]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    last = [event for event in events if event.type == "eval"][-1].data
    assert last["metrics"]["eval/turns_mean"] == 2
    assert "reward/part/letters" in [e for e in events if e.type == "step"][-1].data["metrics"]


class Listeners(Letters):
    """An environment without any grade of its own."""

    def make(self) -> Letters:
        return Listeners()

    async def step(self, reply: Reply) -> Transition:
        return Transition((), end=End.FINISHED)


def test_an_environment_without_a_grade_calls_no_answer_right_or_wrong(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def always(turns):\n    return 1.0\n")
    cfg = config(tmp_path, reward_name=f"python:{tmp_path}/mine.py:always", num_episodes=1, tasks_per_step=1)
    evaluation = next(event.data for event in run(cfg, scenarios=Listeners()) if event.type == "eval")
    assert evaluation["metrics"]["eval/reward_mean"] == 1.0
    assert not {"eval/accuracy", "eval/check_mean"} & set(evaluation["metrics"])
    assert {shown["correct"] for shown in evaluation["samples"]} == {None}


def test_an_untrained_tiny_model_holds_conversations_of_six_turns(tmp_path: Path) -> None:
    """Its replies run on until they are truncated, and the user answers them all the same."""
    scenarios = [{"topic": "refund", "context": f"Order {number} is delayed"} for number in range(10)]
    usual = {"max_new_tokens": 64, "num_generations": 4, "tasks_per_step": 1, "num_episodes": 1, "eval_steps": 1}
    events = run(config(tmp_path, **usual), scenarios=ConversationEnvironment(scenarios, max_turns=6))
    turns = [event.data["metrics"]["eval/turns_mean"] for event in events if event.type == "eval"]
    assert len(turns) == 2
    assert all(3 < mean <= 6 for mean in turns)


def test_a_reward_of_the_settings_takes_the_place_of_the_environments_own(tmp_path: Path) -> None:
    reward = {"reward_name": "customer_service", "reward_options": {"normalization_method": "pareto"}}
    cfg = config(tmp_path, **reward, num_episodes=1, tasks_per_step=1, eval_steps=1, eval_episodes=2)
    events = run(cfg, scenarios=Letters())
    step, evaluation = ([e for e in events if e.type == kind][-1].data["metrics"] for kind in ("step", "eval"))
    assert {"reward/part/empathy", "reward/part/average"} <= set(step)
    assert "reward/part/environment" not in step
    # What the environment itself says stands beside it, under its own name.
    assert 0 <= evaluation["eval/check_mean"] != evaluation["eval/reward_mean"]
    with pytest.raises(ConfigError, match="Did you mean 'sales'"):
        agent_product.check(config(tmp_path, environment="orders", reward_name="sale"))


def test_scenarios_of_ones_own_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    name = f"python:{tmp_path / 'mine.py'}:Scenarios"
    events = run(config(tmp_path, environment=name, num_episodes=1, options={"eagerness": 2}))
    assert events[-1].type == "end"


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ("lettres", {}, "does not name a conversation"),
        ("python:nowhere.py:X", {}, "there is no file nowhere.py"),
        ("python:mine.py", {}, "must name a file or module and an object in it"),
        ("python:MINE:Nothing", {}, "there is no 'Nothing'"),
        ("python:MINE:Polite", {}, "has no name, training, held_out, make"),
        ("python:MINE:Scenarios", {"speed": 1}, "do not fit"),
        ("python:no.such.module:X", {}, "cannot be imported"),
    ],
)
def test_what_is_no_scenario_is_refused(tmp_path: Path, environment: str, options: Any, said: str) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    environment = environment.replace("MINE", str(tmp_path / "mine.py"))
    with pytest.raises(ConfigError, match=said):
        agent_product.check(config(tmp_path, environment=environment, options=options))


def test_a_run_tells_what_would_have_been_right(tmp_path: Path) -> None:
    """In the samples of an evaluation, whatever the scenarios are: tables, or objects with an answer."""
    tables = TaskEnvironment([{"goal": f"{n}+1", "answer": n + 1} for n in range(3)], lambda *_: 0.0)
    for scenarios in (tables, Orders()):
        cfg = config(tmp_path, num_episodes=1, tasks_per_step=1, eval_steps=1, eval_episodes=2)
        evaluation = next(event for event in run(cfg, scenarios=scenarios) if event.type == "eval")
        assert all(sample["expected"] for sample in evaluation.data["samples"])


def test_a_single_scenario_is_judged_on_itself_and_the_run_says_so(tmp_path: Path) -> None:
    def hints(*contexts: str) -> list[str]:
        scenarios = ConversationEnvironment([{"topic": "refund", "context": text} for text in contexts], max_turns=1)
        cfg = config(tmp_path, num_episodes=1, tasks_per_step=1, eval_steps=1)
        return [event.data["message"] for event in run(cfg, scenarios=scenarios) if event.type == "hint"]

    assert any("evaluation uses the training scenario" in message for message in hints("late"))
    assert not any("evaluation uses the training scenario" in message for message in hints("late", "lost"))


class NoneToJudgeOn(Letters):
    def held_out(self, seed: int, count: int) -> Sequence[str]:
        return []


class RunsOut(Letters):
    def training(self, seed: int, number: int) -> str:
        return ["a"][number]


@pytest.mark.parametrize(
    ("scenarios", "said"),
    [(NoneToJudgeOn(), "no held-out scenarios to evaluate on"), (RunsOut(), r"training\(0, 1\) .* raised IndexError")],
)
def test_scenarios_that_run_out_are_named_with_the_remedy(tmp_path: Path, scenarios: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        run(config(tmp_path, num_episodes=1, eval_steps=1), scenarios=scenarios)


def test_the_limits_of_a_conversation_are_those_of_the_settings(tmp_path: Path) -> None:
    cfg = config(tmp_path, max_conversation_turns=3, conversations_in_flight=5, turn_timeout=7.0)
    found = agent_product.limits(cfg)
    assert (found.turns, found.in_flight, found.seconds) == (3, 5, 7.0)


@pytest.mark.parametrize(("steps", "shared", "told"), [(25, True, 1), (25, False, 0), (0, True, 0)])
def test_a_run_that_is_judged_on_its_only_scenario_says_so(tmp_path: Path, steps: int, shared: bool, told: int) -> None:
    scenarios = Letters()
    scenarios.shared = shared  # type: ignore[attr-defined]
    assert len(agent_product.notes(config(tmp_path, eval_steps=steps), scenarios)) == told
    assert agent_product.notes(config(tmp_path), Letters()) == ()


def conversation(reward: float = 0.0, **meta: Any) -> Trajectory:
    ids, none = np.arange(3), np.zeros(3)
    said = {"prompt": "p" * 3000, "content": "c" * 3000, "reasoning": "r" * 3000, **meta}
    return Trajectory("g0/m0", "t/0", "g0", ids, ids, ids > 0, none, ids, np.array([0.0, 0.0, reward]), End.FINISHED,
                      meta=said, terminated=True)  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "graded"),
    [(conversation(), False), (conversation(0.5), True), (conversation(-1.0), True),
     (conversation(parts={"polite": 0.0}), True), (conversation(parts={}), False)],
)  # fmt: skip
def test_an_environment_has_graded_a_conversation_if_it_gave_any_reward_or_part(
    attempt: Trajectory, graded: bool
) -> None:
    assert agent_product._graded(attempt) is graded


def test_a_shown_conversation_is_cut_and_marked_by_its_check() -> None:
    group = Group("g0", Task("t/0", {"answer": 7}, 0), (conversation(),))
    rewarded = ScoredGroup(group, (Score(1.0),))
    shown = agent_product._sample(rewarded, ScoredGroup(group, (Score(0.0),)))
    assert shown == Sample("p" * 2000, "c" * 2000, "7", 1.0, False, "r" * 2000)
    unchecked = agent_product._sample(rewarded, None)
    assert unchecked is not None
    assert unchecked.correct is None
    failed = ScoredGroup(group, (Failed(Failure("reward", "x", "y")),))
    assert agent_product._sample(failed, rewarded) is None
