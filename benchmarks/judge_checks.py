"""Whether the judge of programs notices bad tests, accepts right programs, and trusts no helper of the answer.

    python benchmarks/judge_checks.py --json --data ../shared/data

tasks: HumanEval, MBPP, and 200 of their tasks rewritten in the styles of pytest and unittest. vacuous: the tests of
every task, spoiled in two of 14 ways so that some constant passes them or they never call the program; none may be
accepted. right: the reference solutions, also without what the prompt defines; none may be refused. helpers: wrong
programs that redefine a helper of the prompt that the tests use; none may pass. Tasks whose own tests accept a stub, or
none of whose mutants fails, are listed as excluded.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.agents.program_checks import ProgramTestChecker
from groupwise.agents.program_tasks import ProgramTask, program_task
from groupwise.sandbox import Bubblewrap, JudgedProgram, SandboxLimits, SandboxOutcome, SandboxResult, available
from groupwise.types import Task

LIMITS = SandboxLimits(seconds=20.0, memory_mb=256)
REWRITTEN = 200
Row = dict[str, Any]
Tasks = dict[str, ProgramTask]


def rows(data: Path) -> dict[str, Row]:
    with gzip.open(data / "humaneval" / "HumanEval.jsonl.gz", "rt") as lines:
        found = {row["task_id"]: row for row in map(json.loads, lines)}
    mbpp = map(json.loads, (data / "mbpp" / "mbpp.jsonl").read_text().splitlines())
    return found | {f"MBPP/{row['task_id']}": row for row in mbpp}


# Tests in other styles, from their lines and, where each compares a call with a value, (call, value) pairs.


def comparisons(row: Row) -> list[tuple[str, str]]:
    """The assertions `f(…) == value` of an MBPP task; empty if some have another form."""
    found: list[tuple[str, str]] = []
    for line in row.get("test_list", ()):
        try:
            (node,) = ast.parse(line.strip()).body
        except (SyntaxError, ValueError):
            return []
        test = getattr(node, "test", None)
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq) or len(test.ops) > 1:
            return []
        call = test.left
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
            return []
        if f"def {call.func.id}(" not in row["code"].replace(" (", "("):  # `int(f(…)) == value`
            return []
        found.append((ast.unparse(test.left), ast.unparse(test.comparators[0])))
    return found


def arguments(call: str) -> tuple[str, str]:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return ast.unparse(node.func), f"({''.join(f'{ast.unparse(arg)}, ' for arg in node.args)})"


def pytest_functions(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"def test_{n}():\n    assert {call} == {value}" for n, (call, value) in enumerate(pairs))


def pytest_parameters(pairs: Sequence[tuple[str, str]]) -> str:
    name = arguments(pairs[0][0])[0]
    cases = ", ".join(f"({arguments(call)[1]}, {value})" for call, value in pairs)
    head = f"import pytest\n@pytest.mark.parametrize('given, expected', [{cases}])\n"
    return f"{head}def test_all(given, expected):\n    assert {name}(*given) == expected"


def pytest_fixtures(pairs: Sequence[tuple[str, str]]) -> str:
    name = arguments(pairs[0][0])[0]
    head = f"import pytest\nfrom solution import {name} as found\n@pytest.fixture\ndef function():\n    yield found\n"
    tests = [
        f"    def test_{n}(self, function):\n        assert function(*{arguments(call)[1]}) == {value}"
        for n, (call, value) in enumerate(pairs)
    ]
    return head + "class TestAll:\n" + "\n".join(tests)


def unittest_cases(pairs: Sequence[tuple[str, str]]) -> str:
    tests = [f"    def test_{n}(self):\n        self.assertEqual({c}, {v})" for n, (c, v) in enumerate(pairs)]
    return "import sys, unittest\nclass TestAll(unittest.TestCase):\n" + "\n".join(tests)


def followed_by(end: str) -> Callable[[Sequence[tuple[str, str]]], str]:
    return lambda pairs: f"{unittest_cases(pairs)}\n{end}"


STYLES: dict[str, Callable[[Sequence[tuple[str, str]]], str]] = {
    "pytest": pytest_functions,
    "unittest": unittest_cases,
    "pytest parametrize": pytest_parameters,
    "unittest.main()": followed_by("unittest.main()"),
    "pytest fixture": pytest_fixtures,
    "unittest.main() of scripts": followed_by("if __name__ == '__main__':\n    unittest.main()"),
    "pytest and sys.exit": lambda pairs: f"import sys\n{pytest_functions(pairs)}\nsys.exit(0)",
    "unittest.main(exit=False)": followed_by("unittest.main(exit=False)"),
}


def rewritten(found: dict[str, Row]) -> Tasks:
    """Tasks of MBPP in all styles by turns, and of HumanEval inside a test function or case."""
    made: Tasks = {}
    usable = {name: pairs for name, row in found.items() if (pairs := comparisons(row))}
    step = max(len(usable) // (REWRITTEN - 40), 1)
    for number, (name, pairs) in enumerate(list(usable.items())[::step][: REWRITTEN - 40]):
        style = list(STYLES)[number % len(STYLES)]
        row = {key: value for key, value in found[name].items() if key != "test_list"}
        made[f"{name} ({style})"] = program_task(Task(name, {**row, "tests": STYLES[style](pairs)}))
    human = [name for name in found if name.startswith("HumanEval")]
    for number, name in enumerate(human[:: max(len(human) // 40, 1)][:40]):
        row, entry = found[name], found[name]["entry_point"]
        case = f"import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        check({entry})"
        style, end = [("pytest", f"def test_it():\n    check({entry})"), ("unittest", case)][number % 2]
        left = {key: value for key, value in row.items() if key not in ("entry_point", "test")}
        made[f"{name} ({style})"] = program_task(Task(name, {**left, "tests": f"{row['test']}\n{end}"}))
    return made


# Tests that reward nonsense: every assertion is replaced, or all of them are put out of reach.


class Spoiled(ast.NodeTransformer):
    """Replaces every assertion by what `change` makes of it; `assertEqual(a, b)` is `assert a == b`."""

    def __init__(self, change: Callable[[ast.expr], str]) -> None:
        self.change = change

    def visit_Assert(self, node: ast.Assert) -> Any:
        return ast.parse(self.change(node.test)).body

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "assertEqual":
            return ast.parse(self.change(ast.Compare(call.args[0], [ast.Eq()], [call.args[1]]))).body
        return node


def changed(change: Callable[[ast.expr], str]) -> Callable[[ProgramTask], str]:
    def spoil(task: ProgramTask) -> str:
        tree = Spoiled(change).visit(ast.parse(task.tests))
        return ast.unparse(ast.fix_missing_locations(tree))

    return spoil


def of_left(words: str) -> Callable[[ast.expr], str]:
    """An assertion about the left side of a comparison, or about a list with what another assertion is about."""

    def change(test: ast.expr) -> str:
        left = test.left if isinstance(test, ast.Compare) else ast.List([test])
        right = test.comparators[0] if isinstance(test, ast.Compare) else ast.Constant(True)
        return words.format(left=f"({ast.unparse(left)})", right=f"({ast.unparse(right)})")

    return change


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in ast.unparse(ast.parse(text)).split("\n"))


def shown(test: ast.expr) -> str:
    return ast.unparse(test)


def own_program(task: ProgramTask) -> str:
    """Tests that bring the program they test."""
    imported, own = f"from solution import {task.tested} as found", f"found = {task.tested}"
    return f"{task.reference}\n{task.tests.replace(imported, own)}"


SPOILED: dict[str, Callable[[ProgramTask], str]] = {
    "comments": lambda task: "".join(f"# {line}\n" for line in task.tests.split("\n")),
    "never called": lambda task: f"def never_called():\n{indented(task.tests)}",
    "exit first": lambda task: f"import sys\nsys.exit(0)\n{task.tests}",
    "its own program": own_program,
    "skipped": lambda task: (
        "import unittest\n@unittest.skip('later')\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        + "".join(f"    {line}\n" for line in indented(task.tests).split("\n"))
    ),
    "swallowed": changed(lambda test: f"try:\n    assert {shown(test)}\nexcept Exception:\n    pass"),
    "a tuple": changed(lambda test: f"assert ({shown(test)}, 'wrong')"),
    "or True": changed(lambda test: f"assert {shown(test)} or True"),
    "no assertion": changed(shown),
    "equal to itself": changed(of_left("assert {left} == {left}")),
    "not None": changed(of_left("assert {left} is not None")),
    "of any type": changed(of_left("assert isinstance({left}, object)")),
    "assertTrue with a message": lambda task: (
        f"import unittest\ncase = unittest.TestCase()\n{changed(of_left('case.assertTrue({left}, {right})'))(task)}"
    ),
    "both ways": changed(lambda test: f"assert ({shown(test)}) or not ({shown(test)})"),
}


def planted(tasks: Tasks) -> Tasks:
    """Two spoiled versions of the tests of every task, of different kinds by turns."""
    kinds = list(SPOILED)
    made: Tasks = {}
    for number, (name, task) in enumerate(tasks.items()):
        for kind in (kinds[number % len(kinds)], kinds[(number + len(kinds) // 2) % len(kinds)]):
            made[f"{name}: {kind}"] = replace(task, tests=SPOILED[kind](task))
    return made


# Wrong programs that redefine a helper of the prompt.

AGREES = "def agrees(found, expected):\n    return found == expected\n"
TRUE = (
    "def agrees(*args):\n    return True",
    "agrees = lambda *args: True",
    "class agrees:\n    def __new__(cls, *args):\n        return True",
    "import builtins\nbuiltins.agrees = agrees = builtins.all = lambda *args: True",
    "globals()['agrees'] = lambda *args: True",
)
CONSTANTS = ("None", "0", "1", "True", "''", "[]", "args[0]", "args[-1]")


def helped(found: dict[str, Row]) -> Tasks:
    """MBPP with a helper in the prompt that the tests compare by."""
    made: Tasks = {}
    for name, row in found.items():
        if pairs := comparisons(row):
            function = arguments(pairs[0][0])[0]
            prompt = f"{AGREES}\ndef {function}(*args):\n    pass\n"
            tests = "\n".join(f"assert agrees({call}, {value})" for call, value in pairs)
            made[name] = program_task(Task(name, {**row, "prompt": prompt, "tests": tests}))
    return made


def cheats(own: Tasks, with_helper: Tasks) -> list[tuple[str, JudgedProgram]]:
    """Wrong programs: for HumanEval's helpers every constant, for ours one way of redefining it by turns."""
    made: list[tuple[str, JudgedProgram]] = []
    for name, task in own.items():
        helpers = [node.name for node in ast.parse(task.helpers).body if isinstance(node, ast.FunctionDef)]
        for value in CONSTANTS if helpers else ():
            for other in CONSTANTS:
                redefined = "".join(f"def {helper}(*args):\n    return {other}\n" for helper in helpers)
                code = f"{redefined}def {task.tested}(*args):\n    return {value}"
                made.append((name, JudgedProgram(code, task.tests, task.tested, task.helpers)))
    for number, (name, task) in enumerate(with_helper.items()):
        code = f"{TRUE[number % len(TRUE)]}\ndef {task.tested}(*args):\n    return object"
        made.append((name, JudgedProgram(code, task.tests, task.tested, task.helpers)))
    return made


def alone(task: ProgramTask) -> str:
    """The reference solution without what the prompt already defines."""
    given = {ast.dump(node) for node in ast.parse(task.helpers).body}
    tree = copy.deepcopy(ast.parse(task.reference))
    tree.body = [node for node in tree.body if ast.dump(node) not in given]
    return ast.unparse(tree)


def passed(ran: object) -> bool:
    return isinstance(ran, SandboxResult) and ran.passed


def programs(tasks: Tasks) -> list[tuple[str, JudgedProgram]]:
    """The reference solutions, and those without what the prompt already defines."""
    whole = [
        (name, JudgedProgram(task.reference, task.tests, task.tested, task.helpers)) for name, task in tasks.items()
    ]
    return whole + [(name, replace(one, code=alone(tasks[name]))) for name, one in whole if one.helpers]


def measured(
    tasks: Tasks, with_helper: Tasks, sandbox: Bubblewrap, cache: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claims, and the names behind them."""
    seconds: dict[str, float] = {}
    start = time.perf_counter()

    def timed(name: str) -> None:
        nonlocal start
        seconds[name], start = round(time.perf_counter() - start, 1), time.perf_counter()
        print(f"{name}: {seconds[name]} s", file=sys.stderr, flush=True)

    checker = ProgramTestChecker(sandbox, LIMITS, cache)
    own = dict(zip(tasks, checker.faults(list(tasks.values())), strict=True))
    checker.close()
    timed("check")
    checker = ProgramTestChecker(sandbox, LIMITS, cache)
    assert checker.faults(list(tasks.values())) == list(own.values())
    timed("check again")
    spoiled = planted(tasks)
    noticed = dict(zip(spoiled, checker.faults(list(spoiled.values())), strict=True))
    checker.close()
    timed("vacuous")
    right = programs(tasks | {f"{name} (helper)": task for name, task in with_helper.items()})
    runs = sandbox.run_programs([program for _, program in right], LIMITS)
    # As in the check itself, a busy machine decides nothing: who ran out of time is asked again, alone and patiently.
    late = [n for n, ran in enumerate(runs) if getattr(ran, "outcome", "") == SandboxOutcome.TIMED_OUT]
    for number in late:
        runs[number] = sandbox.run_programs([right[number][1]], replace(LIMITS, seconds=5 * LIMITS.seconds))[0]
    refused = [(name, str(ran)) for (name, _), ran in zip(right, runs, strict=True) if not passed(ran)]
    timed("right")
    wrong = cheats(tasks, with_helper)
    runs = sandbox.run_programs([program for _, program in wrong], LIMITS)
    fooled = [(name, program.code) for (name, program), ran in zip(wrong, runs, strict=True) if passed(ran)]
    timed("helpers")
    blamed = {name: fault for name, fault in own.items() if "reference solution does" in fault or "cannot be" in fault}
    accepted = [name for name, fault in noticed.items() if not fault]
    excluded = {name: fault for name, fault in own.items() if fault and name not in blamed}
    claims = {
        "vacuous_accepted": len(accepted), "right_refused": len(refused) + len(blamed), "helper_passes": len(fooled),
        "tasks": len(tasks), "rewritten_tasks": sum("(" in name for name in tasks), "vacuous_planted": len(spoiled),
        "right_programs": len(right), "helper_attempts": len(wrong), "excluded_as_weak": len(excluded),
        "seconds": seconds,
    }  # fmt: skip
    return claims, {
        "accepted": accepted, "refused": refused, "blamed": blamed, "fooled": fooled, "excluded": excluded,
        "asked_again": [right[number][0] for number in late],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object (it always does)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with humaneval/ and mbpp/")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks")
    options = parser.parse_args()
    if fault := available()["bubblewrap"]:
        print_result("judge_checks", {}, not_run={"bubblewrap": fault})
        return
    found = rows(options.data)
    plain = {name: program_task(Task(name, row)) for name, row in found.items()}
    tasks, with_helper = plain | rewritten(found), helped(found)
    if options.quick:
        keep = [name for name, task in plain.items() if "def " in task.helpers]
        tasks = {name: task for n, (name, task) in enumerate(tasks.items()) if n % 10 == 0 or name in keep}
        with_helper = dict(list(with_helper.items())[::10])
    with Bubblewrap() as sandbox, tempfile.TemporaryDirectory() as folder:
        claims, raw = measured(tasks, with_helper, sandbox, Path(folder) / "tests.sqlite")
    print_result("judge_checks", claims, raw=raw)


if __name__ == "__main__":
    main()
