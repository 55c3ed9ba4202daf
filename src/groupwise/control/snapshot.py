"""A few groups of a policy that is still learning, kept with every reward: what the figures that teach are made of.

They are made beside training, from a generator and an environment of their own, so that the run goes the way it would
have gone. A source that has no groups of episodes (PPO, a language model) leaves no snapshot.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.config import TrainingConfig
from groupwise.control.product import Episodes, make_environment
from groupwise.core import discounted_returns, group_return_to_go
from groupwise.reporting.lessons import Moment
from groupwise.rollout.episodes import collect_groups
from groupwise.training.estimate import Attempts, scored_attempts
from groupwise.training.session import Build, Parts
from groupwise.training.source import GroupSource
from groupwise.types import Event, Group, Score, ScoredGroup

GROUPS = 4


class Snapshot:
    """Watches a run and keeps one moment of it: its first evaluation after the start."""

    def __init__(self, cfg: TrainingConfig, path: Path) -> None:
        self.cfg = cfg
        self.path = path
        self.parts: Parts | None = None

    def see(self, event: Event) -> None:
        if event.type == "eval" and event.step > 0 and self.parts is not None and not self.path.exists():
            # A picture must never cost a course; what went wrong is in the log.
            try:
                self._keep(self.parts, event.step)
            except Exception:
                traceback.print_exc()

    def _keep(self, parts: Parts, step: int) -> None:
        source = parts.source
        if isinstance(source, GroupSource) and isinstance(source.rollout, Episodes):
            moment_of(source, source.rollout, self.cfg, step).write(self.path)


def watching(build: Build, snapshot: Snapshot | None) -> Build:
    """`build`, which also tells the snapshot whom it watches."""

    def built(cfg: TrainingConfig) -> Parts:
        parts = build(cfg)
        if snapshot is not None:
            snapshot.parts = parts
        return parts

    return built


def moment_of(source: GroupSource, rollout: Episodes, cfg: TrainingConfig, step: int) -> Moment:
    tasks = copy.deepcopy(source.tasks).take(GROUPS)
    rng = np.random.default_rng([cfg.run.seed, step])
    environment = make_environment(cfg.task)
    groups = collect_groups(environment, rollout.policy, tasks, cfg.rollout.num_generations, rng)
    attempts = scored_attempts([_by_its_rewards(group) for group in groups])
    labels, numbers = _labels(groups)
    gamma = cfg.advantage.gamma
    returns = discounted_returns(attempts.rewards, attempts.mask, gamma)
    played = returns[attempts.mask]
    everywhere = (returns - played.mean()) / played.std(correction=0).clamp(min=1e-12)
    within = group_return_to_go(attempts.rewards, attempts.mask, gamma, group_ids=attempts.group)
    within = within / within[attempts.mask].square().mean().sqrt().clamp(min=1e-12)
    label = numbers[attempts.group.numpy()]
    return Moment(
        step, gamma, labels, label, attempts.group.numpy(), attempts.rewards.numpy(), attempts.mask.numpy(),
        returns.numpy(), (everywhere * attempts.mask).numpy(), within.numpy(),
        gradient_cosines(source, rollout, attempts, within, label, len(labels)),
    )  # fmt: skip


def _by_its_rewards(group: Group) -> ScoredGroup:
    scores = tuple(Score(float(np.sum(member.rewards)), rewards=member.rewards) for member in group.members)
    return ScoredGroup(group, scores)


def _labels(groups: Sequence[Group]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """What to call the groups: by task where there are several, else by the start they share."""
    names = [group.task.id.rpartition("/")[0] or group.task.id for group in groups]
    if len(set(names)) == 1:
        names = [f"start {number + 1}" for number in range(len(groups))]
    labels = tuple(dict.fromkeys(names))
    return labels, np.array([labels.index(name) for name in names])


def gradient_cosines(
    source: GroupSource,
    rollout: Episodes,
    attempts: Attempts,
    advantages: torch.Tensor,
    label: NDArray[np.int64],
    count: int,
) -> NDArray[np.float64]:
    """The cosines [L, L] between the policy gradients that the labels' attempts ask for, each by itself."""
    rows = source.collate(attempts)
    policy = rollout.policy
    wanted = rows.pick(advantages)
    owner = rows.pick(torch.from_numpy(label)[:, None].expand_as(attempts.mask))
    parameters = policy.actor_parameters()
    gradients = []
    for number in range(count):
        logp = policy.evaluate(rows.inputs).logp
        gain = (logp * wanted * (owner == number)).sum()
        parts = torch.autograd.grad(gain, parameters, allow_unused=True)
        gradients.append(torch.cat([part.flatten() for part in parts if part is not None]).double())
    table = torch.nn.functional.normalize(torch.stack(gradients), dim=1)
    return np.asarray((table @ table.T).numpy(), np.float64)
