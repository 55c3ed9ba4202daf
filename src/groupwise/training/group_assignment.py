"""The three kinds of group in a run: whose mean is subtracted, whose scale divides, whose weight counts.

What strategies and weights learn from batch to batch is part of a checkpoint. They see the fresh attempts and those
replayed with them, in the order of the batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.training.estimators import AdvantageEstimate, Attempts

# Groups with their own metrics; more would flood the log.
MOST_REPORTED = 16


class GroupAssignment:
    """Assigns attempts to scale and weight groups and weighs them, according to the section `grouping`."""

    def __init__(self, cfg: TrainingConfig) -> None:
        self.cfg = cfg.grouping
        self.averages = core.loss_rule(cfg.loss.loss_type).aggregation == "mean_of_means"
        self.scales = cfg.advantage.advantage_scale == "task_rms"
        self.scale = self._strategy(self.cfg.scale_group or self.cfg.group_strategy, cfg.run.seed)
        self.weight = self._strategy(self.cfg.weight_group or self.cfg.group_strategy, cfg.run.seed)
        self.baseline: core.Grouping | None = None
        if self.cfg.baseline_group != "start":
            self.baseline = self._strategy(self.cfg.baseline_group, cfg.run.seed)
            core.check_baseline(self.baseline, allow_outcome=self.cfg.allow_outcome_baseline)
        self.rule = core.make_weighting(
            self.cfg.group_weight_method,
            temperature=self.cfg.group_weight_temperature,
            floor=self.cfg.group_weight_floor,
        )

    def _strategy(self, name: str, seed: int) -> core.Grouping:
        return core.make_grouping(name, self.cfg.n_groups, history_window=self.cfg.history_window, seed=seed)

    def assign(self, attempts: Attempts) -> Attempts:
        """The attempts with this run's groups; strategies that learn are updated with them."""
        if not attempts.members:
            return attempts
        seen = self._summaries(attempts)
        changes: dict[str, Any] = {"weight_group": torch.from_numpy(self.weight(seen))}
        if self.scales:
            changes["scale_group"] = torch.from_numpy(np.stack(self.scale.levels(seen)))
        if self.baseline is not None:
            changes["group"] = torch.from_numpy(self.baseline(seen))
        return replace(attempts, **changes)

    def _summaries(self, attempts: Attempts) -> core.Summaries:
        """What groupings look at: the attempts' arrays and the totals of their scores."""
        asked = [self.weight, *([self.scale] if self.scales else []), *([self.baseline] if self.baseline else [])]
        return core.summarise(
            attempts.members, attempts.kinds, attempts.seeds, [score.total for score in attempts.scores],
            features=any(grouping.uses_features for grouping in asked),
        )  # fmt: skip

    def weigh(self, attempts: Attempts) -> Tensor | None:
        """The weight of each attempt's steps [B]; None if all weigh the same."""
        if self.cfg.group_weight_method == "none" or not attempts.members:
            return None
        groups = attempts.weight_group.numpy()
        totals = np.array([score.total for score in attempts.scores])
        found = core.group_sizes(groups, self._sizes(attempts), totals)
        weights = self.rule(found)
        # `found.groups` is sorted, so that a group's number finds its weight.
        return torch.from_numpy(weights[np.searchsorted(found.groups, groups)])

    def _sizes(self, attempts: Attempts) -> Any:
        """How much each attempt [B] counts in the loss at weight 1: its steps, or 1 if the loss averages over them."""
        steps = attempts.mask.sum(1).double()
        return (steps.clamp(max=1) if self.averages else steps).numpy()

    def metrics(
        self, attempts: Attempts, estimate: AdvantageEstimate, weights: Tensor | None
    ) -> dict[str, float | None]:
        """The results of each weight group, if there are several but not too many to read."""
        names = attempts.weight_group.unique()
        if not 1 < len(names) <= MOST_REPORTED:
            return {}
        totals = torch.tensor([score.total for score in attempts.scores], dtype=torch.float64)
        sizes = torch.from_numpy(self._sizes(attempts))
        each = torch.ones_like(sizes) if weights is None else weights
        found: dict[str, float | None] = {}
        for name in names.tolist():
            rows = attempts.weight_group == name
            acting = estimate.advantages[rows][attempts.mask[rows]]
            label = f"group/{self.weight.label(name)}"
            found[f"{label}/reward_mean"] = float(totals[rows].mean())
            found[f"{label}/steps"] = float(attempts.mask[rows].sum())
            found[f"{label}/weight"] = float(each[rows][0])
            found[f"{label}/share"] = float((each * sizes)[rows].sum() / (each * sizes).sum().clamp(min=1e-12))
            found[f"{label}/advantage_rms"] = float(acting.square().mean().sqrt()) if acting.numel() else None
        return found

    def _parts(self) -> dict[str, Any]:
        """Everything with state, by role and setting: a resumed run with another strategy starts it fresh."""
        parts: dict[str, Any] = {f"scale/{self.scale.name}": self.scale, f"weight/{self.weight.name}": self.weight}
        if self.baseline is not None:
            parts[f"baseline/{self.baseline.name}"] = self.baseline
        return {**parts, f"rule/{self.cfg.group_weight_method}": self.rule}

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts().items():
            if name in state:
                part.load_state_dict(state[name])
