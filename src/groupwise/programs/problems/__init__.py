"""Families of problems. Three are made here and need nothing; the others read a library or data files.

generate("tables", seed=7, split="test", difficulty=2)
"""

from __future__ import annotations

from collections.abc import Callable

from groupwise.errors import ConfigError
from groupwise.programs.language.problem import Case, CodeProblem, Split, Word
from groupwise.programs.problems import reasoning_gym, tables, transformations, word_problems
from groupwise.programs.problems.generator import tokens

__all__ = ["FAMILIES", "LEVELS", "OFFLINE", "Case", "CodeProblem", "Split", "Word", "generate", "tokens", "vocabulary"]

FAMILIES: dict[str, Callable[[int, Split, int], CodeProblem]] = {
    word_problems.FAMILY: word_problems.generate,
    transformations.FAMILY: transformations.generate,
    tables.FAMILY: tables.generate,
    reasoning_gym.FAMILY: reasoning_gym.generate,
}
OFFLINE = (word_problems.FAMILY, transformations.FAMILY, tables.FAMILY)
LEVELS = {
    word_problems.FAMILY: word_problems.LEVELS,
    transformations.FAMILY: transformations.LEVELS,
    tables.FAMILY: tables.LEVELS,
    reasoning_gym.FAMILY: reasoning_gym.LEVELS,
}


def generate(family: str, seed: int, split: Split = "train", difficulty: int = 1) -> CodeProblem:
    """The problem of a family, a split, a difficulty and a seed: the same whenever it is asked for."""
    if family not in FAMILIES:
        raise ConfigError(f"family = {family!r}; it must be one of {', '.join(FAMILIES)}", field="family")
    return FAMILIES[family](seed, split, difficulty)


def vocabulary() -> list[str]:
    """Every word, letter and sign in the questions of the families; numbers are 0 to 99 besides."""
    made = (word_problems, transformations, tables, reasoning_gym)
    return sorted({word for family in made for word in family.vocabulary()})
