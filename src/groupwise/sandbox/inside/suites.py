"""Tests in the styles of unittest and pytest: after their text has run, what it defined is found and run here."""

from __future__ import annotations

import os
import sys

from groupwise.sandbox.inside.program import finished, words_of
from groupwise.sandbox.inside.remote import CodeProcess, Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FunctionType, ModuleType
    from typing import Any
else:
    FunctionType, ModuleType = type(finished), type(sys)

# Plugins of pytest that need files or a terminal, or that collect garbage after every test.
UNUSED = (
    "cacheprovider", "doctest", "faulthandler", "junitxml", "logging", "pastebin", "stepwise", "terminal",
    "threadexception", "tmpdir", "unraisableexception",
)  # fmt: skip


def prepare() -> None:
    """Make `unittest.main` leave its tests to `run_suites`, which always notices when one fails."""
    unittest = sys.modules.get("unittest")
    if unittest is not None:
        unittest.main = main  # type: ignore[attr-defined]


def main(*_: Any, exit: bool = True, **__: Any) -> Any:
    """In place of `unittest.main`: ends the text of the tests where that would."""
    if exit:
        raise SystemExit(0)
    program = ModuleType("program")
    program.result = sys.modules["unittest"].TestResult()  # type: ignore[attr-defined]
    return program


def run_suites(module: ModuleType, pytest: bool, code: CodeProcess) -> None:
    """Run the tests that a module defines, up to the first that fails, and raise what it raised."""
    if pytest:
        run_pytest(module, code)
        return
    if "unittest" in sys.modules:
        run_cases(module)
    run_functions(module)


def run_cases(module: ModuleType) -> None:
    """Run unittest's test cases."""
    import unittest

    class Watched(unittest.TestResult):
        fault: BaseException | None = None

        def addError(self, test: Any, err: Any) -> None:
            self.fail_with(err[1])

        def addFailure(self, test: Any, err: Any) -> None:
            self.fail_with(err[1])

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            if err is not None:
                self.fail_with(err[1])

        def addUnexpectedSuccess(self, test: Any) -> None:
            self.fail_with(AssertionError("a test that must fail passed"))

        def fail_with(self, fault: BaseException) -> None:
            self.fault = self.fault or fault
            self.stop()

    result = Watched()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    if result.fault is not None:
        raise result.fault


def run_functions(module: ModuleType) -> None:
    """Run functions called test_… and methods of classes called Test…, as far as they need no fixtures."""
    for name, found in list(vars(module).items()):
        if name.startswith("test_") and isinstance(found, FunctionType) and not required(found, 0):
            call(found)
        elif name.startswith("Test") and isinstance(found, type) and not hasattr(found, "failureException"):
            for method, function in list(vars(found).items()):
                if method.startswith("test") and isinstance(function, FunctionType) and not required(function, 1):
                    call(getattr(found(), method))


def required(function: FunctionType, given: int) -> int:
    return function.__code__.co_argcount - len(function.__defaults__ or ()) - given


def call(function: Any) -> None:
    value = function()
    if hasattr(value, "cr_await"):
        finished(value)


def run_pytest(module: ModuleType, code: CodeProcess) -> None:
    """Let pytest collect and run what is in the module, which is not a file."""
    import pytest

    raised: list[BaseException] = []
    others: list[BaseException] = []
    os.chdir = lambda path: None  # pytest returns to the folder where it is, which the filter does not allow
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    unused = [word for name in UNUSED for word in ("-p", f"no:{name}")]
    options = ["-x", "-s", "--rootdir=/", "--import-mode=importlib", *unused]
    status = pytest.main(options, plugins=[plugin(module, code, raised, others)])
    for fault in (raised or others)[:1]:
        if type(fault).__name__ == "FixtureLookupError":
            raise Ended("tests", f"there is no fixture {getattr(fault, 'argname', '')!r}")
        raise fault
    if status not in (0, 5):  # 5: it found no tests, because there are only assertions at the top level
        raise Ended("wrong", f"pytest ended with status {int(status)}")


def plugin(module: ModuleType, code: CodeProcess, raised: list[BaseException], others: list[BaseException]) -> Any:
    """A plugin that gives pytest the module, and collects what tests raise and what else pytest complains of."""
    import pathlib

    import pytest

    class Module(pytest.Module):
        def _getobj(self) -> Any:
            return module

    class Plugin:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection(self, session: Any) -> bool:
            node = Module.from_parent(session, path=pathlib.Path("/tests.py"))
            session.items = list(session.genitems(node))
            session.testscollected = len(session.items)
            return True

        def pytest_exception_interact(self, call: Any, report: Any) -> None:
            if report.when != "collect":  # see below
                raised.append(call.excinfo.value)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                # If parameters come from the code, it is the code's fault.
                outcome = "wrong" if code.calls else "tests"
                others.append(Ended(outcome, f"pytest cannot collect them: {str(report.longrepr)[-300:]}"))

        def pytest_internalerror(self, excinfo: Any) -> None:
            others.append(Ended("wrong", f"pytest failed: {type(excinfo.value).__name__}: {words_of(excinfo.value)}"))

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:  # a strict xfail that passed fails without an exception
                others.append(AssertionError(str(report.longrepr)[-300:]))

    return Plugin()
