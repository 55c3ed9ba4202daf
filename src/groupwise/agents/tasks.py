"""Verifiable tasks: a prompt, its right answer, and a score for any answer, made from a number.

A problem is made from a random generator, so there is no file to download. Prompts are split by a hash of their text:
what is judged on is never trained on, whatever the seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from groupwise.agents.problems import Problem
from groupwise.errors import ConfigError
from groupwise.types import Score

HELD_OUT = 5
DIGITS, LETTERS, FEW_LETTERS = "0123456789", "abcdefgh", "abcd"


@dataclass(frozen=True)
class Size:
    """How large problems get: `task.options` sets the number of `unit`."""

    unit: str
    value: int
    least: int
    most: int


@dataclass(frozen=True)
class VerifiableTask:
    """A kind of problem: how one of a size is made, and which characters an answer may be made of.

    With a `marker`, an answer is what stands behind the marker, and characters of `scratch` may stand before it.
    """

    name: str
    make: Callable[[random.Random, int], Problem]
    alphabet: str
    size: Size
    marker: str = ""
    scratch: str = ""

    def with_options(self, options: Mapping[str, object]) -> VerifiableTask:
        """The task at the size that `task.options` asks for."""
        size = self.size
        for name, value in options.items():
            if name != size.unit or type(value) is not int or not size.least <= value <= size.most:
                raise ConfigError(
                    f"task.options.{name} = {value!r} does not fit the task {self.name!r}",
                    hint=f"It takes {size.unit}, a whole number from {size.least} to {size.most}.",
                    field="task.options",
                )
            size = replace(size, value=value)
        return replace(self, size=size)

    def training(self, seed: int, number: int) -> Problem:
        return self._sample(random.Random(f"{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> list[Problem]:
        rng = random.Random(seed)
        return [self._sample(rng, held_out=True) for _ in range(count)]

    def _sample(self, rng: random.Random, held_out: bool) -> Problem:
        while True:
            problem = self.make(rng, self.size.value)
            if is_held_out(problem.text) == held_out:
                return problem

    def demonstration(self, problem: Problem) -> str:
        return problem.answer if problem.demonstration is None else problem.demonstration

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        """1 for the right answer; less for one that is only in part right, or only in the right form.

        total = 0.7 · correct + 0.2 · share of places that are right + 0.1 · well-formed. A place is a character at its
        distance from the end, so that the units of a sum can be right when its tens are not.
        """
        before, marker, answer = text.rpartition(self.marker) if self.marker else ("", "", text)
        well_formed = (
            finished
            and marker == self.marker
            and set(before) <= set(self.scratch)
            and bool(answer)
            and set(answer) <= set(self.alphabet)
        )
        pairs = zip(reversed(answer), reversed(problem.answer), strict=False)
        places = sum(a == b for a, b in pairs) / max(len(answer), len(problem.answer))
        correct = well_formed and answer == problem.answer
        parts = {"correct": float(correct), "places": places if well_formed else 0.0, "format": float(well_formed)}
        tenths = 7 * parts["correct"] + 2 * parts["places"] + parts["format"]
        return Score(tenths / 10, parts)


def is_held_out(prompt: str) -> bool:
    """One prompt in `HELD_OUT` is kept for judging, chosen by its text alone."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT == 0


def addition(rng: random.Random, digits: int) -> Problem:
    first, second = rng.randrange(10**digits), rng.randrange(10**digits)
    return Problem(f"{first}+{second}", str(first + second))


def column_addition(rng: random.Random, digits: int) -> Problem:
    """A sum as it is done on paper: all digits of both numbers, the answer from the units up; 07+95 is 201."""
    first, second = rng.randrange(10**digits), rng.randrange(10**digits)
    answer = f"{first + second:0{digits + 1}}"
    return Problem(f"{first:0{digits}}+{second:0{digits}}", answer[::-1])


def addition_steps(rng: random.Random, digits: int) -> Problem:
    """The sum, worked out from the units with carries: 47+85 is 7+5=12,4+8+1=13:132."""
    problem = addition(rng, digits)
    first, second = problem.text.split("+")
    steps, carry = [], 0
    for a, b in zip_longest(reversed(first), reversed(second), fillvalue="0"):
        total = int(a) + int(b) + carry
        steps.append(f"{a}+{b}+1={total}" if carry else f"{a}+{b}={total}")
        carry = total // 10
    return replace(problem, demonstration=f"{','.join(steps)}:{problem.answer}")


def sorting(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, LETTERS, longest)
    return Problem(f"sort {letters}", "".join(sorted(letters)))


def counting(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, "ab", longest)
    return Problem(f"count a in {letters}", str(letters.count("a")))


def reversing(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, LETTERS, longest)
    return Problem(f"reverse {letters}", letters[::-1])


def editing(rng: random.Random, longest: int) -> Problem:
    """One edit of every occurrence of a letter: replace, delete or double it."""
    letters = word(rng, FEW_LETTERS, longest)
    while len(set(letters)) == 1:  # without its only letter nothing would be left to answer
        letters = word(rng, FEW_LETTERS, longest)
    old = rng.choice(letters)
    new = rng.choice([letter for letter in FEW_LETTERS if letter != old])
    edits = {
        f"replace {old} by {new} in {letters}": letters.replace(old, new),
        f"delete {old} in {letters}": letters.replace(old, ""),
        f"double {old} in {letters}": letters.replace(old, old + old),
    }
    return Problem(*rng.choice(list(edits.items())))


def word(rng: random.Random, alphabet: str, longest: int) -> str:
    return "".join([rng.choice(alphabet) for _ in range(rng.randrange(3, longest + 1))])


TASKS = {
    task.name: task
    for task in (
        VerifiableTask("addition", addition, DIGITS, Size("digits", 2, 1, 9)),
        VerifiableTask("column_addition", column_addition, DIGITS, Size("digits", 2, 1, 9)),
        VerifiableTask(
            "addition_steps", addition_steps, DIGITS, Size("digits", 3, 1, 9), marker=":", scratch=f"{DIGITS}+=,"
        ),
        VerifiableTask("sorting", sorting, LETTERS, Size("letters", 6, 3, 40)),
        VerifiableTask("counting", counting, DIGITS, Size("letters", 12, 3, 40)),
        VerifiableTask("reversing", reversing, LETTERS, Size("letters", 6, 3, 40)),
        VerifiableTask("editing", editing, FEW_LETTERS, Size("letters", 6, 3, 40)),
    )
}
