"""Settings that cannot fit into this machine's memory are refused before anything is made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.machine_memory import ATTEMPT, STEP, WEIGHT, check_fits, in_words, memory_limit


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
    assert [in_words(size) for size in (0, 1023, 1025, 2**50, 2**60)] == [
        "0 bytes", "1.02e+03 bytes", "1 KiB", "1 PiB", "1 EiB",
    ]  # fmt: skip


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    """A container of 64 MiB, as the kernel tells of it."""
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    (tmp_path / "unlimited").write_text("max\n")
    files = (str(tmp_path / "unlimited"), str(tmp_path / "memory.max"), str(tmp_path / "none"))
    monkeypatch.setattr("groupwise.machine_memory.CGROUPS", files)
    return 64 << 20


def test_a_container_limits_the_memory_whichever_file_says_so(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_limit() == memory
    monkeypatch.setattr("groupwise.machine_memory.CGROUPS", ())
    assert memory < memory_limit() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


FITS = 64 << 20


@pytest.mark.parametrize(
    ("settings", "name", "most", "hint"),
    [
        ({}, "num_generations", FITS // ATTEMPT, "Set it to at most 32,768."),
        ({"tasks_per_step": 4}, "num_generations", FITS // ATTEMPT // 4, "Set it to at most 8,192."),
        ({"num_generations": 4}, "tasks_per_step", FITS // ATTEMPT // 4, "Set it to at most 8,192."),
        ({}, "eval_episodes", FITS // ATTEMPT, "Set it to at most 32,768."),
        ({}, "eval_samples", FITS // ATTEMPT, "Set it to at most 32,768."),
        ({"product": "ppo", "num_steps": 100}, "num_envs", FITS // STEP // 100, "Set it to at most 10,485."),
        ({"product": "ppo", "num_envs": 100}, "num_steps", FITS // STEP // 100, "Set it to at most 10,485."),
        ({"product": "designer", "tasks_per_step": 2}, "batch_size", FITS // ATTEMPT // 2, "at most 16,384."),
    ],
)
def test_each_setting_fits_up_to_its_limit_and_no_further(
    memory: int, settings: dict[str, object], name: str, most: int, hint: str
) -> None:
    check_fits(TrainingConfig.from_dict({**settings, name: most}))
    with pytest.raises(ConfigError, match=f"{name} = {most + 1} needs at least .* allows 64 MiB") as refused:
        check_fits(TrainingConfig.from_dict({**settings, name: most + 1}))
    assert hint in refused.value.hint


def test_the_weights_of_a_policy_are_those_between_its_layers_and_a_bias_for_each_unit(memory: int) -> None:
    weights = memory // WEIGHT
    first = 1000
    second = (weights - first) // (first + 1)  # first + second + first * second weights
    check_fits(TrainingConfig(hidden_sizes=[first, second]))
    for sizes in ([first, second + 1], [weights + 1], [first, 1, second * 2000]):
        with pytest.raises(ConfigError, match="^policy.hidden_sizes = .* allows 64 MiB") as refused:
            check_fits(TrainingConfig(hidden_sizes=sizes))
    assert refused.value.hint == f"Two layers of {int(weights**0.5):,} would fit."
    check_fits(TrainingConfig(hidden_sizes=[weights]))
    check_fits(TrainingConfig(hidden_sizes=[]))


def test_environments_stepped_in_parallel_only_count_for_ppo(memory: int) -> None:
    check_fits(TrainingConfig(product="control", num_envs=10**6, num_steps=10**6))
    with pytest.raises(ConfigError):
        check_fits(TrainingConfig(product="ppo", num_envs=10**6, num_steps=10**6))
