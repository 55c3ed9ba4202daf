"""What control declares: one set of defaults, with which an environment's name is enough to learn."""

import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.config import TrainingConfig, load_config
from groupwise.control.model import tuned_settings
from groupwise.products import find
from groupwise.reporting.history import History

BLOCKED = """
import sys
sys.modules["transformers"] = sys.modules["peft"] = None
from groupwise.control.model import ControlModel
from groupwise.cli import main
ControlModel("CartPole-v1").learn(total_steps=1)
sys.argv = ["groupwise", "train", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("algorithm", "product"), [("grpo", "control"), ("ppo", "ppo")])
def test_a_model_and_a_settings_file_have_the_same_defaults(tmp_path: Path, algorithm, product) -> None:
    file = tmp_path / "bare.toml"
    file.write_text(f'product = "{product}"\nenvironment = "Acrobot-v1"\n')
    assert load_config(file) == tuned_settings("Acrobot-v1", algorithm)
    given = TrainingConfig(environment="Acrobot-v1", product=product).flat()
    assert {name: given[name] for name in find(product).defaults} == dict(find(product).defaults)


def test_the_name_of_an_environment_is_enough_to_learn_without_transformers(tmp_path: Path) -> None:
    (tmp_path / "bare.toml").write_text('environment = "CartPole-v1"\n')
    command = [sys.executable, "-c", BLOCKED, "bare.toml", "--set", "training.num_episodes=60"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, *_, after = History.read(tmp_path / "runs/cartpole-1").series("eval/reward_mean")[1]
    assert before < 50
    assert after > 400
