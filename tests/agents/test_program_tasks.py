"""Programming tasks, read from the columns of the usual data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from groupwise.agents.data.problems import Problem
from groupwise.agents.program_tasks import code_in, program_task
from groupwise.errors import ContractError
from groupwise.types import Task

HUMAN_EVAL = next(
    (p for parent in Path(__file__).parents if (p := parent / "shared/data/humaneval/HumanEval.jsonl.gz").is_file()),
    None,
)
DOUBLE = "def double(x):\n    return 2 * x"
CHECK = "def check(candidate):\n    assert candidate(1) == 2"


def test_the_code_is_the_last_block_or_a_text_that_defines_a_function() -> None:
    assert code_in("First:\n```python\na = 1\n```\nbetter:\n```\nb = 2\n```\nDone.") == "b = 2\n"
    assert code_in("def f(x):\n    return x") == "def f(x):\n    return x"
    assert code_in("I would sort the list.") == ""


def test_tests_come_with_the_task_under_the_names_of_the_usual_data() -> None:
    ours = program_task(Task("t", Problem("p", "", {"tests": ["assert f(1) == 1", "assert f(2) == 2"]})))
    mbpp = program_task(
        Task(
            "t",
            {
                "test_list": ["assert g(f(1)) == 1"],
                "test_setup_code": "import math",
                "code": "def f(x):\r\n    return x",
            },
        )
    )
    human_eval = program_task(
        Task(
            "t", {"test": CHECK, "entry_point": "f", "prompt": "def f(x):\n", "canonical_solution": "    return x + 1"}
        )
    )
    assert (ours.tests, ours.tested, ours.reference) == ("assert f(1) == 1\nassert f(2) == 2", "", "")
    assert (mbpp.tests, mbpp.tested) == ("import math\nassert g(f(1)) == 1", "f")
    assert mbpp.reference == "def f(x):\n    return x"
    assert (human_eval.tests, human_eval.tested) == (f"{CHECK}\ncheck(f)", "f")
    assert human_eval.reference == "def f(x):\n    return x + 1"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": 'def f(x):\n    """Add 1."""\n'},
        {"prompt": "Complete this:\n```python\ndef f(x):\n    ...\n```"},
        {"prompt": "Add 1.", "solution": "```python\ndef f(x):\n    return x + 1\n```"},
        {"prompt": [{"role": "user", "content": "def f(x):\n    pass"}]},
    ],
)
def test_the_checked_function_is_found_without_entry_point(row: dict[str, object]) -> None:
    assert program_task(Task("t", {**row, "test": CHECK})).tests == f"{CHECK}\ncheck(f)"


def test_a_check_that_names_no_function_is_refused_and_one_that_is_called_stays() -> None:
    with pytest.raises(ContractError, match="does not name the function to check"):
        program_task(Task("t", {"test": CHECK, "prompt": "Add 1."}))
    called = f"{CHECK}\ncheck(f)"
    assert program_task(Task("t", {"test": called, "prompt": "Add 1."})).tests == called
    with pytest.raises(ContractError, match="the task has no tests"):
        program_task(Task("t", {"prompt": "Add 1.", "tests": " "}))


def test_helpers_are_what_the_prompt_defines_besides_the_function_under_test() -> None:
    prompt = 'import math\nLIMIT = 3\n\ndef double(x):\n    return 2 * x\n\ndef f(x):\n    """Halve it."""\n'
    helpers = program_task(Task("t", {"prompt": prompt, "tests": "assert f(double(1)) == 1"})).helpers
    assert helpers == f"import math\n\nLIMIT = 3\n\n{DOUBLE}"
    row = {"prompt": f"There is\n```\n{DOUBLE}\n```\nUndo it with `half`.", "tests": "assert half(double(1)) == 1"}
    assert program_task(Task("t", row)).helpers == ""  # perhaps `double` is what is tested
    assert program_task(Task("t", {**row, "solution": "def half(x):\n    return x / 2"})).helpers == DOUBLE
    assert program_task(Task("t", {**row, "entry_point": "half"})).helpers == DOUBLE
    other = "def half(x):\n    return x / 2\ndef double(x):\n    return x + x"
    assert program_task(Task("t", {**row, "solution": other})).helpers == ""  # to be rewritten
    # A program to correct is not a helper of itself.
    broken = program_task(
        Task("t", {"prompt": "Correct this:\n```\ndef f(x):\n    return x\n```", "tests": "assert f(1) == 2"})
    )
    assert broken.helpers == ""


@pytest.mark.skipif(HUMAN_EVAL is None, reason="shared/data/humaneval is not here")
def test_human_eval_needs_no_entry_point() -> None:
    assert HUMAN_EVAL is not None
    with gzip.open(HUMAN_EVAL, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    named = [program_task(Task("t", row)) for row in rows]
    unnamed = [program_task(Task("t", {name: v for name, v in row.items() if name != "entry_point"})) for row in rows]
    assert named == unnamed
    assert [row["task_id"] for row, task in zip(rows, named, strict=True) if "def " in task.helpers] == [
        "HumanEval/10", "HumanEval/32", "HumanEval/38", "HumanEval/50",
    ]  # fmt: skip


def test_a_prompt_too_deep_to_be_written_again_has_no_helpers() -> None:
    deep = f"KEY = {'+'.join(['1'] * 5000)}\n\ndef f(x):\n    pass\n"
    assert program_task(Task("t", {"prompt": deep, "tests": "assert f(1) == KEY"})).helpers == ""
