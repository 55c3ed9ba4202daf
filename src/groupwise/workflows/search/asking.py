"""What `groupwise solve` was asked: a family's problem, a file with a problem of one's own, or a question."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.workflows.code.problem import CodeProblem, Split
from groupwise.workflows.code.problems import FAMILIES, generate
from groupwise.workflows.code.problems.own import problem_of_file, problem_of_question


def problem_named(words: str, seed: int, split: Split, difficulty: int, answer: str | None) -> CodeProblem:
    """The problem that some words name."""
    if words in FAMILIES:
        return generate(words, seed, split, difficulty)
    path = Path(words)
    if path.suffix in (".json", ".yaml", ".yml"):
        return problem_of_file(path)
    if not any(letter.isspace() for letter in words.strip()):
        raise ConfigError(
            f"{words!r} is neither a family, nor a file of a problem, nor a question",
            hint=f"The families are {', '.join(FAMILIES)}; a file ends in .yaml or .json.",
        )
    if answer is None:
        raise ConfigError(
            "nothing tells a right program for this question from a wrong one",
            hint="Give its answer with --answer, or write examples into a file: `groupwise solve problem.yaml`.",
            field="answer",
        )
    return problem_of_question(words, _value(answer))


def _value(answer: str) -> object:
    try:
        return json.loads(answer)
    except ValueError:
        return answer
