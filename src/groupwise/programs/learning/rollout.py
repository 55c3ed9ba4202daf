"""What a policy is trained and evaluated on: problems of a curriculum, groups of its programs, their scores.

The curriculum hands out easy problems until they are solved, then those within reach. For every family, with s(l) the
share of the policy's recent programs that solved problems of level l:

    weight(l) = reach(l) · (1.1 − s(l))        reach(1) = 1        reach(l) = 0.05 + min(1, s(l − 1) / 0.4)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import comb
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.foreign_programs import ProgramFailed
from groupwise.language.chat_templates import chat_ids
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.programs.declaration import CodeOptions
from groupwise.programs.language.evaluation import ProgramEvaluation, ProgramEvaluator, RewardWeights, score
from groupwise.programs.language.operators import quoted
from groupwise.programs.language.program import CodeProblem, Split
from groupwise.programs.learning.model import prompt_of, whole_text
from groupwise.programs.problems import LEVELS, generate
from groupwise.training.token_attempts import answer_text, sampling_seed, token_attempt
from groupwise.types import Failed, Group, Policy, Sample, Score, ScoredGroup, Task, Trajectory

ASK = (
    "Write a Python function that answers the question, one operator call to a line, and nothing else.\n"
    "Go on after the header; every line is indented by four spaces.\n\n"
)


class Programs:
    """Samples a group of programs for every problem, all in one continuous batch."""

    independent = True

    def __init__(self, engine: TokenEngine, tokenizer: Any, params: SamplingParams, group_size: int, seed: int) -> None:
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
        groups = []
        for task, ids in zip(tasks, prompts, strict=True):
            asked, numbers = prompt_of(task.payload), range(self.group_size)
            members = (token_attempt(self.tokenizer, task, ids, number, next(rest), asked) for number in numbers)
            groups.append(Group(f"g{task.seed}", task, tuple(with_cases(task.payload, one) for one in members)))
        return groups

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
        asked = [{"role": "user", "content": f"{ASK}{question}\n{header}"}]
        try:
            ids = [*chat_ids(tokenizer, asked), *tokenizer.encode(header, add_special_tokens=False)]
        except ProgramFailed as error:
            raise ConfigError(f"the model's chat template cannot be used: {error.message}") from None
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


def with_cases(problem: CodeProblem, member: Trajectory) -> Trajectory:
    """The attempt, ready to show which of the problem's cases its program got wrong."""
    return replace(member, meta={**member.meta, "exhibit": partial(cases_exhibit, problem, str(member.meta["text"]))})


def cases_exhibit(problem: CodeProblem, text: str) -> dict[str, Any]:
    """The program as it runs, and what it returned for every case."""
    whole = whole_text(problem, text)
    evaluator = ProgramEvaluator(problem)
    rows = [
        {"inputs": [*map(quoted, case.inputs)], "expected": quoted(case.answer), "given": given, "right": right}
        for case, given, right in evaluator.cases(whole)
    ]
    return {"kind": "program", "program": whole, "message": evaluator(whole).message, "cases": rows}


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


# Decay of the success rate with every group.
MEMORY = 0.9
# The success rate at which the next level is fully within reach.
ENOUGH = 0.4


class ProblemCurriculum:
    """An endless stream of training problems; `see` reports how the policy did on them."""

    def __init__(self, families: Sequence[str], problems: int, levels: int, seed: int) -> None:
        self.families, self.problems, self.seed = tuple(families), problems, seed
        self.solved = {family: [0.0] * min(levels, LEVELS[family]) for family in families}
        self.cursor = 0

    def take(self, count: int) -> list[Task]:
        return [self._task() for _ in range(count)]

    def _task(self) -> Task:
        number, family = self.cursor, self.families[self.cursor % len(self.families)]
        self.cursor += 1
        rng = np.random.default_rng([self.seed, 3, number])
        level = 1 + int(rng.choice(len(self.solved[family]), p=self.weights(family)))
        which = int(rng.integers(self.problems))
        return Task(f"{family} {level}/{number}", problem_of(family, which, "train", level), number)

    def any(self, rng: np.random.Generator) -> CodeProblem:
        """A training problem, uniform over families and levels."""
        family = self.families[int(rng.integers(len(self.families)))]
        level = 1 + int(rng.integers(len(self.solved[family])))
        return problem_of(family, int(rng.integers(self.problems)), "train", level)

    def weights(self, family: str) -> list[float]:
        solved = self.solved[family]
        reach = [1.0, *(0.05 + min(1.0, share / ENOUGH) for share in solved[:-1])]
        found = [within * (1.1 - share) for within, share in zip(reach, solved, strict=True)]
        return [weight / sum(found) for weight in found]

    def see(self, groups: Sequence[ScoredGroup]) -> None:
        """Update the success rates with the policy's own attempts."""
        for scored in groups:
            problem: CodeProblem = scored.group.task.payload
            right = [score.parts["correct"] for score in scored.scores if isinstance(score, Score)]
            if right and problem.difficulty <= len(self.solved[problem.family]):
                at = problem.difficulty - 1
                before = self.solved[problem.family][at]
                self.solved[problem.family][at] = MEMORY * before + (1 - MEMORY) * sum(right) / len(right)

    def metrics(self) -> dict[str, float]:
        """The current mean level over all families."""
        levels = [sum(n * w for n, w in enumerate(self.weights(family), start=1)) for family in self.families]
        return {"curriculum/level": sum(levels) / len(levels)}

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "solved": {family: list(shares) for family, shares in self.solved.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]
        self.solved = {family: list(shares) for family, shares in state["solved"].items()}


@lru_cache(maxsize=50_000)
def problem_of(family: str, number: int, split: Split, level: int) -> CodeProblem:
    """A problem of a family, cached: generating one takes milliseconds."""
    return generate(family, number, split, level)


# Programs shown in the report, and the most characters of each.
SHOWN, LONGEST = 12, 2000


def held_out(families: Sequence[str], levels: int, count: int, seed: int, split: Split = "valid") -> list[CodeProblem]:
    """Problems whose wording is never trained on, with families and levels in turn."""
    kinds = [(family, level) for level in range(1, levels + 1) for family in families if level <= LEVELS[family]]
    turns = ((seed + number // len(kinds), *kinds[number % len(kinds)]) for number in range(count))
    return [problem_of(family, number, split, level) for number, family, level in turns]


class ProgramExamination:
    """Evaluates the policy on a fixed set of problems. `shown` are the first few programs of the latest evaluation."""

    def __init__(
        self, cfg: TrainingConfig, options: CodeOptions, engine: TokenEngine, tokenizer: Any, drawn: SamplingParams
    ) -> None:
        self.engine, self.tokenizer, self.drawn = engine, tokenizer, drawn
        self.problems = held_out(options.family_names, options.levels, cfg.run.eval_episodes, cfg.run.eval_seed)
        self.prompts = [prompt_ids(tokenizer, problem, engine.max_length) for problem in self.problems]
        self.samples, self.seed = cfg.run.eval_samples, cfg.run.eval_seed
        self.shown: list[Sample] = []

    def __call__(self, policy: Policy) -> Mapping[str, float]:
        greedy = replace(self.drawn, temperature=0.0)
        judged = self._judged(self.engine.generate([(ids, 0) for ids in self.prompts], greedy), 1)
        self.shown = [_shown(problem, one) for problem, (one,) in zip(self.problems, judged, strict=True)][:SHOWN]
        solved = [float(one.solved) for (one,) in judged]
        metrics = {
            "eval/reward_mean": float(np.mean(solved)),
            "eval/accuracy": float(np.mean(solved)),
            "eval/format": float(np.mean([one.fault is None for (one,) in judged])),
            "eval/attempts": float(len(solved)),
        }
        levels = np.array([problem.difficulty for problem in self.problems])
        for level in sorted({*levels}):
            metrics[f"eval/level_{level}"] = float(np.array(solved)[levels == level].mean())
        return {**metrics, **(self._pass_rates() if self.samples > 1 else {})}

    def _pass_rates(self) -> dict[str, float]:
        # pass@k (Chen et al. 2021, arXiv:2107.03374) for k = 1, 2, 4, … programs sampled as in training.
        requests = [
            (ids, sampling_seed(self.seed, number, sample))
            for number, ids in enumerate(self.prompts)
            for sample in range(self.samples)
        ]
        judged = self._judged(self.engine.generate(requests, self.drawn), self.samples)
        counts = [sum(one.solved for one in programs) for programs in judged]
        ks = [1 << power for power in range(self.samples.bit_length())]
        return {f"eval/pass@{k}": float(np.mean([_pass(self.samples, count, k) for count in counts])) for k in ks}

    def _judged(self, answers: Sequence[Sampled], each: int) -> list[tuple[ProgramEvaluation, ...]]:
        rest = iter(answers)
        return [tuple(self._evaluated(problem, next(rest)) for _ in range(each)) for problem in self.problems]

    def _evaluated(self, problem: CodeProblem, sampled: Sampled) -> ProgramEvaluation:
        text = whole_text(problem, answer_text(self.tokenizer, sampled))
        evaluation = ProgramEvaluator(problem)(text)
        return evaluation if evaluation.text else replace(evaluation, text=text)


def _shown(problem: CodeProblem, one: ProgramEvaluation) -> Sample:
    asked, text, answer = (said[:LONGEST] for said in (problem.question, one.text, str(problem.answer)))
    return Sample(asked, text, answer, float(one.solved), one.solved)


def _pass(drawn: int, solved: int, k: int) -> float:
    # The unbiased estimator: the chance that k of the n samples, drawn without replacement, contain a solution.
    return 1.0 - comb(drawn - solved, k) / comb(drawn, k)
