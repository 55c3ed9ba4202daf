"""How much memory this process may use, and settings that cannot fit into it on any account.

These bounds are far above what is sensible: they refuse a slip of the finger before it fills the machine. They belong
to the machine and not to the settings, so a run of a larger machine can still be looked at on a smaller one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.config import TrainingConfig

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Bytes that the smallest attempt takes, with its arrays and its row in a batch, and one step of a PPO environment.
ATTEMPT, STEP = 2048, 64
# A weight, its gradient and Adam's two moments, as float32.
WEIGHT = 16


def memory_limit() -> int:
    """Bytes of memory: the machine's, or less if a container or `ulimit -v` allows less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in CGROUPS:
        with suppress(OSError, ValueError):  # "max" is no number and no limit
            limits.append(int(Path(file).read_text("ascii")))
    with suppress(ImportError):
        import resource  # not on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits += [] if soft == resource.RLIM_INFINITY else [soft]
    return min(limits)


def in_words(size: int) -> str:
    """A number of bytes for people: 23.4 GiB."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024 or unit == "EiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


@dataclass(frozen=True, slots=True)
class Need:
    """The bytes that a setting makes a run need at least."""

    setting: str
    value: object
    size: int
    hint: str


def check_fits(cfg: TrainingConfig) -> None:
    """Refuse settings for which this machine's memory is too small, whatever else they say."""
    most = memory_limit()
    for need in _needs(cfg, most):
        if need.size > most:
            raise ConfigError(
                f"{need.setting} = {need.value} needs at least {in_words(need.size)} of memory; "
                f"this machine allows {in_words(most)}",
                hint=need.hint,
                field=need.setting,
            )


def _needs(cfg: TrainingConfig, most: int) -> Iterator[Need]:
    rollout, run = cfg.rollout, cfg.run
    groups = {"rollout.num_generations": rollout.num_generations, "rollout.tasks_per_step": rollout.tasks_per_step}
    yield _product(groups, ATTEMPT, most)
    yield _product({"run.eval_episodes": run.eval_episodes}, ATTEMPT, most)
    yield _product({"run.eval_samples": run.eval_samples}, ATTEMPT, most)
    if cfg.task.product == "ppo":
        yield _product({"rollout.num_envs": rollout.num_envs, "rollout.num_steps": rollout.num_steps}, STEP, most)
    if hasattr(cfg, "generation"):
        yield _product({"generation.batch_size": cfg.generation.batch_size}, rollout.tasks_per_step * ATTEMPT, most)
    sizes = cfg.policy.hidden_sizes
    size = WEIGHT * (sum(sizes) + sum(first * second for first, second in pairwise(sizes)))
    yield Need("policy.hidden_sizes", list(sizes), size, f"Two layers of {int((most / WEIGHT) ** 0.5):,} would fit.")


def _product(factors: Mapping[str, int], each: int, most: int) -> Need:
    """As many things of `each` bytes as the factors make together; the largest factor is to blame."""
    setting = max(factors, key=lambda name: factors[name])
    size = each * prod(factors.values())
    fits = most * factors[setting] // size
    return Need(setting, factors[setting], size, f"Set it to at most {max(1, fits):,}.")
