"""Groups of programs by the current policy, and their scores: the engine continues after every problem's header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.programs.language.evaluation import ProgramEvaluation, ProgramEvaluator, RewardWeights, score
from groupwise.programs.language.problem import CodeProblem
from groupwise.programs.learning.model import prompt_of, whole_text
from groupwise.training.token_attempts import sampling_seed, token_attempt
from groupwise.types import Failed, Group, Score, Task, Trajectory

ASK = (
    "Write a Python function that answers the question, one operator call to a line, and nothing else.\n"
    "Go on after the header; every line is indented by four spaces.\n\n"
)


class Programs:
    """Samples a group of programs for every problem, all in one continuous batch."""

    def __init__(self, engine: Engine, tokenizer: Any, params: SamplingParams, group_size: int, seed: int) -> None:
        self.engine, self.tokenizer, self.params = engine, tokenizer, params
        self.group_size, self.seed = group_size, seed

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        prompts = [prompt_ids(self.tokenizer, task.payload, self.engine.max_length) for task in tasks]
        requests = [
            (ids, sampling_seed(self.seed, task.seed, member))
            for task, ids in zip(tasks, prompts, strict=True)
            for member in range(self.group_size)
        ]
        rest = iter(self.engine.generate(requests, self.params))
        return [self._group(task, ids, rest) for task, ids in zip(tasks, prompts, strict=True)]

    def _group(self, task: Task, prompt: Sequence[int], rest: Any) -> Group:
        members = tuple(self._attempt(task, prompt, number, next(rest)) for number in range(self.group_size))
        return Group(f"g{task.seed}", task, members)

    def _attempt(self, task: Task, prompt: Sequence[int], number: int, sampled: Sampled) -> Trajectory:
        return token_attempt(self.tokenizer, task, prompt, number, sampled, prompt_of(task.payload))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore: a rollout depends only on weights, seed and task numbers."""


def prompt_ids(tokenizer: Any, problem: CodeProblem, limit: int) -> list[int]:
    """The prompt as tokens: plain for the small model, in the chat format for a chat model.

    Either way it ends with the header, so that the model continues with the body.
    """
    text = prompt_of(problem)
    if tokenizer.chat_template is None:
        ids = tokenizer.encode(text, add_special_tokens=False)
    else:
        question, header = text.rsplit("\n", 1)
        framed = tokenizer.apply_chat_template(
            [{"role": "user", "content": f"{ASK}{question}\n{header}"}], add_generation_prompt=True, tokenize=True,
            return_dict=True,
        )  # fmt: skip
        ids = [*framed["input_ids"], *tokenizer.encode(header, add_special_tokens=False)]
    if len(ids) >= limit:
        raise ConfigError(
            f"the question of {problem.id} has {len(ids)} tokens; the model's context has {limit}",
            hint="Use a model with a longer context, or other problems.",
        )
    return list(ids)


# Time is not scored in training: it differs between machines, and runs must be reproducible.
WEIGHTS = RewardWeights(time=0.0)


class ProgramJudge:
    """Evaluates and scores programs, and counts them."""

    def __init__(self, partial_credit: float = 0.0) -> None:
        self.partial_credit = partial_credit
        self.evaluations = 0

    def evaluate(self, problem: CodeProblem, text: str) -> ProgramEvaluation:
        self.evaluations += 1
        return ProgramEvaluator(problem)(text)

    def score(self, evaluation: ProgramEvaluation) -> Score:
        """The score; its part `correct` is 1 for a solved problem, and `format` is 1 for a text that is a program."""
        found = score(evaluation, WEIGHTS)
        total = found.total if evaluation.solved else self.partial_credit * found.total
        said = {"correct": float(evaluation.solved), "format": float(evaluation.fault is None)}
        return replace(found, total=total, parts=said)


class SolutionReward:
    """Scores a group of programs; as a placebo, scores are shuffled within the group."""

    def __init__(self, judge: ProgramJudge, placebo: bool = False) -> None:
        self.judge, self.placebo = judge, placebo

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        problem: CodeProblem = task.payload
        texts = [whole_text(problem, member.meta["text"]) for member in group]
        scores = [self.judge.score(self.judge.evaluate(problem, text)) for text in texts]
        return shuffled(scores, task.seed) if self.placebo else scores


def shuffled(scores: Sequence[Score], seed: int) -> list[Score]:
    """The totals in another order; the parts of each score stay with their program."""
    order = np.random.default_rng([seed, 13]).permutation(len(scores))
    return [replace(own, total=scores[other].total) for own, other in zip(scores, order, strict=True)]
