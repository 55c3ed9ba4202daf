"""Episodes as pictures, drawn for real: without pygame there is only the message to test."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from PIL import Image

from groupwise.cli import run
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.environments import OWN, make
from groupwise.control.gif import write_gif
from groupwise.control.grpo import build
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError, MissingExtra
from groupwise.rollout.contract import action_space_of
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.training.folder import create_run
from groupwise.training.session import execute

DRAWS = importlib.util.find_spec("pygame") is not None
needs_pygame = pytest.mark.skipif(not DRAWS, reason="pygame is not installed: pip install 'groupwise[control]'")
needs_box2d = pytest.mark.skipif(
    importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed: pip install 'groupwise[box2d]'"
)


def policy_for(env):
    return MLPPolicy(env.observation_size, action_space_of(env), hidden_sizes=(8,), seed=1)


def pictures(path):
    with Image.open(path) as image:
        frames = []
        for number in range(image.n_frames):
            image.seek(number)
            frames.append(np.array(image.convert("RGB")))
    return frames


@needs_pygame
@pytest.mark.parametrize(
    ("name", "gymnasium"),
    [
        *((name, False) for name in OWN),
        ("CartPole-v1", True),
        pytest.param("LunarLander-v3", False, marks=needs_box2d),
        ("reward-scales", False),
    ],
)
def test_an_episode_is_drawn_from_its_start_to_its_end(tmp_path, name, gymnasium):
    env = make(name, max_steps=20, gymnasium=gymnasium)
    policy = policy_for(env)
    film = write_gif(policy, env, tmp_path / "new" / "episode.gif", seed=4)
    returns, lengths = evaluate_greedy(env, policy, [4])
    assert (film.total, film.length) == (pytest.approx(returns[0]), lengths[0])
    assert film.frames == film.length + 1
    frames = pictures(film.path)
    # Pillow joins pictures that are equal.
    assert 2 <= len(frames) <= film.frames
    assert frames[0].shape[1] == 300
    assert (frames[0] != frames[-1]).any()


@needs_pygame
def test_a_long_episode_is_shortened_to_its_first_and_last_pictures(tmp_path):
    class Steady:
        def greedy(self, obs):
            return (obs[:, 2] + 0.5 * obs[:, 3] + 0.02 * obs[:, 0] + 0.05 * obs[:, 1] > 0).astype(np.int64)

    film = write_gif(Steady(), make("CartPole-v1", max_steps=260), tmp_path / "a.gif", seed=3)
    assert film.length == 260
    assert film.frames == 131
    assert film.path.stat().st_size < 2_000_000


@needs_pygame
def test_ours_is_drawn_as_gymnasiums(tmp_path):
    policy = policy_for(CartPole())
    ours, theirs = tmp_path / "ours.gif", tmp_path / "theirs.gif"
    write_gif(policy, make("CartPole-v1", max_steps=8), ours, seed=2)
    write_gif(policy, make("CartPole-v1", max_steps=8, gymnasium=True), theirs, seed=2)
    for one, other in zip(pictures(ours), pictures(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_cannot_be_drawn_is_said_before_anything_is_written(tmp_path):
    class Mine(CartPole):
        pass

    with pytest.raises(ConfigError, match="Mine cannot be drawn"):
        write_gif(policy_for(CartPole()), Mine(), tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="a.png does not end in .gif"):
        write_gif(policy_for(CartPole()), CartPole(), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(DRAWS, reason="pygame is installed")
def test_without_pygame_the_extra_is_named(tmp_path):
    with pytest.raises(MissingExtra, match="drawing CartPole") as error:
        write_gif(policy_for(CartPole()), CartPole(), tmp_path / "a.gif")
    assert "groupwise[control]" in error.value.hint


@needs_pygame
def test_the_evaluation_of_a_run_writes_one(small_config, tmp_path, capsys):
    path = create_run(small_config(num_episodes=2))
    list(execute(path, build))
    words = ["eval", path.name, "--runs-dir", str(path.parent), "--episodes", "3", "--seed", "5"]
    assert run([*words, "--gif", str(tmp_path / "run.gif")]) == 0
    assert "seed 5, return" in " ".join(capsys.readouterr().out.split())
    assert len(pictures(tmp_path / "run.gif")) > 1
