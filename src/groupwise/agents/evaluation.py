"""Held-out problems, answered greedily: what the model knows, not what luck finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.agents.completions import prompt_ids
from groupwise.agents.problems import Problem, Problems, is_correct
from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.types import Policy, Score


@dataclass(frozen=True)
class Answer:
    """One answer to a held-out problem, as a reader wants to see it."""

    prompt: str
    text: str
    expected: str
    total: float
    correct: bool


def greedy_evaluation(cfg: TrainingConfig, problems: Problems, engine: Engine, tokenizer: Any) -> Examination:
    """The evaluation of a run: its held-out problems, and the engine that answers them."""
    held_out = problems.held_out(cfg.run.eval_seed, cfg.run.eval_episodes)
    return Examination(problems, held_out, engine, tokenizer, cfg.sampling.max_new_tokens)


class Examination:
    """A fixed set of problems, put to the weights that the engine holds now."""

    def __init__(
        self, problems: Problems, held_out: Sequence[Problem], engine: Engine, tokenizer: Any, max_new_tokens: int
    ) -> None:
        self.problems, self.held_out, self.engine, self.tokenizer = problems, held_out, engine, tokenizer
        self.prompts = [(prompt_ids(tokenizer, problem), 0) for problem in held_out]
        self.greedy = SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0)

    def __call__(self, policy: Policy) -> Mapping[str, float]:
        sampled = self.engine.generate(self.prompts, self.greedy)
        scores = [self._grade(problem, answer) for problem, answer in zip(self.held_out, sampled, strict=True)]
        totals = np.array([score.total for score in scores])
        metrics = {
            "eval/reward_mean": float(totals.mean()),
            "eval/reward_std": float(totals.std()),
            "eval/accuracy": float(np.mean([is_correct(score) for score in scores])),
            "eval/length_mean": float(np.mean([len(answer.ids) for answer in sampled])),
            "eval/attempts": float(len(self.held_out)),
        }
        if all("format" in score.parts for score in scores):
            metrics["eval/format"] = float(np.mean([score.parts["format"] for score in scores]))
        return metrics

    def greedy_answers(self, count: int | None = None) -> list[Answer]:
        """The model's answers to the first `count` problems, or to all of them."""
        sampled = self.engine.generate(self.prompts[:count], self.greedy)
        answers = []
        for problem, answer in zip(self.held_out, sampled, strict=False):
            score = self._grade(problem, answer)
            answers.append(Answer(problem.text, self._text(answer), problem.answer, score.total, is_correct(score)))
        return answers

    def _grade(self, problem: Problem, answer: Sampled) -> Score:
        return self.problems.grade(problem, self._text(answer), answer.end == "stop")

    def _text(self, answer: Sampled) -> str:
        return str(self.tokenizer.decode(answer.ids, skip_special_tokens=True))
