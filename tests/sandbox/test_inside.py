"""What runs inside a sandbox, each part on its own: what the judge believes, and what it says."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from groupwise.sandbox import fixed_limits, wire
from groupwise.sandbox.inside.dispatcher import Nowhere, unreported
from groupwise.sandbox.inside.judge import ending_of_test, given_names, helper_names, shared
from groupwise.sandbox.inside.program import (
    answer,
    definitions,
    done,
    ending_of,
    finished,
    helped,
    line_in,
    words_of,
)
from groupwise.sandbox.inside.remote import CodeProcess, Ended, RemoteObject, failure, take_over
from groupwise.sandbox.inside.suites import required, run_cases, run_functions


def defined(code: Any, **given: Any) -> dict[str, Any]:
    """What code of these tests defines."""
    exec(code, given)  # noqa: S102
    return given


def raised(code: str, name: str = "<code>") -> BaseException:
    try:
        defined(compile(code, name, "exec"))
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


class OddWords(Exception):
    def __str__(self) -> str:
        raise ValueError


# What the code says of itself.


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("x = 1\n1 / 0", ("raised", "ZeroDivisionError", "ZeroDivisionError: division by zero (line 2)")),
        ("raise ValueError", ("raised", "ValueError", "ValueError (line 1)")),
        ("assert False, 'no'", ("wrong", "AssertionError", "AssertionError: no (line 1)")),
        ("raise MemoryError", ("memory", "MemoryError", "MemoryError (line 1)")),
        ("raise PermissionError('no')", ("forbidden", "PermissionError", "PermissionError: no (line 1)")),
        ("raise OSError(5, 'x')", ("forbidden", "OSError", "OSError: [Errno 5] x (line 1)")),
        ("raise TimeoutError('mine')", ("raised", "TimeoutError", "TimeoutError: mine (line 1)")),
        ("\n\ndef f(:", ("raised", "SyntaxError", "SyntaxError: invalid syntax (line 3)")),
        ("def f():\n    1 / 0\nf()", ("raised", "ZeroDivisionError", "ZeroDivisionError: division by zero (line 2)")),
        ("raise SystemExit(3)", ("raised", "SystemExit", "SystemExit: 3 (line 1)")),
    ],
)
def test_an_exception_of_the_code_has_an_outcome_and_a_sentence(code: str, ending: tuple[str, str, str]) -> None:
    assert ending_of(raised(code)) == ending
    assert ending_of(KeyError("x")) == ("raised", "KeyError", "KeyError: 'x'"), "a line only where there is one"


def test_lines_and_words_of_an_error() -> None:
    error = raised("def f():\n    1 / 0\n\nf()")
    assert (line_in("<code>", error), line_in("<tests>", error)) == (2, 0)
    assert words_of(OddWords()) == ""
    assert words_of(ValueError("x" * 1000)) == "x" * fixed_limits.WORDS == "x" * 400


def test_definitions_are_callables_plain_data_and_shared_imports() -> None:
    imports = "import math, os, random as r\nfrom math import gcd as divisor\nfrom json import loads\n"
    imports += "from collections import Counter\n"
    own = "def f(): pass\nclass A: pass\nvalue = [1]\nodd = A()\nbig = object()\nshuffle = r.Random().shuffle"
    assert definitions(defined(imports + own, __name__="solution", __secret=1, _own=2)) == {
        "_own": ("plain", 2), "math": ("shared", ("math", "")), "os": ("shared", ("os", "")),
        "r": ("shared", ("random", "")), "divisor": ("shared", ("math", "gcd")),
        "Counter": ("shared", ("collections", "Counter")), "f": ("callable", ""), "A": ("callable", ""),
        "loads": ("callable", ""),
        "value": ("plain", [1]), "shuffle": ("callable", ""),
    }  # fmt: skip


class Liar:
    """A callable that says it is a function of a shared module."""

    __module__, __name__ = "math", "gcd"

    def __call__(self) -> int:
        return 1


def test_what_only_claims_to_be_of_a_module_is_called_over_there() -> None:
    assert definitions({"gcd": Liar(), "sqrt": math.sqrt}) == {
        "gcd": ("callable", ""),
        "sqrt": ("shared", ("math", "sqrt")),
    }


def asked(what: str, target: Any, args: list[Any], kept: list[Any], space: dict[str, Any], **named: Any) -> Any:
    def keep(value: Any) -> tuple[int, str]:
        kept.append(value)
        return len(kept) - 1, type(value).__name__

    return answer(wire.dumps((what, target, args, named), keep), space, kept, keep)


def test_a_call_returns_its_value_and_the_arguments_it_changed() -> None:
    space: dict[str, Any] = {
        "sort": lambda values, other: values.sort(),
        "pop": lambda ages, names: (ages.pop("a"), names.discard("a")),
        "add": lambda a, b=1: a + b,
    }
    assert asked("call", "sort", [[3, 1], [9, 8]], [], space) == (None, {0: [1, 3]})
    assert asked("call", "pop", [{"a": 1, "b": 2}, {"a", "b"}], [], space) == ((1, None), {0: {"b": 2}, 1: {"b"}})
    assert asked("call", "add", [2], [], space, b=5) == (7, {})
    with pytest.raises(NameError, match="name 'nothing' is not defined"):
        asked("call", "nothing", [], [], space)


def test_objects_that_stayed_are_asked_by_their_number() -> None:
    kept: list[Any] = [[10, 20], iter([1]), type("Box", (), {"value": 7})()]
    assert asked("item", 0, [1], kept, {}) == (20, {})
    assert asked("length", 0, [], kept, {}) == (2, {})
    assert asked("truth", 0, [], kept, {}) == (True, {})
    assert asked("text", 0, [], kept, {}) == ("[10, 20]", {})
    assert asked("attribute", 2, ["value"], kept, {}) == (7, {})
    assert asked("change", 2, ["value", 8], kept, {}) == (None, {})
    assert kept[2].value == 8
    assert [asked("next", 1, [], kept, {})[0] for _ in range(2)] == [[1], []]
    assert list(asked("iterate", 0, [], kept, {})[0]) == [10, 20]
    assert asked("find", "f", [], kept, {"f": 5})[0] == 5


def test_a_coroutine_is_run_to_its_end() -> None:
    async def inner(x: int) -> int:
        return x + 1

    async def outer(x: int) -> int:
        return await inner(x) * 2

    assert finished(outer(3)) == 8
    assert done("call", outer, [3], {}) == 8
    assert done("call", lambda x, y: [x, y], [1], {"y": 2}) == [1, 2]


def test_helpers_run_first_and_their_classes_are_kept() -> None:
    space: dict[str, Any] = {"__name__": "solution"}
    found = helped(
        "import collections\nKEY = 3\nclass Box: pass\ndef f(): return KEY\nOther = collections.Counter", space
    )
    assert list(found) == ["Box"]
    assert space["f"]() == 3
    broken: dict[str, Any] = {"__name__": "solution"}
    assert list(helped("class A: pass\n1 / 0", broken)) == ["A"]


# What the judge believes of it.


@pytest.mark.parametrize("outcome", ["wrong", "raised", "memory", "forbidden", "passed", "tests", "timed_out", ""])
def test_the_code_may_only_claim_to_have_failed(outcome: str) -> None:
    believed = outcome if outcome in ("wrong", "raised", "memory", "forbidden") else "raised"
    assert failure((outcome, "ValueError", "words")) == (believed, "ValueError", "words")


def test_a_malformed_failure_is_one_of_the_code_and_words_are_cut() -> None:
    malformed = ("raised", "", "the code sent a malformed answer")
    for said in (
        None,
        "wrong",
        ("wrong", "a"),
        ("wrong", "a", 3),
        ["wrong", "a", "b"],
        ("wrong", "a", "b", "c"),
        (1, 2, 3),
    ):
        assert failure(said) == malformed
    assert failure(("wrong", "n" * 999, "m" * 999)) == ("wrong", "n" * 400, "m" * 400)


@pytest.mark.parametrize(
    ("argument", "place", "changed", "left"),
    [
        ([1], 0, [2, 3], [2, 3]), ({"a": 1}, 0, {"b": 2}, {"b": 2}), ({1}, 0, {2}, {2}), ([1], 0, {2}, [1]),
        ([1], 0, (2,), [1]), ({"a": 1}, 0, [("b", 2)], {"a": 1}), ({1}, 0, [2], {1}), ((1,), 0, [2], (1,)),
        ([1], 1, [2], [1]), ([1], -1, [2], [1]), ([1], "0", [2], [1]), ("a", 0, ["b"], "a"),
        ((1,), 0, (2,), (1,)), ("a", 0, "b", "a"),
    ],
)  # fmt: skip
def test_only_a_change_of_the_same_kind_is_taken_over(argument: Any, place: Any, changed: Any, left: Any) -> None:
    arguments = [argument]
    take_over(arguments, place, changed)
    assert arguments == [left]
    assert arguments[0] is argument


def test_the_change_belongs_to_its_own_argument() -> None:
    first, second = [1], [2]
    take_over([first, second], 1, [3])
    assert (first, second) == ([1], [3])


class Told:
    """The code's process as far as names are concerned, and a note of what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.calls, self.shares, self.lent = 0, False, False
        self.questions: list[Any] = []
        self.answers = list(answers)

    def remote(self, number: Any, kind: str) -> tuple[str, Any]:
        return ("over there", number)

    def ask(self, request: Any) -> Any:
        self.questions.append(request)
        return self.answers.pop(0)


def names_given(text: str, tested: str = "", **names: Any) -> tuple[dict[str, Any], Told]:
    code: Any = Told()
    return given_names(text, names, code, tested), code


def test_names_of_the_code_are_plain_data_or_called_over_there() -> None:
    given, code = names_given("f(LIMIT)", f=("callable", ""), LIMIT=("plain", 3), __builtins__=("plain", {}))
    assert given == {"f": ("over there", "f"), "LIMIT": 3}
    assert (code.lent, code.shares) == (False, False)


def test_a_built_in_name_stays_pythons_unless_it_is_tested() -> None:
    assert names_given("abs(f(1))", abs=("callable", ""), f=("callable", ""))[0] == {"f": ("over there", "f")}
    assert names_given("abs(1)", "abs", abs=("callable", ""))[0] == {"abs": ("over there", "abs")}


def test_a_module_that_the_tests_use_is_the_real_one() -> None:
    for claim in (("callable", ""), ("plain", 3), ("shared", ("cmath", ""))):
        assert names_given("math.isclose(f(1), 2)", math=claim)[0] == {"math": math}
    assert names_given("math . isclose(1, 2)", math=("plain", 3))[0] == {"math": math}
    assert names_given("f(math)", math=("plain", 3))[0] == {"math": 3}


def test_a_function_imported_under_its_own_name_is_shared_and_counts_as_the_program_if_tested() -> None:
    given, code = names_given("assert gcd(4, 6) == 2", gcd=("shared", ("math", "gcd")))
    assert (given, code.shares, code.lent) == ({"gcd": math.gcd}, True, True)
    assert not names_given("assert f(gcd)", gcd=("shared", ("math", "gcd")))[1].shares
    assert names_given("f(gcd)", "gcd", gcd=("shared", ("math", "gcd")))[1].shares
    assert not names_given("gcd(1, 2)", "f", gcd=("shared", ("math", "gcd")))[1].shares
    assert names_given("d(4, 6)", d=("shared", ("math", "gcd")))[0] == {"d": ("over there", "d")}
    modules, code = names_given("m", random=("shared", ("random", "")), m=("shared", ("math", "")))
    assert modules == {"random": random, "m": math}
    assert code.lent, "a module under another name is the code's choice"
    assert not names_given("random.random()", random=("shared", ("random", "")))[1].lent
    assert names_given("f(1)", f=("shared", ("os", "_exit")), g=("shared", ("os", "g")))[0] == {
        "f": ("over there", "f")
    }


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        ("math", "", math), ("math", "gcd", math.gcd), ("sys", "", sys), ("sys", "settrace", None), ("os", "", None),
        ("os", "_exit", None), ("collections", "Counter", collections.Counter), ("collections", "_sys", None),
        ("math", "nothing", None), ("subprocess", "", None), ("builtins", "eval", None),
    ],
)  # fmt: skip
def test_only_harmless_modules_are_shared(module: str, name: str, found: Any) -> None:
    assert shared(module, name) is found


def test_helpers_are_made_beside_the_tests_and_not_taken_from_the_code() -> None:
    given = {"f": len, "KEY": 0}
    found = helper_names("KEY = 3\ndef encode(x): return x + KEY\ndef f(x): return x", given, "f")
    assert (found["KEY"], found["encode"](1)) == (3, 4)
    assert set(found) == {"KEY", "encode"}, "the function under test is the code's"
    assert helper_names("", given, "") == {}
    with pytest.raises(Ended) as ended:
        helper_names("1 / 0", {}, "")
    assert ended.value.outcome == "tests"


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (Ended("memory", "much"), ("memory", "much")),
        (raised("assert 1 == 2", "<tests>"), ("wrong", "a test failed (line 1 of the tests)")),
        (raised("\nassert 0, 'no'", "<tests>"), ("wrong", "AssertionError: no (line 2 of the tests)")),
        (raised("1 / 0", "<tests>"),
         ("wrong", "a test cannot use the value: ZeroDivisionError: division by zero (line 1 of the tests)")),
        (raised("1 / 0"), ("wrong", "a test cannot use the value: ZeroDivisionError: division by zero")),
        (ModuleNotFoundError("No module", name="numpy.odd"), ("tests", "ModuleNotFoundError: No module")),
        (ModuleNotFoundError("No module", name="other"),
         ("wrong", "a test cannot use the value: ModuleNotFoundError: No module")),
    ],
)  # fmt: skip
def test_a_tests_error_says_something_about_the_code_or_about_the_tests(
    error: BaseException, ending: tuple[str, str]
) -> None:
    assert ending_of_test(error, ["numpy"]) == ending
    error.of_code = ("raised", "theirs")  # type: ignore[attr-defined]
    assert ending_of_test(error, []) == (("memory", "much") if isinstance(error, Ended) else ("raised", "theirs"))


def test_a_remote_object_asks_and_never_compares_equal() -> None:
    code: Any = Told(1, 2, None, 5, 0, "text", [3], [])
    thing: Any = RemoteObject(code, 4, "Node")
    assert (thing(1, k=2), thing.value) == (1, 2)
    thing.value = 9
    assert (len(thing), bool(thing), str(thing), repr(thing)) == (5, False, "text", "<Node>")
    assert code.questions == [
        ("call", 4, [1], {"k": 2}), ("attribute", 4, ["value"], {}), ("change", 4, ["value", 9], {}),
        ("length", 4, [], {}), ("truth", 4, [], {}), ("text", 4, [], {}),
    ]  # fmt: skip
    with pytest.raises(AttributeError):
        thing._private  # noqa: B018
    assert thing != RemoteObject(code, 4, "Node")
    walked: Any = Told(RemoteObject(code, 6, "iterator"), [10], [20], [])
    assert [*map(int, RemoteObject(walked, 5, "range"))] == [10, 20]
    assert [question[:2] for question in walked.questions] == [("iterate", 5), ("next", 6), ("next", 6), ("next", 6)]


# Which tests are run.


def module_of(text: str) -> tuple[ModuleType, list[str]]:
    """A module of tests, and the list of those that were run."""
    module, ran = ModuleType("__main__"), list[str]()
    vars(module).update(defined(text, ran=ran))
    return module, ran


def test_test_functions_and_methods_are_run_where_they_need_nothing() -> None:
    module, ran = module_of("""
def test_a(): ran.append("a")
def test_default(x=1): ran.append(f"default {x}")
def test_fixture(x): ran.append("never")
def helper(): ran.append("never")
async def test_later(): ran.append("later")
test_value = 3
class TestThings:
    def test_b(self): ran.append("b")
    def testc(self, x=2): ran.append(f"c {x}")
    def test_fixture(self, x): ran.append("never")
    def helper(self): ran.append("never")
class Things:
    def test_d(self): ran.append("never")
""")
    run_functions(module)
    assert ran == ["a", "default 1", "later", "b", "c 2"]


def test_cases_of_unittest_are_run_up_to_the_first_that_fails() -> None:
    module, ran = module_of("""
import unittest
class A(unittest.TestCase):
    def setUp(self): ran.append("set up")
    def test_1(self): ran.append("1")
    def test_2(self): self.assertEqual(1, 2)
    def test_3(self): ran.append("3")
""")
    with pytest.raises(AssertionError, match="1 != 2"):
        run_cases(module)
    assert ran == ["set up", "1", "set up"]
    for body in ("raise KeyError('k')", "self.fail('f')"):
        with pytest.raises((KeyError, AssertionError)):
            run_cases(module_of(f"import unittest\nclass A(unittest.TestCase):\n    def test_1(self): {body}")[0])
    surprise = "import unittest\nclass A(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_1(self): pass"
    with pytest.raises(AssertionError, match="a test that must fail passed"):
        run_cases(module_of(surprise)[0])
    part = (
        "import unittest\nclass A(unittest.TestCase):\n    def test_1(self):\n        for x in (1, 2):\n"
        "            with self.subTest(x=x): self.assertEqual(x, 1)"
    )
    with pytest.raises(AssertionError, match="2 != 1"):
        run_cases(module_of(part)[0])


def test_arguments_that_nobody_gives_are_required() -> None:
    space = defined("def none(): pass\ndef one(x): pass\ndef usual(x, y=1): pass\ndef method(self, x): pass")
    assert [required(space[name], 0) for name in ("none", "one", "usual", "method")] == [0, 1, 1, 2]
    assert required(space["method"], 1) == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(0, "tests"), (3 << 8, "tests"), (int(signal.SIGALRM), "timed_out"), (int(signal.SIGKILL), "wrong")],
)
def test_a_judge_that_ends_without_a_report_says_why(status: int, outcome: str) -> None:
    assert unreported(status)[0] == outcome
    assert ("signal 9" in unreported(status)[1]) is (status == signal.SIGKILL)


def test_what_tests_print_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    nowhere: Any = Nowhere()
    print("words", file=nowhere, flush=True)
    assert nowhere.write("four") == 4
    assert capfd.readouterr() == ("", "")


# The code's process as the judge sees it, with this test at the other end of its pipes.


class Puppet(CodeProcess):
    """A code's process that is no process: the test writes what the code would."""

    def __init__(self, seconds: float = 3600.0, output: int = 100) -> None:
        self.start = time.monotonic()
        self.deadline = self.start + seconds
        self.room, self.output, self.ending = output, [], None
        self.calls, self.shares, self.lent, self._status = 0, False, False, 0
        self._mark = wire.UNASKED
        self.reading, self._requests = os.pipe()
        self._replies, self.replying = os.pipe()
        self._out, self.out = os.pipe()
        self._err, self.err = os.pipe()
        self._open = {self._replies, self._out, self._err}
        self.marks: list[bytes] = []

    def says(self, kind: str, value: Any, mark: bytes | None = None) -> None:
        wire.write_frame(self.replying, (self._mark if mark is None else mark) + wire.dumps((kind, value)))

    def serve(self, *answers: tuple[str, Any]) -> threading.Thread:
        """Answer as many questions, with the mark of each."""

        def serve() -> None:
            for kind, value in answers:
                self.marks.append(wire.read_frame(self.reading)[: wire.MARK])
                self.says(kind, value, self.marks[-1])

        thread = threading.Thread(target=serve)
        thread.start()
        return thread

    def shut(self) -> None:
        for fd in (self.reading, self._requests, self._replies, self._out, self.out, self._err, self.err):
            os.close(fd)


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    made = Puppet()
    yield made
    made.shut()
    with contextlib.suppress(OSError):
        os.close(made.replying)


def ended(work: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Ended) as caught:
        work()
    return caught.value.outcome, caught.value.message


def test_every_question_has_a_mark_of_its_own(puppet: Puppet) -> None:
    thread = puppet.serve(*[("value", (n, {})) for n in range(4)])
    assert [puppet.ask(("call", "f", [n], {})) for n in range(4)] == [0, 1, 2, 3]
    thread.join()
    assert len({*puppet.marks, wire.UNASKED}) == 5
    assert {len(mark) for mark in puppet.marks} == {8}
    assert puppet.calls == 4


def test_an_answer_given_in_advance_is_refused(puppet: Puppet) -> None:
    thread = puppet.serve(("value", (1, {})))
    assert puppet.ask(("call", "f", [], {})) == 1
    thread.join()
    puppet.says("value", (2, {}))
    refused = ("wrong", "the code answered a question that was not asked")
    assert ended(lambda: puppet.ask(("call", "f", [], {}))) == refused
    # Tests that catch everything cannot change how it ended.
    assert ended(lambda: puppet.ask(("call", "f", [], {}))) == refused
    puppet.end("raised", "later")
    assert puppet.ending == refused


@pytest.mark.parametrize(
    ("said", "error", "of_code"),
    [
        (("wrong", "AssertionError", "no"), AssertionError, ("wrong", "no")),
        (("raised", "KeyError", "gone"), KeyError, ("raised", "gone")),
        (("passed", "ValueError", "x"), ValueError, ("raised", "x")),
        (("raised", "StopIteration", "x"), RuntimeError, ("raised", "x")),
        (("raised", "StopAsyncIteration", "x"), RuntimeError, ("raised", "x")),
        (("raised", "Own", "x"), RuntimeError, ("raised", "x")),
        (("raised", "SystemExit", "x"), RuntimeError, ("raised", "x")),
        (("raised", "KeyboardInterrupt", "x"), RuntimeError, ("raised", "x")),
        (("raised", "print", "x"), RuntimeError, ("raised", "x")),
        (("raised", "UnicodeDecodeError", "x"), RuntimeError, ("raised", "x")),
        ("nonsense", RuntimeError, ("raised", "the code sent a malformed answer")),
    ],
)
def test_an_exception_of_the_code_is_raised_as_a_built_in_one_that_ends_no_loop(
    puppet: Puppet, said: Any, error: type[Exception], of_code: tuple[str, str]
) -> None:
    puppet.says("raised", said)
    with pytest.raises(error) as caught:
        puppet.answer()
    assert type(caught.value) is error
    assert caught.value.of_code == of_code  # type: ignore[attr-defined]
    assert puppet.ending is None, "the tests may expect it"


def test_a_code_that_ended_says_how_as_far_as_it_may(puppet: Puppet) -> None:
    puppet.says("ended", ("memory", "MemoryError", "much"))
    assert ended(puppet.answer) == ("memory", "much")
    puppet.ending = None
    puppet.says("ended", ("passed", "", "it passed"))
    assert ended(puppet.answer) == ("raised", "it passed")


def test_a_malformed_answer_ends_the_run(puppet: Puppet) -> None:
    malformed = ("raised", "the code sent a malformed answer")
    puppet.says("value", [1])
    assert ended(puppet.started) == malformed
    for given in (1, (1,), (1, []), (1, {}, 2), [1, {}]):
        puppet.ending = None
        thread = puppet.serve(("value", given))
        assert ended(lambda: puppet.ask(("call", "f", [], {}))) == malformed
        thread.join()
    puppet.ending = None
    wire.write_frame(puppet.replying, puppet._mark + b"nonsense")
    assert ended(puppet.answer)[0] == "wrong"


def test_arguments_that_the_code_changed_are_changed_here_and_only_calls_are_counted(puppet: Puppet) -> None:
    values, ages = [3, 1], {"a": 1}
    thread = puppet.serve(("value", (None, {0: [1, 3], 1: {"b": 2}, 7: [0]})), ("value", (5, {})))
    puppet.ask(("call", "f", [values, ages], {}))
    assert puppet.ask(("attribute", 0, ["x"], {})) == 5
    thread.join()
    assert (values, ages, puppet.calls) == ([1, 3], {"b": 2}, 1)


@pytest.mark.parametrize(("printed", "over"), [(99, False), (100, False), (101, True)])
@pytest.mark.parametrize("stream", ["out", "err"])
def test_output_counts_up_to_its_limit(puppet: Puppet, printed: int, over: bool, stream: str) -> None:
    os.write(getattr(puppet, stream), b"x" * printed)
    puppet.says("value", {"f": 1})
    if over:
        assert ended(puppet.started) == ("memory", "it exceeded its output limit")
    else:
        assert puppet.started() == {"f": 1}
    assert puppet.close() == (b"x" * min(printed, 100) if stream == "out" else b"")


def test_what_was_printed_last_is_still_read_at_the_end(puppet: Puppet) -> None:
    os.write(puppet.out, b"first ")
    puppet.says("value", {})
    puppet.started()
    os.write(puppet.out, b"last")
    assert puppet.close() == b"first last"


def test_a_process_that_is_silent_past_its_deadline_has_timed_out() -> None:
    late = Puppet(seconds=0.0)
    late.says("value", {})
    assert ended(late.started) == ("timed_out", "it ran longer than its limit")
    late.shut()
    os.close(late.replying)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (0, ("raised", "the program ended its process with status 0")),
        (3 << 8, ("raised", "the program ended its process with status 3")),
        (int(signal.SIGXCPU), ("timed_out", "it used more processor time than its limit")),
        (int(signal.SIGSYS), ("forbidden", "it made a system call that kills the process")),
        (int(signal.SIGSEGV), ("raised", "the process was killed by signal 11")),
    ],
)
def test_a_process_that_left_says_how_by_its_status(puppet: Puppet, status: int, ending: tuple[str, str]) -> None:
    puppet._status = status
    os.close(puppet.replying)
    assert ended(puppet.started) == ending


def test_a_message_larger_than_allowed_is_not_waited_for(puppet: Puppet) -> None:
    os.write(puppet.replying, (fixed_limits.FRAME + 1).to_bytes(4, "big"))
    assert ended(puppet.started) == ("memory", "an answer is larger than 8 MB")


@pytest.mark.parametrize(("lent", "outcome"), [(False, "tests"), (True, "wrong")])
def test_only_plain_data_and_the_codes_own_objects_are_passed_to_it(puppet: Puppet, lent: bool, outcome: str) -> None:
    assert puppet._known(puppet.remote(4, "Node")) == (4, "Node")
    puppet.lent = lent
    assert ended(lambda: puppet.ask(("call", "f", [object()], {})))[0] == outcome


def test_an_answer_that_arrives_byte_by_byte_is_read_whole(puppet: Puppet) -> None:
    value = {"f": "x" * 300}  # more than one byte of its length is not zero
    frame = puppet._mark + wire.dumps(("value", value))

    def trickle() -> None:
        for byte in len(frame).to_bytes(4, "big") + frame:
            os.write(puppet.replying, bytes([byte]))
            while select.select([puppet._replies], [], [], 0)[0]:  # until it was read by itself
                os.sched_yield()

    thread = threading.Thread(target=trickle)
    thread.start()
    assert puppet.started() == value
    thread.join()


def test_of_what_is_printed_beyond_the_limit_nothing_is_kept(puppet: Puppet) -> None:
    os.write(puppet.out, b"x" * 60)
    os.write(puppet.err, b"e" * 30)
    puppet.says("value", {})
    puppet.started()
    os.write(puppet.out, b"y" * 20)
    puppet.says("value", {})
    assert ended(puppet.answer) == ("memory", "it exceeded its output limit"), "both streams count"
    os.write(puppet.out, b"z" * 50)
    assert puppet.close() == b"x" * 60 + b"y" * 10
    assert puppet.ending == ("memory", "it exceeded its output limit")


def test_a_function_of_the_code_is_passed_back_by_the_number_it_has_there(puppet: Puppet) -> None:
    kept = [object()]
    mark: list[bytes] = []

    def over_there() -> None:
        """It is asked for the object of that name first, and then called with it."""
        for answer_ in ((kept[0], {}), (5, {})):
            frame = wire.read_frame(puppet.reading)
            mark.append(frame)
            data = wire.dumps(("value", answer_), lambda value: (7, "function"))
            wire.write_frame(puppet.replying, frame[: wire.MARK] + data)

    thread = threading.Thread(target=over_there)
    thread.start()
    assert puppet._known(puppet.remote("f", "function")) == (7, "function")
    assert puppet.ask(("call", "g", [puppet.remote(3, "Node")], {})) == 5
    thread.join()
    first, second = (wire.loads(frame[wire.MARK :], lambda number, name: (number, name)) for frame in mark)
    assert first == ("find", "f", [], {})
    assert second == ("call", "g", [(3, "Node")], {})
    assert puppet.calls == 1


def test_cases_of_unittest_are_not_run_as_plain_classes_too() -> None:
    module, ran = module_of("""
import unittest
class TestCases(unittest.TestCase):
    def setUp(self): ran.append("set up")
    def test_1(self): ran.append("1")
class TestPlain:
    test_value = print
    test_static = staticmethod(lambda: ran.append("never"))
    def test_2(self):
        self.seen = getattr(self, "seen", 0) + 1
        ran.append(f"2 {self.seen}")
    def test_3(self):
        self.test_2()
""")
    run_cases(module)
    run_functions(module)
    assert ran == ["set up", "1", "2 1", "2 1"], "each method has an object of its own"
