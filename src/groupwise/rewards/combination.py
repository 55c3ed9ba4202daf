"""Several rewards as one: `MultiObjectiveRewardFunction`. The presets made with it are in `presets`."""

import asyncio
import copy
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from numbers import Real
from typing import Any, Self

import numpy as np

from groupwise.core.objectives import COMBINATIONS, NEGLIGIBLE, SCALES, WITHIN_GROUP, Floats, weighted_average
from groupwise.errors import ConfigError
from groupwise.rewards.function import RewardFunction, score_conversation
from groupwise.rewards.registry import make_reward
from groupwise.rewards.rules.heuristic import heuristic_parts
from groupwise.rewards.scoring import score_group
from groupwise.rewards.signatures import as_reward
from groupwise.rewards.statistics import AVERAGE
from groupwise.types import Failed, Failure, Group, Hint, Message, Reward, Score, Task, Trajectory

RewardLike = Reward | Callable[[Sequence[Message]], Any]
JUDGE = "ruler"
FIT = "Let the component score on that scale, or choose normalize_then_sum, which takes any."


class MultiObjectiveRewardFunction(RewardFunction):
    """Scores a group with each component and combines the scores by `normalization_method`.

    The methods are those of `core.objectives`: weighted_sum, weighted_average, geometric_mean, chebyshev, pareto and
    normalize_then_sum. A component is a `RewardFunction`, any other reward, or a function of turns; its `weight` is 1
    unless it has one. It can itself be a `MultiObjectiveRewardFunction`.

    The parts of a score are the components' totals, unweighted, by name. A component's own parts follow its name and a
    dot. Methods that compare attempts add `average`, the weighted average. If one component fails on an attempt, the
    attempt has failed, because a missing number is not a 0. If a component's scale does not fit the method (such as
    0–1000 for chebyshev), its whole group has failed. Flags are passed on.
    """

    def __init__(
        self,
        components: Sequence[RewardLike] | None = None,
        normalization_method: str = "weighted_sum",
        weight: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name or "multi_objective")
        if normalization_method not in COMBINATIONS:
            near = difflib.get_close_matches(str(normalization_method), COMBINATIONS, 1)
            hint = (f"Did you mean {near[0]!r}? " if near else "") + f"One of {', '.join(COMBINATIONS)}."
            raise ConfigError(f"normalization_method = {normalization_method!r} is unknown", hint=hint)
        given = heuristic_parts() if components is None else list(components)
        self.normalization_method = normalization_method
        self.components = dict(zip(_names(given), map(as_reward, given), strict=True))
        self.weights = {name: _weight(name, part) for name, part in zip(self.components, given, strict=True)}
        if not sum(self.weights.values()) > 0:
            message = f"the weights of {self.name} are {list(self.weights.values())}"
            raise ConfigError(message, hint="At least one must be above 0.")

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        if not group:
            return []
        attempts = Group(group[0].group_id, task, tuple(group))
        scored = await asyncio.gather(*(score_group(part, attempts) for part in self.components.values()))
        return self._combined(list(zip(*(part.scores for part in scored), strict=True)))

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        """Score one conversation by itself. A method that compares attempts has nothing to compare it with."""
        return score_conversation(self, turns)

    def _combined(self, attempts: Sequence[tuple[Score | Failed, ...]]) -> list[Score | Failed]:
        """One score per attempt, given the scores [attempts][components]; failed attempts are not compared with."""
        found: list[Score | Failed] = [self._failure(scores) or Score(0.0) for scores in attempts]
        sound = [n for n, score in enumerate(found) if isinstance(score, Score)]
        if not sound:
            return found
        table = np.array([[score.total for score in attempts[n] if isinstance(score, Score)] for n in sound])
        misfit = self._misfit(table)
        totals = [] if misfit else COMBINATIONS[self.normalization_method](table, list(self.weights.values())).tolist()
        for row, n in enumerate(sound):
            found[n] = misfit or self._score(totals[row], attempts[n])
        return found

    def _misfit(self, table: Floats) -> Failed | None:
        """A failure if the scores [attempts, components] of a component do not fit the method."""
        low, high = SCALES.get(self.normalization_method, (-math.inf, math.inf))
        for name, column in zip(self.components, table.T, strict=True):
            if self.weights[name] and (column.min() < low - NEGLIGIBLE or column.max() > high + NEGLIGIBLE):
                needed = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
                seen = f"{name} ranges from {column.min():g} to {column.max():g}"
                message = f"{self.name}: {self.normalization_method} needs scores {needed}, but {seen}"
                return Failed(Failure("reward", "combining", message, FIT))
        return None

    def _score(self, total: float, scores: Sequence[Any]) -> Score:
        # `average` first: an own part of that name wins.
        parts, flags = self._average(scores), []
        for name, score in zip(self.components, scores, strict=True):
            parts[name] = score.total
            parts |= {f"{name}.{inner}": value for inner, value in score.parts.items()}
            flags += score.flags
        return Score(total, parts, tuple(dict.fromkeys(flags)))

    def _average(self, scores: Sequence[Any]) -> dict[str, float]:
        """How good an attempt is by itself, in case the total only says how it compares."""
        if self.normalization_method not in WITHIN_GROUP:
            return {}
        return {AVERAGE: float(weighted_average([[s.total for s in scores]], list(self.weights.values()))[0])}

    def _failure(self, scores: Sequence[Score | Failed]) -> Failed | None:
        for name, score in zip(self.components, scores, strict=True):
            if isinstance(score, Failed):
                return Failed(replace(score.failure, message=f"{name}: {score.failure.message}"))
        return None

    def absolute(self) -> Self:
        """A copy for attempts without a group, as in evaluation: methods that compare become weighted_average."""
        other = copy.copy(self)
        if self.normalization_method in WITHIN_GROUP:
            other.normalization_method = "weighted_average"
        other.components = {name: absolute(part) for name, part in self.components.items()}
        return other

    def metrics(self) -> dict[str, float]:
        """The components' own metrics; if two report the same one, the second is prefixed with its component's name."""
        found: dict[str, float] = {}
        for name, part in self._offering("metrics"):
            found |= {f"{name}/{metric}" if metric in found else metric: v for metric, v in part.metrics().items()}
        return found

    def unfit(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Ids of tasks that a component cannot score fairly, and why."""
        return {name: why for _, part in self._offering("unfit") for name, why in part.unfit(tasks).items()}

    def insist_usable(self) -> None:
        for _, part in self._offering("insist_usable"):
            part.insist_usable()

    def hints(self) -> tuple[Hint, ...]:
        return tuple(hint for _, part in self._offering("hints") for hint in part.hints())

    def close(self) -> None:
        for _, part in self._offering("close"):
            part.close()

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._offering("state_dict")}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        for name, part in self._offering("load_state_dict"):
            if state and name in state:
                part.load_state_dict(state[name])

    def _offering(self, method: str) -> Iterator[tuple[str, Any]]:
        return ((name, part) for name, part in self.components.items() if hasattr(part, method))


def absolute(reward: Reward) -> Reward:
    """The reward, for attempts that have no group."""
    return reward.absolute() if isinstance(reward, MultiObjectiveRewardFunction) else reward


def _weight(name: str, component: Any) -> float:
    weight = getattr(component, "weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
        message = f"the weight of {name} is {weight!r}, but must be a finite number of at least 0"
        raise ConfigError(message, hint="To penalise something, let its component score 1 when it is absent.")
    return float(weight)


def _names(components: Sequence[Any]) -> list[str]:
    """The name of each component; the second one of a name becomes name_2."""
    if not components:
        message = "a multi-objective reward needs at least one component"
        raise ConfigError(message, hint="Pass None for the default components.")
    names: list[str] = []
    for component in components:
        own = str(getattr(component, "name", None) or getattr(component, "__name__", type(component).__name__))
        names.append(own if own not in names else next(f"{own}_{n}" for n in count(2) if f"{own}_{n}" not in names))
    return names


def create_multi_objective_reward(
    components: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
    normalization_method: str = "weighted_sum",
    weight: float = 1.0,
    fallback_enabled: bool = False,
) -> MultiObjectiveRewardFunction:
    """Combine rewards by their names; each has weight 1 unless weights are given.

    With `fallback_enabled`, a judge among them falls back on a heuristic when it cannot be used.
    """
    if components is None:
        return MultiObjectiveRewardFunction(None, normalization_method, weight)
    names = [components] if isinstance(components, str) else list(components)
    shares = [1.0] * len(names) if weights is None else list(weights)
    if len(shares) != len(names):
        message = f"there are {len(names)} components but {len(shares)} weights"
        raise ConfigError(message, hint="Use one weight per component.")
    options = {JUDGE: {"fallback_enabled": fallback_enabled}}
    made = [make_reward(name, options.get(name)) for name in names]
    parts = [_weighed(*given) for given in zip(made, names, shares, strict=True)]
    return MultiObjectiveRewardFunction(parts, normalization_method, weight)


def _weighed(reward: Any, name: str, weight: float) -> Any:
    """The reward with a weight, and with a name if it is a plain function."""
    if not isinstance(reward, RewardFunction):
        reward.name = name.rpartition(":")[2]
    reward.weight = weight
    return reward
