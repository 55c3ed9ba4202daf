"""Atari games from their memory, behind the same contract as every other environment."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from groupwise.config import load_config
from groupwise.control import grpo as product
from groupwise.control.environments import make_environment
from groupwise.training.folder import create_run
from groupwise.training.session import execute

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ale_py") is None, reason='needs pip install "groupwise[atari]"'
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "atari_ram.toml"
GAMES = ("ALE/Breakout-v5", "ALE/SpaceInvaders-v5", "ALE/Boxing-v5")


@pytest.mark.parametrize("game", GAMES)
def test_equal_seeds_start_alike_and_bytes_become_shares(game: str) -> None:
    environment = make_environment(load_config(EXAMPLE).replace(environment=game).task)
    first, second, _ = environment.reset([7, 7, 8])
    assert first.shape == (128,)
    assert np.array_equal(first, second)
    assert (first.min(), first.max() <= 1.0) == (0.0, True)
    for _ in range(5):
        obs, *_ = environment.step(np.array([1, 1, 1]))
    assert np.array_equal(obs[0], obs[1])


def test_a_short_run_learns_from_groups(tmp_path: Path) -> None:
    cfg = load_config(EXAMPLE).replace(
        output_dir=str(tmp_path), max_episode_steps=60, num_episodes=2, total_samples=None, num_generations=4
    )
    events = list(execute(create_run(cfg), product.build))
    steps = [event.data["metrics"] for event in events if event.type == "step"]
    assert [metrics["attempt/length_max"] for metrics in steps] == [60, 60]
    assert any(metrics["optim/steps"] > 0 for metrics in steps)
