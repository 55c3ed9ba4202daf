"""What `groupwise init` asks of people with a problem for a program, and the problem file that it writes for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from groupwise.errors import ConfigError
from groupwise.programs.problems.user_problems import problem_of_file
from groupwise.reporting.starter import Answers, Question, Starter, StarterFiles

QUESTION = "Keep the numbers above 5, then add them up."
EXAMPLES = "[1, 7, 3, 9] -> 16; [5, 6, 2] -> 6; [12, 4, 8, 5, 6] -> 26"
HEAD = """\
# A program is right if it gives the answer of every example; several examples, so that nothing is right by accident.
# `constants` lists the numbers and words that a program may contain, by default the numbers of the question;
# `max_lines` is how long it may be.
"""


def question(answers: Answers) -> Question | None:
    if "problem" not in answers:
        return Question("problem", "What should the program do, in one sentence?", QUESTION)
    if "examples" not in answers:
        usual = EXAMPLES if answers["problem"] == QUESTION else ""
        return Question("examples", "Examples of inputs and answers, such as [1, 7] -> 8; [2, 2] -> 4?", usual)
    return None


def write(answers: Answers, folder: Path) -> StarterFiles:
    found = [example(words) for words in answers["examples"].split(";") if words.strip()]
    lines = [f"  - {json.dumps(one, ensure_ascii=False)}" for one in found]
    asked = yaml.safe_dump({"question": answers["problem"]}, allow_unicode=True, sort_keys=False, width=1000)
    text = "\n".join([HEAD + asked.rstrip(), "examples:", *lines, "max_lines: 4"]) + "\n"
    notes = ("one example is easily met by accident; add more",) if len(found) == 1 else ()
    return StarterFiles("problem.yaml", {"problem.yaml": text}, ("groupwise solve {file} -o program.py",), notes)


def example(words: str) -> dict[str, Any]:
    """`[1, 7], 2 -> 8` as inputs and an answer, each written as JSON."""
    inputs, arrow, answer = words.rpartition("->")
    try:
        read: dict[str, Any] = {"inputs": json.loads(f"[{inputs}]"), "answer": json.loads(answer)}
    except (ValueError, RecursionError):
        read = {}
    if not arrow or not read:
        hint = 'Write it as INPUT, INPUT -> ANSWER in JSON: [1, 7] -> 8, or "ab", 2 -> "abab".'
        raise ConfigError(f"the example {words.strip()!r} cannot be read", hint=hint, field="examples")
    return read


def check(path: Path) -> Sequence[str]:
    problem_of_file(path)
    return ()


PROBLEM = Starter(question, write, ("problem", "examples"), check)
