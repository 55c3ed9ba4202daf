"""Groups of episodes that are shared out among workers: the same episodes, bit for bit, as one process plays.

Each worker plays some of the copies. It gets the policy once for each version, and with every request the state of the
generator, from which it draws the numbers of all copies and uses those of its own.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.control.environments import make_environment
from groupwise.errors import ConfigError
from groupwise.rollout.backends import RolloutWorkers, Shared
from groupwise.rollout.contract import action_space_of
from groupwise.rollout.episodes import Actor, as_groups, collect_episodes
from groupwise.types import Group, Task, Trajectory, VectorEnvironment


class Versioned(Protocol):
    """A policy whose acting part can be sent to workers."""

    version: int

    def actor_alone(self) -> Actor: ...


@dataclass(frozen=True)
class EpisodeRequest:
    """Some of the copies of a rollout; `shared` is what acts."""

    shared: Shared
    tasks: Sequence[Task]
    group_size: int
    generator: Mapping[str, Any]
    version: int
    prefix: str
    copies: slice


class EpisodeWorker:
    """The handler in a worker: an environment of its own, made from the run's settings."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.environment = make_environment(TrainingConfig.from_dict(settings).task)

    def __call__(self, request: EpisodeRequest) -> tuple[list[Trajectory], int]:
        rng = np.random.default_rng()
        rng.bit_generator.state = request.generator
        return collect_episodes(
            self.environment, request.shared.get(), request.tasks, request.group_size, rng,
            version=request.version, prefix=request.prefix, copies=request.copies,
        )  # fmt: skip


def collect_on_workers(
    workers: RolloutWorkers,
    environment: VectorEnvironment,
    policy: Versioned,
    tasks: Sequence[Task],
    group_size: int,
    rng: np.random.Generator,
    prefix: str,
) -> list[Group]:
    """What `collect_groups` returns, played by the workers; `rng` ends where it would have ended."""
    total = len(tasks) * group_size
    shared = workers.share(policy.version, lambda: _insist_picklable(policy.actor_alone()))
    requests = [
        EpisodeRequest(shared, tasks, group_size, rng.bit_generator.state, policy.version, prefix, copies)
        for copies in _shares(total, workers.size)
    ]
    parts = workers.ask_all(requests)
    # The generator draws one number of 64 bits for each copy and decision, until the last copy of all has ended.
    draws = max(drawn for _, drawn in parts) * total * prod(action_space_of(environment).shape)
    assert isinstance(rng.bit_generator, np.random.PCG64)
    rng.bit_generator.advance(draws)
    return as_groups([episode for episodes, _ in parts for episode in episodes], tasks, group_size, prefix)


def _shares(count: int, workers: int) -> list[slice]:
    ends = [count * number // workers for number in range(workers + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends) if last > first]


def _insist_picklable(actor: Actor) -> Actor:
    try:
        pickle.dumps(actor)
    except Exception as error:
        raise ConfigError(
            f"the network cannot be sent to the workers: {' '.join(str(error).split())}",
            hint='Define its class at the top of a module, or set rollout.backend = "local".',
            field="rollout.backend",
        ) from error
    return actor
