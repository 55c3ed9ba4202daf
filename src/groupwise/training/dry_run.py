"""A dry run: make and score groups with the policy as it is, without learning.

It shows problems before training: groups without spread, truncated or failing attempts, rewards that hardly differ,
and how long a step takes.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.training.batch_source import GroupSource
from groupwise.training.step_groups import CUT_OFF, spread_metrics
from groupwise.types import Failed, Policy, Score, ScoredGroup, Source

# The share from which something is worth a warning.
MANY = 0.5


@dataclass(frozen=True, slots=True)
class DryRun:
    """The groups of a step, and the time they took."""

    groups: tuple[ScoredGroup, ...]
    rollout_seconds: float
    score_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The numbers a person wants before training; those about rewards are None if nothing was scored."""
        members = [member for group in self.groups for member in group.group.members]
        scores = [score for group in self.groups for score in group.scores if isinstance(score, Score)]
        failures = Counter(s.failure.code for g in self.groups for s in g.scores if isinstance(s, Failed))
        actions = sum(member.actions_taken for member in members)
        return {
            "groups": len(self.groups),
            "attempts": len(members),
            "zero_signal_share": spread_metrics(self.groups)["groups/zero_spread_share"] if scores else None,
            "truncated_share": sum(m.end in CUT_OFF for m in members) / len(members),
            "failed_share": 1 - len(scores) / len(members),
            "failures": dict(failures),
            "endings": dict(Counter(str(member.end) for member in members)),
            "reward": _spread([score.total for score in scores]),
            "reward_spread_in_groups": self._spread_in_groups(),
            "parts": {name: _spread(values) for name, values in _parts(scores).items()},
            "flags": dict(Counter(flag for score in scores for flag in score.flags)),
            "actions": _spread([member.actions_taken for member in members]),
            "turns": _spread([m.meta["turns"] for m in members if "turns" in m.meta]),
            "rollout_seconds": self.rollout_seconds,
            "score_seconds": self.score_seconds,
            "actions_per_second": actions / self.rollout_seconds,
        }

    def _spread_in_groups(self) -> float | None:
        """The mean standard deviation within groups, from which advantages are made."""
        inside = [np.nanstd(totals) for g in self.groups if not np.isnan(totals := g.totals()).all()]
        return float(np.mean(inside)) if inside else None

    def cautions(self) -> list[str]:
        """Problems that training would have, in words."""
        found = self.as_dict()
        failed = [s.failure for g in self.groups for s in g.scores if isinstance(s, Failed)]
        usual = Counter(f"{f.message}. {f.hint}".replace("..", ".") for f in failed).most_common(1) or [("", 0)]
        remedies = {
            "zero_signal_share": "of the groups teach nothing: all their attempts score the same. Try harder or easier "
            "tasks, a reward with partial credit, or rollout.dynamic_sampling.",
            "truncated_share": "of the attempts were cut off by a limit. Raise sampling.max_new_tokens, "
            "rollout.max_conversation_turns or task.max_episode_steps.",
            "failed_share": f"of the attempts failed and would be excluded. Most common reason: {usual[0][0]}",
        }
        return [f"{found[name]:.0%} {words}" for name, words in remedies.items() if (found[name] or 0.0) >= MANY]


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": float(np.mean(values)), "std": float(np.std(values)),
        "min": float(np.min(values)), "max": float(np.max(values)),
    }  # fmt: skip


def _parts(scores: Sequence[Score]) -> dict[str, list[float]]:
    names = sorted({name for score in scores for name in score.parts})
    return {name: [score.parts[name] for score in scores if name in score.parts] for name in names}


def dry_run(source: Source, policy: Policy, tasks: int) -> DryRun:
    """Make and score a group for each of the first `tasks` tasks of the training."""
    if not isinstance(source, GroupSource):
        raise ConfigError("this product does not make groups of attempts, so there is nothing to try out")
    # As the loop does before its first step.
    source.publish(policy)
    began = time.perf_counter()
    groups = source.rollout.collect(source.tasks.take(tasks))
    made = time.perf_counter()
    scored = source.scorer.score(source.reward, groups)
    return DryRun(tuple(scored), made - began, time.perf_counter() - made)
