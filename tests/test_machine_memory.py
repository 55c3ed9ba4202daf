"""Settings that cannot fit into this machine's memory are refused before anything is made."""

import subprocess
import sys

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.machine_memory import check_fits, in_words, memory_limit


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"num_generations": 10**12}, "rollout.num_generations"),
        ({"num_generations": 4, "tasks_per_step": 10**12}, "rollout.tasks_per_step"),
        ({"hidden_sizes": [200_000, 200_000]}, "policy.hidden_sizes"),
        ({"hidden_sizes": [10**15]}, "policy.hidden_sizes"),
        ({"eval_episodes": 10**12}, "run.eval_episodes"),
        ({"product": "ppo", "num_envs": 10**6, "num_steps": 10**9}, "rollout.num_steps"),
        ({"product": "designer", "batch_size": 10**12}, "generation.batch_size"),
    ],
)
def test_settings_that_need_more_memory_than_there_is_are_refused_with_the_limit(settings, setting):
    with pytest.raises(ConfigError, match=r"of memory; this machine allows .*iB") as refusal:
        check_fits(TrainingConfig(**settings))
    assert refusal.value.field == setting
    assert refusal.value.hint


def test_a_limit_in_the_hint_is_accepted():
    with pytest.raises(ConfigError) as refusal:
        check_fits(TrainingConfig(num_generations=10**12))
    most = int(refusal.value.hint.split()[-1].rstrip(".").replace(",", ""))
    check_fits(TrainingConfig(num_generations=most))
    with pytest.raises(ConfigError):
        check_fits(TrainingConfig(num_generations=most + 1))


def test_config_check_refuses_them_too(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[rollout]\nnum_generations = 1000000000000\n")
    command = [sys.executable, "-m", "groupwise", "config", "check", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "rollout.num_generations = 1000000000000 needs at least 1.82 PiB of memory" in said.stdout


def test_a_limit_on_the_process_is_a_limit_on_its_memory():
    code = "from groupwise.machine_memory import memory_limit; print(memory_limit())"
    command = ["bash", "-c", f'ulimit -v 2000000; exec {sys.executable} -c "{code}"']
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(said.stdout) == 2_000_000 * 1024 <= memory_limit()


def test_sizes_in_words():
    assert [in_words(size) for size in (5, 1024, 3 << 29, 10**30)] == ["5 bytes", "1 KiB", "1.5 GiB", "8.67e+11 EiB"]
