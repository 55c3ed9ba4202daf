"""Programming tasks: the tests of a task, what its prompt defines, and its reference solution, read from its columns.

    columns of the row → ProgramTask → tests that run in a sandbox

`tests` is a text or a list of lines; `test_list` and `test_setup_code` come from MBPP, `test` and `entry_point` from
HumanEval. A reference solution is in `reference`, `canonical_solution` (HumanEval), `solution` or `code` (MBPP).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from groupwise.errors import ContractError
from groupwise.rewards.rules.components import known, text_of
from groupwise.types import Task

FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
LONGEST = 100_000  # characters of a program, and of an answer that are searched for one, counted from its end
TESTS = ("tests", "test_list", "test")
REFERENCES = ("reference", "canonical_solution", "solution", "code")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What of a prompt's code its helpers consist of.
NAMED = (*FUNCTIONS, ast.ClassDef)
DEFINITIONS = (*NAMED, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


@dataclass(frozen=True)
class ProgramTask:
    """What is known about a programming task.

    `tested` is the function under test, `helpers` is what the prompt defines besides it, and `reference` a right
    program; each is empty if the task does not have it.
    """

    tests: str
    tested: str = ""
    helpers: str = ""
    reference: str = ""


def code_in(text: str) -> str:
    """Return the last ``` block; without one, the entire text if it defines a function, else nothing."""
    blocks = FENCE.findall(text[-LONGEST:])
    if blocks:
        return str(blocks[-1])
    return text if re.search(r"^(async )?def \w+\(", text, re.MULTILINE) else ""


def program_task(task: Task) -> ProgramTask:
    """Return a task's tests and what belongs to them; raise if it has none."""
    whole: Any = next((found for name in TESTS if (found := known(task, name))), "")
    lines = [whole] if isinstance(whole, str) else list(whole)
    tests = "\n".join(map(str, [known(task, "test_setup_code") or "", *lines])).strip()
    if not tests:
        raise ContractError("the task has no tests to run the code against", hint="Add a `tests` column.")
    tests = _unix(tests)
    prompt = _prompt(task)
    asked = _prompt_code(prompt)
    stubs = [node.name for node in asked if isinstance(node, FUNCTIONS) and _is_stub(node)]
    named = str(known(task, "entry_point") or (stubs[0] if len(stubs) == 1 else ""))
    reference = _reference(task, prompt, named)
    tested = named or _tested(tests, reference)
    return ProgramTask(_with_check(tests, tested), tested, _helpers(asked, tested, reference), reference)


def _helpers(asked: list[ast.stmt], tested: str, reference: str) -> str:
    """What the prompt's code defines besides what is left to be written, or written otherwise in the reference."""
    if not tested:
        return ""
    try:
        own = {node.name: ast.unparse(node) for node in _parsed(reference) if isinstance(node, NAMED)}
        kept = [
            text
            for node in asked
            if isinstance(node, DEFINITIONS) and getattr(node, "name", "") != tested
            if not (isinstance(node, FUNCTIONS) and _is_stub(node))
            if own.get(getattr(node, "name", ""), text := ast.unparse(node)) == text
        ]
    except RecursionError:  # an expression of a thousand operators
        return ""
    return "\n\n".join(kept)


def _prompt(task: Task) -> str:
    prompt = known(task, "prompt")
    if isinstance(prompt, list | tuple):
        return _unix("\n".join(text_of(turn.get("content")) for turn in prompt if isinstance(turn, dict)))
    return _unix(prompt) if isinstance(prompt, str) else ""


def _prompt_code(prompt: str) -> list[ast.stmt]:
    """The code of a prompt: all of it if it is Python, as in HumanEval, otherwise its ``` blocks that are."""
    return _parsed(prompt) or [node for block in FENCE.findall(prompt[-LONGEST:]) for node in _parsed(block)]


def _parsed(text: str) -> list[ast.stmt]:
    """The statements of a program; none if the text is not one, or longer than any program."""
    try:
        return ast.parse(text).body if len(text) <= LONGEST else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is left to be written: it has at most imports, a docstring, `pass`, `…` or `raise`."""
    rest = [
        part
        for part in node.body
        if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        if not isinstance(part, ast.Pass | ast.Raise | ast.Import | ast.ImportFrom)
    ]
    return not rest


def _reference(task: Task, prompt: str, named: str) -> str:
    """The first reference solution that is a program; HumanEval's continue the prompt."""
    texts = [_unix(text) for name in REFERENCES if isinstance(text := known(task, name), str)]
    candidates = [one for text in texts for one in (code_in(text) or text, prompt + text)]
    for candidate in candidates:
        defined = set(_defined(candidate))
        if named in defined or (not named and defined):
            return candidate
    return ""


def _defined(code: str) -> Iterator[str]:
    return (node.name for node in _parsed(code) if isinstance(node, FUNCTIONS))


def _tested(tests: str, reference: str) -> str:
    """The first function of the reference that the tests mention; its only one if they mention none."""
    defined = list(_defined(reference))
    only = defined[0] if len(defined) == 1 else ""
    return next((word for word in re.findall(r"\w+", tests) if word in defined), only)


def _with_check(tests: str, tested: str) -> str:
    """HumanEval's tests define check(candidate), which must be called with the function."""
    body = _parsed(tests)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in body):
        return tests
    calls = (node.func for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Call))
    if any(isinstance(function, ast.Name) and function.id == "check" for function in calls):
        return tests
    if not tested:
        raise ContractError(
            "the tests define check(candidate), but the task does not name the function to check",
            hint="Add a column `entry_point` with its name.",
        )
    return f"{tests}\ncheck({tested})"


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")
