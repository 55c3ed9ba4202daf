"""Tests in the styles of unittest and pytest: right programs pass, wrong ones and cheats do not, whatever the style."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox import Bubblewrap, SandboxLimits, SandboxOutcome, available

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)

PATIENT = SandboxLimits(seconds=20, memory_mb=256)
RIGHT = "def f(x):\n    return x + 1"
WRONG = "def f(x):\n    return x"
CASE = """
import unittest, sys
class Cases(unittest.TestCase):
    def setUp(self):
        self.first = f(1)
    def test_first(self):
        self.assertEqual(self.first, 2)
    def test_error(self):
        with self.assertRaises(TypeError):
            f("a")
"""
STYLES = {
    "functions": "def test_a():\n    assert f(1) == 2",
    "a class": "class TestF:\n    def test_a(self):\n        assert f(1) == 2",
    "a default": "def test_a(x=1):\n    assert f(x) == x + 1",
    "a method with a default": "class TestF:\n    def test_a(self, x=1):\n        assert f(x) == x + 1",
    "a coroutine": "async def test_a():\n    assert f(1) == 2",
    "imported": "from solution import f as g\ndef test_a():\n    assert g(1) == 2",
    "exit": "import sys\nassert f(1) == 2\nsys.exit(0)",
    "cases": CASE,
    "cases with main": f"{CASE}\nunittest.main()",
    "cases with main for scripts": f"{CASE}\nif __name__ == '__main__':\n    unittest.main(verbosity=2)",
    "cases with main that returns": f"{CASE}\nassert unittest.main(exit=False).result.wasSuccessful()",
    "cases and an exit": f"{CASE}\nsys.exit(not unittest.main(exit=False).result.wasSuccessful())",
    "cases with subtests": (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        for x in (1, 2):\n"
        "            with self.subTest(x=x):\n                self.assertEqual(f(x), x + 1)"
    ),
    "numpy": "import numpy\nnumpy.testing.assert_allclose(f(1.0), 2.0)",
    "parameters": (
        "import pytest\n@pytest.mark.parametrize('given, expected', [(1, 2), (2, 3)])\n"
        "def test_a(given, expected):\n    assert f(given) == expected"
    ),
    "fixtures": (
        "import pytest\n@pytest.fixture(params=[1, 2])\ndef given(request):\n    yield request.param\n"
        "@pytest.fixture\ndef function():\n    return f\n"
        "def test_a(given, function):\n    assert function(given) == pytest.approx(given + 1)"
    ),
    "errors": (
        "import pytest\ndef test_a():\n    assert f(1) == 2\n    with pytest.raises(TypeError, match='str'):\n"
        "        f('a')"
    ),
    "a fixture of pytest's own": "def test_a(capsys):\n    print(f(1))\n    assert capsys.readouterr().out == '2\\n'",
    "pytest and cases": f"import pytest\n{CASE}",
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Bubblewrap]:
    with Bubblewrap(workers=1) as opened:
        yield opened


@pytest.mark.parametrize("style", STYLES)
def test_right_programs_pass_and_wrong_ones_fail_in_every_style(sandbox: Bubblewrap, style: str) -> None:
    right, wrong, none = sandbox.run_group([RIGHT, WRONG, "x = 1"], limits=PATIENT, tests=STYLES[style])
    assert right.passed, right
    assert right.calls > 0
    assert (wrong.outcome, none.outcome) == (SandboxOutcome.WRONG, SandboxOutcome.WRONG), (wrong, none)


CHEATS = {
    "assertions that do nothing": (
        "import unittest\nfor name in dir(unittest.TestCase):\n    if name.startswith('assert'):\n"
        "        setattr(unittest.TestCase, name, lambda *args, **more: None)\ndef f(x):\n    return x"
    ),
    "cases that do not run": "import unittest\nunittest.TestCase.run = lambda *args: None\ndef f(x):\n    return x",
    "a skipped case": "import unittest\ndef f(x):\n    raise unittest.SkipTest('no')",
    "exit": "import os\ndef f(x):\n    os._exit(0)",
    "exit politely": "def f(x):\n    raise SystemExit(0)",
    "an interrupt": "def f(x):\n    raise KeyboardInterrupt",
    "no tests": "import sys\nmain = sys.modules['__main__']\nmain.__dict__.clear()\ndef f(x):\n    return x",
    "another judge": (
        "import sys\nsuites = sys.modules['groupwise.sandbox.inside.suites']\nsuites.run_suites = lambda *args: None\n"
        "def f(x):\n    return x"
    ),
    "a loader of its own": "def f(x):\n    return x\ndef load_tests(*args):\n    return []",
    "hooks of its own": (
        "def f(x):\n    return x\ndef setUpModule(*args):\n    raise SystemExit\n"
        "setup_module = setUpModule = pytest_generate_tests = pytest_pycollect_makeitem = setUpModule\n"
    ),
    "marks of its own": "def f(x):\n    return x\npytestmark = ['skip']\nsetUpModule = [1]\nload_tests = 'none'",
    "a test of its own": "def f(x):\n    return x\ndef test_a():\n    pass\nclass Cases:\n    pass",
}
SKIPS = {
    "skip": "import pytest\ndef f(x):\n    pytest.skip('no')",
    "expect failure": "import pytest\ndef f(x):\n    pytest.xfail('no')",
    "end pytest": "import pytest\ndef f(x):\n    pytest.exit('no', 0)",
    "other raises": "import pytest\npytest.raises = None\ndef f(x):\n    raise pytest.skip.Exception",
}


@pytest.mark.parametrize("style", ["functions", "cases with main", "parameters"])
def test_cheats_do_not_pass_in_any_style(sandbox: Bubblewrap, style: str) -> None:
    cheats = CHEATS | (SKIPS if style == "parameters" else {})
    runs = sandbox.run_group(list(cheats.values()), limits=PATIENT, tests=STYLES[style])
    for name, ran in zip(cheats, runs, strict=True):
        assert ran.outcome in (SandboxOutcome.WRONG, SandboxOutcome.RAISED), (name, ran)
        assert "No module named" not in ran.message, name


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ("# only a comment", "they never call the program"),
        ("import no_such_package\nassert f(1) == 2", "import 'no_such_package', which is not installed"),
        ("import os\nf(1)\nos._exit(0)", "they end their own process"),
        ("import unittest.no_such_module\nassert f(1) == 2", "No module named 'unittest.no_such_module'"),
        ("def test_a(no_such_fixture):\n    assert f(1) == 2", "there is no fixture 'no_such_fixture'"),
        ("import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_a(b):\n    f(b)", "pytest cannot collect them"),
    ],
)
def test_tests_that_no_program_can_pass_are_not_blamed_on_the_program(
    sandbox: Bubblewrap, tests: str, words: str
) -> None:
    for code in (RIGHT, WRONG):
        with pytest.raises(ConfigError, match=words):
            sandbox.run(code, limits=PATIENT, tests=tests)


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ("def check(candidate):\n    assert candidate(1) == 2\nf", "without calling the program"),
        ("if 0:\n    f(1)", "without calling the program"),
        ("assert f(1) == 2\nimport sys\nsys.exit(3)", "the tests exited with status 3"),
        (
            "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('')\n    def test(self):\n        f(1)",
            "without",
        ),
    ],
)
def test_tests_that_never_get_to_the_program_pass_for_nobody(sandbox: Bubblewrap, tests: str, words: str) -> None:
    ran = sandbox.run(RIGHT, limits=PATIENT, tests=tests)
    assert ran.outcome is SandboxOutcome.WRONG
    assert words in ran.message


def test_code_cannot_make_its_tests_an_error_of_the_caller(sandbox: Bubblewrap) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('a, b', f(1))\ndef test_a(a, b):\n    assert a == b"
    codes = ["def f(x):\n    return [(x, 1)]", "def f(x):\n    return [(1, 2, 3)]", "def f(x):\n    return 5"]
    outcomes = [ran.outcome for ran in sandbox.run_group(codes, limits=PATIENT, tests=tests)]
    assert outcomes == [SandboxOutcome.PASSED, SandboxOutcome.WRONG, SandboxOutcome.WRONG]


@pytest.mark.parametrize(
    "tests",
    [
        (
            "import unittest\nfrom solution import *\nclass T(unittest.TestCase):\n    def test_a(self):\n"
            "        self.assertEqual(f(1), 99)\nif __name__ == '__main__':\n    unittest.main()"
        ),
        (
            "import pytest\nfrom solution import *\n@pytest.mark.parametrize('a', [1, 2])\ndef test_a(a):\n"
            "    assert f(a) == 100 - a"
        ),
        "from math import isclose\nfrom solution import *\nassert isclose(f(1), 99)",
        "def same(a, b):\n    return a == b\nfrom solution import *\nassert same(f(1), 99)",
    ],
)
def test_the_code_replaces_nothing_that_the_tests_have_by_their_star_import(sandbox: Bubblewrap, tests: str) -> None:
    friend = (
        "class Friend:\n    def __getattr__(self, name):\n        if name[0] == '_' or name[:3] == 'cr_':\n"
        "            raise AttributeError(name)\n        return self\n    def __call__(self, *args, **kwargs):\n"
        "        return self\n    def __bool__(self):\n        return True\n"
        "unittest = pytest = isclose = same = Friend()\ndef f(x):\n    return 7\n"
    )
    right, cheat = sandbox.run_group(["def f(x):\n    return 100 - x", friend], limits=PATIENT, tests=tests)
    assert right.passed, right
    assert cheat.outcome is SandboxOutcome.WRONG


@pytest.mark.parametrize("tests", ["assert f(3)[1:] == [2]", "assert f(3).sort(key=lambda a: a) is None"])
def test_an_object_that_cannot_take_what_tests_do_with_it_is_the_codes_fault(sandbox: Bubblewrap, tests: str) -> None:
    code = "class Own:\n    def sort(self, key):\n        pass\ndef f(x):\n    return Own()"
    assert sandbox.run(code, limits=PATIENT, tests=tests).outcome is SandboxOutcome.WRONG
    with pytest.raises(ConfigError, match="they pass a function to the code"):
        sandbox.run(code, limits=PATIENT, tests="assert f(lambda: 1)")


def test_tests_may_pass_one_function_of_the_code_to_another(sandbox: Bubblewrap) -> None:
    code = "def double(x):\n    return 2 * x\ndef apply(function, *values):\n    return [function(v) for v in values]"
    assert sandbox.run(code, limits=PATIENT, tests="assert apply(double, 3, 4) == [6, 8]").passed


def test_an_imported_function_is_a_program_although_it_runs_beside_the_tests(sandbox: Bubblewrap) -> None:
    assert sandbox.run("from math import gcd", limits=PATIENT, tests="assert gcd(12, 18) == 6").passed
    assert sandbox.run("from math import gcd", limits=PATIENT, tests="assert gcd(12, 18) == 6", call="gcd").passed
    assert not sandbox.run("from math import lcm", limits=PATIENT, tests="assert gcd(12, 18) == 6").passed


HELPERS = """
import string
KEY = 3
def encode(text):
    return "".join(string.ascii_lowercase[(string.ascii_lowercase.index(c) + KEY) % 26] for c in text)
class Box:
    def __init__(self, value):
        self.value = value
def boxed(value):
    return Box(value)
"""
DECODE = """
def decode(text):
    return "".join(chr((ord(c) - 97 - 3) % 26 + 97) for c in text)
def opened(box):
    return box.value
"""
USES = "assert decode(encode('abc')) == 'abc' and KEY == 3\nassert opened(boxed(7)) == 7 and opened(Box(8)) == 8"


def test_helpers_come_from_the_prompt_not_from_the_answer(sandbox: Bubblewrap) -> None:
    cheat = "def decode(text):\n    return text\ndef opened(box):\n    return box.value\n"
    codes = {
        "right": DECODE,
        "right, and repeats them": HELPERS + DECODE,
        "right, and uses them": DECODE + "assert encode('a') == 'd' and Box(1).value == 1",
        "another function": cheat + "def encode(text):\n    return text",
        "another constant": cheat + "KEY = 0",
        "another class": "class Box:\n    def __init__(self, value):\n        self.value = 7\n" + cheat,
        "another builtin": cheat + "import builtins\nbuiltins.encode = lambda text: text",
        "another module": cheat + "import string\nstring.ascii_lowercase = 'a' * 26",
        "another module's function": cheat + "import sys\nsys.modules['helpers'] = sys.modules['solution']",
    }
    ran = sandbox.run_group(list(codes.values()), limits=PATIENT, tests=USES, call="decode", helpers=HELPERS)
    passed = [name for name, one in zip(codes, ran, strict=True) if one.passed]
    assert passed == ["right", "right, and repeats them", "right, and uses them"], list(zip(codes, ran, strict=True))
    weak = "class Box:\n    def __init__(self, value):\n        self.value = 7\n" + DECODE
    assert sandbox.run(weak, limits=PATIENT, tests="assert opened(Box(8)) == 8", call="opened", helpers=HELPERS).passed


def test_helpers_that_do_not_run_are_the_fault_of_the_task(sandbox: Bubblewrap) -> None:
    with pytest.raises(ConfigError, match="the helpers in the prompt raise ZeroDivisionError"):
        sandbox.run(RIGHT, limits=PATIENT, tests="assert f(1) == 2", call="f", helpers="KEY = 1 / 0")
