"""The language product: a model that answers verifiable tasks, ready for the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupwise.agents.completions import Completions, check_prompts, grader, prefix_values, training_problems
from groupwise.agents.data.dataset import DataProblems, find_problems
from groupwise.agents.data.problems import Problems
from groupwise.agents.evaluation import greedy_evaluation
from groupwise.agents.model_start import load_start
from groupwise.agents.model_start import open_run as open_run
from groupwise.agents.model_start import pinned as prepare  # noqa: F401  # the products' contract
from groupwise.agents.rewards import find_reward
from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.combination import absolute
from groupwise.rewards.scoring import per_attempt
from groupwise.training.session import Parts
from groupwise.training.source import GroupSource
from groupwise.training.token_attempts import rows_of_tokens
from groupwise.types import Policy, Reward

ROOM = 16_384  # sampled tokens of all answers that are made at once


def check(cfg: TrainingConfig) -> None:
    find_problems(cfg.task)
    find_reward(cfg.reward)


def build(cfg: TrainingConfig, reward: Reward | None = None) -> Parts:
    """Everything a language run needs, made from its settings.

    What `cfg.reward` names replaces the task's own grade, in evaluation too; `reward` replaces both in training.
    """
    problems = find_problems(cfg.task)
    grade = find_reward(cfg.reward) or per_attempt(grader(problems))
    language = load_language(cfg)
    critic = needs_critic(cfg.advantage.estimator)
    policy = LanguagePolicy(
        language.model,
        temperature=cfg.sampling.temperature,
        critic=critic,
        reference=cfg.policy.use_reference_model,
        seed=cfg.run.seed,
    )
    engine = Engine(language.model, language.tokenizer, slots=answers_at_once(cfg))
    check_listed(problems, language.tokenizer, engine.max_length)
    source = LanguageSource(
        cfg,
        tasks=training_problems(problems, cfg.run.seed),
        rollout=Completions(engine, language.tokenizer, sampling(cfg), cfg.rollout.num_generations, cfg.run.seed),
        reward=reward or grade,
        collate=rows_of_tokens,
        values=prefix_values(policy) if critic else None,
        reference=policy.reference_logp if cfg.policy.use_reference_model else None,
    )
    source.engine = engine
    examination = greedy_evaluation(cfg, problems, engine, language.tokenizer, source.scorer, absolute(grade))
    return Parts(policy, source, examination, lambda: examination.shown)


def answers_at_once(cfg: TrainingConfig) -> int:
    """All of a step where they are short; each needs room for its keys and values."""
    group, tasks = cfg.rollout.num_generations, cfg.rollout.tasks_per_step
    return max(64, group, min(group * tasks, ROOM // cfg.sampling.max_new_tokens))


def check_listed(problems: Problems, tokenizer: Any, limit: int) -> None:
    """Look at all prompts of a data file before the run starts; those of generators are looked at when drawn."""
    if isinstance(problems, DataProblems):
        check_prompts(problems, tokenizer, limit)


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
