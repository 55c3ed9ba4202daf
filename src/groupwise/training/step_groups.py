"""The groups of one step: which are kept to learn from, their metrics, and one record for every attempt.

Dynamic sampling (DAPO, arXiv 2503.14476): a group whose attempts all score the same is set aside and a new task is
drawn in its place, round by round, until every place is filled or the rounds are used up. Each round draws only as
many tasks as there are empty places, so no group that could teach is ever thrown away.

A step's loss is a mean over the groups it keeps, however few: its denominator counts only those. A step that runs
out of rounds is therefore as large as any other, only noisier; with too few rows for all its optimiser steps it takes
fewer of them. A step that keeps no group leaves the weights unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from groupwise.config import AdvantageSettings, RolloutSettings
from groupwise.config.rules import compares_inside_groups
from groupwise.core import zero_spread_groups
from groupwise.training.estimators import AdvantageEstimate, Attempts, clipped
from groupwise.training.exhibits import exhibit_text
from groupwise.types import End, Failed, GroupRecord, Score, ScoredGroup, Trajectory


@dataclass(frozen=True)
class StepGroups:
    """The groups of a step: those to learn from, those set aside, and how many rounds it took to draw them."""

    kept: tuple[ScoredGroup, ...] = ()
    aside: tuple[ScoredGroup, ...] = ()
    rounds: int = 0

    @property
    def all(self) -> tuple[ScoredGroup, ...]:
        return self.kept + self.aside

    def missing(self, cfg: RolloutSettings) -> int:
        """How many groups the next round draws; 0 when the step is complete or its rounds are used up."""
        rounds = 1 + cfg.max_resamples if cfg.dynamic_sampling else 1
        return max(0, cfg.tasks_per_step - len(self.kept)) if self.rounds < rounds else 0

    def add(self, drawn: Sequence[ScoredGroup], rollout: RolloutSettings, advantage: AdvantageSettings) -> StepGroups:
        """The step after another round; dynamic sampling sets aside groups that cannot teach."""
        useful = [not rollout.dynamic_sampling or can_teach(group, advantage) for group in drawn]
        kept = tuple(group for group, keep in zip(drawn, useful, strict=True) if keep)
        aside = tuple(group for group, keep in zip(drawn, useful, strict=True) if not keep)
        return StepGroups(self.kept + kept, self.aside + aside, self.rounds + 1)

    def metrics(self) -> dict[str, float]:
        return {"groups/resampled": float(len(self.aside)), "groups/rounds": float(self.rounds)}


def can_teach(group: ScoredGroup, cfg: AdvantageSettings) -> bool:
    """Whether totals differ within the group; if attempts are not compared within it, whether it has any score."""
    totals = torch.tensor([score.total for score in group.scores if isinstance(score, Score)], dtype=torch.float64)
    if not len(totals):
        return False
    if not compares_inside_groups(cfg.estimator, cfg.baseline_type):
        return True
    # Totals that only differ beyond the clip give equal advantages.
    totals = clipped(totals, cfg) if cfg.estimator == "outcome" else totals
    _, silent = zero_spread_groups(totals, torch.zeros(len(totals), dtype=torch.long))
    return not bool(silent)


CUT_OFF = (End.TRUNCATED, End.TURN_LIMIT)
# A flag in group files.
RESAMPLED = "resampled"
# Characters of an attempt kept in a record.
LONGEST_TEXT = 10_000
# Tokens of an attempt kept in a record.
MOST_TOKENS = 4_096


def group_metrics(drawn: StepGroups, attempts: Attempts, estimate: AdvantageEstimate) -> dict[str, float | None]:
    """The metrics of a step's groups, before any learning.

    Rewards, lengths and shares cover all groups that were drawn: those set aside because they cannot teach still show
    how good the policy is. Advantages are those of `attempts`, from which the step learns.
    """
    members = [member for group in drawn.all for member in group.group.members]
    scores = [score for group in drawn.all for score in group.scores if isinstance(score, Score)]
    lengths = torch.tensor([member.actions_taken for member in members], dtype=torch.float64)
    cut = sum(member.end in CUT_OFF for member in members)
    metrics: dict[str, float | None] = {
        "groups/count": float(len(drawn.all)),
        "groups/failed_share": 1.0 - len(scores) / max(1, len(members)),
        "attempt/length_mean": float(lengths.mean()),
        "attempt/length_max": float(lengths.max()),
        "attempt/truncated_share": cut / max(1, len(members)),
    }
    if not scores:
        return {**metrics, "reward/mean": None, "groups/zero_spread_share": None}
    totals = torch.tensor([score.total for score in scores], dtype=torch.float64)
    for name in sorted({name for score in scores for name in score.parts}):
        # Over all scored attempts, as the total: an attempt without the part got nothing from it.
        metrics[f"reward/part/{name}"] = sum(score.parts.get(name, 0.0) for score in scores) / len(scores)
    return {
        **metrics,
        "reward/mean": float(totals.mean()),
        "reward/std": float(totals.std(correction=0)),
        "reward/min": float(totals.min()),
        "reward/max": float(totals.max()),
        **spread_metrics(drawn.all),
        **advantage_metrics(estimate.advantages[attempts.mask]),
    }


def spread_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """The share of groups without spread, among those with any score.

    Where scores differ, but by so little that they count as equal, the share of such groups too.
    """
    scored = [(score.total, n) for n, g in enumerate(groups) for score in g.scores if isinstance(score, Score)]
    # In float64 from the start: float32 takes a billion and one for a billion.
    totals = torch.tensor([total for total, _ in scored], dtype=torch.float64)
    numbers = torch.tensor([number for _, number in scored])
    _, silent = zero_spread_groups(totals, numbers)
    _, equal = zero_spread_groups(totals, numbers, eps=0.0)
    close = {"groups/close_share": float((silent & ~equal).double().mean())}
    return {"groups/zero_spread_share": float(silent.double().mean()), **(close if any(close.values()) else {})}


def advantage_metrics(acting: Tensor) -> dict[str, float | None]:
    if not acting.numel():
        return {"advantage/std": None, "advantage/abs_mean": None}
    return {"advantage/std": float(acting.std(correction=0)), "advantage/abs_mean": float(acting.abs().mean())}


def group_records(drawn: StepGroups, attempts: Attempts, estimate: AdvantageEstimate) -> tuple[GroupRecord, ...]:
    """One row for every attempt; its advantage is the mean over its own actions.

    Failed attempts are included, and so are those of groups that were set aside, with the flag `resampled`.
    """
    acting = attempts.mask.sum(1).clamp(min=1)
    worth = estimate.advantages * attempts.mask
    means = worth.sum(1) / acting if attempts.members else acting
    # By identity, not by name: `attempts` also includes replayed ones.
    advantage = {id(m): a for m, a in zip(attempts.members, means.tolist(), strict=True)}
    row = {id(m): values for m, values in zip(attempts.members, worth.tolist(), strict=True)}
    return tuple(
        GroupRecord(
            group_id=group.group.id,
            task_id=member.task_id,
            trajectory_id=member.id,
            total=None if isinstance(score, Failed) else score.total,
            parts={} if isinstance(score, Failed) else score.parts,
            flags=(() if isinstance(score, Failed) else score.flags) + mark,
            advantage=advantage.get(id(member), 0.0),
            length=member.actions_taken,
            end=str(member.end),
            failure=f"{score.failure.where}/{score.failure.code}: {score.failure.message}"
            if isinstance(score, Failed)
            else "",
            version=int(member.versions[member.mask].min()) if member.actions_taken else 0,
            text=words(member.meta.get("content", member.meta.get("text", ""))),
            reasoning=words(member.meta.get("reasoning", "")),
            prompt=words(member.meta.get("prompt", "")),
            exhibit=partial(exhibit_text, member),
            **_tokens(member, row.get(id(member), ())),
        )
        for groups, mark in ((drawn.kept, ()), (drawn.aside, (RESAMPLED,)))
        for group in groups
        for member, score in zip(group.group.members, group.scores, strict=True)
    )


def _tokens(member: Trajectory, advantages: Sequence[float]) -> dict[str, tuple[Any, ...]]:
    """The attempt's first tokens, one by one; nothing if it is not made of tokens."""
    tokens = tuple(map(_written, member.meta.get("tokens", ())[:MOST_TOKENS]))
    count = len(tokens)
    return {
        "tokens": tokens, "acted": tuple(member.mask[:count].tolist()),
        "token_advantages": tuple(advantages[:count]) or (0.0,) * count,
        "token_logps": tuple(member.behavior_logp[:count].tolist()),
    }  # fmt: skip


@lru_cache(maxsize=65_536)
def _written(token: str) -> str:
    return words(token)


def words(value: object, limit: int = LONGEST_TEXT) -> str:
    """Valid UTF-8 text, with its middle left out if it is longer than `limit` characters."""
    text = str(value).encode("utf8", "replace").decode()
    if len(text) <= limit:
        return text
    mark = f" […{len(text):,} characters in all…] "
    half = (limit - len(mark)) // 2
    return text[:half] + mark + text[-half:]
