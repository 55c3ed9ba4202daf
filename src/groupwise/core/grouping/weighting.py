"""How much each group weighs in the loss.

Every rule gives a weight per step, normalised to mean 1 over the batch, so that the size of an optimiser step depends
neither on the rule nor on the scale of its weights. n_k is the size of group k, its share of the loss at weight 1: its
steps, or its attempts if the loss averages within attempts first.

    none             w_k = 1                    a group counts in proportion to its steps
    balanced         w_k ∝ 1 / n_k              every group counts the same
    inv_sqrt_steps   w_k ∝ 1 / √n_k             in between
    performance      w_k ∝ q_k / n_k            the worst first: exponentiated gradient moves q
    adaptive         w_k ∝ a_k / n_k            whichever falls behind: a follows a moving average

The last two compare groups by their standing, p_k in [0, 1]: the position of the group's mean return between the
lowest and the highest return it ever had. It does not depend on a task's scale of rewards, and a task whose return
never changed stands at 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.core.grouping.kmeans import Floats, Ints
from groupwise.core.shapes import check_choice

FLOOR = 0.1
TEMPERATURE = 1.0
# "adaptive" is sharper than one step of exponentiated gradient, because it does not accumulate.
SHARPNESS = 5.0
# How much of the moving average stays from step to step.
MEMORY = 0.8


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The groups of one batch, all [K]: name, size, and mean, lowest and highest return."""

    groups: Ints
    size: Floats
    mean: Floats
    lowest: Floats
    highest: Floats


def group_sizes(groups: Ints, sizes: Floats, returns: Floats) -> GroupSizes:
    """Sizes and returns by group, from one row per attempt; all arguments are [N]. Returns must be finite."""
    if not np.isfinite(returns).all():
        raise ValueError(f"a return is {returns[~np.isfinite(returns)][0]}; weights need finite returns")
    names, index = np.unique(groups, return_inverse=True)
    count = len(names)
    attempts = np.bincount(index, minlength=count)
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, index, returns)
    np.maximum.at(highest, index, returns)
    return GroupSizes(
        groups=names.astype(np.int64),
        size=np.bincount(index, sizes, count).astype(np.float64),
        mean=np.bincount(index, returns, count) / attempts,
        lowest=lowest,
        highest=highest,
    )


def normalised(raw: Floats, size: Floats) -> Floats:
    """w_k = raw_k · Σ n / Σ raw·n: the same total as weights of 1, whatever the scale of `raw`."""
    total = float(np.sum(raw * size))
    result: Floats = raw * (float(size.sum()) / total) if total > 0 else np.ones_like(raw)
    return result


class Weighting:
    """A rule that needs no memory: w_k ∝ n_k^−power."""

    def __init__(self, power: float) -> None:
        self.power = power

    def __call__(self, sizes: GroupSizes) -> Floats:
        """The weight of each group of the batch [K]."""
        return normalised(np.maximum(sizes.size, 1.0) ** -self.power, sizes.size)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """This rule has no state."""


class _Standing:
    """The standing of each group between the worst and the best return it ever had."""

    def __init__(self) -> None:
        self.range: dict[int, tuple[float, float]] = {}

    def __call__(self, sizes: GroupSizes) -> Floats:
        standing = np.zeros(len(sizes.groups))
        for row, group in enumerate(sizes.groups.tolist()):
            low, high = self.range.get(group, (np.inf, -np.inf))
            low, high = min(low, float(sizes.lowest[row])), max(high, float(sizes.highest[row]))
            self.range[group] = low, high
            standing[row] = (sizes.mean[row] - low) / (high - low) if high > low else 0.0
        return standing


class PerformanceWeights(Weighting):
    """The worst task first, by exponentiated gradient with a floor.

    q_k ← (1 − f) · q_k e^{−p_k / T} / Σ_j q_j e^{−p_j / T} + f / K

    T is the temperature, f the floor: no group's share of the loss falls below f / K. Mixing in the floor at every
    step (Herbster and Warmuth's fixed share, 1998) lets a group that was long ahead regain weight within a few steps.
    """

    def __init__(self, temperature: float = TEMPERATURE, floor: float = FLOOR) -> None:
        self.temperature, self.floor = temperature, floor
        self.standing = _Standing()
        self.shares: dict[int, float] = {}

    def __call__(self, sizes: GroupSizes) -> Floats:
        names = sizes.groups.tolist()
        before = np.array([self.shares.get(name, 1.0) for name in names])
        moved = before * np.exp(-self.standing(sizes) / self.temperature)
        share = (1 - self.floor) * moved / moved.sum() + self.floor / len(names)
        # Kept as multiples of an equal share, so that groups may come and go.
        self.shares |= dict(zip(names, (share * len(names)).tolist(), strict=True))
        return normalised(share / np.maximum(sizes.size, 1.0), sizes.size)

    def state_dict(self) -> dict[str, Any]:
        return {"range": dict(self.standing.range), "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.standing.range = {group: (low, high) for group, (low, high) in state["range"].items()}
        self.shares = dict(state["shares"])


class AdaptiveWeights(PerformanceWeights):
    """More for the groups that fall behind, by a moving average of the standing.

    s_k ← 0.8 s_k + 0.2 p_k,   a_k = (1 − f) · e^{−5 s_k / T} / Σ_j e^{−5 s_j / T} + f / K

    Unlike `PerformanceWeights` it has no memory of shares: equal standings give equal shares, whatever came before.
    """

    def __call__(self, sizes: GroupSizes) -> Floats:
        names = sizes.groups.tolist()
        now = self.standing(sizes)
        smooth = np.array([MEMORY * self.shares.get(n, p) + (1 - MEMORY) * p for n, p in zip(names, now, strict=True)])
        self.shares |= dict(zip(names, smooth.tolist(), strict=True))
        # Subtracting the smallest changes no share and keeps the exponentials at most 1.
        raw = np.exp(-SHARPNESS * (smooth - smooth.min()) / self.temperature)
        share = (1 - self.floor) * raw / raw.sum() + self.floor / len(names)
        return normalised(share / np.maximum(sizes.size, 1.0), sizes.size)


Maker = Callable[[float, float], Weighting]
RULES: Mapping[str, Maker] = {
    "none": lambda temperature, floor: Weighting(0.0),
    "balanced": lambda temperature, floor: Weighting(1.0),
    "inv_sqrt_steps": lambda temperature, floor: Weighting(0.5),
    "performance": PerformanceWeights,
    "adaptive": AdaptiveWeights,
}


def make_weighting(method: str, *, temperature: float = TEMPERATURE, floor: float = FLOOR) -> Weighting:
    """The rule of that name: "none", "balanced", "inv_sqrt_steps", "performance" or "adaptive".

    Args:
      temperature: T of "performance" and "adaptive"; above 1 they are gentler.
      floor: f of those two, in [0, 1]: the smallest share of a group, relative to an equal share.
    """
    check_choice("group_weight_method", method, RULES)
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; it must be above 0")
    if not 0 <= floor <= 1:
        raise ValueError(f"floor is {floor}; it must lie in [0, 1]")
    return RULES[method](temperature, floor)
