"""Environments that are not there, break their promises or never end, from the command line: one clear message each."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from groupwise.cli import run
from groupwise.config import TrainingConfig

Train = Callable[..., tuple[int, dict[str, str], list[dict[str, Any]]]]


class Steps(gymnasium.Env[Any, Any]):
    """Ten random steps, paid by the action; its kinds break one promise each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, kind: str = "sound") -> None:
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return self.seen(np.nan if self.kind == "nan at reset" else 0.0), {}

    def seen(self, shift: float) -> Any:
        return (self.np_random.uniform(-1, 1, 3) + shift).astype(np.float32)

    def step(self, action: Any) -> Any:
        self.clock += 1
        if self.kind == "raises" and self.clock == 3:
            raise RuntimeError("motor on fire")
        obs = self.seen(np.nan if self.kind == "nan" and self.clock == 5 else 0.0)
        reward = 1.0 if self.kind == "constant" else float(action)
        if self.kind == "four values":
            return obs, reward, False, {}
        return obs, reward, self.clock == 10 and self.kind != "endless", False, {}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    for kind in ("sound", "nan", "nan at reset", "raises", "four values", "constant"):
        gymnasium.register(name_of(kind), Steps, max_episode_steps=50, kwargs={"kind": kind})
    gymnasium.register(name_of("endless"), Steps, kwargs={"kind": "endless"})


def name_of(kind: str) -> str:
    return f"Bad{kind.title().replace(' ', '')}-v0"


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    def run_it(environment: str, **changes: Any) -> tuple[int, dict[str, str], list[dict[str, Any]]]:
        """The exit code, the error of the last line, and all events."""
        small = {
            "hidden_sizes": [8], "num_generations": 4, "estimator": "group_rtg", "advantage_scale": "batch_std",
            "num_episodes": 2, "eval_steps": 0, "threads": 1, "output_dir": str(tmp_path / "runs"),
            "environment": environment, "num_steps": 16, "num_envs": 2, **changes,
        }  # fmt: skip
        path = tmp_path / "settings.toml"
        path.write_text(TrainingConfig(**small).to_toml())
        code = run(["train", str(path), "--json"])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return code, lines[-1].get("error", {}), [line for line in lines if "type" in line]

    return run_it


PPO = {"product": "ppo", "estimator": "gae"}


@pytest.mark.parametrize(
    ("environment", "changes", "code", "message", "hint"),
    [
        ("LunarLander-v2", {}, 2, "LunarLander-v2 no longer exists", "'LunarLander-v3'"),
        ("Cartpole-v1", {}, 2, "there is no environment Cartpole-v1", "'CartPole-v1'"),
        ("Nope-v0", {}, 2, "there is no environment Nope-v0", "pprint_registry"),
        ("BadEndless-v0", {}, 2, "BadEndless-v0 has no step limit", "task.max_episode_steps = 1000"),
        ("BadNan-v0", {}, 1, "every attempt of the last 2 steps failed", "must be finite"),
        ("BadNanAtReset-v0", {"num_episodes": 1}, 1, "every attempt of the only step failed", "must be finite"),
        ("BadNan-v0", PPO, 1, "BadNan-v0 returned the observation", "division by 0"),
        ("BadNanAtReset-v0", PPO, 1, "BadNanAtReset-v0 returned the observation [nan", "division by 0"),
        ("BadFourValues-v0", {}, 1, "step must return (observation, reward, terminated", "check_env(env)"),
        ("BadRaises-v0", {}, 1, "BadRaises-v0.step raised RuntimeError: motor on fire", "check_environment(env)"),
        ("BadRaises-v0", PPO, 1, "BadRaises-v0.step raised RuntimeError: motor on fire", "groupwise doctor"),
    ],
)
def test_refused_in_one_sentence_with_a_remedy(
    train: Train, environment: str, changes: dict[str, Any], code: int, message: str, hint: str
) -> None:
    found, error, _ = train(environment, **changes)
    assert found == code
    assert message in error["message"]
    assert hint in error["hint"]


def test_a_missing_extra_is_named(train: Train) -> None:
    if importlib.util.find_spec("ale_py") is not None:
        pytest.skip("ale-py is installed, so nothing is missing")
    code, error, _ = train("ALE/Pong-v5")
    assert (code, error["code"]) == (1, "missing_extra")
    assert 'pip install "groupwise[atari]"' in error["hint"]


def test_an_endless_environment_runs_with_a_limit(train: Train) -> None:
    code, _, events = train("BadEndless-v0", max_episode_steps=12)
    assert code == 0
    assert [e["data"]["metrics"]["attempt/length_mean"] for e in events if e["type"] == "step"] == [12, 12]


@pytest.mark.parametrize(
    ("environment", "changes", "hint", "remedy"),
    [
        ("BadConstant-v0", {}, "reward_constant", "Check that the reward distinguishes good attempts from bad ones"),
        ("BadSound-v0", {"num_generations": 1}, "group_of_one", "Set rollout.num_generations to 2 or more"),
    ],
)
def test_nothing_to_learn_from_is_told_and_changes_nothing(
    train: Train, environment: str, changes: dict[str, Any], hint: str, remedy: str
) -> None:
    """A defined result: the run ends well, takes no optimiser step, and says why."""
    code, _, events = train(environment, num_episodes=7, **changes)
    assert code == 0
    assert all(e["data"]["metrics"]["optim/steps"] == 0 for e in events if e["type"] == "step")
    told = {e["data"]["code"]: e["data"]["remedy"] for e in events if e["type"] == "hint"}
    assert remedy in told[hint]
    assert "tasks_too_hard" not in told


def test_an_unknown_option_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "settings.toml", "--nope", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "`groupwise train --help` lists its options."
