"""The judge: forks the code before it reads the tests, then runs the tests, and reports."""

from __future__ import annotations

import _signal as signal
import builtins
import resource
import time

from groupwise.sandbox.fixed_limits import HASHED_INSIDE, TESTS_GRACE, TESTS_MEMORY
from groupwise.sandbox.inside.program import SHARED, line_in, words_of
from groupwise.sandbox.inside.remote import CodeProcess, Ended, RemoteObject
from groupwise.sandbox.wire import JOBS, REPORTS, WireError, dumps, loads, read_frame, write_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def report(outcome: str, message: str, seconds: float, value: Any = None, stdout: bytes = b"") -> None:
    write_frame(REPORTS, dumps((outcome, message, seconds, value, stdout)))


def run_job() -> None:
    """One job, from its first message to its report."""
    job = loads(read_frame(JOBS), hashed=HASHED_INSIDE)
    code = CodeProcess(job)
    resource.setrlimit(resource.RLIMIT_AS, (TESTS_MEMORY, TESTS_MEMORY))
    tests = loads(read_frame(JOBS))  # only now: the code was forked before, so it cannot have them
    # If the tests themselves hang, SIGALRM kills the judge, and with it the code.
    signal.setitimer(signal.ITIMER_REAL, job["seconds"] + TESTS_GRACE)
    value = None
    try:
        names = code.started()
        if tests:
            run_tests(tests, names, code, job["call"])
        elif job["call"]:
            value = code.ask(("call", job["call"], list(job["inputs"].values()), {}))
            if isinstance(value, RemoteObject):
                raise Ended("wrong", f"the value is a {value._kind}, which is not plain data")
        outcome, message = "passed", ""
    except Ended as ended:
        outcome, message = ended.outcome, ended.message
    except BaseException as error:
        outcome, message = ending_of_test(error)
    seconds = time.monotonic() - code.start
    signal.setitimer(signal.ITIMER_REAL, 0)
    stdout = code.close()
    outcome, message = code.ending or (outcome, message)
    try:
        report(outcome, message, seconds, value if outcome == "passed" else None, stdout)
    except WireError as error:
        report("wrong", f"the value cannot be used: {error}", seconds, None, stdout)


def run_tests(tests: str, names: dict[str, Any], code: CodeProcess, tested: str) -> None:
    """Run the tests in a namespace where calls to what the code defined go to the code's process.

    A built-in name stays Python's unless it is the one being tested: tests that say `abs` do not mean the code's `abs`,
    and those that say `math.isclose` mean the module. What the code imported under another name is called over there.
    """
    try:
        compiled = compile(tests, "<tests>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Ended("tests", f"{type(error).__name__}: {error}") from None
    space: dict[str, Any] = {"__name__": "tests"}
    for name, (kind, what) in names.items():
        if name.startswith("__") or (hasattr(builtins, name) and name != tested):
            continue
        if name in SHARED and (f"{name}." in tests or f"{name} ." in tests):
            kind, what = "shared", (name, "")
        if kind == "plain":
            space[name] = what
        elif kind == "callable" or what[1] not in ("", name):
            space[name] = code.remote(name, "function")
        elif (found := shared(*what)) is not None:
            space[name] = found
            code.lent = code.lent or name not in SHARED  # a function of the code's choosing: see `CodeProcess.lent`
    exec(compiled, space)


def shared(module: str, name: str) -> Any:
    """A module that the code imported, or something in it; only modules in SHARED, whatever the code claims."""
    if module not in SHARED or name.startswith("_") or (module == "sys" and name):
        return None
    imported = __import__(module)
    return getattr(imported, name, None) if name else imported


def ending_of_test(error: BaseException) -> tuple[str, str]:
    """What a test's error says about the code."""
    if hasattr(error, "of_code"):
        return error.of_code[0], error.of_code[1]
    message = f"{type(error).__name__}: {words_of(error)}"
    line = line_in("<tests>", error)
    place = f" (line {line} of the tests)" if line else ""
    if isinstance(error, AssertionError):
        return "wrong", (f"{message}{place}" if words_of(error) else f"a test failed{place}")
    return "wrong", f"a test cannot use the value: {message}{place}"
