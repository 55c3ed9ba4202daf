"""Arithmetic problems from the reasoning-gym library: a family with questions and answers made by others.

The expressions of its `basic_arithmetic` with `+`, `-`, `*` and brackets; the numbers are `solve`'s parameters in order
of mention. The first case is the library's own question with the library's own answer; hidden cases are the same
expression with other numbers. Difficulty is the number of operations.
"""

import ast
import importlib
import random
from functools import lru_cache
from typing import Any

from groupwise.errors import MissingExtra
from groupwise.programs.language.operators import Type
from groupwise.programs.language.program import Argument, Parameter, Result, Signature
from groupwise.programs.problems.generator import ProblemDraft, program_of, words_of

DATASET = "basic_arithmetic"
LEVELS = 3
SIZE = 1_000_000
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
TEMPLATES = ("What is ( )?", "Solve + .", "Compute - .", "Evaluate: * .")


def vocabulary() -> list[str]:
    return sorted(words_of(TEMPLATES))


@lru_cache(maxsize=LEVELS)
def dataset(difficulty: int) -> Any:
    """The library's dataset of a difficulty, which generates its items on demand; `MissingExtra` if there is none."""
    try:
        library = importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise MissingExtra(
            f"the family reasoning_gym needs the library reasoning-gym, which cannot be imported: {error}",
            hint="pip install 'groupwise[reasoning-gym]'",
        ) from error
    return library.create_dataset(
        DATASET, seed=difficulty * SIZE, size=SIZE, min_terms=difficulty + 1, max_terms=difficulty + 1, min_digits=1,
        max_digits=1, operators=("+", "-", "*"), allow_negation=False, format_style="natural",
    )  # fmt: skip


def draw(rng: random.Random, difficulty: int) -> ProblemDraft | None:
    """A draft from an item of the library; None if it contains a number below 1."""
    item = dataset(difficulty)[rng.randrange(SIZE)]
    tree = ast.parse(item["metadata"]["expression"].strip(), mode="eval").body
    numbers: list[int] = []
    steps: list[tuple[str, list[Argument]]] = []
    if not _walk(tree, numbers, steps):
        return None
    signature = Signature((Type.INT,) * len(numbers), Type.INT)
    return ProblemDraft(
        lambda case: str(item["question"]),
        signature,
        program_of(signature, steps),
        lambda rng: tuple(rng.randint(1, 20) for _ in numbers),
        sound=lambda inputs, results: inputs != tuple(numbers) or str(results[-1]) == item["answer"],
        asked=tuple(numbers),
        wording=str(item["question"]),
    )


def _walk(node: ast.expr, numbers: list[int], steps: list[tuple[str, list[Argument]]]) -> Argument | None:
    # Translate a node into numbers, in order of mention, and steps; None for a negative number.
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 0:
        numbers.append(node.value)
        return Parameter(len(numbers) - 1)
    if not isinstance(node, ast.BinOp):
        return None
    left = _walk(node.left, numbers, steps)
    right = _walk(node.right, numbers, steps) if left else None
    if left is None or right is None:
        return None
    steps.append((OPERATORS[type(node.op)], [left, right]))
    return Result(len(steps) - 1)
