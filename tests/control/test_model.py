"""`ControlModel`: learning, predicting, saving and loading as people know it, over an ordinary run."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.evaluation import evaluate_policy
from groupwise.control.model import ControlModel, tuned_settings
from groupwise.errors import CheckpointError, ConfigError, RunError

SMALL = {"hidden_sizes": [16], "num_epochs": 2}
OBSERVATIONS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


@pytest.fixture(scope="module", params=["grpo", "ppo"])
def learned(request: pytest.FixtureRequest) -> ControlModel:
    return ControlModel("CartPole-v1", request.param, seed=3, **SMALL).learn(1500)


def test_learning_makes_the_steps_it_was_asked_for(learned: ControlModel) -> None:
    assert 1500 <= learned.num_timesteps < 1500 + 8 * 500
    assert learned.path is not None
    assert (learned.path / "events.jsonl").exists()


def test_it_learns_to_balance() -> None:
    model = ControlModel("CartPole-v1", "grpo", seed=0, hidden_sizes=[32])
    before, _ = evaluate_policy(model, "CartPole-v1", 20)
    model.learn(8000)
    after, spread = evaluate_policy(model, "CartPole-v1", 20)
    assert after > 3 * before
    assert spread >= 0


def test_predictions_are_single_or_many_greedy_or_drawn(learned: ControlModel) -> None:
    actions, state = learned.predict(OBSERVATIONS)
    assert state is None
    assert actions.shape == (40,)
    assert all(learned.predict(obs)[0] == action for obs, action in zip(OBSERVATIONS, actions, strict=True))
    drawn = np.stack([learned.predict(OBSERVATIONS * 0.01, deterministic=False)[0] for _ in range(20)])
    assert set(np.unique(drawn)) == {0, 1}


def test_saved_models_act_the_same_in_another_process(tmp_path: Path) -> None:
    models = [ControlModel("CartPole-v1", name, seed=3, **SMALL).learn(total_steps=2) for name in ("grpo", "ppo")]
    paths = [model.save(tmp_path / f"model-{number}") for number, model in enumerate(models)]
    np.save(tmp_path / "obs.npy", OBSERVATIONS)
    script = (
        "import sys, numpy as np; from groupwise.control.model import ControlModel\n"
        "for path in sys.argv[2:]: print(*ControlModel.load(path).predict(np.load(sys.argv[1]))[0])"
    )
    command = [sys.executable, "-c", script, tmp_path / "obs.npy", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    said = [line.split() for line in done.stdout.splitlines()]
    assert said == [[str(a) for a in model.predict(OBSERVATIONS)[0]] for model in models], done.stderr


def weights(model: ControlModel) -> list[torch.Tensor]:
    return list(model.policy.state_dict().values())


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_loaded_model_learns_on_as_if_it_had_never_stopped(algorithm: str, tmp_path: Path) -> None:
    model = ControlModel("CartPole-v1", algorithm, seed=3, **SMALL).learn(total_steps=3)
    other = ControlModel.load(model.save(tmp_path / "half.zip"))
    assert (other.num_steps, other.num_timesteps) == (3, model.num_timesteps)
    assert all(torch.equal(a, b) for a, b in zip(weights(other), weights(model), strict=True))
    early = [tensor.clone() for tensor in weights(model)]
    model.learn(total_steps=2)
    other.learn(total_steps=2)
    assert other.num_steps == 5
    assert all(torch.equal(a, b) for a, b in zip(weights(other), weights(model), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(other), early, strict=True))


def test_a_network_of_ones_own_learns_and_is_asked_for_again(tmp_path: Path) -> None:
    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, outputs))

    model = ControlModel("CartPole-v1", "ppo", network=network, num_steps=16, num_epochs=2).learn(total_steps=2)
    path = model.save(tmp_path / "own")
    with pytest.raises(CheckpointError, match="do not fit the network"):
        ControlModel.load(path)
    again = ControlModel.load(path, network=network)
    np.testing.assert_array_equal(again.predict(OBSERVATIONS)[0], model.predict(OBSERVATIONS)[0])


def test_evaluation_agrees_on_our_environment_and_gymnasiums(learned: ControlModel) -> None:
    ours = evaluate_policy(learned, CartPole(), 5)
    assert evaluate_policy(learned, gymnasium.make("CartPole-v1"), 5) == ours
    assert evaluate_policy(learned, "CartPole-v1", 5) == ours


def test_the_page_for_those_who_come_from_stable_baselines3_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "stable_baselines3.md").read_text("utf8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "stable_baselines3.md", "exec"), {"__name__": "page"})  # noqa: S102
    assert float(capsys.readouterr().out.strip("()").split(",")[0]) > 100
    for path in re.findall(r"`(\w+\.\w+)`", page):
        section, name = path.split(".")
        assert section not in SECTIONS or SETTINGS[name].path == path


def test_what_cannot_be_saved_or_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not learned anything yet"):
        ControlModel().save(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="no saved model at"):
        ControlModel.load(tmp_path / "nowhere")
    (tmp_path / "torn.zip").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ControlModel.load(tmp_path / "torn.zip")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../outside", "x")
    with pytest.raises(CheckpointError, match="not a saved model"):
        ControlModel.load(tmp_path / "evil.zip")


def test_lengths_and_names_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="both set the length of training"):
        ControlModel().learn(100, total_steps=3)
    with pytest.raises(ConfigError, match="not known"):
        tuned_settings("CartPole-v1", "dqn")  # type: ignore[arg-type]


def test_environments_without_tuned_settings_get_a_sound_start() -> None:
    assert tuned_settings("CartPole-v1", "ppo").rollout.num_steps == 32
    plain = tuned_settings("Nowhere-v0", "ppo")
    assert plain.task.product == "ppo"
    assert plain.advantage.estimator == "gae"


def test_games_share_the_settings_of_their_family() -> None:
    tuned = tuned_settings("ALE/Breakout-v5", "ppo")
    assert (tuned.task.environment, tuned.advantage.reward_clip) == ("ALE/Breakout-v5", 1.0)
