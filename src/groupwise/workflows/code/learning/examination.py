"""Held-out problems put to the policy: one greedy program each and, where asked, several drawn ones for pass@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.training.tokens import answer_text, sampling_seed
from groupwise.types import Policy, Sample
from groupwise.workflows.code.evaluation import Evaluation, Evaluator
from groupwise.workflows.code.learning.curriculum import problem_of
from groupwise.workflows.code.learning.options import CodeOptions
from groupwise.workflows.code.learning.rollout import prompt_ids
from groupwise.workflows.code.learning.writing import whole_text
from groupwise.workflows.code.problem import CodeProblem, Split
from groupwise.workflows.code.problems import LEVELS

SHOWN, LONGEST = 12, 2000


def held_out(families: Sequence[str], levels: int, count: int, seed: int, split: Split = "valid") -> list[CodeProblem]:
    """Problems whose wording is never trained on: families and levels in turn."""
    kinds = [(family, level) for level in range(1, levels + 1) for family in families if level <= LEVELS[family]]
    return [problem_of(*_numbered(kinds, number, seed, split)) for number in range(count)]


def _numbered(kinds: Sequence[tuple[str, int]], number: int, seed: int, split: Split) -> tuple[str, int, Split, int]:
    family, level = kinds[number % len(kinds)]
    return family, seed + number // len(kinds), split, level


class Examination:
    """A fixed set of problems. `shown` are the first few programs of the last time."""

    def __init__(
        self, cfg: TrainingConfig, options: CodeOptions, engine: Engine, tokenizer: Any, drawn: SamplingParams
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
            **self._by_level(solved),
        }
        return {**metrics, **(self._pass_rates() if self.samples > 1 else {})}

    def _by_level(self, solved: Sequence[float]) -> dict[str, float]:
        levels = np.array([problem.difficulty for problem in self.problems])
        return {f"eval/level_{level}": float(np.array(solved)[levels == level].mean()) for level in sorted({*levels})}

    def _pass_rates(self) -> dict[str, float]:
        """pass@k (Chen et al. 2021, arXiv:2107.03374) for k = 1, 2, 4, … programs drawn as in training."""
        requests = [
            (ids, sampling_seed(self.seed, number, sample))
            for number, ids in enumerate(self.prompts)
            for sample in range(self.samples)
        ]
        judged = self._judged(self.engine.generate(requests, self.drawn), self.samples)
        counts = [sum(one.solved for one in programs) for programs in judged]
        ks = [1 << power for power in range(self.samples.bit_length())]
        return {f"eval/pass@{k}": float(np.mean([_pass(self.samples, count, k) for count in counts])) for k in ks}

    def _judged(self, answers: Sequence[Sampled], each: int) -> list[tuple[Evaluation, ...]]:
        rest = iter(answers)
        return [tuple(self._evaluated(problem, next(rest)) for _ in range(each)) for problem in self.problems]

    def _evaluated(self, problem: CodeProblem, sampled: Sampled) -> Evaluation:
        text = whole_text(problem, answer_text(self.tokenizer, sampled))
        evaluation = Evaluator(problem)(text)
        return evaluation if evaluation.text else replace(evaluation, text=text)


def _shown(problem: CodeProblem, one: Evaluation) -> Sample:
    asked, text, answer = (said[:LONGEST] for said in (problem.question, one.text, str(problem.answer)))
    return Sample(asked, text, answer, float(one.solved), one.solved)


def _pass(drawn: int, solved: int, k: int) -> float:
    return 1.0 - comb(drawn - solved, k) / comb(drawn, k)
