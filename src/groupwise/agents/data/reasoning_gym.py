"""Problems of the reasoning-gym library: `task.environment = "reasoning_gym:chain_sum"`.

Its datasets generate problems and grade answers themselves; `task.options` are the dataset's settings. An answer is the
entire text, or what stands between <answer> and </answer> after the model's reasoning.
"""

import difflib
import importlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from groupwise.agents.data.problems import Problem, is_held_out
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.thoughts import without_thoughts
from groupwise.types import Score

PREFIX = "reasoning_gym:"
POOL = 10_000  # some generators prepare all problems of their size in advance
TRIES = 1_000  # draws before we conclude that there is no problem for training, or none to hold out


class GymProblems:
    """One dataset of reasoning-gym. Every seed has its own pool; the question's text decides what is held out."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.options = f"{PREFIX}{name}", {"size": POOL, **options}
        try:
            self.library = importlib.import_module("reasoning_gym")
        except ImportError as error:
            message = f"task.environment = {self.name!r} needs reasoning-gym, which cannot be imported: {error}"
            raise MissingExtra(message, hint="pip install 'groupwise[reasoning-gym]'") from error
        known = self.library.factory.DATASETS
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {PREFIX + near[0]!r}?" if near else f"It has {len(known)} datasets."
            raise ConfigError(f"reasoning-gym has no dataset {name!r}", hint=hint, field="task.environment")
        self.pool = lru_cache(maxsize=4)(self._pool)
        self.pool(0)  # refuses wrong options

    def training(self, seed: int, number: int) -> Problem:
        return self._sample(seed, random.Random(f"{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> list[Problem]:
        rng = random.Random(seed)
        return [self._sample(seed, rng, held_out=True) for _ in range(count)]

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        """Return the dataset's own score; 0 for a truncated answer."""
        text = without_thoughts(text)
        answer = self.library.utils.extract_answer(text) or text.strip()
        try:
            total = float(self.pool(0).score_answer(answer=answer, entry=problem.columns)) if finished else 0.0
        except Exception as error:
            raise ContractError(f"{self.name} could not grade {answer[:60]!r}: {error}") from error
        return Score(total, {"correct": float(total >= 1.0)})

    def demonstration(self, problem: Problem) -> str:
        if not problem.answer:
            raise ConfigError(f"{self.name!r} has no answers to imitate", field="task.environment")
        return problem.answer

    def _sample(self, seed: int, rng: random.Random, held_out: bool) -> Problem:
        pool = self.pool(seed)
        for _ in range(TRIES):
            # Rejection sampling: the text decides on which side a problem is.
            number = rng.randrange(len(pool))
            with global_seed(number):
                entry = pool[number]
            if is_held_out(entry["question"]) == held_out:
                answer = "" if entry["answer"] is None else str(entry["answer"])
                return Problem(entry["question"], answer, entry, place=f"{self.name} problem {number}")
        purpose = "evaluation" if held_out else "training"
        raise ConfigError(f"{self.name!r} with these options has no problem for {purpose}", field="task.options")

    def _pool(self, seed: int) -> Any:
        # Generators seed problem n with seed + n, so the pools of neighbouring seeds must lie far apart.
        try:
            return self.library.create_dataset(
                self.name.removeprefix(PREFIX), seed=random.Random(seed).getrandbits(31), **self.options
            )
        except (TypeError, ValueError, AssertionError) as error:
            message = f"task.options = {self.options} does not fit {self.name!r}: {error}"
            raise ConfigError(message, field="task.options") from error


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Set the global random state, which a few generators also draw from, and restore it."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)  # noqa: NPY002
