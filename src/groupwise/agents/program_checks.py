"""Checks the tests of programming tasks before a run: would they reward nonsense, or refuse a right program?

    ProgramTask → its reference solution, stubs and mutants run against its tests → "" or what is wrong with them

Tests are sound if they call the program, the reference solution passes (where there is one), and no stub does: a
function that always returns the same simple value, returns or empties an argument, returns an object that agrees with
everything, or raises an exception that the tests name. Of a few mutants of the reference solution, programs with one
operator or number changed, at least one must fail: some may happen to be right too.
"""

import ast
import builtins
import hashlib
import json
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cache, partial
from pathlib import Path
from typing import cast

from groupwise.agents.program_tasks import ProgramTask
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.sandbox import Bubblewrap, JudgedProgram, SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.sandbox.bubblewrap_command import mounts
from groupwise.sandbox.program_tests import read_tests
from groupwise.sqlite import Database

logger = logging.getLogger(__name__)

# What a stub does, in words and as an expression of its arguments.
STUBS = {
    "returns None": "None", "returns 0": "0", "returns 1": "1", "returns -1": "-1", "returns 1000000": "10**6",
    "returns 0.5": "0.5", "returns True": "True", "returns False": "False", "returns ''": "''", "returns 'a'": "'a'",
    "returns []": "[]", "returns [0]": "[0]", "returns ()": "()", "returns {}": "{}", "returns set()": "set()",
    "returns its first argument": "args[0]", "returns its last argument": "args[-1]", "raises an error": "1 / 0",
    # No comparison with NaN is true: `if abs(f(2) - 5) > 1e-6: raise AssertionError` lets it through.
    "returns NaN": "float('nan')", "returns infinity": "float('inf')", "returns minus infinity": "float('-inf')",
    "returns b''": "b''", "returns a long text": "'a' * 1000", "returns a long list": "[0] * 1000",
    "returns an object that agrees with everything": "_Agreeing()",
    "empties its first argument": "_emptied(args[0]) and None",
    "empties its first argument and returns it": "_emptied(args[0])",
}  # fmt: skip
STUB = """
class _Agreeing:
    def __getattr__(self, name):
        if name.startswith(('_', 'cr_')):
            raise AttributeError(name)
        return self
    def __call__(self, *args, **kwargs):
        return self
    def __getitem__(self, key):
        return self
    def __iter__(self):
        return iter(())
    def __len__(self):
        return 0
    def __bool__(self):
        return True
def _emptied(value):
    if hasattr(value, 'clear'):
        value.clear()
    return value
def _raise(error):
    raise error
_chosen = 0
def choose_variant(number):
    global _chosen
    _chosen = number
def _stub(*args, **kwargs):
    args += tuple(kwargs.values())
    return _values[_chosen](args)
"""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
MUTANTS = 5
# Seconds for a mutant, of which many loop forever: at least so many, or so many times the slowest reference solution's.
LEAST, TIMES = 0.5, 5
# Mutants of which at least one must fail; fewer may all happen to be right.
ENOUGH = 3
# How many times longer than usual a reference solution may take if the machine is busy, and all stubs together.
PATIENT = 5
TOO_LATE = "its tests exceed the time limit"
# Seconds between two notes about progress, and tasks that are checked between them at least.
PAUSE = 15.0
CHUNK = 32
TABLE = "CREATE TABLE verdicts (key TEXT PRIMARY KEY, fault TEXT NOT NULL)"
MARK = 0x47575054  # "GWPT"


def mutants(code: str, most: int = MUTANTS) -> Iterator[str]:
    """The program with one operator or number changed, in up to `most` places that depend on its text alone."""
    places = len(_places(ast.parse(code)))
    for number in random.Random(code).sample(range(places), min(most, places)):
        tree = ast.parse(code)
        _places(tree)[number]()
        with suppress(RecursionError):  # an expression of a thousand operators
            yield ast.unparse(tree)


def _places(tree: ast.Module) -> list[Callable[[], None]]:
    """Changes that can be made to a program: one for each of its operators and numbers."""
    found: list[Callable[[], None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
            found.append(partial(setattr, node, "op", SWAPS[type(node.op)]()))
        elif isinstance(node, ast.Compare):
            swapped = [(place, SWAPS[type(op)]()) for place, op in enumerate(node.ops) if type(op) in SWAPS]
            found += [partial(cast(list[ast.AST], node.ops).__setitem__, place, op) for place, op in swapped]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            found.append(partial(setattr, node, "value", cast(float, node.value) + 1))
    return found


def ways(tests: str) -> dict[str, str]:
    """What the stubs for these tests do: the same for all, and raising each built-in exception that they name."""
    words = dict.fromkeys(re.findall(r"\b[A-Z]\w+\b", tests))
    kinds = {word: getattr(builtins, word, None) for word in words}
    named = [word for word, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Exception)]
    return {**STUBS, **{f"raises {word}": f"_raise({word})" for word in named}}


def stubs(task: ProgramTask) -> JudgedProgram:
    """All stubs in one program; what else the reference solution defines stays as it is."""
    wanted = [task.tested] if task.tested else list(read_tests(task.tests, "", task.helpers).wanted)
    chosen = ways(task.tests).values()
    values = ", ".join(f"lambda args: {value}" for value in chosen)
    names = "".join(f"{name} = _stub\n" for name in wanted)
    code = f"{task.reference}\n{STUB}\n_values = [{values}]\n{names}"
    return JudgedProgram(code, task.tests, task.tested, task.helpers, variants=len(chosen))


def single_stubs(task: ProgramTask) -> list[JudgedProgram]:
    """The same as a program each."""
    together = stubs(task)
    return [
        replace(together, code=f"{together.code}\n_chosen = {number}", variants=0)
        for number in range(together.variants)
    ]


class ProgramTestChecker:
    """Says what is wrong with the tests of tasks, and remembers it in a file, so that a second start is quick.

    `cache` is an SQLite file, by default in the user's cache folder; where none can be written, nothing is remembered.
    """

    def __init__(self, sandbox: Bubblewrap, limits: SandboxLimits, cache: Path | None = None) -> None:
        self.sandbox, self.limits = sandbox, limits
        self.patient = replace(limits, seconds=PATIENT * limits.seconds)
        self._known: dict[ProgramTask, str] = {}
        self._file: Database | None = None
        with suppress(OSError, RuntimeError, GroupwiseError):  # RuntimeError: the user has no home
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupwise"
            path = cache or folder / "tests.sqlite"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Database(path, "checked tests", MARK, (TABLE,), lazy=True)

    def faults(self, tasks: Sequence[ProgramTask]) -> list[str]:
        """What is wrong with the tests of each task; empty if they are sound. Raises if a package is missing."""
        asked = [task for task in dict.fromkeys(tasks) if task not in self._known]
        keys = {task: self._key(task) for task in asked}
        self._known |= {task: fault for task in asked if (fault := self._read(keys[task])) is not None}
        self._check([task for task in asked if task not in self._known], keys)
        return [self._known[task] for task in tasks]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _check(self, tasks: Sequence[ProgramTask], keys: dict[ProgramTask, str]) -> None:
        packages: dict[ProgramTask, tuple[str, ...]] = {}
        for task in tasks:
            try:
                packages[task] = read_tests(task.tests, task.tested, task.helpers).packages
            except ConfigError as error:
                self._settle(task, keys[task], error.message)
        for needed in dict.fromkeys(packages.values()):
            mounts(needed)
        # Tasks that need the same packages share sandboxes.
        ordered = sorted(packages, key=packages.__getitem__)
        start = said = time.monotonic()
        for place in range(0, len(ordered), CHUNK):
            chunk = ordered[place : place + CHUNK]
            faults = self._found(chunk)
            for task in chunk:
                self._settle(task, keys[task], faults.get(task, ""))
            now, done = time.monotonic(), place + len(chunk)
            if now - said > PAUSE and done < len(ordered):
                said, left = now, (now - start) / done * (len(ordered) - done)
                logger.warning("checked the tests of %d of %d tasks, about %.0f s left", done, len(ordered), left)

    def _found(self, tasks: Sequence[ProgramTask]) -> dict[ProgramTask, str]:
        """Tasks whose tests are not sound, and why."""
        found, slowest = self._failing_references([task for task in tasks if task.reference])
        found |= self._passing_stubs([task for task in tasks if task not in found])
        brief = replace(self.limits, seconds=min(max(LEAST, TIMES * slowest), self.limits.seconds))
        return found | self._passing_mutants([task for task in tasks if task not in found and task.reference], brief)

    def _failing_references(self, tasks: Sequence[ProgramTask]) -> tuple[dict[ProgramTask, str], float]:
        """Also the seconds of the slowest reference solution."""
        found: dict[ProgramTask, str] = {}
        slowest = 0.0
        for task, ran in self._runs(tasks, [_program(task, task.reference) for task in tasks], self.limits):
            if isinstance(ran, SandboxResult) and ran.outcome is SandboxOutcome.TIMED_OUT:
                ran = self.sandbox.run_programs([_program(task, task.reference)], self.patient)[0]
            if isinstance(ran, ConfigError):
                found[task] = ran.message
            elif not ran.passed:
                late = ran.outcome is SandboxOutcome.TIMED_OUT
                found[task] = TOO_LATE if late else f"its reference solution does not pass: {ran.message}"
            else:
                slowest = max(slowest, ran.seconds)
        return found, slowest

    def _passing_stubs(self, tasks: Sequence[ProgramTask]) -> dict[ProgramTask, str]:
        found: dict[ProgramTask, str] = {}
        for task, ran in self._runs(tasks, [stubs(task) for task in tasks], self.patient):
            if isinstance(ran, SandboxResult) and not ran.passed:  # a stub made the tests hang
                ended = [_ending(one) for one in self.sandbox.run_programs(single_stubs(task), self.limits)]
            else:
                ended = [_ending(ran)] * len(ways(task.tests)) if isinstance(ran, ConfigError) else ran.value
            if fault := _stub_fault(list(ways(task.tests)), ended):
                found[task] = fault
        return found

    def _passing_mutants(self, tasks: Sequence[ProgramTask], limits: SandboxLimits) -> dict[ProgramTask, str]:
        """Tasks of which no mutant fails: one after another is tried until one does."""
        made = {task: list(mutants(task.reference)) for task in tasks}
        left = [task for task in tasks if len(made[task]) >= ENOUGH]
        for number in range(MUTANTS):
            tried = [task for task in left if number < len(made[task])]
            programs = [_program(task, made[task][number]) for task in tried]
            for task, ran in self._runs(tried, programs, limits):
                if isinstance(ran, SandboxResult) and not ran.passed:
                    left.remove(task)
        return {task: f"none of {len(made[task])} wrong versions of its reference solution fails" for task in left}

    def _runs(
        self, tasks: Sequence[ProgramTask], programs: Sequence[JudgedProgram], limits: SandboxLimits
    ) -> Iterator[tuple[ProgramTask, SandboxResult | ConfigError]]:
        return zip(tasks, self.sandbox.run_programs(programs, limits), strict=True)

    def _settle(self, task: ProgramTask, key: str, fault: str) -> None:
        self._known[task] = fault
        if fault == TOO_LATE or self._file is None:
            return
        with suppress(GroupwiseError), self._file.transaction() as link:
            link.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, fault))

    def _read(self, key: str) -> str | None:
        if self._file is None:
            return None
        with suppress(GroupwiseError), self._file.transaction(write=False) as link:
            row = link.execute("SELECT fault FROM verdicts WHERE key = ?", (key,)).fetchone()
            return None if row is None else str(row[0])
        return None

    def _key(self, task: ProgramTask) -> str:
        """What a verdict depends on: the task, the limits, the judge itself and the sandbox's Python."""
        parts = [_judge(), self.sandbox.python, astuple(task), astuple(self.limits)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _program(task: ProgramTask, code: str) -> JudgedProgram:
    return JudgedProgram(code, task.tests, task.tested, task.helpers)


def _ending(ran: SandboxResult | ConfigError) -> tuple[str, str, int]:
    return ("tests", ran.message, 0) if isinstance(ran, ConfigError) else (ran.outcome, ran.message, ran.calls)


def _stub_fault(names: Sequence[str], ended: Sequence[tuple[str, str, int]]) -> str:
    """What is wrong with tests, given how each stub ended: its outcome, a message, and how often it was called."""
    if all(outcome == "timed_out" for outcome, _, _ in ended):
        return TOO_LATE
    for words, (outcome, message, _) in zip(names, ended, strict=True):
        if outcome == "passed":
            return f"a program that {words} passes its tests"
        if outcome == "tests":
            return message if message.startswith("the tests") else f"the tests cannot be run: {message}"
    return "" if any(calls for _, _, calls in ended) else "its tests never call the program"


@cache
def _judge() -> str:
    """A fingerprint of everything that decides about tests."""
    here = Path(__file__)
    files = [here, *sorted((here.parents[1] / "sandbox").rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
