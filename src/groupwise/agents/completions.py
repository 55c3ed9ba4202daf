"""Single answers from a language model: prompts in, groups of token trajectories out."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from groupwise.agents.conversation.frame import special_tokens
from groupwise.agents.data.problems import Problem, Problems
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.training.estimators import padded
from groupwise.training.source import NumberedTasks
from groupwise.training.token_attempts import sampling_seed, token_attempt
from groupwise.types import Array, End, Group, Score, Task, Trajectory


def training_problems(problems: Problems, seed: int) -> NumberedTasks:
    """Problems to learn from, none of them held out."""

    def make(number: int) -> Task:
        return Task(f"{problems.name}/{number}", problems.training(seed, number), number)

    return NumberedTasks(make)


class Completions:
    """Makes a group of answers to every problem, all of them in one continuous batch."""

    def __init__(self, engine: Engine, tokenizer: Any, params: SamplingParams, group_size: int, seed: int) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.params = params
        self.group_size = group_size
        self.seed = seed

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        prompts = [prompt_ids(self.tokenizer, task.payload, self.engine.max_length) for task in tasks]
        requests = [
            (ids, sampling_seed(self.seed, task.seed, member))
            for task, ids in zip(tasks, prompts, strict=True)
            for member in range(self.group_size)
        ]
        return as_groups(self.tokenizer, tasks, prompts, self.engine.generate(requests, self.params))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A rollout is a function of weights, seed and task numbers: there is nothing to restore."""


def as_groups(
    tokenizer: Any, tasks: Sequence[Task], prompts: Sequence[Sequence[int]], answers: Sequence[Sampled]
) -> list[Group]:
    """The answers, in order and as many to each, as groups."""
    rest, size = iter(answers), len(answers) // max(len(tasks), 1)

    def attempt(task: Task, ids: Sequence[int], number: int) -> Trajectory:
        return token_attempt(tokenizer, task, ids, number, next(rest), task.payload.prompt)

    return [
        Group(f"g{task.seed}", task, tuple(attempt(task, ids, n) for n in range(size)))
        for task, ids in zip(tasks, prompts, strict=True)
    ]


def prompt_ids(tokenizer: Any, problem: Problem, limit: int) -> list[int]:
    """The problem in the model's own chat format, up to where it is the model's turn; plain for a model without one.

    A prompt that leaves no room for an answer in a context of `limit` tokens is refused.
    """
    insist_on_plain_text(problem, special_tokens(tokenizer))
    if tokenizer.chat_template is None and isinstance(problem.prompt, str):
        ids = tokenizer.encode(problem.prompt)
    elif tokenizer.chat_template is None:
        raise ConfigError(f"{problem.label} is a chat, and the model has no chat format", hint="Give it as one text.")
    else:
        ids = _framed(tokenizer, problem)
    insist_on_room(problem, len(ids) + 1, limit)
    return list(ids)


def _framed(tokenizer: Any, problem: Problem) -> Sequence[int]:
    try:
        framed = tokenizer.apply_chat_template(
            problem.messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
    except Exception as error:  # a template is a program and raises what it likes
        said = " ".join(str(error).split()) or type(error).__name__
        roles = ", ".join(problem.roles)
        raise ConfigError(
            f"{problem.label}: the model's chat template refuses messages of {roles}: {said}",
            hint="Give the messages other roles or another order.",
            field="task.environment",
        ) from error
    return framed["input_ids"]  # type: ignore[no-any-return]


def insist_on_plain_text(problem: Problem, special: Sequence[str], demonstration: str = "") -> None:
    for token in special:
        if token in problem.text or token in demonstration:
            raise ConfigError(
                f"{problem.label} holds {token!r}, which is a special token of the model and no text",
                hint="Write it otherwise, or leave the row out.",
                field="task.environment",
            )


def insist_on_room(problem: Problem, tokens: int, limit: int) -> None:
    if tokens > limit:
        raise ConfigError(
            f"{problem.label} needs {tokens} tokens with its answer, and the model's context is {limit}",
            hint="Shorten it or leave it out, or choose a model with a longer context.",
            field="task.environment",
        )


def check_prompts(problems: Iterable[Problem], tokenizer: Any, limit: int) -> None:
    """Refuse what cannot be asked before a run starts.

    Only what may differ is made into tokens: every order of roles once, and long texts. A token is a byte at least.
    """
    seen: set[tuple[str, ...]] = set()
    special = special_tokens(tokenizer)
    for problem in problems:
        insist_on_plain_text(problem, special)
        if problem.roles not in seen or len(problem.text.encode()) >= limit // 2:
            prompt_ids(tokenizer, problem, limit)
            seen.add(problem.roles)


def grader(problems: Problems) -> Any:
    """The reward: a function of one attempt's text."""

    def score(task: Task, attempt: Trajectory) -> Score | Awaitable[Score]:
        return problems.grade(task.payload, attempt.meta["text"], attempt.end is End.FINISHED)

    score.__qualname__ = f"the grade of {problems.name!r}"
    return score


def prefix_values(policy: LanguagePolicy) -> Any:
    """The critic's view before every token and after the last: [T + 1]."""

    device = next(policy.model.parameters()).device

    @torch.no_grad()
    def values(members: Sequence[Trajectory]) -> list[Array]:
        ids = padded([member.actions for member in members], np.int64).to(device)
        lengths = torch.tensor([len(member) for member in members], device=device)
        attention = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        seen = policy.values({"input_ids": ids, "attention_mask": attention}).cpu().numpy()
        return [np.concatenate([[0.0], row[: len(m)]]) for row, m in zip(seen, members, strict=True)]

    return values
