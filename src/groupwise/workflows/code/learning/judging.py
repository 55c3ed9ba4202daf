"""What programs are worth in training: solved first, then few calls and few lines.

Time is left out of the score: a program of operators takes microseconds, and two runs of one seed must score alike.
Texts that are no programs, programs that fail and programs that are wrong earn 0, each with its outcome as a flag; with
`partial_credit` a program that is right for some cases earns that share of what it would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from groupwise.types import Failed, Score, Task, Trajectory
from groupwise.workflows.code.evaluation import Evaluation, Evaluator
from groupwise.workflows.code.learning.writing import whole_text
from groupwise.workflows.code.problem import CodeProblem
from groupwise.workflows.code.reward import RewardWeights, score

WEIGHTS = RewardWeights(time=0.0)


class Judge:
    """Evaluates programs and counts how many were handed to it."""

    def __init__(self, partial_credit: float = 0.0) -> None:
        self.partial_credit = partial_credit
        self.evaluations = 0

    def evaluate(self, problem: CodeProblem, text: str) -> Evaluation:
        self.evaluations += 1
        return Evaluator(problem)(text)

    def score(self, evaluation: Evaluation) -> Score:
        """A score whose part `correct` says whether the program solves the problem, and `format` if it is one."""
        found = score(evaluation, WEIGHTS)
        total = found.total if evaluation.solved else self.partial_credit * found.total
        said = {"correct": float(evaluation.solved), "format": float(evaluation.fault is None)}
        return replace(found, total=total, parts=said)


class ProgramReward:
    """Scores a group of programs; as a placebo, the scores change places inside the group."""

    def __init__(self, judge: Judge, placebo: bool = False) -> None:
        self.judge, self.placebo = judge, placebo

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        problem: CodeProblem = task.payload
        texts = [whole_text(problem, member.meta["text"]) for member in group]
        scores = [self.judge.score(self.judge.evaluate(problem, text)) for text in texts]
        return shuffled(scores, task.seed) if self.placebo else scores


def shuffled(scores: Sequence[Score], seed: int) -> list[Score]:
    """The same scores in another order; what a program is said to be stays with it."""
    order = np.random.default_rng([seed, 13]).permutation(len(scores))
    return [replace(own, total=scores[other].total) for own, other in zip(scores, order, strict=True)]
