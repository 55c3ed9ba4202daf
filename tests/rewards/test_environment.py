from __future__ import annotations

import numpy as np

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.policy import MLPPolicy
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.scoring import score_groups
from groupwise.rollout.episodes import collect_groups
from groupwise.types import Score, Task


def test_an_attempt_is_worth_the_sum_of_its_environments_rewards():
    tasks = [Task("a", seed=1), Task("b", seed=2)]
    groups = collect_groups(CartPole(), MLPPolicy(4, 2), tasks, 4, np.random.default_rng(0))
    scored = score_groups(EnvironmentReward(), groups)
    assert [s.group for s in scored] == groups
    for group, scores in ((s.group, s.scores) for s in scored):
        for member, score in zip(group.members, scores, strict=True):
            assert score == Score(float(len(member)), {"environment": float(len(member))})
