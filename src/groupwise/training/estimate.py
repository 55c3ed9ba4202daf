"""From scores to advantages: every attempt against its own group, before anything is shuffled or split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from groupwise.config import AdvantageSettings
from groupwise.core import Scale, gae, group_advantages, group_return_to_go
from groupwise.types import Array, Score, ScoredGroup, Trajectory

Values = Callable[[Sequence[Trajectory]], Sequence[Array]]


@dataclass(frozen=True)
class Attempts:
    """The scored attempts of all groups in one row each, padded to [B, T]."""

    members: tuple[Trajectory, ...]
    scores: tuple[Score, ...]
    group: Tensor
    rewards: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Estimate:
    """Advantages [B, T]; with a critic also what it should have said, and what it did say.

    `keep` is false at attempts that were cut off and are not to be learned from; None keeps all.
    """

    advantages: Tensor
    keep: Tensor | None = None
    returns: Tensor | None = None
    values: Tensor | None = None


def scored_attempts(groups: Sequence[ScoredGroup]) -> Attempts:
    """All attempts that have a score, group by group; those without one are left out."""
    chosen = [
        (trajectory, score, number)
        for number, scored in enumerate(groups)
        for trajectory, score in zip(scored.group.members, scored.scores, strict=True)
        if isinstance(score, Score)
    ]
    members = tuple(trajectory for trajectory, _, _ in chosen)
    return Attempts(
        members=members,
        scores=tuple(score for _, score, _ in chosen),
        group=torch.tensor([number for _, _, number in chosen], dtype=torch.long),
        rewards=padded([credited(m, score) for m, score, _ in chosen], np.float64),
        mask=padded([m.mask for m in members], np.bool_),
    )


def credited(trajectory: Trajectory, score: Score) -> Array:
    """What the score says was earned at each of the policy's own steps; without a say, all at the last one.

    What was earned at a step that was not the policy's (a tool's answer, say) belongs to the action before it.
    """
    rewards = np.zeros(len(trajectory))
    own = np.flatnonzero(trajectory.mask)
    if not len(own):
        return rewards
    if score.rewards is None:
        rewards[own[-1]] = score.total
        return rewards
    before = np.maximum(np.searchsorted(own, np.arange(len(trajectory)), side="right") - 1, 0)
    np.add.at(rewards, own[before], score.rewards)
    return rewards


def padded(rows: Sequence[Array], dtype: type[np.generic]) -> Tensor:
    """Rows of different lengths as one [B, T] tensor, zeros behind."""
    width = max((len(row) for row in rows), default=0)
    table = np.zeros((len(rows), width), dtype)
    for target, row in zip(table, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(table)


def estimate_advantages(attempts: Attempts, cfg: AdvantageSettings, values: Values | None = None) -> Estimate:
    """Advantages of every action by `cfg.estimator`: `outcome`, `group_rtg` or `gae`."""
    if not attempts.members:
        return Estimate(attempts.rewards)
    return ESTIMATORS[cfg.estimator](attempts, cfg, values)


def _outcome(attempts: Attempts, cfg: AdvantageSettings, values: Values | None) -> Estimate:
    """One number for the whole attempt: its total against its group's (GRPO, arXiv 2402.03300)."""
    totals = clipped(torch.tensor([score.total for score in attempts.scores], dtype=torch.float64), cfg)
    advantages = group_advantages(
        totals, attempts.group, baseline=cfg.baseline_type, scale=scale_of(cfg), std=cfg.std_type
    )
    return Estimate(advantages[:, None] * attempts.mask)


def _group_rtg(attempts: Attempts, cfg: AdvantageSettings, values: Values | None) -> Estimate:
    """Return-to-go against the mean of the other members still alive at that step; then scaled by RMS."""
    rewards = clipped(attempts.rewards, cfg)
    advantages = group_return_to_go(rewards, attempts.mask, cfg.gamma, group_ids=attempts.group)
    return Estimate(scaled(advantages, attempts, cfg))


def _gae(attempts: Attempts, cfg: AdvantageSettings, values: Values | None) -> Estimate:
    """Generalised advantage estimation with the policy's critic; cut-off attempts are bootstrapped."""
    assert values is not None, "estimator='gae' needs a policy with a critic"
    seen = values(attempts.members)
    now = padded([v[:-1] for v in seen], np.float64)
    after = torch.tensor([float(v[-1]) for v in seen], dtype=torch.float64)
    last = last_actions(attempts.mask)
    ended = torch.tensor([m.terminated for m in attempts.members])[:, None]
    raw = gae(
        clipped(attempts.rewards, cfg), now, after,
        terminated=last & ended, truncated=last & ~ended, mask=attempts.mask,
        gamma=cfg.gamma, lam=cfg.gae_lambda,
    )  # fmt: skip
    return Estimate(scaled(raw.advantages, attempts, cfg), returns=raw.returns, values=now)


def last_actions(mask: Tensor) -> Tensor:
    """True at the last action of each row [B, T]."""
    later = mask.flip(1).cumsum(1).flip(1)
    return mask & (later == 1)


ESTIMATORS = {"outcome": _outcome, "group_rtg": _group_rtg, "gae": _gae}


def scale_of(cfg: AdvantageSettings) -> Scale:
    return cfg.advantage_scale if cfg.advantage_normalization else "none"


def clipped(rewards: Tensor, cfg: AdvantageSettings) -> Tensor:
    return rewards if cfg.reward_clip is None else rewards.clamp(-cfg.reward_clip, cfg.reward_clip)


def scaled(advantages: Tensor, attempts: Attempts, cfg: AdvantageSettings) -> Tensor:
    """Divide by the root mean square over the batch or over each group. Nothing is re-centred."""
    scale = scale_of(cfg)
    if scale == "none":
        return advantages
    squares = (advantages.square() * attempts.mask).sum(1)
    counts = attempts.mask.sum(1)
    if scale == "batch_std":
        squares, counts = squares.sum().expand_as(squares), counts.sum().expand_as(counts)
    else:
        groups = int(attempts.group.max()) + 1
        squares = squares.new_zeros(groups).index_add(0, attempts.group, squares)[attempts.group]
        counts = counts.new_zeros(groups).index_add(0, attempts.group, counts)[attempts.group]
    rms = (squares / counts.clamp(min=1)).sqrt()[:, None]
    return torch.where(rms > 1e-12, advantages / rms.clamp(min=1e-12), 0.0)
