"""The language product: a model that answers verifiable tasks, ready for the loop."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.agents.completions import (
    Completions,
    grader,
    prefix_values,
    prompt_ids,
    rows_of_tokens,
    training_problems,
)
from groupwise.agents.starting import load_start
from groupwise.agents.tasks import VerifiableTask, find_task, grade
from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.scoring import per_attempt
from groupwise.training.loop import Evaluate
from groupwise.training.session import Parts
from groupwise.training.source import GroupSource
from groupwise.types import Policy, Reward


def check(cfg: TrainingConfig) -> None:
    find_task(cfg.task.environment)


def build(cfg: TrainingConfig, reward: Reward | None = None) -> Parts:
    """Everything a language run needs, made from its settings; `reward` replaces the task's own grade."""
    task = find_task(cfg.task.environment)
    language = load_language(cfg)
    critic = cfg.advantage.estimator == "gae"
    policy = LanguagePolicy(
        language.model,
        temperature=cfg.sampling.temperature,
        critic=critic,
        reference=cfg.policy.use_reference_model,
        seed=cfg.run.seed,
    )
    engine = Engine(language.model, language.tokenizer, slots=max(64, cfg.rollout.num_generations))
    source = LanguageSource(
        cfg,
        tasks=training_problems(task, cfg.run.seed),
        rollout=Completions(engine, language.tokenizer, sampling(cfg), cfg.rollout.num_generations, cfg.run.seed),
        reward=reward or per_attempt(grader(task)),
        collate=rows_of_tokens,
        values=prefix_values(policy) if critic else None,
        reference=policy.reference_logp if cfg.policy.use_reference_model else None,
    )
    source.engine = engine
    return Parts(policy, source, greedy_evaluation(cfg, task, engine, language.tokenizer))


def load_language(cfg: TrainingConfig) -> LanguageModel:
    return load_start(cfg)


def sampling(cfg: TrainingConfig, **changes: Any) -> SamplingParams:
    """The settings of sampling as the engine takes them."""
    return replace(SamplingParams(**dict(cfg.sampling.items())), **changes)


class LanguageSource(GroupSource):
    """A source whose sampler is told which version of the weights it uses."""

    engine: Engine

    def publish(self, policy: Policy) -> None:
        assert isinstance(policy, LanguagePolicy)
        self.engine.load(policy.model, policy.version)

    def close(self) -> None:
        self.engine.close()
        super().close()


def greedy_evaluation(cfg: TrainingConfig, task: VerifiableTask, engine: Engine, tokenizer: Any) -> Evaluate:
    """Greedy answers to held-out problems: what the model knows, not what luck finds."""
    rng = random.Random(cfg.run.eval_seed)
    problems = [task.sample(rng, held_out=True) for _ in range(cfg.run.eval_episodes)]
    prompts = [(prompt_ids(tokenizer, problem), 0) for problem in problems]
    greedy = SamplingParams(max_new_tokens=cfg.sampling.max_new_tokens, temperature=0.0)

    def evaluate(policy: Policy) -> Mapping[str, float]:
        answers = engine.generate(prompts, greedy)
        scores = [
            grade(task, problem, tokenizer.decode(answer.ids, skip_special_tokens=True), answer.end == "stop")
            for problem, answer in zip(problems, answers, strict=True)
        ]
        totals = np.array([score.total for score in scores])
        parts = {name: float(np.mean([s.parts[name] for s in scores])) for name in ("correct", "format")}
        return {
            "eval/reward_mean": float(totals.mean()),
            "eval/reward_std": float(totals.std()),
            "eval/accuracy": parts["correct"],
            "eval/format": parts["format"],
            "eval/length_mean": float(np.mean([len(answer.ids) for answer in answers])),
            "eval/attempts": float(len(problems)),
        }

    return evaluate
