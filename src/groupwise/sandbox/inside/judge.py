"""The judge: forks the code before it reads the tests, then runs the tests, and reports."""

from __future__ import annotations

import _signal as signal
import builtins
import resource
import sys
import time

from groupwise.sandbox.fixed_limits import HASHED_INSIDE, TESTS_GRACE, TESTS_MEMORY
from groupwise.sandbox.inside.program import NOTHING, SHARED, line_in, words_of
from groupwise.sandbox.inside.remote import CodeProcess, Ended, RemoteObject
from groupwise.sandbox.inside.suites import prepare, run_suites
from groupwise.sandbox.wire import JOBS, REPORTS, WireError, dumps, loads, read_frame, write_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)

# The function that chooses between several programs in one.
CHOOSE = "choose_variant"


def report(outcome: str, message: str, seconds: float, value: Any = None, stdout: bytes = b"", calls: int = 0) -> None:
    write_frame(REPORTS, dumps((outcome, message, seconds, value, stdout, calls)))


def run_job() -> None:
    """One job, from its first message to its report."""
    job = loads(read_frame(JOBS), hashed=HASHED_INSIDE)
    code = CodeProcess(job)
    resource.setrlimit(resource.RLIMIT_AS, (TESTS_MEMORY, TESTS_MEMORY))
    tests = loads(read_frame(JOBS))  # only now: the code was forked before, so it cannot have them
    # If the tests themselves hang, SIGALRM kills the judge, and with it the code.
    signal.setitimer(signal.ITIMER_REAL, job["seconds"] + TESTS_GRACE)
    outcome, message, value = judged(job, tests, code)
    seconds = time.monotonic() - code.start
    signal.setitimer(signal.ITIMER_REAL, 0)
    stdout = code.close()
    outcome, message = code.ending or (outcome, message)
    try:
        report(outcome, message, seconds, value if outcome == "passed" else None, stdout, code.calls)
    except WireError as error:
        report("wrong", f"the value cannot be used: {error}", seconds, None, stdout)


def judged(job: dict[str, Any], tests: dict[str, Any], code: CodeProcess) -> tuple[str, str, Any]:
    """How the run ended: an outcome, a sentence, and the value."""
    try:
        names = code.started()
        if job["variants"]:
            return "passed", "", [variant(number, tests, names, code, job) for number in range(job["variants"])]
        if tests["text"]:
            run_tests(tests, names, code, job["call"])
        elif job["call"]:
            value = code.ask(("call", job["call"], list(job["inputs"].values()), {}))
            if isinstance(value, RemoteObject):
                raise Ended("wrong", f"the value is a {value._kind}, which is not plain data")
            return "passed", "", value
        return "passed", "", None
    except BaseException as error:
        return (*ending_of_test(error, tests["imports"]), None)


def variant(
    number: int, tests: dict[str, Any], names: dict[str, Any], code: CodeProcess, job: dict[str, Any]
) -> tuple[str, str, int]:
    """How the tests end for one of several programs in one: the outcome, a sentence, and how often they called it.

    The programs are our own, so they may share a process; `CHOOSE`, which they define, switches between them.
    """
    code.ask(("call", CHOOSE, [number], {}))
    code.calls = 0
    try:
        run_tests(tests, names, code, job["call"])
        return "passed", "", code.calls
    except BaseException as error:
        if code.ending:
            raise
        return (*ending_of_test(error, tests["imports"]), code.calls)


class Solution(ModuleType):
    """The module that tests may import the program from.

    `from solution import *` takes nothing that the tests have under that name already: the code could define `unittest`
    or `isclose`, and would be judged by its own.
    """

    def __init__(self, tests: ModuleType, tested: str) -> None:
        super().__init__("solution")
        self._tests, self._tested = tests, tested

    @property
    def __all__(self) -> list[str]:
        held = vars(self._tests)
        return [
            name
            for name, found in vars(self).items()
            if not name.startswith("_") and (name == self._tested or held.get(name, found) is found)
        ]


def run_tests(tests: dict[str, Any], names: dict[str, Any], code: CodeProcess, tested: str) -> None:
    """Run the tests in a module where calls to what the code defined go to the code's process."""
    try:
        compiled = compile(tests["text"], "<tests>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Ended("tests", f"{type(error).__name__}: {error}") from None
    # Both may be imported by the tests; unittest looks for test cases in `__main__`.
    module = ModuleType("__main__")
    solution = Solution(module, tested)
    sys.modules.update(solution=solution, __main__=module)
    sys.argv[:] = ["tests"]
    given = given_names(tests["text"], names, code, tested)
    given.update(helper_names(tests["helpers"], given, tested))
    vars(solution).update(given)
    vars(module).update(given)
    prepare()
    try:
        exec(compiled, vars(module))
    except SystemExit as left:
        if left.code:
            raise Ended("wrong", f"the tests exited with status {left.code!r:.60}") from None
    # Only what the tests defined themselves: the code could define `load_tests` or `pytest_generate_tests`.
    own = sys.modules["__main__"] = ModuleType("__main__")
    vars(own).update({name: found for name, found in vars(module).items() if found is not given.get(name, NOTHING)})
    run_suites(own, tests["pytest"], code)
    if not code.calls and not code.shares:
        raise Ended("wrong", "the tests passed without calling the program")


def given_names(text: str, names: dict[str, Any], code: CodeProcess, tested: str) -> dict[str, Any]:
    """What the tests may use of the code.

    A built-in name stays Python's unless it is the one being tested: tests that say `abs` do not mean the code's `abs`,
    and those that say `math.isclose` mean the module. What the code imported under another name is called over there.
    """
    given: dict[str, Any] = {}
    for name, (kind, what) in names.items():
        if name.startswith("__") or (hasattr(builtins, name) and name != tested):
            continue
        if name in SHARED and (f"{name}." in text or f"{name} ." in text):
            kind, what = "shared", (name, "")
        if kind == "plain":
            given[name] = what
        elif kind == "callable" or what[1] not in ("", name):
            given[name] = code.remote(name, "function")
        elif (found := shared(*what)) is not None:
            given[name] = found
            code.lent = code.lent or name not in SHARED  # a function of the code's choosing: see `CodeProcess.lent`
            # `from math import gcd` is a program too, although it is not called over there.
            code.shares = code.shares or (name == tested if tested else f"{name}(" in text)
    return given


def helper_names(helpers: str, given: dict[str, Any], tested: str) -> dict[str, Any]:
    """What the prompt's helpers define, made here: the code cannot change what the tests use."""
    space = {**given, "__name__": "helpers"}
    try:
        exec(compile(helpers, "<helpers>", "exec", dont_inherit=True), space)
    except Exception as error:
        if hasattr(error, "of_code"):  # a constant that calls the function under test
            raise
        raise Ended("tests", f"the helpers in the prompt raise {type(error).__name__}: {words_of(error)}") from None
    names = {name: found for name, found in space.items() if name not in given or found is not given[name]}
    return {name: found for name, found in names.items() if not name.startswith("__") and name != tested}


def shared(module: str, name: str) -> Any:
    """A module that the code imported, or something in it; only modules in SHARED, whatever the code claims."""
    if module not in SHARED or name.startswith("_") or (module == "sys" and name):
        return None
    imported = __import__(module)
    return getattr(imported, name, None) if name else imported


def ending_of_test(error: BaseException, imports: list[str]) -> tuple[str, str]:
    """What a test's error says about the code, or about the tests."""
    if isinstance(error, Ended):
        return error.outcome, error.message
    if hasattr(error, "of_code"):
        return error.of_code[0], error.of_code[1]
    message = f"{type(error).__name__}: {words_of(error)}"
    if isinstance(error, ImportError) and str(error.name).partition(".")[0] in imports:
        return "tests", message
    line = line_in("<tests>", error)
    place = f" (line {line} of the tests)" if line else ""
    if isinstance(error, AssertionError):
        return "wrong", (f"{message}{place}" if words_of(error) else f"a test failed{place}")
    return "wrong", f"a test cannot use the value: {message}{place}"
