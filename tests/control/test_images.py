"""Pixels go through convolutions, also beside other numbers; Atari games are seen as the field sees them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from groupwise.control.environments import make
from groupwise.control.evaluation import evaluate_policy
from groupwise.control.gif import write_gif
from groupwise.control.image_network import ImageNetwork, channels_first
from groupwise.control.model import ControlModel
from groupwise.control.policy import MLPPolicy
from groupwise.control.spaces import is_image, read_interface
from groupwise.rollout.checker import check_environment

EYE = spaces.Box(0, 255, (10, 12, 3), np.uint8)
TWO = spaces.Discrete(2)
needs_ale = pytest.mark.skipif(find_spec("ale_py") is None, reason="pip install 'groupwise[atari]'")


class Lamp(gymnasium.Env):
    """Which half of the picture is lit? One action per half; a number beside it says nothing."""

    def __init__(self, beside: bool = False) -> None:
        self.beside, self.action_space = beside, TWO
        self.observation_space = spaces.Dict({"eye": EYE, "clock": spaces.Box(0, 9, (1,))}) if beside else EYE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self._look(), {}

    def step(self, action):
        reward = float(action == self.lit)
        self.clock += 1
        return self._look(), reward, self.clock == 8, False, {}

    def _look(self):
        self.lit = int(self.np_random.integers(2))
        eye = self.np_random.integers(0, 60, (10, 12, 3)).astype(np.uint8)
        eye[:, 6 * self.lit : 6 * self.lit + 6] += 150
        return {"eye": eye, "clock": np.float32([self.clock])} if self.beside else eye


def lamp():
    return gymnasium.wrappers.TimeLimit(Lamp(), 8)


def lamp_and_clock():
    return gymnasium.wrappers.TimeLimit(Lamp(beside=True), 8)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("environment", [lamp, lamp_and_clock])
def test_both_algorithms_learn_from_pixels(algorithm: str, environment: object) -> None:
    model = ControlModel(environment, algorithm, seed=1, num_envs=8, num_steps=16, num_epochs=4, tasks_per_step=2)
    assert isinstance(model.policy.actor, ImageNetwork)
    before = evaluate_policy(model, environment, 20)[0]
    model.learn(total_steps=6)
    assert evaluate_policy(model, environment, 20)[0] > max(7.5, before)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84), (1, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((4, 64, 64, 3), (12, 64, 64)),
    ],
)
def test_images_of_every_layout_come_with_channels_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert is_image(shape)
    picture = np.random.default_rng(0).random(shape)
    seen = channels_first(torch.from_numpy(picture.reshape(1, -1)), shape)[0]
    assert tuple(seen.shape) == expected
    first = {(84, 84): (3, 5), (4, 84, 84): (0, 3, 5), (210, 160, 3): (3, 5, 0), (4, 64, 64, 3): (0, 3, 5, 0)}[shape]
    assert float(seen[0, 3, 5]) == picture[first]


def test_the_nature_network_has_its_published_size_and_depends_on_the_seed_alone() -> None:
    interface = read_interface("Pixels", spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6))
    one, other = (MLPPolicy(interface.observation_size, 6, seed=3, interface=interface) for _ in range(2))
    # 32·(4·8·8+1) + 64·(32·4·4+1) + 64·(64·3·3+1) + 512·(64·7·7+1) + 6·513
    assert sum(weight.numel() for weight in one.actor.parameters()) == 1_687_206
    assert all(torch.equal(a, b) for a, b in zip(one.actor.parameters(), other.actor.parameters(), strict=True))


@needs_ale
def test_a_game_is_seen_as_the_field_sees_it_and_trained_on(tmp_path: Path) -> None:
    game = make("ALE/Pong-v5", max_steps=12)
    assert (game.interface.parts[0].shape, game.action_count) == ((4, 84, 84), 6)
    assert check_environment(game) == []
    for algorithm in ("grpo", "ppo"):
        small = {"num_envs": 2, "num_steps": 8, "num_generations": 2, "num_epochs": 1}
        model = ControlModel("ALE/Pong-v5", algorithm, max_episode_steps=12, **small).learn(total_steps=2)
        assert isinstance(model.policy.actor, ImageNetwork)
        assert np.isfinite(evaluate_policy(model, game, 2)[0])
    film = write_gif(model.policy, game, tmp_path / "pong.gif", seed=1)
    assert (film.length, film.path.stat().st_size > 500) == (12, True)
