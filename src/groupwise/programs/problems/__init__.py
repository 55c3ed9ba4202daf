"""Families of problems, and the user's own.

    generate("tables", seed=7, split="test", difficulty=2)

Open `generator` first: it draws problems until one is sound. `word_problems`, `transformations` and `tables` need
nothing else, `reasoning_gym` needs the library of that name. `user_problems` reads a problem from a file or a question.
"""

from collections.abc import Callable

from groupwise.errors import ConfigError
from groupwise.programs.language.program import Case, CodeProblem, Split, Word
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
    """The problem of a family, split, difficulty and seed; always the same for the same arguments."""
    if family not in FAMILIES:
        raise ConfigError(f"family = {family!r}; it must be one of {', '.join(FAMILIES)}", field="family")
    return FAMILIES[family](seed, split, difficulty)


def vocabulary() -> list[str]:
    """Every word, letter and punctuation mark in the questions of all families; numbers are 0 to 99."""
    made = (word_problems, transformations, tables, reasoning_gym)
    return sorted({word for family in made for word in family.vocabulary()})
