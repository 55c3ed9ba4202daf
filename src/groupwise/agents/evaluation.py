"""Held-out problems put to the model: answered greedily (what it knows), and drawn several times (what it can find)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.agents.completions import prompt_ids, sampling_seed
from groupwise.agents.problems import Problem, Problems, is_correct
from groupwise.config import TrainingConfig
from groupwise.errors import ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.types import Policy, Sample, Score

SHOWN, LONGEST = 8, 2000


def greedy_evaluation(cfg: TrainingConfig, problems: Problems, engine: Engine, tokenizer: Any) -> Examination:
    """The evaluation of a run: its held-out problems, and the engine that answers them."""
    return Examination(
        problems, problems.held_out(cfg.run.eval_seed, cfg.run.eval_episodes), engine, tokenizer,
        drawn=SamplingParams(**dict(cfg.sampling.items())), samples=cfg.run.eval_samples, seed=cfg.run.eval_seed,
    )  # fmt: skip


class Examination:
    """A fixed set of problems, put to the weights that the engine holds now.

    With `samples` above 1, every problem is also answered that often as in training, for pass@k. An answer that its
    grade fails on is left out, and counted in `eval/failed_share`. `shown` are the first few greedy answers of the last
    time.
    """

    def __init__(
        self, problems: Problems, held_out: Sequence[Problem], engine: Engine, tokenizer: Any, *,
        drawn: SamplingParams, samples: int = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        self.problems, self.held_out, self.engine, self.tokenizer = problems, held_out, engine, tokenizer
        self.prompts = [prompt_ids(tokenizer, problem, engine.max_length) for problem in held_out]
        self.greedy = SamplingParams(max_new_tokens=drawn.max_new_tokens, temperature=0.0)
        self.drawn, self.samples, self.seed = drawn, samples, seed
        self.shown: list[Sample] = []

    def __call__(self, policy: Policy) -> Mapping[str, float]:
        sampled = self.engine.generate([(ids, 0) for ids in self.prompts], self.greedy)
        outcomes = [self._grade(problem, answer) for problem, answer in zip(self.held_out, sampled, strict=True)]
        scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
        self.shown = [
            Sample(
                problem.text[:LONGEST],
                self._text(answer)[:LONGEST],
                problem.answer[:LONGEST],
                score.total,
                is_correct(score),
            )
            for problem, answer, score in zip(self.held_out[:SHOWN], sampled, outcomes, strict=False)
            if isinstance(score, Score)
        ]
        if not scores:
            raise next(outcome for outcome in outcomes if isinstance(outcome, ContractError))
        totals = np.array([score.total for score in scores])
        metrics = {
            "eval/reward_mean": float(totals.mean()),
            "eval/reward_std": float(totals.std()),
            "eval/accuracy": float(np.mean([is_correct(score) for score in scores])),
            "eval/length_mean": float(np.mean([len(answer.ids) for answer in sampled])),
            "eval/attempts": float(len(sampled)),
        }
        if len(scores) < len(sampled):
            metrics["eval/failed_share"] = 1 - len(scores) / len(sampled)
        if all("format" in score.parts for score in scores):
            metrics["eval/format"] = float(np.mean([score.parts["format"] for score in scores]))
        return {**metrics, **(self._pass_rates() if self.samples > 1 else {})}

    def _pass_rates(self) -> dict[str, float]:
        """pass@k for k = 1, 2, 4, … samples, averaged over the problems of which all samples could be graded."""
        requests = [
            (ids, sampling_seed(self.seed, number, sample))
            for number, ids in enumerate(self.prompts)
            for sample in range(self.samples)
        ]
        sampled = iter(self.engine.generate(requests, self.drawn))
        right = []
        for problem in self.held_out:
            outcomes = [self._grade(problem, next(sampled)) for _ in range(self.samples)]
            scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
            if len(scores) == self.samples:
                right.append(sum(is_correct(score) for score in scores))
        return {
            f"eval/pass@{k}": float(np.mean([pass_at_k(self.samples, correct, k) for correct in right]))
            for k in powers_of_two(self.samples)
            if right
        }

    def _grade(self, problem: Problem, answer: Sampled) -> Score | ContractError:
        try:
            return self.problems.grade(problem, self._text(answer), answer.end == "stop")
        except ContractError as error:
            return error

    def _text(self, answer: Sampled) -> str:
        return str(self.tokenizer.decode(answer.ids, skip_special_tokens=True))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that k of the samples, drawn without putting back, hold a correct one: 1 − C(n − c, k) / C(n, k).

    Chen et al. 2021 (arXiv:2107.03374): unbiased for k fresh samples, where 1 − (1 − c/n)^k is not.
    """
    assert 0 <= correct <= samples
    assert 1 <= k <= samples
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def powers_of_two(limit: int) -> Iterator[int]:
    return (1 << exponent for exponent in range(limit.bit_length()))
