"""Which problems come next: the easy ones until they are solved, then those within reach.

For every family, with s(l) the share of the policy's recent programs that solved problems of level l:

    weight(l) = reach(l) · (1.1 − s(l))        reach(1) = 1        reach(l) = 0.05 + min(1, s(l − 1) / 0.4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from groupwise.types import Score, ScoredGroup, Task
from groupwise.workflows.code.problem import CodeProblem, Split
from groupwise.workflows.code.problems import LEVELS, generate

MEMORY = 0.9
ENOUGH = 0.4


class Curriculum:
    """An endless stream of problems to learn from; `see` tells it how the policy did on those it gave out."""

    def __init__(self, families: Sequence[str], problems: int, levels: int, seed: int) -> None:
        self.families, self.problems, self.seed = tuple(families), problems, seed
        self.solved = {family: [0.0] * min(levels, LEVELS[family]) for family in families}
        self.cursor = 0

    def take(self, count: int) -> list[Task]:
        """The next tasks, the families in turn."""
        return [self._task() for _ in range(count)]

    def _task(self) -> Task:
        number, family = self.cursor, self.families[self.cursor % len(self.families)]
        self.cursor += 1
        rng = np.random.default_rng([self.seed, 3, number])
        level = 1 + int(rng.choice(len(self.solved[family]), p=self.weights(family)))
        which = int(rng.integers(self.problems))
        return Task(f"{family} {level}/{number}", problem_of(family, which, "train", level), number)

    def any(self, rng: np.random.Generator) -> CodeProblem:
        """A training problem of any family and level, each as likely as the other."""
        family = self.families[int(rng.integers(len(self.families)))]
        level = 1 + int(rng.integers(len(self.solved[family])))
        return problem_of(family, int(rng.integers(self.problems)), "train", level)

    def weights(self, family: str) -> list[float]:
        """How likely each level of a family is now."""
        solved = self.solved[family]
        reach = [1.0, *(0.05 + min(1.0, share / ENOUGH) for share in solved[:-1])]
        found = [within * (1.1 - share) for within, share in zip(reach, solved, strict=True)]
        return [weight / sum(found) for weight in found]

    def see(self, groups: Sequence[ScoredGroup]) -> None:
        """What the policy's own attempts at these tasks came to."""
        for scored in groups:
            problem: CodeProblem = scored.group.task.payload
            right = [score.parts["correct"] for score in scored.scores if isinstance(score, Score)]
            if right and problem.difficulty <= len(self.solved[problem.family]):
                at = problem.difficulty - 1
                before = self.solved[problem.family][at]
                self.solved[problem.family][at] = MEMORY * before + (1 - MEMORY) * sum(right) / len(right)

    def metrics(self) -> dict[str, float]:
        """The mean level that is given out now, over the families."""
        levels = [sum(n * w for n, w in enumerate(self.weights(family), start=1)) for family in self.families]
        return {"curriculum/level": sum(levels) / len(levels)}

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "solved": {family: list(shares) for family, shares in self.solved.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]
        self.solved = {family: list(shares) for family, shares in state["solved"].items()}


@lru_cache(maxsize=50_000)
def problem_of(family: str, number: int, split: Split, level: int) -> CodeProblem:
    """A family's problem, kept: making one takes milliseconds."""
    return generate(family, number, split, level)
