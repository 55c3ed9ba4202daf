"""From scores to advantages: every attempt against its own group, before anything is shuffled or split.

One critic serves tasks whose rewards differ ten-thousandfold (`ValueScales`): it predicts in units of σ_k, a running
root mean square of task k's returns, V = σ_k · output, and its targets are divided by σ_k, so that no task's value
error drowns another's. "Multi-task Deep Reinforcement Learning with PopArt" (arXiv 1809.04474). Departures: no mean is
subtracted, since a critic that sees the task learns the mean itself; and outputs are not preserved when σ moves, since
one output serves all tasks: σ moves slowly instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise import core
from groupwise.config import AdvantageSettings
from groupwise.core.jax_gae import import_jax, jax_gae
from groupwise.types import Array, Score, ScoredGroup, Trajectory

# How much of a task's mean square stays from update to update.
KEEP = 0.9


class ValueScales:
    """σ of every task seen so far; a new task starts with the root mean square of its first returns."""

    def __init__(self) -> None:
        self.squares: dict[str, float] = {}

    def before(self, kinds: Sequence[str], returns: Tensor, mask: Tensor) -> Tensor:
        """σ [B] of every attempt's task; `returns` [B, T] are used for tasks not seen before."""
        for kind, square in _mean_squares(kinds, returns, mask).items():
            self.squares.setdefault(kind, square)
        return self._of(kinds)

    def after(self, kinds: Sequence[str], returns: Tensor, mask: Tensor) -> Tensor:
        """σ [B] after an update with these returns [B, T]."""
        for kind, square in _mean_squares(kinds, returns, mask).items():
            self.squares[kind] = KEEP * self.squares[kind] + (1 - KEEP) * square
        return self._of(kinds)

    def _of(self, kinds: Sequence[str]) -> Tensor:
        squares = torch.tensor([self.squares[kind] for kind in kinds], dtype=torch.float64)
        return torch.where(squares > 0, squares.sqrt(), 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"squares": dict(self.squares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.squares = dict(state["squares"])


def _mean_squares(kinds: Sequence[str], returns: Tensor, mask: Tensor) -> dict[str, float]:
    squares, counts = (returns.square() * mask).sum(1).tolist(), mask.sum(1).tolist()
    totals: dict[str, tuple[float, int]] = {}
    for kind, square, count in zip(kinds, squares, counts, strict=True):
        total, number = totals.get(kind, (0.0, 0))
        totals[kind] = total + square, number + count
    return {kind: total / max(number, 1) for kind, (total, number) in totals.items()}


Values = Callable[[Sequence[Trajectory]], Sequence[Array]]


@dataclass(frozen=True)
class Attempts:
    """The scored attempts of all groups, one row each, padded to [B, T].

    `group` [B] is the baseline group, the only one whose mean may be subtracted. `scale_group` [L, B] only divides; its
    levels are nested. `weight_group` [B] is for loss weights and reports. `kinds` and `seeds` are those of the tasks.
    """

    members: tuple[Trajectory, ...]
    scores: tuple[Score, ...]
    kinds: tuple[str, ...]
    seeds: tuple[int, ...]
    group: Tensor
    scale_group: Tensor
    weight_group: Tensor
    rewards: Tensor
    mask: Tensor


@dataclass(frozen=True)
class AdvantageEstimate:
    """Advantages [B, T]; with a critic also its targets (`returns`) and its predictions (`values`).

    `keep` is false at truncated attempts that should not be learned from; None keeps all.
    """

    advantages: Tensor
    keep: Tensor | None = None
    returns: Tensor | None = None
    values: Tensor | None = None


def scored_attempts(groups: Sequence[ScoredGroup]) -> Attempts:
    """All attempts that have a score, group by group; scale and weight groups are the tasks."""
    chosen = [
        (trajectory, score, number)
        for number, scored in enumerate(groups)
        for trajectory, score in zip(scored.group.members, scored.scores, strict=True)
        if isinstance(score, Score)
    ]
    members = tuple(trajectory for trajectory, _, _ in chosen)
    tasks = [groups[number].group.task for _, _, number in chosen]
    kinds = tuple(task.kind for task in tasks)
    by_task = task_numbers(kinds)
    return Attempts(
        members=members,
        scores=tuple(score for _, score, _ in chosen),
        kinds=kinds,
        seeds=tuple(task.seed for task in tasks),
        group=torch.tensor([number for _, _, number in chosen], dtype=torch.long),
        scale_group=by_task[None],
        weight_group=by_task,
        rewards=padded([credited(m, score) for m, score, _ in chosen], np.float64),
        mask=padded([m.mask for m in members], np.bool_),
    )


def task_numbers(kinds: Sequence[str]) -> Tensor:
    """A number [B] for each name, in the order of first appearance, so that equal batches have equal numbers."""
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return torch.tensor([numbers[kind] for kind in kinds], dtype=torch.long)


def credited(trajectory: Trajectory, score: Score) -> Array:
    """The reward at each of the policy's own steps; if the score does not spread it, all of it at the last one.

    A reward at a step that was not the policy's (a tool's answer, for example) is credited to the action before it.
    """
    rewards = np.zeros(len(trajectory))
    own = np.flatnonzero(trajectory.mask)
    if not len(own):
        return rewards
    if score.rewards is None:
        rewards[own[-1]] = score.total
        return rewards
    # For every step, the number of the latest own action; steps before the first count to the first.
    before = np.maximum(np.searchsorted(own, np.arange(len(trajectory)), side="right") - 1, 0)
    np.add.at(rewards, own[before], score.rewards)
    return rewards


def padded(rows: Sequence[Array], dtype: type[np.generic]) -> Tensor:
    """Rows of different lengths as one [B, T] tensor, zeros at the end."""
    width = max((len(row) for row in rows), default=0)
    table = np.zeros((len(rows), width), dtype)
    for target, row in zip(table, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(table)


@dataclass(frozen=True)
class ScaledCritic:
    """A function for values, [T + 1] of every attempt, and the units it predicts in under `group_gae`."""

    values: Values
    scales: ValueScales


def estimate_advantages(
    attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | Values | None = None
) -> AdvantageEstimate:
    """Advantages of every action by `cfg.estimator`."""
    if not attempts.members:
        return AdvantageEstimate(attempts.rewards)
    if critic is not None and not isinstance(critic, ScaledCritic):
        critic = ScaledCritic(critic, ValueScales())
    return ESTIMATORS[cfg.estimator](attempts, cfg, critic)


def _outcome(attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | None) -> AdvantageEstimate:
    """One number for each attempt: its total reward relative to its group (GRPO, arXiv 2402.03300)."""
    totals = clipped(torch.tensor([score.total for score in attempts.scores], dtype=torch.float64), cfg)
    by_task = cfg.advantage_normalization and cfg.advantage_scale == "task_rms"
    scale: core.Scale = "none" if by_task else scale_of(cfg)
    advantages = core.group_advantages(
        totals, attempts.group, baseline=cfg.baseline_type, scale=scale, std=cfg.std_type
    )
    if by_task:
        square = core.mean_square_by_level(advantages.square(), torch.ones_like(totals), attempts.scale_group)
        advantages = divided(advantages, square.sqrt())
    return AdvantageEstimate(advantages[:, None] * attempts.mask)


def _group_rtg(attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | None) -> AdvantageEstimate:
    """Return-to-go relative to the other members still alive at that step, then scaled by RMS."""
    rewards = clipped(attempts.rewards, cfg)
    advantages = core.group_return_to_go(rewards, attempts.mask, cfg.gamma, group_ids=attempts.group)
    return AdvantageEstimate(scaled(advantages, attempts, cfg))


def _turns(attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | None) -> AdvantageEstimate:
    """Each turn of a conversation by what it and later turns earned beyond the group, then scaled by RMS."""
    rewards = clipped(attempts.rewards, cfg)
    advantages = core.turn_advantages(rewards, attempts.mask, attempts.group, cfg.gamma, baseline=cfg.baseline_type)
    return AdvantageEstimate(scaled(advantages, attempts, cfg))


def _gae(attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | None) -> AdvantageEstimate:
    """Generalised advantage estimation with the policy's critic; truncated attempts are bootstrapped."""
    now, after = _critic_values(attempts, critic)
    raw = _bootstrapped(attempts, cfg, now, after)
    return AdvantageEstimate(scaled(raw.advantages, attempts, cfg), returns=raw.returns, values=now)


def _group_gae(attempts: Attempts, cfg: AdvantageSettings, critic: ScaledCritic | None) -> AdvantageEstimate:
    """The same with a critic that predicts, and learns, in units of each task's own scale of returns."""
    now, after = _critic_values(attempts, critic)
    assert critic is not None
    paid = core.discounted_returns(clipped(attempts.rewards, cfg), attempts.mask, cfg.gamma)
    # Predictions are read in the old units and targets written in the new ones: the critic has not learned them yet.
    unit = critic.scales.before(attempts.kinds, paid, attempts.mask)
    raw = _bootstrapped(attempts, cfg, now * unit[:, None], after * unit)
    unit = critic.scales.after(attempts.kinds, raw.returns, attempts.mask)
    return AdvantageEstimate(scaled(raw.advantages, attempts, cfg), returns=raw.returns / unit[:, None], values=now)


def _critic_values(attempts: Attempts, critic: ScaledCritic | None) -> tuple[Tensor, Tensor]:
    """The critic's value of each state [B, T], and of the state after the last [B]."""
    assert critic is not None, "estimators with GAE need a policy with a critic"
    seen = critic.values(attempts.members)
    after = torch.tensor([float(v[-1]) for v in seen], dtype=torch.float64)
    return padded([v[:-1] for v in seen], np.float64), after


def _bootstrapped(attempts: Attempts, cfg: AdvantageSettings, now: Tensor, after: Tensor) -> core.Gae:
    """GAE that bootstraps truncated attempts and not finished ones."""
    last = last_actions(attempts.mask)
    ended = torch.tensor([m.terminated for m in attempts.members])[:, None]
    return gae_of(cfg)(
        clipped(attempts.rewards, cfg), now, after,
        terminated=last & ended, truncated=last & ~ended, mask=attempts.mask,
        gamma=cfg.gamma, lam=cfg.gae_lambda,
    )  # fmt: skip


def gae_of(cfg: AdvantageSettings) -> Callable[..., core.Gae]:
    """The function for GAE that the settings ask for; without JAX, it says so here."""
    if cfg.backend == "torch":
        return core.gae
    import_jax("advantage.backend = 'jax'")
    return jax_gae


def last_actions(mask: Tensor) -> Tensor:
    """True at the last action of each row [B, T]."""
    # How many actions are at t or later: 1 at the last.
    later = mask.flip(1).cumsum(1).flip(1)
    return mask & (later == 1)


ESTIMATORS = {
    "outcome": _outcome, "group_rtg": _group_rtg, "turns": _turns, "gae": _gae, "group_gae": _group_gae,
}  # fmt: skip


def scale_of(cfg: AdvantageSettings) -> core.Scale:
    """The scale within groups or over the batch; dividing by a task's is a separate step."""
    if not cfg.advantage_normalization or cfg.advantage_scale == "task_rms":
        return "none"
    return cfg.advantage_scale


def clipped(rewards: Tensor, cfg: AdvantageSettings) -> Tensor:
    return rewards if cfg.reward_clip is None else rewards.clamp(-cfg.reward_clip, cfg.reward_clip)


def scaled(advantages: Tensor, attempts: Attempts, cfg: AdvantageSettings) -> Tensor:
    """Divide by the root mean square over the batch, each group or each scale group. Nothing is re-centred."""
    if not cfg.advantage_normalization or cfg.advantage_scale == "none":
        return advantages
    levels = {
        "batch_std": torch.zeros_like(attempts.group)[None],
        "group_std": attempts.group[None],
        "task_rms": attempts.scale_group,
    }[cfg.advantage_scale]
    # Each action counts once, so that long attempts have more say in the scale.
    squares = (advantages.square() * attempts.mask).sum(1)
    square = core.mean_square_by_level(squares, attempts.mask.sum(1), levels)
    return divided(advantages, square.sqrt()[:, None])


def divided(advantages: Tensor, rms: Tensor) -> Tensor:
    """Divided by the root mean square; 0 where that is 0."""
    return torch.where(rms > 1e-12, advantages / rms.clamp(min=1e-12), 0.0)
