"""Evaluation on held-out problems: greedy answers (what the model knows) and several samples (what it can find).

Every answer gets two marks, which are never mixed up: the run's reward, and the check that came with the dataset or the
environment. Only the check says whether an answer is right; without one, a part `correct` of the reward does.

Also how sampled answers become groups, which training does in the same way.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from groupwise.agents.conversation.prompts import prompt_ids
from groupwise.agents.data.problems import Problem, Problems, is_correct
from groupwise.config import TrainingConfig
from groupwise.errors import ContractError
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.rewards.scoring import RewardScorer
from groupwise.training.token_attempts import sampling_seed, token_attempt
from groupwise.types import Failed, Group, Policy, Reward, Sample, Score, ScoredGroup, Task, Trajectory

SHOWN, LONGEST = 8, 2000  # answers shown in reports, and characters of each


def as_groups(
    tokenizer: Any, tasks: Sequence[Task], prompts: Sequence[Sequence[int]], answers: Sequence[Sampled]
) -> list[Group]:
    """Split the answers into groups: the same number for every task, in the order of the tasks."""
    rest, size = iter(answers), len(answers) // max(len(tasks), 1)

    def attempt(task: Task, ids: Sequence[int], number: int) -> Trajectory:
        return token_attempt(tokenizer, task, ids, number, next(rest), task.payload.prompt)

    return [
        Group(f"g{task.seed}", task, tuple(attempt(task, ids, n) for n in range(size)))
        for task, ids in zip(tasks, prompts, strict=True)
    ]


def greedy_evaluation(
    cfg: TrainingConfig, problems: Problems, engine: TokenEngine, tokenizer: Any, scorer: RewardScorer, reward: Reward,
    check: Reward | None,
) -> "AnswerEvaluation":  # fmt: skip
    """Return a run's evaluation on its held-out problems, by its reward and by the problems' own check."""
    return AnswerEvaluation(
        problems, problems.held_out(cfg.run.eval_seed, cfg.run.eval_episodes), engine, tokenizer, scorer,
        drawn=SamplingParams(**dict(cfg.sampling.items())), samples=cfg.run.eval_samples, seed=cfg.run.eval_seed,
        reward=reward, check=check, by=cfg.run.eval_by, options=cfg.language.chat_template_kwargs,
    )  # fmt: skip


class AnswerEvaluation:
    """A fixed set of problems, answered with the weights that the engine has at the moment.

    With `samples` above 1, every problem is also sampled that often as in training, for pass@k. An answer that cannot
    be graded, or not within the scorer's timeout, is left out and counted in `eval/failed_share`. `shown` are the first
    few answers of the last evaluation. `by` says which answers make the score: "greedy" or "drawn" ones. `check` is the
    problems' own grade; None if they have none. `options` are those of the model's chat template.
    """

    def __init__(
        self, problems: Problems, held_out: Sequence[Problem], engine: TokenEngine, tokenizer: Any,
        scorer: RewardScorer, *, drawn: SamplingParams, reward: Reward, check: Reward | None, samples: int = 1,
        seed: int = 0, by: str = "greedy", options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.tokenizer, self.scorer = engine, tokenizer, scorer
        self.tasks = [Task(f"{problems.name}/held out {n}", problem, n) for n, problem in enumerate(held_out)]
        self.prompts = [prompt_ids(tokenizer, problem, engine.max_length, options) for problem in held_out]
        self.reward, self.check = reward, check
        self.greedy = SamplingParams(max_new_tokens=drawn.max_new_tokens, temperature=0.0)
        self.drawn, self.samples, self.seed, self.by = drawn, samples, seed, by
        self.shown: list[Sample] = []

    def __call__(self, policy: Policy) -> Mapping[str, float]:
        if self.by == "drawn":
            graded, lengths = self._draw()
            self.shown = [shown for group in graded.first(SHOWN) for shown in list(_samples(*group))[:1]]
            return {**summary(graded, lengths), **self._rates(graded)}
        sampled = self.engine.generate([(ids, 0) for ids in self.prompts], self.greedy)
        graded = self._grade(sampled)
        self.shown = [shown for group in graded.first(SHOWN) for shown in _samples(*group)]
        metrics = summary(graded, [len(answer.ids) for answer in sampled])
        return {**metrics, **(self._rates(self._draw()[0]) if self.samples > 1 else {})}

    def _draw(self) -> tuple["Graded", list[int]]:
        """Answer every problem `samples` times as in training; return the graded groups and the answers' lengths."""
        requests = [
            (ids, sampling_seed(self.seed, number, sample))
            for number, ids in enumerate(self.prompts)
            for sample in range(self.samples)
        ]
        answers = self.engine.generate(requests, self.drawn)
        return self._grade(answers), [len(answer.ids) for answer in answers]

    def _rates(self, graded: "Graded") -> dict[str, float]:
        """Return the mean reward of the sampled answers, and pass@k for k = 1, 2, 4, …

        pass@k is averaged over the problems whose samples could all be checked, and left out where nothing says whether
        an answer is right.
        """
        totals = [score.total for score in graded.rewards]
        earned = {"eval/drawn_reward_mean": float(np.mean(totals))} if totals else {}
        # pass@k needs all n samples of a problem.
        right = [rights for rights in graded.rights() if len(rights) == self.samples]
        if not right or any(None in group for group in right):
            return earned
        rates = {
            f"eval/pass@{k}": float(np.mean([pass_at_k(self.samples, sum(map(bool, group)), k) for group in right]))
            for k in powers_of_two(self.samples)
        }
        return {**earned, **rates}

    def _grade(self, answers: Sequence[Sampled]) -> "Graded":
        groups = as_groups(self.tokenizer, self.tasks, self.prompts, answers)
        return grade(self.scorer, groups, self.reward, self.check)


@dataclass(frozen=True)
class Graded:
    """Groups of attempts at held-out tasks with their rewards and, if there is a check, with what it says of them."""

    rewarded: Sequence[ScoredGroup]
    checked: Sequence[ScoredGroup] | None

    @property
    def rewards(self) -> list[Score]:
        return [score for group in self.rewarded for score in group.scores if isinstance(score, Score)]

    @property
    def checks(self) -> list[Score]:
        return [score for group in self.checked or () for score in group.scores if isinstance(score, Score)]

    def rights(self) -> list[list[bool | None]]:
        """Whether each attempt is right, by group; attempts that could not be checked are left out."""
        by = _said if self.checked is None else is_correct
        groups = self.rewarded if self.checked is None else self.checked
        return [[by(score) for score in group.scores if isinstance(score, Score)] for group in groups]

    def first(self, count: int) -> Iterator[tuple[ScoredGroup, ScoredGroup | None]]:
        """The first groups, each as the reward and as the check sees it."""
        checked: Sequence[ScoredGroup | None] = self.checked or [None] * len(self.rewarded)
        return islice(zip(self.rewarded, checked, strict=True), count)


def grade(scorer: RewardScorer, groups: Sequence[Group], reward: Reward, check: Reward | None) -> Graded:
    """Score the groups by the reward, and by the check unless it is the reward itself."""
    rewarded = scorer.score(reward, groups)
    if check is None or check is reward:
        return Graded(rewarded, None if check is None else rewarded)
    return Graded(rewarded, scorer.score(check, groups))


def _said(score: Score) -> bool | None:
    """What a reward says about an answer that nothing else checks: a total of 1 is not a statement, a part is."""
    return is_correct(score) if any(name.rpartition(".")[2] == "correct" for name in score.parts) else None


def summary(graded: Graded, lengths: Sequence[int]) -> dict[str, float]:
    """Return the metrics of attempts at held-out tasks; those that failed are left out and counted."""
    outcomes = [score for group in graded.rewarded for score in group.scores]
    scores = graded.rewards
    if not scores:
        failure = next(outcome.failure for outcome in outcomes if isinstance(outcome, Failed))
        raise ContractError(f"no held-out answer could be graded: {failure.message}", hint=failure.hint)
    totals = np.array([score.total for score in scores])
    metrics = {
        "eval/reward_mean": float(totals.mean()),
        "eval/reward_std": float(totals.std()),
        "eval/length_mean": float(np.mean(lengths)),
        "eval/attempts": float(len(outcomes)),
    }
    if len(scores) < len(outcomes):
        metrics["eval/failed_share"] = 1 - len(scores) / len(outcomes)
    return {**metrics, **_checked(graded, len(outcomes))}


def _checked(graded: Graded, attempts: int) -> dict[str, float]:
    """Return what the check says; without one, what the reward says in a part `correct` or `format`."""
    metrics = {}
    right = [said for group in graded.rights() for said in group]
    if right and None not in right:
        metrics["eval/accuracy"] = sum(map(bool, right)) / len(right)
    scores = graded.rewards if graded.checked is None else graded.checks
    if graded.checked is not None and scores:
        totals = np.array([score.total for score in scores])
        metrics |= {"eval/check_mean": float(totals.mean()), "eval/check_std": float(totals.std())}
    if graded.checked is not None and len(scores) < attempts:
        metrics["eval/check_failed_share"] = 1 - len(scores) / attempts
    if scores and all("format" in score.parts for score in scores):
        metrics["eval/format"] = float(np.mean([score.parts["format"] for score in scores]))
    return metrics


def correct_in(score: Score, check: Score | Failed | None) -> bool | None:
    """Whether an attempt is right: by its check if there is one, and never because its reward happens to be 1."""
    if check is None:
        return _said(score)
    return is_correct(check) if isinstance(check, Score) else None


def _samples(rewarded: ScoredGroup, checked: ScoredGroup | None) -> Iterator[Sample]:
    problem = rewarded.group.task.payload
    checks = [None] * len(rewarded.scores) if checked is None else checked.scores
    for attempt, score, check in zip(rewarded.group.members, rewarded.scores, checks, strict=True):
        if isinstance(score, Score):
            meta, correct = attempt.meta, correct_in(score, check)
            prompt, text, answer = (said[:LONGEST] for said in (problem.text, meta["content"], problem.answer))
            yield Sample(prompt, text, answer, score.total, correct, meta["reasoning"][:LONGEST])


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the probability that k of n samples, drawn without replacement, include a correct one.

    1 − C(n − c, k) / C(n, k) with c correct samples. Chen et al. 2021 (arXiv:2107.03374): unbiased for k fresh
    samples, unlike 1 − (1 − c/n)^k.
    """
    assert 0 <= correct <= samples
    assert 1 <= k <= samples
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def powers_of_two(limit: int) -> Iterator[int]:
    return (1 << exponent for exponent in range(limit.bit_length()))
