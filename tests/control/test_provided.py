"""Environments that are given as they are: objects, functions, vector environments; and what is said of bad ones."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.environments import make
from groupwise.control.evaluation import evaluate_policy
from groupwise.control.grpo import build
from groupwise.control.gymnasium_environment import GymnasiumEnvironment
from groupwise.control.model import ControlModel
from groupwise.control.provided import PROVIDED, name_of_environment
from groupwise.control.vector_form import VectorForm
from groupwise.errors import ConfigError, ContractError, NoSignalError
from groupwise.rollout.checker import check_environment

TINY = {"hidden_sizes": [8], "num_epochs": 1, "num_envs": 2, "num_steps": 16, "num_generations": 3}
MADE = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


class Corridor(gymnasium.Env):
    """Walk right to the door. `fault` breaks one promise."""

    observation_space, action_space = MADE, gymnasium.spaces.Discrete(2, start=1)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, length: float = 0.5, fault: str = "", render_mode: str | None = None) -> None:
        self.length, self.fault, self.render_mode = length, fault, render_mode
        self.clock = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = np.random.default_rng() if self.fault == "seed" else self.np_random
        self.place, self.clock = float(rng.uniform(-0.5, 0.0)), 0
        return self._seen(), {"task": "near" if self.length < 0.4 else "far"}

    def step(self, action):
        self.place += 0.1 * (1 if action == 2 else -1)
        self.clock += 1
        reward = float("nan") if self.fault == "nan" and self.clock > 2 else -0.1
        return self._seen(), reward, self.fault != "endless" and self.place > self.length, self.clock >= 20, {}

    def _seen(self):
        size = 3 if self.fault == "space" and self.clock > 1 else 2
        return np.full(size, self.place, np.float32)

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


def limited(**options):
    return gymnasium.wrappers.TimeLimit(Corridor(**options), 25)


def corridor():
    return limited()


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("form", ["object", "function", "lambda", "sync", "own vector", "ours"])
def test_it_trains_on_what_it_is_given_and_scores_the_same_there(algorithm: str, form: str, tmp_path: Path) -> None:
    environment = {
        "object": limited,
        "function": lambda: corridor,
        "lambda": lambda: lambda: limited(length=0.3),
        "sync": lambda: SyncVectorEnv([limited] * 2),
        "own vector": lambda: gymnasium.make_vec("CartPole-v1", 2, "vector_entry_point"),
        "ours": CartPole,
    }[form]()
    if form == "own vector" and algorithm == "grpo":
        with pytest.raises(ContractError, match="takes one seed for all its copies"):
            ControlModel(environment, algorithm, **TINY).learn(total_steps=1)
        return
    model = ControlModel(environment, algorithm, seed=1, **TINY).learn(total_steps=2)
    # The own form of CartPole takes one seed for all copies.
    name = "CartPole-v1" if form == "own vector" else model.cfg.task.environment
    by_name = evaluate_policy(model, make(name), 4)
    if form != "own vector":
        assert evaluate_policy(model, environment, 4) == pytest.approx(by_name, abs=1e-9)
    again = ControlModel.load(model.save(tmp_path / "saved"), environment=environment)
    assert evaluate_policy(again, make(name), 4) == by_name
    again.learn(total_steps=1)
    assert again.num_steps == 3


def test_a_wrapper_of_the_object_is_kept() -> None:
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: 7 * r)
    model = ControlModel(wrapped, **TINY)
    assert evaluate_policy(model, make(model.cfg.task.environment), 1)[0] % 7 == 0
    gravity = gymnasium.make("CartPole-v1")
    gravity.unwrapped.gravity = 30.0
    copy = make(name_of_environment(gravity))
    assert isinstance(copy, GymnasiumEnvironment)
    assert copy._copies[0].unwrapped.gravity == 30.0


def test_settings_name_a_function_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n\ndef make(gravity=9.8):\n    env = gymnasium.make('CartPole-v1')\n"
        "    env.unwrapped.gravity = gravity\n    return env\n"
    )
    env = make(f"{tmp_path / 'mine.py'}:make", options={"gravity": 3.0})
    assert isinstance(env, GymnasiumEnvironment)
    assert env._copies[0].unwrapped.gravity == 3.0
    assert (env.max_steps, check_environment(env)) == (500, [])


def test_a_saved_model_acts_without_its_environment(tmp_path: Path) -> None:
    model = ControlModel(lambda: limited(), **TINY).learn(total_steps=1)
    path = model.save(tmp_path / "saved")
    name = model.cfg.task.environment
    kept = PROVIDED.pop(name)
    again = ControlModel.load(path)
    obs = limited().reset(seed=3)[0]
    assert again.predict(obs)[0] == model.predict(obs)[0]
    with pytest.raises(ConfigError, match="given as an object, which this process does not have"):
        again.learn(total_steps=1)
    PROVIDED[name] = kept


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_form_keeps_the_contract_and_plays_the_same_episodes(kind: type, mode: AutoresetMode) -> None:
    vector = VectorForm(kind([corridor] * 3, autoreset_mode=mode), lambda count: kind([corridor] * count))
    assert check_environment(vector) == []
    one = GymnasiumEnvironment(corridor)
    np.testing.assert_array_equal(vector.reset([4, 4, 9]), one.reset([4, 4, 9]))
    rng = np.random.default_rng(0)
    for _ in range(25):
        actions = rng.integers(0, 2, 3)
        for mine, theirs in zip(vector.step(actions), one.step(actions), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    vector.close()


def test_vector_environments_that_it_made_are_closed_and_the_users_own_is_not() -> None:
    # Left to the garbage collector, an AsyncVectorEnv's processes end with a traceback each.
    made = [SyncVectorEnv([corridor])]
    form = VectorForm(made[0], lambda count: made.append(SyncVectorEnv([corridor] * count)) or made[-1])
    form.reset([1, 2])
    assert [vector.closed for vector in made] == [True, False]
    own = SyncVectorEnv([corridor] * 2)
    only = VectorForm(own, None)
    del form, only
    gc.collect()
    assert [vector.closed for vector in (*made, own)] == [True, True, False]


def test_a_multi_task_environment_says_its_task_in_the_info() -> None:
    model = ControlModel(corridor, **TINY)
    parts = build(model.cfg)
    batch = parts.source.next()
    assert {record.task_id.rpartition("/")[0] for record in batch.records} == {"far"}
    # So there may be several, and their gradients can be kept apart.
    batch = build(model.cfg.replace(gradient_surgery="pcgrad")).source.next()
    assert batch.tasks is not None
    assert batch.tasks.shape == batch.mask.shape


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("seed", "copies that were reset with the same seed start differently"),
        ("space", "observations must fit its observation_space"),
    ],
)
def test_a_promise_that_training_needs_stops_the_run_in_a_sentence(fault: str, said: str) -> None:
    model = ControlModel(lambda: limited(fault=fault), **TINY)
    with pytest.raises(ContractError, match=said):
        model.learn(total_steps=2)


class Shifting(Corridor):
    """An environment whose spaces change: `when` it is made again, or when it is reset again."""

    made = 0

    def __init__(self, when: str, what: str) -> None:
        super().__init__()
        self.when, self.what, self.resets = when, what, 0
        Shifting.made += 1
        if when == "made":
            self.change(Shifting.made)

    def change(self, number: int) -> None:
        if self.what == "action_space":
            self.action_space = gymnasium.spaces.Discrete(2 + number, start=1)
        else:
            self.observation_space = gymnasium.spaces.Box(-1.0 - number, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.when == "reset":
            self.change(self.resets)
        return super().reset(seed=seed)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("when", ["made", "reset"])
@pytest.mark.parametrize("what", ["action_space", "observation_space"])
def test_spaces_that_change_stop_a_run_in_a_sentence(algorithm: str, when: str, what: str) -> None:
    limited = lambda: gymnasium.wrappers.TimeLimit(Shifting(when, what), 25)  # noqa: E731
    with pytest.raises(ContractError, match="changes its spaces: it had .* and then"):
        ControlModel(limited, algorithm, **TINY).learn(total_steps=3)


def test_starts_that_differ_on_purpose_are_allowed() -> None:
    options = {"different_starts": True}
    model = ControlModel(lambda: limited(fault="seed"), options=options, **TINY)
    assert model.learn(total_steps=1).num_steps == 1


def test_rewards_that_are_not_numbers_stop_a_run_that_has_no_others() -> None:
    model = ControlModel(lambda: limited(fault="nan"), **TINY)
    with pytest.raises(NoSignalError, match="every attempt of the only step failed: .* step 2: .* reward nan"):
        model.learn(total_steps=1)


def test_an_environment_without_an_end_or_a_spec_or_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no step limit"):
        ControlModel(lambda: Corridor(fault="endless"))
    assert ControlModel(lambda: Corridor(fault="endless"), max_episode_steps=9, **TINY).learn(total_steps=1)
    with pytest.raises(ConfigError, match="is not an environment"):
        ControlModel(3.5)
    with pytest.raises(ConfigError, match="makes str, which is not an environment"):
        ControlModel(lambda: "CartPole")
    with pytest.raises(ConfigError, match="could not be made: ZeroDivisionError: division by zero"):
        ControlModel(lambda: 1 / 0)
    with pytest.raises(ConfigError, match="Meta-World/MT1") as error:
        ControlModel("Meta-World/MT1")
    assert "metaworld:Meta-World/MT1" in error.value.hint


def test_a_callback_that_returns_false_ends_training() -> None:
    seen = []
    model = ControlModel("CartPole-v1", **TINY)
    model.learn(total_steps=9, callback=lambda event: seen.append(event.type) or event.type != "step")
    assert model.num_steps == 1
    assert seen[-1] == "end"
    model.learn(total_steps=2)
    assert model.num_steps == 3


def test_the_example_in_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text("utf8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "environments.md", "exec"), {"__name__": "page"})  # noqa: S102
    one, several = capsys.readouterr().out.splitlines()
    assert one == several
