"""The usual source of batches: tasks → groups of attempts → scores → advantages → tensors.

On many ranks each makes and scores whole groups, its share of those a step draws. Then all have all of them, and go on
as one process would.
Attempts may be made by workers elsewhere (`groupwise.rollout.backends`); everything after them happens here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.core import loss_denominator, overlong_mask
from groupwise.errors import NoSignalError
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.rewards.answer_drift import answer_metrics
from groupwise.rewards.scoring import RewardScorer
from groupwise.rewards.statistics import PartStatistics
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.estimators import (
    AdvantageEstimate,
    Attempts,
    ScaledCritic,
    Values,
    ValueScales,
    estimate_advantages,
    gae_of,
    padded,
    scored_attempts,
    task_numbers,
)
from groupwise.training.group_assignment import GroupAssignment
from groupwise.training.micro_batches import MicroBatches, acting_rows, at_least_single, autocast, row_ends
from groupwise.training.ranks.communication import ALONE, Ranks
from groupwise.training.replay import ReplayBuffer, Replayed
from groupwise.training.step_groups import CUT_OFF, StepGroups, can_teach, group_metrics, group_records
from groupwise.training.worker_rewards import RemoteReward
from groupwise.types import Batch, Failed, Group, Hint, Policy, Reward, Score, ScoredGroup, Task, Tensors

# Steps in a row in which every attempt may fail.
PATIENCE = 3


class TaskStream(Protocol):
    """An endless, resumable stream of tasks."""

    def take(self, count: int) -> Sequence[Task]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class NumberedTasks:
    """An endless stream of tasks, each created from its number."""

    def __init__(self, make: Callable[[int], Task]) -> None:
        self.make = make
        self.cursor = 0

    def take(self, count: int) -> list[Task]:
        numbers = range(self.cursor, self.cursor + count)
        self.cursor += count
        return [self.make(number) for number in numbers]

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]


class Rollout(Protocol):
    """Makes a group of attempts at each task with the policy's current weights.

    A rollout whose groups depend on nothing but weights, seed and task may say so with `independent = True`: ranks then
    make them apart. One that makes attempts somewhere else, such as on a GPU, may have `overlaps = True` and a method
    `stream` like `collect` that returns groups one by one, in order: they are scored while the next ones are made. One
    with an attribute `ranks` shares its work with the other ranks itself. Any other works on rank
    0, for all.
    """

    def collect(self, tasks: Sequence[Task]) -> Sequence[Group]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class StreamingRollout(Rollout, Protocol):
    """A rollout that may give its groups one by one."""

    overlaps: bool

    def stream(self, tasks: Sequence[Task]) -> Iterator[Group]: ...


@dataclass(frozen=True)
class BatchRows:
    """How a product lays out its scored attempts for the policy: rows of [B, T].

    They are made from the attempts' arrays only: replayed attempts have lost their `meta`. `pick` rearranges a table
    over the attempts, [attempts, longest], into the layout of the rows; the source uses it for everything it adds.
    `weights` scale the contribution of each row or token. `engine` says that the attempts' log-probabilities come from
    an engine, which rounds differently from the policy.
    """

    inputs: Tensors
    mask: Tensor
    behavior_logp: Tensor
    pick: Callable[[Tensor], Tensor]
    weights: Tensor | None = None
    engine: bool = False


Collate = Callable[[Attempts], BatchRows]


class GroupSource:
    """Collects attempts, scores them and compares them within their groups, in step with the learner."""

    # Who generates, for a language model; one that drives servers has metrics and hints of its own.
    engine: TokenEngine | None = None

    def __init__(
        self,
        cfg: TrainingConfig,
        *,
        tasks: TaskStream,
        rollout: Rollout,
        reward: Reward,
        collate: Collate,
        values: Values | None = None,
        reference: Callable[[Tensors], Tensor] | None = None,
        workers: RolloutWorkers | None = None,
    ) -> None:
        gae_of(cfg.advantage)
        self.cfg = cfg
        self.workers = workers
        self.tasks = tasks
        self.rollout = rollout
        self.reward = reward
        self.collate = collate
        self.critic = None if values is None else ScaledCritic(values, ValueScales())
        self.reference = reference
        # A worker keeps the time itself: waiting for one does not count.
        remote = isinstance(reward, RemoteReward)
        self.scorer = RewardScorer(timeout=None if remote else cfg.rollout.reward_timeout)
        self.replay = ReplayBuffer(cfg.rollout, cfg.run.seed)
        self.micro_batches = MicroBatches(cfg, "asking the reference")
        self.groups = GroupAssignment(cfg)
        self.parts = PartStatistics()
        self.silent_steps = 0
        self.ranks = ALONE

    def join(self, ranks: Ranks) -> bool:
        """Share the work with other ranks, if that is possible."""
        apart = getattr(self.rollout, "independent", False)
        if not (apart or hasattr(self.rollout, "ranks")):
            return False
        self.ranks = ranks
        if not apart:
            setattr(self.rollout, "ranks", ranks)  # noqa: B010
        if self.critic is not None:
            values = self.critic.values
            self.critic = ScaledCritic(lambda members: ranks.dealt(members, values), self.critic.scales)
        return True

    def next(self) -> Batch:
        clock = _Clock()
        adjusted = "" if self.workers is None else self.workers.adjust()
        drawn = StepGroups()
        while count := drawn.missing(self.cfg.rollout):
            drawn = drawn.add(self._draw(count, clock), self.cfg.rollout, self.cfg.advantage)
        batch = self.compare(drawn)
        clock.lap("advantage")
        hints = (Hint("workers_scaled", adjusted, ""),) if adjusted else ()
        return replace(batch, timing=clock.laps, hints=(*batch.hints, *hints))

    def compare(self, drawn: StepGroups) -> Batch:
        """The batch of groups that were drawn and scored."""
        self._insist_on_scores(drawn.all)
        self.parts.see(drawn.all)
        replayed = self._replay(drawn)
        # Groups are complete here, before anything is shuffled or split: advantages depend on all their members.
        attempts = self.groups.assign(scored_attempts((*drawn.kept, *replayed.groups)))
        estimate = self._without_cut_offs(attempts, estimate_advantages(attempts, self.cfg.advantage, self.critic))
        weights = self.groups.weigh(attempts)
        batch = self._with_reference(self._without_idle_rows(self._batch(attempts, estimate, weights)))
        return replace(
            batch,
            metrics={
                **group_metrics(drawn, attempts, estimate),
                **self.groups.metrics(attempts, estimate, weights),
                **self._extra_metrics(drawn, replayed),
            },
            samples=sum(m.actions_taken for s in drawn.all for m in s.group.members),
            attempts=sum(len(s.group.members) for s in drawn.all),
            records=group_records(drawn, attempts, estimate),
            hints=(
                *self.micro_batches.take_hints(),
                *self.parts.hints(),
                *self.take_hints(),
                *_offered(self.reward, "hints", ()),
            ),
        )

    def with_advantages(self, group: Group, advantages: Sequence[float]) -> Batch:
        """The batch of a group whose advantages were computed elsewhere, one per attempt."""
        scored = ScoredGroup(group, tuple(Score(float(advantage)) for advantage in advantages))
        attempts = self.groups.assign(scored_attempts((scored,)))
        given = torch.tensor(advantages, dtype=torch.float64)[:, None] * attempts.mask
        return self._with_reference(self._batch(attempts, AdvantageEstimate(given), None))

    def take_hints(self) -> Sequence[Hint]:
        """Where user code raised since the last call, in an evaluation too, and servers that were lost."""
        return (*self.scorer.take_hints(), *_offered(self.engine, "take_hints", ()))

    def _draw(self, count: int, clock: _Clock) -> Sequence[ScoredGroup]:
        tasks, ranks = self.tasks.take(count), self.ranks
        scored: Sequence[ScoredGroup]

        def score(groups: Sequence[Group]) -> Sequence[ScoredGroup]:
            clock.lap("rollout")
            return self.scorer.score(self.reward, groups)

        if ranks.alone and getattr(self.rollout, "overlaps", False):
            streaming = cast(StreamingRollout, self.rollout)
            scored = self.scorer.score_arriving(self.reward, clock.arriving(streaming.stream(tasks)))
        elif ranks.alone or not getattr(self.rollout, "independent", False):
            groups = self.rollout.collect(tasks)
            scored = ranks.on_first(lambda: score(groups))
        elif _keeps_state(self.reward):
            groups = ranks.dealt(tasks, self.rollout.collect)
            scored = ranks.on_first(lambda: score(groups))
        else:
            scored = ranks.dealt(tasks, lambda share: score(self.rollout.collect(share)))
            self.scorer.note(scored)
        clock.lap("score")
        return scored

    def _replay(self, drawn: StepGroups) -> Replayed:
        """Past groups to learn from again; those of this step can be drawn from the next step on."""
        if not self.cfg.rollout.replay_size:
            return Replayed()
        self.replay.see(drawn.all)
        replayed = self.replay.draw()
        self.replay.add([group for group in drawn.kept if can_teach(group, self.cfg.advantage)])
        return replayed

    def _extra_metrics(self, drawn: StepGroups, replayed: Replayed) -> dict[str, float | None]:
        """Metrics of optional features, and of rewards that report their own."""
        rollout = self.cfg.rollout
        resampling = drawn.metrics() if rollout.dynamic_sampling else {}
        replay = replayed.metrics(len(drawn.kept)) if rollout.replay_groups else {}
        answers = answer_metrics(drawn.all)
        workers = {} if self.workers is None else self.workers.metrics()
        offered = {**_offered(self.reward, "metrics", {}), **_offered(self.engine, "metrics", {})}
        return {**resampling, **replay, **self.parts.metrics(), **answers, **workers, **offered}

    def publish(self, policy: Policy) -> None:
        """Rollouts use the learner's own policy, so there is nothing to send."""

    def close(self) -> None:
        self.scorer.close()
        if self.workers is not None:
            self.workers.close()

    def _insist_on_scores(self, scored: Sequence[ScoredGroup]) -> None:
        failures = [s.failure for group in scored for s in group.scores if isinstance(s, Failed)]
        alive = any(not isinstance(s, Failed) for group in scored for s in group.scores)
        self.silent_steps = 0 if alive else self.silent_steps + 1
        # A run shorter than PATIENCE must not end as if all were well. A judge that cannot be used is not waited for:
        # it has been asked several times already.
        judged, total = {failure.where for failure in failures} == {"judge"}, self.cfg.training.num_episodes
        if self.silent_steps >= min(1 if judged else PATIENCE, total):
            first, count = failures[0], self.silent_steps
            since = f"the last {count} steps" if count > 1 else "this step" if total > 1 else "the only step"
            raise NoSignalError(
                f"every attempt of {since} failed: {first.where}: {first.message}",
                hint=first.hint or f"Fix the {first.where} and resume the run.",
            )

    def _without_cut_offs(self, attempts: Attempts, estimate: AdvantageEstimate) -> AdvantageEstimate:
        """With `loss.mask_truncated`, exclude attempts that hit a limit from the policy's loss."""
        if not self.cfg.loss.mask_truncated or not attempts.members:
            return estimate
        cut = torch.tensor([member.end in CUT_OFF for member in attempts.members])
        return replace(estimate, keep=overlong_mask(cut, attempts.mask))

    def _batch(self, attempts: Attempts, estimate: AdvantageEstimate, weights: Tensor | None) -> Batch:
        """All scored attempts. The counts are fixed here: dropping idle rows later must not change a step."""
        loss, optim, rows = self.cfg.loss, self.cfg.optim, self.collate(attempts)
        # Under autocast the learner computes in another precision than any sampler.
        rounded = rows.engine or optim.bf16 or optim.fp16
        apart = optim.gradient_surgery != "none"

        def picked(table: Tensor | None) -> Tensor | None:
            return None if table is None else rows.pick(table).to(rows.behavior_logp.dtype)

        return Batch(
            inputs=rows.inputs,
            mask=rows.mask,
            behavior_logp=rows.behavior_logp,
            advantages=rows.pick(estimate.advantages).to(rows.behavior_logp.dtype),
            denominator=loss_denominator(loss.loss_type, attempts.mask, max_length=loss.max_completion_length),
            total_rows=int(rows.mask.shape[0]),
            total_tokens=int(rows.mask.sum()),
            keep=None if estimate.keep is None else rows.pick(estimate.keep),
            versions=rows.pick(padded([m.versions for m in attempts.members], np.int64)) if rounded else None,
            weight_group=rows.pick(attempts.weight_group[:, None].expand_as(attempts.mask)),
            weights=_product(rows.weights, picked(_by_step(weights, attempts.mask))),
            returns=picked(estimate.returns),
            values=picked(estimate.values),
            tasks=rows.pick(task_numbers(attempts.kinds)[:, None].expand_as(attempts.mask)) if apart else None,
        )

    def _without_idle_rows(self, batch: Batch) -> Batch:
        """Drop rows that no term of the loss acts on."""
        loss = self.cfg.loss
        # A KL or value term acts on rows without an advantage too.
        if loss.beta > 0 or loss.kl_target is not None or batch.returns is not None:
            return batch
        active = acting_rows(batch)
        return batch if bool(active.all()) else batch.select(active)

    def _with_reference(self, batch: Batch) -> Batch:
        """Add the reference's log-probabilities, computed in the learner's own precision."""
        if self.reference is None or batch.rows == 0:
            return batch
        # Sorted by length, so that micro-batches waste little on padding; then put back in order.
        order = row_ends(batch.mask).argsort(stable=True)
        own = self.ranks.rows(order)
        parts = self.micro_batches.over(batch.select(own), self._reference_logp)
        logp = torch.cat(parts or [self._reference_logp(batch.select(order[:1]))])
        return replace(batch, reference_logp=self.ranks.fill(own, tuple(batch.mask.shape), logp))

    def _reference_logp(self, part: Batch) -> Tensor:
        assert self.reference is not None
        with torch.no_grad(), autocast(self.cfg):
            logp = self.reference({name: value.to(self.cfg.policy.device) for name, value in part.inputs.items()})
        return at_least_single(logp).to(part.mask.device)

    def state_dict(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks.state_dict(),
            "rollout": self.rollout.state_dict(),
            "reward": self.reward.state_dict() if hasattr(self.reward, "state_dict") else None,
            "parts": self.parts.state_dict(),
            "replay": self.replay.state_dict(),
            "groups": self.groups.state_dict(),
            "value_scales": None if self.critic is None else self.critic.scales.state_dict(),
            "micro_batches": self.micro_batches.state_dict(),
            "silent_steps": self.silent_steps,
            "workers": None if self.workers is None else self.workers.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tasks.load_state_dict(state["tasks"])
        self.rollout.load_state_dict(state["rollout"])
        if hasattr(self.reward, "load_state_dict"):
            self.reward.load_state_dict(state["reward"])
        # Checkpoints of older versions lack some of these.
        if "parts" in state:
            self.parts.load_state_dict(state["parts"])
        if "replay" in state:
            self.replay.load_state_dict(state["replay"])
        if "groups" in state:
            self.groups.load_state_dict(state["groups"])
        if self.critic is not None and state.get("value_scales") is not None:
            self.critic.scales.load_state_dict(state["value_scales"])
        if "micro_batches" in state:
            self.micro_batches.load_state_dict(state["micro_batches"])
        if self.workers is not None and state.get("workers") is not None:
            self.workers.load_state_dict(state["workers"])
        self.silent_steps = state["silent_steps"]


def _keeps_state(reward: Reward) -> bool:
    """Whether a reward remembers what it scored, or reports on it: then one rank scores everything."""
    return any(hasattr(reward, name) for name in ("state_dict", "metrics", "hints"))


def _offered(whose: Any, method: str, otherwise: Any) -> Any:
    """The result of a method that a reward or an engine may have, or `otherwise`."""
    offered = getattr(whose, method, None)
    return offered() if callable(offered) else otherwise


def _by_step(weights: Tensor | None, mask: Tensor) -> Tensor | None:
    """A weight per attempt [B] expanded to one per step [B, T]."""
    return None if weights is None else weights[:, None].expand(mask.shape)


def _product(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The product of weights by row or by token, either of which may be None."""
    if first is None or second is None:
        return second if first is None else first
    return (first[:, None] if first.dim() == 1 else first) * second


class _Clock:
    """Seconds per phase of a step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def arriving(self, groups: Iterable[Group]) -> Iterator[Group]:
        """The groups; the lap of the rollout ends with the last."""
        yield from groups
        self.lap("rollout")

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
