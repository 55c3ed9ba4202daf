"""Verifiable tasks: a prompt, its right answer, and a score for any answer, made from a number.

A task is made from a random generator, so there is no file to download. Prompts are split by a hash of their text:
what is judged on is never trained on, whatever the seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from groupwise.agents.problems import Problem
from groupwise.types import Score

HELD_OUT = 5


@dataclass(frozen=True)
class VerifiableTask:
    """A kind of problem: how one is made, and which characters an answer may be made of."""

    name: str
    make: Callable[[random.Random], Problem]
    alphabet: str

    def training(self, seed: int, number: int) -> Problem:
        return self._sample(random.Random(f"{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> list[Problem]:
        rng = random.Random(seed)
        return [self._sample(rng, held_out=True) for _ in range(count)]

    def _sample(self, rng: random.Random, held_out: bool) -> Problem:
        while True:
            problem = self.make(rng)
            if is_held_out(problem.text) == held_out:
                return problem

    def demonstration(self, problem: Problem) -> str:
        return problem.answer if problem.demonstration is None else problem.demonstration

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        """1 for the right answer; less for one that is only in part right, or only in the right form.

        total = 0.7 · correct + 0.2 · share of places that are right + 0.1 · well-formed. A place is a character at its
        distance from the end, so that the units of a sum can be right when its tens are not.
        """
        well_formed = finished and bool(text) and set(text) <= set(self.alphabet)
        correct = finished and text == problem.answer
        pairs = zip(reversed(text), reversed(problem.answer), strict=False)
        places = sum(a == b for a, b in pairs) / max(len(text), len(problem.answer))
        parts = {"correct": float(correct), "places": places if well_formed else 0.0, "format": float(well_formed)}
        return Score(0.7 * parts["correct"] + 0.2 * parts["places"] + 0.1 * parts["format"], parts)


def is_held_out(prompt: str) -> bool:
    """One prompt in `HELD_OUT` is kept for judging, chosen by its text alone."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT == 0


def addition(rng: random.Random) -> Problem:
    first, second = rng.randrange(100), rng.randrange(100)
    return Problem(f"{first}+{second}", str(first + second))


def sorting(rng: random.Random) -> Problem:
    letters = [rng.choice("abcdefgh") for _ in range(rng.randrange(3, 7))]
    return Problem(f"sort {''.join(letters)}", "".join(sorted(letters)))


def counting(rng: random.Random) -> Problem:
    letters = [rng.choice("ab") for _ in range(rng.randrange(3, 13))]
    return Problem(f"count a in {''.join(letters)}", str(letters.count("a")))


def reversing(rng: random.Random) -> Problem:
    letters = [rng.choice("abcdefgh") for _ in range(rng.randrange(3, 7))]
    return Problem(f"reverse {''.join(letters)}", "".join(reversed(letters)))


TASKS = {
    task.name: task
    for task in (
        VerifiableTask("addition", addition, "0123456789"),
        VerifiableTask("sorting", sorting, "abcdefgh"),
        VerifiableTask("counting", counting, "0123456789"),
        VerifiableTask("reversing", reversing, "abcdefgh"),
    )
}
