"""Suites of one's own: a list or table of environments from Python, and a TOML file of tasks."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.environments import make
from groupwise.control.evaluation import evaluate_policy
from groupwise.control.model import ControlModel
from groupwise.control.multitask import MultiTask, SuiteTask, weighted_order
from groupwise.control.provided import name_of_environment
from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.checker import check_environment
from groupwise.rollout.episodes import evaluate_greedy

TINY = {"hidden_sizes": [8], "num_epochs": 1, "num_envs": 4, "num_steps": 8, "num_generations": 2, "tasks_per_step": 3}
DOCS = Path(__file__).parents[2] / "docs" / "environments.md"


def light():
    return gymnasium.make("CartPole-v1")


def suites() -> dict[str, object]:
    three = {"own": CartPole(), "id": "CartPole-v1", "made": light}
    scaled = [SuiteTask("small", CartPole(), reward_scale=0.01, weight=2.0), SuiteTask("large", CartPole())]
    return {"table": three, "list": [CartPole(), light, light()], "tasks": scaled}


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("form", suites())
def test_a_suite_from_python_trains_and_says_how_each_task_does(algorithm: str, form: str) -> None:
    model = ControlModel(suites()[form], algorithm, eval_steps=1, eval_episodes=3, **TINY)
    names: set[str] = set()
    model.learn(total_steps=1, callback=lambda event: names.update(event.data if event.type == "eval" else ()) or True)
    suite = make(model.cfg.task.environment)
    assert isinstance(suite, MultiTask)
    assert suite.observation_size == 4 + len(suite.kinds)
    assert check_environment(suite) == []
    assert evaluate_policy(model, suite, 3) == evaluate_policy(model, model.cfg.task.environment, 3)


def test_the_file_in_the_documents_is_a_suite(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf8"), re.DOTALL)[-1])
    suite = make(str(tmp_path / "suite.toml"))
    assert isinstance(suite, MultiTask)
    assert suite.kinds == ("light", "Gymnasium's own")
    assert suite.order == [0, 1, 0]
    assert [part.environment.observation_size for part in suite.parts] == [4, 8]
    suite.reset([0, 1])
    _, rewards, _, _ = suite.step(np.array([0, 1]))
    assert rewards.tolist() == [0.01, 1.0]
    assert check_environment(suite) == []


def test_weights_are_spread_evenly() -> None:
    assert weighted_order([1, 1, 1]) == [0, 1, 2]
    assert np.bincount(weighted_order([3, 1, 1])).tolist() == [3, 1, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "must be a list of"),
        ("[[task]]\nname = 'a'", "task 1 has no environment"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nweigth = 2", "unknown key 'weigth'"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nweight = 'much'", "task 1 has weight = 'much'"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nweight = 0", "'CartPole-v1' has weight = 0"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nreward_scale = 0", "reward_scale = 0"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nmax_episode_steps = 0", "max_episode_steps = 0"),
        ("[[task]]\nenvironment = 'CartPole-v9'", "task 1: CartPole-v9 does not exist"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nwrappers = ['gymnasium.wrappers:Nope']", "there is no wrapper"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nwrappers = [5]", "5 names no wrapper"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nwrappers = [{ wrapper = [1] }]", "names no wrapper"),
        ("[[task]]\nenvironment = 'CartPole-v1'\nreward_scale = nan", "must be a finite number"),
        ("[[task]]\nenvironment = 'CartPole-v1'\noptions = " + "{ a = " * 250 + "1" + " }" * 250, "nested too deeply"),
        ("[[task]]\nenvironment = 'CartPole-v1'\n" * 2, "two tasks are named 'CartPole-v1'"),
        ("[[task", "cannot be used"),
    ],
)
def test_a_file_that_is_no_suite_is_refused_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        make(str(tmp_path / "suite.toml"))


def test_two_tasks_of_one_name_and_too_few_copies_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tasks are named 'CartPole-v1'"):
        ControlModel(["CartPole-v1", "CartPole-v1"])
    with pytest.raises(ConfigError, match="2 copies cannot play 3 tasks"):
        ControlModel(suites()["table"], "ppo", **{**TINY, "num_envs": 2}).learn(total_steps=1)


@pytest.mark.parametrize("told", [{"weight": w} for w in (0, -1, float("nan"), 1e9)] + [{"reward_scale": float("inf")}])
def test_a_weight_or_scale_that_cannot_be_used_is_refused_in_python_too(told: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="the task 'x' has weight = .* and reward_scale = ") as refused:
        SuiteTask("x", CartPole(), **told)
    assert "0.01 to 100" in refused.value.hint


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_suites_model_acts_in_each_of_its_tasks_as_it_did_in_the_suite(algorithm: str, tmp_path: Path) -> None:
    # Observations of another size, fewer actions, another start of the actions.
    tasks = {"pole": "CartPole-v1", "lake": "FrozenLake-v1", "hill": lambda: gymnasium.make("MountainCar-v0")}
    suite = make(name_of_environment(tasks), max_steps=40)
    model = ControlModel(tasks, algorithm, max_episode_steps=40, **{**TINY, "num_envs": 3}).learn(total_steps=1)
    again = ControlModel.load(model.save(tmp_path / "suite"))
    starts = range(50, 54)
    for number, (kind, task) in enumerate(tasks.items()):
        in_suite = evaluate_greedy(suite, model.policy, [suite.seed_of(number, start) for start in starts])[0]
        given = gymnasium.make(task, max_episode_steps=40) if isinstance(task, str) else task()
        short = gymnasium.wrappers.TimeLimit(given, 40)
        for form in (short, SyncVectorEnv([lambda short=short: short])):
            for one in (model, again):
                found = evaluate_policy(one.task(kind), form, 4, seed=50)
                assert found[0] == pytest.approx(float(np.mean(in_suite)), abs=1e-6)
    with pytest.raises(ContractError, match="the policy sees 19 numbers, but CartPole shows 4") as refused:
        evaluate_policy(model, "CartPole-v1", 1)
    assert "model.task(NAME)" in refused.value.hint
    with pytest.raises(ContractError, match="sees rows of 19 numbers") as refused:
        model.predict(np.zeros(4, np.float32))
    assert "model.task('pole').predict" in refused.value.hint
    with pytest.raises(ConfigError, match="no task 'pond'"):
        model.task("pond")
