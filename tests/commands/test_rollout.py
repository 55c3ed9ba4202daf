"""`groupwise rollout` says before a training whether there is anything to learn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.cli import run

SETTINGS = """
[task]
product = "{product}"
environment = "{environment}"
[policy]
model_name = "tiny"
hidden_sizes = [8]
[rollout]
num_generations = 4
[optim]
per_device_train_batch_size = 8
"""


def settings(tmp_path: Path, product: str, environment: str) -> str:
    path = tmp_path / "settings.toml"
    sampling = "[sampling]\nmax_new_tokens = 4\n" if product == "language" else ""
    path.write_text(SETTINGS.format(product=product, environment=environment) + sampling)
    return str(path)


def test_a_model_that_knows_nothing_is_said_to_teach_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rollout", settings(tmp_path, "language", "column_addition"), "--tasks", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["groups"], told["attempts"]) == (3, 12)
    assert told["zero_signal_share"] == 1.0
    assert any("teach nothing" in caution for caution in told["cautions"])
    assert told["actions_per_second"] > 0


def test_groups_with_spread_pass_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", settings(tmp_path, "control", "CartPole-v1"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["zero_signal_share"] == 0.0
    assert told["reward_spread_in_groups"] > 0
    assert told["cautions"] == []


def test_it_reads_well_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", settings(tmp_path, "language", "column_addition"), "--tasks", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 of 4 attempts" in said
    assert "reward 0  ended" in said


def test_what_has_no_groups_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, "ppo", "CartPole-v1")
    assert run(["rollout", path, "--set", "advantage.estimator=gae", "--json"]) == 2
    assert "does not make groups" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_what_fails_is_told_with_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "strict.py").write_text('def strict(turns):\n    raise ValueError("no answer is good enough")\n')
    path = settings(tmp_path, "agent", "orders")
    reward = f"reward.name=python:{tmp_path / 'strict.py'}:strict"
    assert run(["rollout", path, "--tasks", "1", "--set", reward, "--json"]) == 1
    (caution,) = [c for c in json.loads(capsys.readouterr().out)["cautions"] if "failed" in c]
    assert "100% of the attempts failed" in caution
    assert "ValueError: no answer is good enough" in caution
