"""The supervised warm start, on the one loop: a demonstration is an attempt whose every token has advantage 1.

With the present policy's own log-probabilities as the behaviour's, the ratio is 1 and the gradient of the policy loss
is that of the negative log-likelihood per token. So supervised runs have the same checkpoints, resume and reports;
their reward is the probability that the model gives to a token of the right answer, on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from groupwise.agents.completions import insist_on_plain_text, insist_on_room, prompt_ids
from groupwise.agents.data import DataProblems
from groupwise.agents.evaluation import greedy_evaluation
from groupwise.agents.finding import find_problems
from groupwise.agents.frame import special_tokens
from groupwise.agents.problems import Problem, Problems
from groupwise.agents.product import check_listed, load_language
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.scoring import Scorer
from groupwise.training.estimate import padded
from groupwise.training.session import Parts
from groupwise.types import Batch, Policy


def check(cfg: TrainingConfig) -> None:
    problems = find_problems(cfg.task)
    for problem in _listed(problems) or [problems.training(cfg.run.seed, 0)]:
        problems.demonstration(problem)


def build(cfg: TrainingConfig) -> Parts:
    problems = find_problems(cfg.task)
    language = load_language(cfg)
    if language.tokenizer.eos_token_id is None:
        raise ConfigError(
            f"the tokenizer of '{language.name}' has no end-of-text token, so no answer would learn to end",
            hint="Give it one (tokenizer.eos_token = …) and save it again.",
            field="policy.model_name",
        )
    policy = LanguagePolicy(language.model, seed=cfg.run.seed)
    engine = Engine(language.model, language.tokenizer)
    check_listed(problems, language.tokenizer, engine.max_length)
    source = Demonstrations(cfg, problems, language.tokenizer, policy, engine)
    source.check()
    examination = greedy_evaluation(cfg, problems, engine, language.tokenizer, source.scorer)
    return Parts(policy, source, examination, lambda: examination.shown)


def _listed(problems: Problems) -> Sequence[Problem]:
    """All problems to train on, where they are listed; those of generators are looked at when drawn."""
    return problems.train if isinstance(problems, DataProblems) else []


class Demonstrations:
    """Batches of right answers; `rollout.tasks_per_step` of them each."""

    def __init__(
        self, cfg: TrainingConfig, problems: Problems, tokenizer: Any, policy: LanguagePolicy, engine: Engine
    ) -> None:
        self.cfg, self.problems, self.tokenizer, self.policy, self.engine = cfg, problems, tokenizer, policy, engine
        self.scorer = Scorer(timeout=cfg.rollout.reward_timeout)
        self.cursor = 0

    def next(self) -> Batch:
        size = self.cfg.rollout.tasks_per_step
        numbers = range(self.cursor, self.cursor + size)
        self.cursor += size
        rows = [self._row(self.problems.training(self.cfg.run.seed, n)) for n in numbers]
        mask = padded([row >= 0 for row, _ in rows], np.bool_) & padded([own for _, own in rows], np.bool_)
        inputs = {
            "input_ids": padded([row for row, _ in rows], np.int64),
            "attention_mask": padded([row >= 0 for row, _ in rows], np.int64),
            "action_mask": mask,
        }
        with torch.no_grad():
            logp = self.policy.evaluate({name: t.to(self.cfg.policy.device) for name, t in inputs.items()}).logp.cpu()
        shown = logp[mask]
        tokens = int(mask.sum())
        return Batch(
            inputs, mask, logp.float(), mask.float(), denominator=tokens, total_rows=size, total_tokens=tokens,
            metrics={"reward/mean": float(shown.exp().mean()), "loss/supervised": -float(shown.mean())},
            samples=tokens, attempts=size,
        )  # fmt: skip

    def check(self) -> None:
        """Refuse demonstrations that cannot be learned from before the run starts. A token is a byte at least."""
        special = special_tokens(self.tokenizer)
        for problem in _listed(self.problems):
            shown = self.problems.demonstration(problem)
            insist_on_plain_text(problem, special, shown)
            if len(problem.text.encode()) + len(shown.encode()) >= self.engine.max_length // 2:
                self._row(problem)

    def _row(self, problem: Problem) -> tuple[Any, Any]:
        """The tokens of prompt and answer, and which of them are the answer's."""
        prompt = prompt_ids(self.tokenizer, problem, self.engine.max_length)
        shown = self.problems.demonstration(problem)
        insist_on_plain_text(problem, special_tokens(self.tokenizer), shown)
        answer = [*self.tokenizer.encode(shown, add_special_tokens=False), self.tokenizer.eos_token_id]
        insist_on_room(problem, len(prompt) + len(answer), self.engine.max_length)
        return np.array(prompt + answer), np.arange(len(prompt) + len(answer)) >= len(prompt)

    def publish(self, policy: Policy) -> None:
        self.engine.load(self.policy.model, policy.version)

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]

    def close(self) -> None:
        self.engine.close()
        self.scorer.close()
