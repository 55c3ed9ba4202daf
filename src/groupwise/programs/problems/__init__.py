"""Families of problems, and the user's own.

    generate("tables", seed=7, split="test", difficulty=2)

Open `generator` first: it draws problems until one is sound. `word_problems`, `transformations` and `tables` need
nothing else, `reasoning_gym` needs the library of that name. `user_problems` reads a problem from a file or a question.
"""

from groupwise.errors import ConfigError
from groupwise.programs.language.program import Case, CodeProblem, Split, Word
from groupwise.programs.problems import reasoning_gym, tables, transformations, word_problems
from groupwise.programs.problems.generator import make, tokens

__all__ = ["FAMILIES", "LEVELS", "OFFLINE", "Case", "CodeProblem", "Split", "Word", "generate", "tokens", "vocabulary"]

# Every family is a module with `draw`, `vocabulary` and its number of `LEVELS`.
FAMILIES = {
    "word_problems": word_problems,
    "transformations": transformations,
    "tables": tables,
    "reasoning_gym": reasoning_gym,
}
OFFLINE = ("word_problems", "transformations", "tables")
LEVELS: dict[str, int] = {name: family.LEVELS for name, family in FAMILIES.items()}


def generate(family: str, seed: int, split: Split = "train", difficulty: int = 1) -> CodeProblem:
    """The problem of a family, split, difficulty and seed; always the same for the same arguments."""
    if family not in FAMILIES:
        raise ConfigError(f"family = {family!r}; it must be one of {', '.join(FAMILIES)}", field="family")
    return make(family, FAMILIES[family].draw, seed, split, difficulty, LEVELS[family])


def vocabulary() -> list[str]:
    """Every word, letter and punctuation mark in the questions of all families; numbers are 0 to 99."""
    return sorted({word for family in FAMILIES.values() for word in family.vocabulary()})
