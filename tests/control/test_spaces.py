"""A trained model sees and does the same wherever it is used: by name, in Gymnasium, on a vector, after loading."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from groupwise.control.evaluation import evaluate_policy
from groupwise.control.model import ControlModel
from groupwise.control.spaces import Interface, read_interface
from groupwise.errors import ConfigError, ContractError

FLOATS = spaces.Box(-3.0, 3.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (10, 12, 3), np.uint8)
TWO = spaces.Discrete(2)
# Observation and action of every kind, each at least once with what goes wrong first: a start, a shape, bytes, a nest.
KINDS = {
    "floats": (FLOATS, TWO),
    "matrix": (spaces.Box(-1.0, 1.0, (2, 3), np.float64), spaces.Discrete(4, start=1)),
    "bytes": (spaces.Box(0, 255, (6,), np.uint8), spaces.Discrete(3, start=-1)),
    "image": (IMAGE, TWO),
    "choice": (spaces.Discrete(5), spaces.MultiDiscrete([2, 3])),
    "choice from 3": (spaces.Discrete(5, start=3), spaces.MultiBinary(3)),
    "choices": (spaces.MultiDiscrete([3, 4]), spaces.Box(-1.0, 1.0, (2, 2), np.float32)),
    "bits": (spaces.MultiBinary(4), spaces.Box(-0.2, 0.3, (2,), np.float64)),
    "dict": (spaces.Dict({"b": FLOATS, "a": spaces.Discrete(3, start=2)}), spaces.MultiDiscrete([[2, 2], [3, 2]])),
    "tuple": (spaces.Tuple((FLOATS, spaces.MultiBinary(2))), spaces.Tuple((TWO, spaces.Discrete(3, start=5)))),
    "dict with an image": (spaces.Dict({"eye": IMAGE, "arm": FLOATS}), spaces.Dict({"x": TWO, "y": TWO})),
    "nest": (spaces.Dict({"in": spaces.Tuple((TWO, FLOATS))}), spaces.Tuple((FLOATS, spaces.Box(-1, 1, ())))),
}
numbers = itertools.count()


class Guess(gymnasium.Env):
    """Pays by how the action fits the observation, so that a wrong reading of either shows in the score."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, kind: str, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = map(copy.deepcopy, KINDS[kind])
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.clock, self.seen = 0, self.observation_space.sample()
        return self.seen, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        numbers = spaces.flatten(self.action_space, action)
        said = float(numbers @ np.arange(1, 1 + len(numbers)))
        shown = spaces.flatten(self.observation_space, self.seen).astype(float)
        wanted = float(np.tanh(shown[::2].sum() - shown[1::2].sum()))
        self.clock += 1
        self.seen = self.observation_space.sample()
        return self.seen, float(np.cos(said - 3 * wanted)), self.clock >= 4 + said % 2, False, {}


def guess(kind: str) -> str:
    name = f"Guess{next(numbers)}-v0"
    gymnasium.register(name, lambda **options: Guess(kind, **options), max_episode_steps=8)
    return name


def weights_with_opinions(model: ControlModel) -> None:
    """Large weights, so that every number of an observation counts."""
    import torch

    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.policy.actor.parameters():
            weight += torch.randn(weight.shape, generator=generator) / max(1, weight.shape[-1]) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_score_is_the_same_by_name_in_gymnasium_on_a_vector_and_loaded(
    kind: str, algorithm: str, tmp_path: Path
) -> None:
    name = guess(kind)
    model = ControlModel(name, algorithm, hidden_sizes=[8], num_epochs=1, num_envs=2, num_steps=8)
    model.learn(total_steps=1)
    weights_with_opinions(model)
    by_name = evaluate_policy(model, name, 7)
    make = lambda: gymnasium.make(name)  # noqa: E731
    vectors = [SyncVectorEnv([make] * 3, autoreset_mode=mode) for mode in AutoresetMode]
    for environment in (make(), gymnasium.wrappers.RecordEpisodeStatistics(make()), make, *vectors):
        assert evaluate_policy(model, environment, 7) == pytest.approx(by_name, abs=1e-6)
    assert by_name[1] > 0.01
    model.learn(total_steps=1)
    again = ControlModel.load(model.save(tmp_path / "saved"))
    assert evaluate_policy(again, make(), 7) == pytest.approx(evaluate_policy(model, name, 7), abs=1e-6)


def test_an_environment_in_other_processes_scores_the_same() -> None:
    model = ControlModel("CartPole-v1", seed=1, hidden_sizes=[8])
    vector = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    assert evaluate_policy(model, vector, 3) == evaluate_policy(model, "CartPole-v1", 3)
    vector.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_interface_reads_back_from_bytes_and_reads_batches_like_single_observations(kind: str) -> None:
    interface = read_interface(kind, *KINDS[kind])
    assert Interface.from_bytes(interface.to_bytes()) == interface
    vector = SyncVectorEnv([lambda: Guess(kind)] * 3)
    obs, _ = vector.reset(seed=[1, 2, 3])
    rows, single = interface.rows(obs)
    assert (rows.shape, single) == ((3, interface.observation_size), False)
    for row, seed in zip(rows, (1, 2, 3), strict=True):
        one, _ = Guess(kind).reset(seed=seed)
        np.testing.assert_array_equal(row, interface.row(one).astype(np.float32))
        np.testing.assert_array_equal(row, interface.rows(one)[0][0])
    assert rows.max() <= 3.0


def test_an_observation_of_another_shape_is_refused_in_a_sentence() -> None:
    model = ControlModel("CartPole-v1", hidden_sizes=[8])
    with pytest.raises(ContractError, match=r"has shape \(5,\), but the policy sees \(4,\)"):
        model.predict(np.zeros(5))


def test_actions_of_both_sorts_are_refused() -> None:
    with pytest.raises(ConfigError, match="which no policy here supports"):
        read_interface("Mixed-v0", FLOATS, spaces.Tuple((TWO, FLOATS)))


class Masked(Guess):
    """Forbids actions in changing ways and says so in one form, and pays nothing for those that it forbade."""

    def __init__(self, kind: str, form: str) -> None:
        super().__init__(kind)
        self.form = form
        if form == "method":
            self.action_masks = self.allowed

    def allowed(self):
        numbers = np.array([self.clock % 2 == 0, True, self.clock % 3 == 0])
        return (numbers[:2], np.array([self.clock % 2, 0, 1])) if self.form == "parts" else numbers

    def say(self) -> dict:
        told = {"array": np.array, "list": list, "parts": tuple}.get(self.form)
        # Gymnasium then leaves out this copy.
        return {} if told is None or self.clock == 2 else {"action_mask": told(self.allowed())}

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, self.say()

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self.say()


MASKED = {"three": (FLOATS, spaces.Discrete(3, start=2)), "parts": (FLOATS, spaces.Tuple((TWO, spaces.Discrete(3))))}


@pytest.mark.parametrize("form", ["method", "array", "list", "parts"])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_forbidden_actions_are_the_same_ones_in_every_form_of_the_environment(
    form: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.KINDS", {**KINDS, **MASKED})
    kind = "parts" if form == "parts" else "three"

    def make():
        return gymnasium.wrappers.TimeLimit(Masked(kind, form), 8)

    small = {"hidden_sizes": [8], "num_epochs": 1, "num_envs": 3, "num_steps": 12, "seed": 1}
    one, many = (ControlModel(given, algorithm, **small) for given in (make, SyncVectorEnv([make] * 3)))
    for model in (one, many):
        model.learn(total_steps=2)
    for name, weight in one.policy.state_dict().items():
        np.testing.assert_allclose(many.policy.state_dict()[name], weight, rtol=0, atol=1e-5, err_msg=name)
    weights_with_opinions(one)
    alone = evaluate_policy(one, make, 7)
    for environment in (make(), *(SyncVectorEnv([make] * 3, autoreset_mode=mode) for mode in AutoresetMode)):
        assert evaluate_policy(one, environment, 7) == pytest.approx(alone, abs=1e-6)
    other = AsyncVectorEnv([make] * 2)
    assert evaluate_policy(one, other, 4) == pytest.approx(evaluate_policy(one, make, 4), abs=1e-6)
    other.close()
