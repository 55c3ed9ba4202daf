"""The language product: a model learns single answers to verifiable problems. `build` assembles a run.

problems → Completions → groups of answers → reward → training rows
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from groupwise.agents.attempt_workers import workers_and_reward
from groupwise.agents.checks import check_language_run as check
from groupwise.agents.checks import usable_problems
from groupwise.agents.conversation.chat_template import template_of
from groupwise.agents.conversation.prompts import check_prompts, prompt_ids
from groupwise.agents.data.dataset import DataProblems, find_problems
from groupwise.agents.data.kept_problems import is_noted, note
from groupwise.agents.data.problems import Problems
from groupwise.agents.evaluation import as_groups, greedy_evaluation
from groupwise.agents.model_start import load_start, open_run, pin_start
from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.language.engine import SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.language.policy import LanguagePolicy
from groupwise.language.samplers.sampler_choice import engine_for
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.rewards.combination import absolute
from groupwise.rewards.registry import find_reward
from groupwise.rewards.scoring import per_attempt
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.batch_source import Collate, GroupSource, NumberedTasks, Rollout
from groupwise.training.estimators import padded
from groupwise.training.session import Parts
from groupwise.training.token_attempts import rows_of_tokens, sampling_seed
from groupwise.types import Array, End, Group, Policy, Reward, Score, Task, Trajectory

__all__ = ["build", "check", "open_run", "prepare"]

ROOM = 16_384  # sampled tokens of all answers that are generated at once


def prepare(cfg: TrainingConfig) -> TrainingConfig:
    return pin_start(cfg)


def build(
    cfg: TrainingConfig,
    reward: Reward | None = None,
    problems: Problems | None = None,
    language: LanguageModel | None = None,
    reference: LanguagePolicy | None = None,
) -> Parts:
    """Make everything a language run needs from its settings; arguments replace what the settings name.

    A reward named in `cfg.reward` replaces the problems' own grade, but evaluation reports both; the argument `reward`
    replaces either, in training only if the settings name the problems. `reference` is that of an earlier policy.
    """
    named = find_reward(cfg.reward)
    given = problems is not None
    problems, notes = usable_problems(problems or find_problems(cfg.task), named)
    own = per_attempt(grader(problems))
    grade = (reward if given else None) or named or own
    workers, learned_from = workers_and_reward(cfg, None, reward, reward or grade)
    language = language or load_start(cfg)
    policy = policy_of(cfg, language, reference)
    options = cfg.language.chat_template_kwargs
    ends = template_of(language.tokenizer, options).end_ids
    engine = engine_for(cfg, language, slots=answers_at_once(cfg), params=sampling(cfg), ends=ends)
    check_listed(problems, language.tokenizer, engine.max_length, options)
    rollout = Completions(engine, language.tokenizer, sampling(cfg), cfg.rollout.num_generations, cfg.run.seed, options)
    tasks = training_problems(problems, cfg.run.seed)
    source = LanguageSource(cfg, policy, engine, tasks, rollout, learned_from, rows_of_tokens, workers)
    check = own if getattr(problems, "has_check", True) else None
    evaluation = greedy_evaluation(cfg, problems, engine, language.tokenizer, source.scorer, absolute(grade), check)
    return Parts(policy, source, evaluation, lambda: evaluation.shown, notes=notes)


def policy_of(cfg: TrainingConfig, language: LanguageModel, reference: LanguagePolicy | None = None) -> LanguagePolicy:
    """Return the model as the policy to train; `reference` is that of an earlier policy."""
    return LanguagePolicy(
        language.model, temperature=cfg.sampling.temperature, critic=needs_critic(cfg.advantage.estimator),
        reference=(reference or True) if cfg.policy.use_reference_model else False, seed=cfg.run.seed,
    )  # fmt: skip


def answers_at_once(cfg: TrainingConfig) -> int:
    """Return how many answers to generate at once: all of a step if they are short. Each needs room for its cache."""
    group, tasks = cfg.rollout.num_generations, cfg.rollout.tasks_per_step
    # Never fewer than 64, nor than one group.
    return max(64, group, min(group * tasks, ROOM // cfg.sampling.max_new_tokens))


def check_listed(problems: Problems, tokenizer: Any, limit: int, options: Mapping[str, Any] | None = None) -> None:
    """Check all prompts of a data file before the run starts; generated problems are checked when they are drawn."""
    if not isinstance(problems, DataProblems):
        return
    inner = getattr(tokenizer, "backend_tokenizer", None)
    kept = problems.kept if inner is not None else None
    words = [inner.to_str() if inner is not None and kept else "", tokenizer.chat_template, limit, dict(options or {})]
    key = hashlib.sha256(json.dumps(words, default=repr).encode()).hexdigest()[:32]
    if kept is None or not is_noted(kept, key):
        check_prompts(problems, tokenizer, limit, options)
        if kept is not None:
            note(kept, key)


def sampling(cfg: TrainingConfig, **changes: Any) -> SamplingParams:
    """Return the sampling settings in the form that the engine takes."""
    return replace(SamplingParams(**dict(cfg.sampling.items())), **changes)


def grader(problems: Problems) -> Callable[[Task, Trajectory], Score | Awaitable[Score]]:
    """Return the problems' own grade as a reward: a function of a task and an attempt."""

    def score(task: Task, attempt: Trajectory) -> Score | Awaitable[Score]:
        return problems.grade(task.payload, attempt.meta["content"], attempt.end is End.FINISHED)

    score.__qualname__ = f"the grade of {problems.name!r}"  # how error messages name the reward
    return score


def training_problems(problems: Problems, seed: int) -> NumberedTasks:
    """Return the problems to learn from, by number; none of them is held out."""
    return NumberedTasks(lambda number: Task(f"{problems.name}/{number}", problems.training(seed, number), number))


class Completions:
    """Samples a group of answers to every problem, all in one continuous batch."""

    independent = True

    def __init__(
        self, engine: TokenEngine, tokenizer: Any, params: SamplingParams, group_size: int, seed: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.tokenizer, self.params, self.options = engine, tokenizer, params, options
        self.group_size, self.seed = group_size, seed

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        prompts, requests = self._requests(tasks)
        return as_groups(self.tokenizer, tasks, prompts, self.engine.generate(requests, self.params))

    def _requests(self, tasks: Sequence[Task]) -> tuple[list[Sequence[int]], list[tuple[Sequence[int], int]]]:
        """The prompt of every task, and the prompt and seed of every answer."""
        limit = self.engine.max_length
        prompts: list[Sequence[int]] = [prompt_ids(self.tokenizer, task.payload, limit, self.options) for task in tasks]
        return prompts, [
            (ids, sampling_seed(self.seed, task.seed, member))
            for task, ids in zip(tasks, prompts, strict=True)
            for member in range(self.group_size)
        ]

    @property
    def overlaps(self) -> bool:
        """Whether answers are made elsewhere than on this CPU, which has time for their scores meanwhile."""
        return self.engine.on_accelerator

    def stream(self, tasks: Sequence[Task]) -> Iterator[Group]:
        """The same groups one by one, each as soon as it and those before it have all their answers."""
        self.engine.start()
        prompts, requests = self._requests(tasks)
        futures = [self.engine.submit(ids, self.params, seed) for ids, seed in requests]
        try:
            for number, task in enumerate(tasks):
                members = futures[number * self.group_size : (number + 1) * self.group_size]
                yield from as_groups(self.tokenizer, [task], [prompts[number]], [one.result() for one in members])
        finally:
            for future in futures:
                self.engine.cancel(future)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore: a rollout is a function of weights, seed and task numbers."""


class LanguageSource(GroupSource):
    """A source of batches that hands new weights to the engine."""

    engine: TokenEngine

    def __init__(
        self, cfg: TrainingConfig, policy: LanguagePolicy, engine: TokenEngine, tasks: NumberedTasks, rollout: Rollout,
        reward: Reward, collate: Collate, workers: RolloutWorkers | None = None,
    ) -> None:  # fmt: skip
        values = prefix_values(policy) if needs_critic(cfg.advantage.estimator) else None
        reference = policy.reference_logp if cfg.policy.use_reference_model else None
        super().__init__(
            cfg, tasks=tasks, rollout=rollout, reward=reward, collate=collate, values=values, reference=reference,
            workers=workers,
        )  # fmt: skip
        self.engine = engine

    def publish(self, policy: Policy) -> None:
        assert isinstance(policy, LanguagePolicy)
        self.engine.load(policy.model, policy.version)

    def close(self) -> None:
        self.engine.close()
        super().close()


def prefix_values(policy: LanguagePolicy) -> Callable[[Sequence[Trajectory]], list[Array]]:
    """Return a function from attempts to the critic's values [T + 1]: before every token and after the last."""

    device = next(policy.model.parameters()).device

    @torch.no_grad()
    def values(members: Sequence[Trajectory]) -> list[Array]:
        ids = padded([member.actions for member in members], np.int64).to(device)  # [B, T], padded on the right
        lengths = torch.tensor([len(member) for member in members], device=device)
        attention = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        seen = policy.values({"input_ids": ids, "attention_mask": attention}).cpu().numpy()
        # The value at position t is that of the state after token t; before the first token there is none.
        return [np.concatenate([[0.0], row[: len(m)]]) for row, m in zip(seen, members, strict=True)]

    return values
