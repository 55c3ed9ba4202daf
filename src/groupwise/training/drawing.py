"""Which groups a step learns from: those it drew, and with dynamic sampling only those that can teach.

Dynamic sampling (DAPO, arXiv 2503.14476): a group whose attempts all score the same is put aside and a new task is
drawn in its place, round by round, until every place is filled or the rounds are used up. Only as many tasks are
drawn as places are empty, so nothing that could teach is ever thrown away.

A step's loss is a mean over the groups it keeps, however few they are: its denominator counts them alone. So a step
that ran out of rounds has the size of any other and is only noisier; with too few rows for all its optimiser steps
it takes fewer of them. A step that keeps nothing leaves the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from groupwise.config import AdvantageSettings, RolloutSettings
from groupwise.config.rules import compares_inside_groups
from groupwise.core import zero_spread_groups
from groupwise.training.estimate import clipped
from groupwise.types import Score, ScoredGroup


@dataclass(frozen=True)
class Drawn:
    """The groups of a step: those to learn from, those put aside, and in how many rounds they were drawn."""

    kept: tuple[ScoredGroup, ...]
    aside: tuple[ScoredGroup, ...]
    rounds: int

    @property
    def all(self) -> tuple[ScoredGroup, ...]:
        return self.kept + self.aside

    def metrics(self) -> dict[str, float]:
        return {"groups/resampled": float(len(self.aside)), "groups/rounds": float(self.rounds)}


def draw_groups(
    draw: Callable[[int], Sequence[ScoredGroup]], rollout: RolloutSettings, advantage: AdvantageSettings
) -> Drawn:
    """`rollout.tasks_per_step` groups from `draw(count)`; see the head of this module for dynamic sampling."""
    places = rollout.tasks_per_step
    if not rollout.dynamic_sampling:
        return Drawn(tuple(draw(places)), (), 1)
    kept: list[ScoredGroup] = []
    aside: list[ScoredGroup] = []
    rounds = 0
    while len(kept) < places and rounds <= rollout.max_resamples:
        rounds += 1
        for group in draw(places - len(kept)):
            (kept if can_teach(group, advantage) else aside).append(group)
    return Drawn(tuple(kept), tuple(aside), rounds)


def can_teach(group: ScoredGroup, cfg: AdvantageSettings) -> bool:
    """Whether totals differ inside the group; where attempts are not compared inside it, whether it has any."""
    totals = torch.tensor([score.total for score in group.scores if isinstance(score, Score)], dtype=torch.float64)
    if not len(totals):
        return False
    if not compares_inside_groups(cfg.estimator, cfg.baseline_type):
        return True
    totals = clipped(totals, cfg) if cfg.estimator == "outcome" else totals
    _, silent = zero_spread_groups(totals, torch.zeros(len(totals), dtype=torch.long))
    return not bool(silent)
