"""The learner: one batch in, one improved policy out.

Departures from the papers, all on purpose:
- rows are shuffled into optimiser steps, but advantages were computed before, over whole groups;
- every micro-batch divides by the same denominator, its optimiser step's share of the batch's own, so the
  gradient does not depend on how rows are split, padded or packed;
- a batch whose idle rows were left out is split into as many optimiser steps as the full batch would have been;
- rows without an advantage take no part in the entropy bonus, and a batch without any, and without a KL or
  value term, leaves weights and optimiser untouched;
- the KL stop counts from where the update began, so that stale samples do not end it before it starts;
- the ratio of samples of the present version is taken against the learner's own log-probabilities before its first
  change, so that it starts at exactly 1 in any precision; the sampler's are a weight on the loss. Where the two agree
  (float32), later optimiser steps use the sampler's, and nothing is computed twice;
- actor and critic gradients are clipped separately, so that a large value error cannot starve the policy;
- with `optim.gradient_surgery` each task of an optimiser step has its own gradient first.

On many ranks all have the complete batch and shuffle it alike. Each learns from its share of an optimiser step's rows;
denominators are those of all rows, and gradients and metrics are added up over ranks before anything depends on them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.core.surrogates import CISPO_CAP
from groupwise.training.micro_batches import (
    MicroBatches,
    OptimiserStep,
    TaskGradients,
    acting_rows,
    at_least_single,
    autocast,
    check_batch,
    row_ends,
)
from groupwise.training.ranks.communication import ALONE, Ranks, host_group
from groupwise.training.ranks.weights import trained_on
from groupwise.types import SHOWN, Batch, Evaluation, Hint, Policy

# Ratios this near 1 are equal but for the rounding of float32: 1e-6 to 1e-5 over thousands of tokens.
SAME_RATIO = 1e-4


def schedule_factor(step: int, total: int, *, kind: str, warmup_ratio: float = 0.0) -> float:
    """The factor of the learning rate, or of the clip, at `step` of `total` (counted from 0). No state to save.

    Linear warm-up over the first `warmup_ratio` of the steps, then `constant`, `linear` to 0 or half a
    `cosine` to 0. The first step after warm-up runs at the full rate and no step at exactly 0.
    """
    warmup = math.ceil(warmup_ratio * total)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total - warmup)
    progress = min(progress, 1.0)
    if kind == "linear":
        return 1.0 - progress
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0


class UpdateMetrics:
    """The metrics of an update: sums over its optimiser steps, turned into means at the end.

    Until then they stay where they were computed: reading a number of a GPU would make the CPU wait for it, and then
    the GPU for the CPU.
    """

    # Means over the policy's own tokens, over those that the sampler drew with the present weights, and maxima. The
    # rest are means over optimiser steps.
    PER_TOKEN = ("policy/entropy", "policy/kl", "policy/clip_low", "policy/clip_high", "policy/reference_kl")
    PER_SAMPLED = ("sampler/ratio_gap", "sampler/corrected_gap", "sampler/kl", "sampler/truncated_share")
    MAXIMA = ("policy/ratio_max", "sampler/ratio_gap_max")
    SAMPLED = "sampler/tokens"

    def __init__(self) -> None:
        self.unread: list[Mapping[str, Tensor]] = []
        self.steps: list[dict[str, float]] = []
        self.tokens = 0.0
        self.epochs = 0
        self.kl_at_start: float | None = None

    @property
    def applied(self) -> bool:
        """Whether the weights were changed at all."""
        return any(step["optim/skipped"] == 0 for step in self.steps)

    def add(self, step: OptimiserStep, terms: Mapping[str, Tensor], norms: Mapping[str, Tensor]) -> None:
        self.tokens += step.tokens
        self.unread.append({**norms, **terms})

    @classmethod
    def over_parts(cls, terms: Sequence[Mapping[str, Tensor]], ranks: Ranks) -> dict[str, Tensor]:
        """The terms of an optimiser step from those of its micro-batches, on all ranks: sums, and some maxima."""
        names = [[n for n in terms[0] if (n in cls.MAXIMA) is largest] for largest in (False, True)]
        tables = [torch.stack([torch.stack([part[n].double() for n in own]) for part in terms]) for own in names]
        if not ranks.alone:
            tables = [table.cpu() for table in tables]
        values = ranks.add(tables[0].sum(0)), ranks.largest(tables[1].amax(0))
        return {n: v for own, found in zip(names, values, strict=True) for n, v in zip(own, found, strict=True)}

    def read(self) -> None:
        """Fetch what was added since, all of it at once."""
        if self.unread:
            # Of ranks together, the terms are on the CPU already, but the norms on their GPUs.
            place = self.unread[0]["policy/kl"].device
            flat = torch.stack([value.double().to(place) for step in self.unread for value in step.values()])
            values = iter(flat.tolist())
            self.steps += [{name: next(values) for name in step} for step in self.unread]
            self.unread = []

    def means(self) -> dict[str, float]:
        """Means and maxima over all steps, and the number of skipped ones."""
        self.read()
        # The first step has every name. Where nothing was sampled with the present weights, there is no mismatch.
        sampled = sum(step.get(self.SAMPLED, 0.0) for step in self.steps)
        names = [n for n in (self.steps[0] if self.steps else ()) if sampled or not n.startswith("sampler/")]
        means = {name: self._mean(name, sampled) for name in names if name != self.SAMPLED}
        if self.steps:
            means["optim/skipped"] = sum(s["optim/skipped"] for s in self.steps)
        return {**means, "optim/steps": float(len(self.steps)), "optim/epochs": float(self.epochs)}

    def _mean(self, name: str, sampled: float) -> float:
        values = [step[name] for step in self.steps if name in step]
        if name in self.MAXIMA:
            return max(values)
        if name in self.PER_SAMPLED:
            return sum(values) / sampled
        return sum(values) / (self.tokens if name in self.PER_TOKEN else len(self.steps))


class Learner:
    """Owns the optimiser; `update` runs all epochs over a batch and returns what happened."""

    def __init__(self, policy: Policy, cfg: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.policy, self.ranks = policy, ranks
        self.trained = trained_on(ranks, policy, cfg)
        self.cfg = cfg
        self.device = torch.device(cfg.policy.device)
        self.kl_coef = cfg.loss.beta
        self.updates = 0
        self.samples = 0
        self.clip_factor = 1.0
        # Listing a network's parameters walks all its modules, and every optimiser step needs them.
        learns = self.trained.policy
        self.actor, self.critic = list(learns.actor_parameters()), list(learns.critic_parameters())
        # Weights that both use are the actor's.
        shared = {id(parameter) for parameter in self.actor}
        self._critic_alone = [parameter for parameter in self.critic if id(parameter) not in shared]
        self.optimizer = _optimizer(self.actor, self._critic_alone, cfg)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=cfg.optim.fp16)
        self.generator = torch.Generator().manual_seed(cfg.run.seed)
        self.micro_batches = MicroBatches(cfg, "learning", self.trained.passes)
        self.micro_batches.in_step = self.trained.sharded

    def update(self, batch: Batch) -> dict[str, float]:
        """Improve the policy on `batch`; every metric is a mean over the optimiser steps taken."""
        check_batch(batch)
        self._follow_schedules()
        tally = UpdateMetrics()
        if self._has_signal(batch):
            self.trained.fetch()
            self._pass_over(batch, tally)
            self.trained.publish()
        tally.read()
        # A new version only if weights changed: attempts of equal versions come from equal weights.
        self.policy.version += tally.applied
        self.updates += 1
        self.samples += batch.samples
        metrics = {**tally.means(), **_critic_metrics(batch)}
        self._adapt_kl(metrics, batch)
        return {
            **metrics,
            "optim/learning_rate": self.optimizer.param_groups[0]["lr"],
            "optim/kl_coef": self.kl_coef,
        }

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of the loss over a complete batch, with their graph, and its metrics, without learning.

        A batch without a row to learn from has a loss of 0.
        """
        if batch.rows == 0:
            return {"loss/total": sum((p.sum() * 0.0 for p in self.actor), torch.zeros((), device=self.device))}
        check_batch(batch)
        tokens = max(1.0, float(batch.mask.sum()))
        rows = batch.map(lambda t: t.to(self.device))
        step = OptimiserStep(rows, rows, batch.denominator, tokens, tokens, first=True)
        terms = self._loss_terms(step.batch, self._evaluate(step.batch), step)
        sampled = terms.pop(UpdateMetrics.SAMPLED, None)
        divided = {name: term / tokens for name, term in terms.items() if name in UpdateMetrics.PER_TOKEN}
        if sampled is not None:
            over = sampled.clamp(min=1)
            divided |= {name: term / over for name, term in terms.items() if name in UpdateMetrics.PER_SAMPLED}
        return {**terms, **divided}

    def take_hints(self) -> tuple[Hint, ...]:
        """What a person should know about the updates since the last call."""
        return self.micro_batches.take_hints()

    def _has_signal(self, batch: Batch) -> bool:
        if batch.rows == 0:
            return False
        other_terms = self.kl_coef > 0 or (batch.returns is not None and self.cfg.loss.value_coef > 0)
        return other_terms or bool(acting_rows(batch).any())

    def _pass_over(self, batch: Batch, tally: UpdateMetrics) -> None:
        """All epochs over the rows, or fewer once the policy has moved as far as it may."""
        for epoch in range(self.cfg.optim.num_epochs):
            shares = self._shares(batch)
            for rows in shares:
                step = self._step(batch, rows, len(shares), first=not tally.unread)
                terms = self._gradients(step)
                if self._moved_too_far(tally, terms["policy/kl"], step.tokens):
                    self._drop_gradients()
                    return
                again = shares if self.cfg.optim.num_epochs > 1 else shares[1:]
                if step.first and again and self._sampler_disagrees(rows, terms, batch):
                    batch = self._with_old_logp(batch, again)
                tally.add(step, terms, self._step_optimizer())
            tally.epochs = epoch + 1

    def _moved_too_far(self, tally: UpdateMetrics, kl: Tensor, tokens: float) -> bool:
        if self.cfg.optim.kl_stop is None:
            return False
        mean = float(kl) / tokens
        # Replayed and stale samples start with a KL above 0; only what this update adds counts.
        if tally.kl_at_start is None:
            tally.kl_at_start = mean
        return mean - tally.kl_at_start > self.cfg.optim.kl_stop

    def _shares(self, batch: Batch) -> list[Tensor]:
        """The rows in random order, in equal shares: as many as the batch with its idle rows would have made.

        Within a share, short rows come first: micro-batches of similar lengths waste little on padding.
        """
        optim = self.cfg.optim
        size = optim.per_device_train_batch_size * optim.gradient_accumulation_steps
        # Rounded up; `total_rows` counts idle rows too, so that leaving them out does not enlarge the steps.
        count = min(batch.rows, -(-max(batch.total_rows, batch.rows) // size))
        shares = torch.randperm(batch.rows, generator=self.generator).tensor_split(count)
        if self._packs_rows:
            # There is no padding then, but neighbours in the batch have a prompt in common, which is read once.
            return [rows.sort().values for rows in shares]
        lengths = row_ends(batch.mask)
        return [rows[lengths[rows].argsort(stable=True)] for rows in shares]

    def _step(self, batch: Batch, rows: Tensor, count: int, first: bool) -> OptimiserStep:
        """The optimiser step of one of `count` shares."""
        batch = self._narrow(batch, rows)
        tokens = max(batch.total_tokens, int(batch.mask.sum()))
        return OptimiserStep(
            batch=self._part(batch, self.ranks.rows(rows)),
            stand_in=self._part(batch, rows[:1]),
            denominator=batch.denominator / count,
            tokens=max(1.0, float(batch.mask[rows].sum())),
            entropy_denominator=max(1.0, tokens / count),
            first=first,
            tasks=() if batch.tasks is None else tuple(batch.tasks[rows].amax(1).unique().tolist()),
        )

    def _part(self, batch: Batch, rows: Tensor) -> Batch:
        part = batch.select(rows)
        moved = part.map(lambda tensor: tensor.to(self.device))
        # A policy that packs its rows on the CPU would have to fetch them again.
        return replace(moved, inputs=part.inputs) if self._packs_rows else moved

    @property
    def _packs_rows(self) -> bool:
        return getattr(self.trained.policy, "packs_rows", False)

    def _sampler_disagrees(self, first: Tensor, terms: Mapping[str, Tensor], batch: Batch) -> bool:
        """Whether the recorded log-probabilities are further from the learner's than float32 rounds.

        The rows of the first optimiser step show it; if none of their tokens can, the answer is yes.
        """
        own = self._is_own(batch)
        return bool(terms["sampler/ratio_gap_max"] > SAME_RATIO) if bool(own[first].any()) else bool(own.any())

    def _is_own(self, batch: Batch) -> Tensor:
        """The tokens [B, T] whose ratio is taken against the learner's own log-probabilities."""
        if batch.versions is None:
            return torch.zeros_like(batch.mask)
        return batch.mask & ((batch.versions == self.policy.version) | (batch.versions == SHOWN))

    def _with_old_logp(self, batch: Batch, again: list[Tensor]) -> Batch:
        """Add the learner's log-probabilities before its first change, for the rows of optimiser steps still to come.

        They are computed on the same micro-batches as in those steps, because other sizes round differently too.
        """
        old = batch.behavior_logp.clone()
        for rows in again:
            old[rows] = self._over_rows(batch, rows, lambda part: self._evaluate(part).logp).to(old)
        return replace(batch, old_logp=old)

    def _narrow(self, batch: Batch, rows: Tensor) -> Batch:
        """Keep only the tokens of highest entropy, ranked over the complete optimiser step: these rows."""
        quantile = self.cfg.loss.top_entropy_quantile
        if quantile >= 1.0:
            return batch
        entropy = self._over_rows(batch, rows, lambda part: self._evaluate(part).entropy).to(batch.mask.device)
        keep = torch.ones_like(batch.mask) if batch.keep is None else batch.keep.clone()
        keep[rows] &= core.top_entropy_mask(entropy, batch.mask[rows], quantile).bool().to(keep.device)
        return replace(batch, keep=keep)

    @torch.no_grad()
    def _over_rows(self, batch: Batch, rows: Tensor, work: Callable[[Batch], Tensor]) -> Tensor:
        """`work`, one number per token [B, T], on these rows, each of them on one rank. The result is on all."""
        stand_in = self._part(batch, rows[:1])
        places = self.ranks.rows(torch.arange(len(rows)))
        spare: list[Tensor] = []
        # What idle passes return is not used, unless this rank has no rows at all.
        parts = self.micro_batches.over(
            self._part(batch, rows[places]), work, idle=lambda: spare.append(work(stand_in))
        )
        return self.ranks.fill(places, (len(rows), batch.mask.shape[1]), torch.cat(parts or spare))

    def _evaluate(self, batch: Batch) -> Evaluation:
        with autocast(self.cfg):
            seen = self.trained.policy.evaluate(batch.inputs)
        value = None if seen.value is None else at_least_single(seen.value)
        return Evaluation(at_least_single(seen.logp), at_least_single(seen.entropy), value)

    def _gradients(self, step: OptimiserStep) -> dict[str, Tensor]:
        """Add up the gradients of a step's micro-batches; return the terms of its loss and metrics, on all ranks."""
        if not step.tasks:
            return UpdateMetrics.over_parts(self._passes(step, step.batch), self.ranks)
        assert step.batch.tasks is not None
        # Padding has number 0, so the largest number of a row is its task.
        tasks, terms = step.batch.tasks.amax(1), []
        apart = TaskGradients(self.actor, self._critic_alone)
        for task in step.tasks:
            terms += self._passes(step, step.batch.select(tasks == task))
            apart.take()
        return {**UpdateMetrics.over_parts(terms, self.ranks), "optim/task_conflicts": apart.merge(self.generator)}

    def _passes(self, step: OptimiserStep, rows: Batch) -> list[dict[str, Tensor]]:
        """Add the gradients of these rows and of the other ranks'; return the terms of this rank's micro-batches."""

        def passes() -> list[dict[str, Tensor]]:
            return self.micro_batches.over(
                rows,
                lambda part: self._backward(part, step),
                self._drop_gradients,
                lambda: self._backward(step.stand_in, step, idle=True),
            )

        # In step, an error of one rank is met by the others where they are; otherwise they are told here.
        terms = passes() if self.trained.sharded else self.ranks.together(passes)
        self.trained.sum_gradients([*self.actor, *self.critic])
        return terms

    def _drop_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, part: Batch, step: OptimiserStep, idle: bool = False) -> dict[str, Tensor]:
        terms = self._loss_terms(part, self._evaluate(part), step)
        # An idle pass gives every parameter a gradient of 0.
        self.scaler.scale(terms["loss/total"] * 0.0 if idle else terms["loss/total"]).backward()
        return {name: torch.zeros_like(value) if idle else value.detach() for name, value in terms.items()}

    def _loss_terms(self, part: Batch, seen: Evaluation, step: OptimiserStep) -> dict[str, Tensor]:
        """The terms of the loss of one micro-batch. Those of all micro-batches of a step add up."""
        loss = self.cfg.loss
        keep = self._keep(part, seen)
        old, mismatch = self._old_logp(part, seen, step.first)
        result = core.policy_loss(
            seen.logp, old, part.advantages, part.mask,
            loss_type=loss.loss_type, importance_level=loss.importance_level, denominator=step.denominator,
            weights=part.weights, sampler_weights=None if mismatch is None else mismatch.weights,
            keep=keep, reference=self._reference(part), **self._loss_parameters(),
        )  # fmt: skip
        # Without a bonus, the graph of the entropy is not kept.
        entropy = seen.entropy if loss.entropy_coef else seen.entropy.detach()
        bonus = core.entropy_bonus(
            entropy, part.mask, part.advantages,
            coefficient=loss.entropy_coef, denominator=step.entropy_denominator, keep=keep,
        )  # fmt: skip
        total = result.loss - bonus
        count = part.mask.sum()
        terms = {
            "loss/policy": result.policy,
            "policy/entropy": seen.entropy.detach().masked_fill(~part.mask, 0).sum(),
            "policy/kl": result.approx_kl * count,
            "policy/clip_low": result.clip_low_fraction * count,
            "policy/clip_high": result.clip_high_fraction * count,
            "policy/ratio_max": result.ratio.masked_fill(~part.mask, 0).max(),
        }
        if result.kl is not None:
            terms["loss/kl"] = result.kl
        if mismatch is not None:
            terms |= _mismatch_terms(mismatch, (old - part.behavior_logp).masked_fill(~part.mask, 0))
        if result.reference_kl is not None:
            terms["policy/reference_kl"] = result.reference_kl * count
        if part.returns is not None and seen.value is not None:
            value = core.value_loss(
                seen.value, part.returns, part.mask,
                old_values=part.values, value_clip=loss.value_clip, denominator=step.tokens,
            )  # fmt: skip
            terms["loss/value"] = value
            total = total + loss.value_coef * value
        return {"loss/total": total, **terms}

    def _old_logp(self, part: Batch, seen: Evaluation, first: bool) -> tuple[Tensor, core.SamplerMismatch | None]:
        """What the ratio is taken against [B, T], and how far the sampler of the present version is from it."""
        own = seen.logp.detach() if first else part.old_logp
        if part.versions is None or own is None:
            return part.behavior_logp, None
        old = torch.where(self._is_own(part), own, part.behavior_logp)
        sampled = part.mask & (part.versions == self.policy.version)
        return old, core.sampler_mismatch(old, part.behavior_logp, sampled, cap=self.cfg.loss.sampler_weight_cap)

    def _reference(self, part: Batch) -> core.ReferenceKl | None:
        loss = self.cfg.loss
        if part.reference_logp is None:
            if self.kl_coef != 0.0:
                raise ValueError(f"loss.beta is {self.kl_coef}, but the batch has no reference_logp to stay near")
            return None
        return core.ReferenceKl(part.reference_logp, self.kl_coef, loss.kl_estimator, loss.kl_importance_correction)

    def _loss_parameters(self) -> dict[str, float]:
        """The settings that the run's loss takes, under the names of its own parameters."""
        loss, factor = self.cfg.loss, self.clip_factor
        low, high = core.clip_range(loss.loss_type, loss.clip_ratio, loss.clip_ratio_high)
        # The cap of cispo is a ratio itself: it shrinks to 1.
        cap = 1 + ((loss.clip_ratio_high or CISPO_CAP) - 1) * factor
        settings = {
            "clip_low": low * factor, "clip_high": high * factor, "dual_clip": loss.dual_clip, "cap": cap,
            "temperature_pos": loss.sapo_temperature_pos, "temperature_neg": loss.sapo_temperature_neg,
            "k_pos": loss.vespo_k_pos, "lambda_pos": loss.vespo_lambda_pos,
            "k_neg": loss.vespo_k_neg, "lambda_neg": loss.vespo_lambda_neg,
        }  # fmt: skip
        own = {name: settings[name] for name in core.loss_rule(loss.loss_type).parameters}
        return {name: value for name, value in own.items() if value is not None}

    def _keep(self, part: Batch, seen: Evaluation) -> Tensor | None:
        """The tokens that the policy's loss acts on; None for all."""
        threshold = self.cfg.loss.off_policy_threshold
        if threshold is None:
            return part.keep
        near = core.off_policy_mask(
            part.advantages, seen.logp.detach(), part.behavior_logp, part.mask, threshold=threshold
        )
        return _both(part.keep, near)

    def _step_optimizer(self) -> dict[str, Tensor]:
        """Clip actor and critic separately and step; a gradient that is not finite is dropped and counted."""
        optim = self.cfg.optim
        self.scaler.unscale_(self.optimizer)
        norms = {"optim/grad_norm": _clip(self.actor, optim.max_grad_norm)}
        if self.critic:
            limit = optim.critic_max_grad_norm or optim.max_grad_norm
            norms["optim/critic_grad_norm"] = _clip(self.critic, limit)
        spoilt = torch.stack([~torch.isfinite(norm) for norm in norms.values()]).any().float()
        if self.scaler.is_enabled():
            # The scaler of float16 skips such a step itself, and needs to see it to lower its scale.
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.trained.sharded or not self.optimizer.defaults["fused"]:
            if not spoilt:
                self.optimizer.step()
        else:
            # The fused step reads this itself, and leaves weights and moments alone.
            self.optimizer.found_inf = spoilt  # type: ignore[attr-defined]
            self.optimizer.step()
            del self.optimizer.found_inf  # type: ignore[attr-defined]
        # A fused optimiser does not count up the weights' versions, by which an engine notices that they changed.
        if not self.trained.sharded:
            increment_version([*self.actor, *self.critic])
        self._drop_gradients()
        return {**norms, "optim/skipped": spoilt}

    def _follow_schedules(self) -> None:
        """Set learning rate and clip by progress: in iterations, or in samples if those are limited."""
        optim, training = self.cfg.optim, self.cfg.training
        done, total = self.updates, training.num_episodes
        if training.total_samples is not None:
            done, total = self.samples, training.total_samples
        factor = schedule_factor(done, total, kind=optim.lr_scheduler_type, warmup_ratio=optim.warmup_ratio)
        rates = (optim.learning_rate, optim.critic_learning_rate or optim.learning_rate)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate * factor
        self.clip_factor = schedule_factor(done, total, kind=self.cfg.loss.clip_scheduler_type)

    def _adapt_kl(self, metrics: Mapping[str, float], batch: Batch) -> None:
        target = self.cfg.loss.kl_target
        if target is not None and "policy/reference_kl" in metrics:
            self.kl_coef = core.adapt_kl_coefficient(
                self.kl_coef, metrics["policy/reference_kl"],
                target=target, horizon=self.cfg.loss.kl_horizon, samples=batch.attempts or batch.rows,
            )  # fmt: skip

    def save_shards(self, folder: Path) -> None:
        """Write what `state_dict` leaves out of a sharded optimiser to `folder`; every rank calls this."""
        from groupwise.training.ranks.optimizer_shards import empty_folder, write_shards

        self.ranks.on_first(lambda: empty_folder(folder))
        self.ranks.together(lambda: write_shards(self.optimizer, folder, host_group()))

    def _optimizer_state(self) -> dict[str, Any]:
        if not self.trained.sharded:
            return self.optimizer.state_dict()
        from groupwise.training.ranks.optimizer_shards import small_state

        return small_state(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer_state(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "micro_batches": self.micro_batches.state_dict(),
            "kl_coef": self.kl_coef,
            "updates": self.updates,
            "samples": self.samples,
            "version": self.policy.version,
        }

    def load_state_dict(self, state: Mapping[str, Any], shards: Path | None = None) -> None:
        """Go on from a saved state; `shards` is the folder of what a sharded optimiser left out of it."""
        # The saved state would bring back its learning rate and betas; the present settings win.
        options = [_options(group) for group in self.optimizer.param_groups]
        saved = state["optimizer"]
        if shards is not None and (self.trained.sharded or "in_shards" in saved):
            from groupwise.training.ranks.optimizer_shards import read_state

            saved = read_state(saved, shards, [p for group in self.optimizer.param_groups for p in group["params"]])
        self.optimizer.load_state_dict(saved)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            group.update(own)
        self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        if "micro_batches" in state:
            self.micro_batches.load_state_dict(state["micro_batches"])
        # An adaptive coefficient continues where it was; a fixed one follows the settings.
        if self.cfg.loss.kl_target is not None:
            self.kl_coef = state["kl_coef"]
        self.updates = state["updates"]
        self.samples = state.get("samples", 0)
        self.policy.version = state["version"]


def _clip(parameters: Sequence[Parameter], limit: float) -> Tensor:
    """Scale gradients down to the limit; their norm over all weights, also of weights in shards."""
    norm = clip_grad_norm_(parameters, limit)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}


def _mismatch_terms(mismatch: core.SamplerMismatch, gap: Tensor) -> dict[str, Tensor]:
    """Sums over the tokens that the sampler drew with the present weights, and the largest gap of all."""
    return {
        UpdateMetrics.SAMPLED: mismatch.tokens,
        "sampler/ratio_gap": mismatch.gap,
        "sampler/corrected_gap": mismatch.corrected_gap,
        "sampler/kl": mismatch.kl,
        "sampler/truncated_share": mismatch.truncated,
        "sampler/ratio_gap_max": gap.expm1().abs().max(),
    }


def _critic_metrics(batch: Batch) -> dict[str, float]:
    if batch.returns is None or batch.values is None or batch.rows == 0:
        return {}
    return {"value/explained_variance": float(core.explained_variance(batch.values, batch.returns, batch.mask))}


def _optimizer(actor: list[Parameter], critic: list[Parameter], cfg: TrainingConfig) -> torch.optim.Optimizer:
    # Two groups, because actor and critic may have different learning rates.
    groups = [{"params": actor}, *([{"params": critic}] if critic else [])]
    optim = cfg.optim
    return torch.optim.AdamW(
        groups, lr=optim.learning_rate, betas=(optim.adam_beta1, optim.adam_beta2), eps=optim.adam_epsilon,
        weight_decay=optim.weight_decay, fused=True,
    )  # fmt: skip


def _both(first: Tensor | None, second: Tensor) -> Tensor:
    return second.bool() if first is None else first & second.bool()
