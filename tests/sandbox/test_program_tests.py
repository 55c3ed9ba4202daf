"""Tests of programs are read before they run."""

from __future__ import annotations

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox.bubblewrap_command import mounts
from groupwise.sandbox.program_tests import read_tests, without_classes


@pytest.mark.parametrize(
    ("tests", "wanted"),
    [
        ("assert f(1) == 2", ("f",)),
        ("def check(candidate):\n    assert candidate(1)\ncheck(f)", ("f",)),
        ("def test_a():\n    x = g(1)\n    assert [y for y in f(x)]", ("g", "f")),
        ("import math\nassert math.isclose(f(1), 1.0)\nexpected = 3\nassert f(2) == expected", ("f",)),
        ("from solution import f as g, h\nassert g(1) == h(2)", ("f", "h")),
        ("import solution\nassert solution.f(1) == 2", ("f",)),
        ("class TestA:\n    value = f(1)\n    def test_a(self):\n        assert g(self.value)", ("f", "g")),
        ("assert all(map(f, [1, 2]))", ("f",)),
        ("assert f(__file__) == __path__", ("f",)),
    ],
)
def test_wanted_names_are_those_that_the_program_must_define(tests: str, wanted: tuple[str, ...]) -> None:
    assert set(read_tests(tests).wanted) == set(wanted)


def test_a_built_in_name_is_wanted_only_if_it_is_the_one_under_test() -> None:
    assert read_tests("assert sum(1, 2) == 3", "sum").wanted == ("sum",)
    with pytest.raises(ConfigError, match="they never call the program"):
        read_tests("assert sum([1, 2]) == 3")


def test_helpers_of_the_prompt_are_not_wanted_from_the_program() -> None:
    assert read_tests("assert f(encode('a')) == 'a'", "f", "def encode(s):\n    return s").wanted == ("f",)


@pytest.mark.parametrize(
    "tests",
    ["# nothing", "assert True", "def f(x):\n    return x\nassert f(1) == 1", "import unittest\nunittest.main()"],
)
def test_tests_that_use_nothing_of_the_program_are_refused(tests: str) -> None:
    with pytest.raises(ConfigError, match="they never call the program"):
        read_tests(tests)


def test_imported_packages_are_found_wherever_they_are_needed() -> None:
    tried = "try:\n    import pandas\nexcept ImportError:\n    pass"
    text = f"import json, unittest\n{tried}\ndef test_a():\n    import numpy.testing\n    f()"
    facts = read_tests(text)
    assert (facts.packages, facts.standard) == (("numpy",), ("unittest",))
    assert read_tests("def test_a(capsys):\n    assert f() == 1").packages == ("pytest",)
    assert read_tests("def test_a(x):\n    assert f(x) == 1\ntest_a(3)").packages == ()


def test_a_package_is_mounted_with_what_it_requires_and_a_missing_one_is_named() -> None:
    inside = {place for _, place in mounts(("pytest",))}
    assert {"/packages/pytest", "/packages/_pytest", "/packages/pluggy"} <= inside
    assert "/packages/groupwise" not in inside
    with pytest.raises(ConfigError, match="the tests import 'no_such_package', which is not installed here"):
        mounts(("no_such_package",))


@pytest.mark.parametrize(
    ("tests", "wanted"),
    [
        ("assert f(1) == len([1])", {"f"}),
        ("from solution import *\nassert True", set()),
        ("global_name = 1\ndef test_a():\n    global made\n    made = f(1)\ndef test_b():\n    assert made", {"f"}),
        ("import json as j\nassert j.dumps(f(1))", {"f"}),
        ("for x in f(3):\n    assert x", {"f"}),
        ("def outer():\n    def inner():\n        return f(1)\n    return inner\nouter()()", {"f"}),
        ("assert __name__ and f", {"f"}),
        ("import solution as s\nassert s.f(1) == g(1)", {"g"}),
        ("from solution import f\nimport other\nassert f(1)", {"f"}),
        ("class A:\n    pass\nassert isinstance(f(A()), A)", {"f"}),
        ("assert [f(x) for x in (1, 2)] == [y for y in g(3)]", {"f", "g"}),
        ("def check(f, x):\n    assert f(x)\ncheck(h, 1)", {"h"}),
    ],
)
def test_only_names_that_the_tests_do_not_make_themselves_are_wanted(tests: str, wanted: set[str]) -> None:
    assert set(read_tests(tests).wanted) == wanted


def test_names_are_wanted_once_in_the_order_of_their_use() -> None:
    assert read_tests("assert b(1) == a(2) == b(3)").wanted == ("b", "a")


@pytest.mark.parametrize(
    ("tests", "packages", "standard"),
    [
        ("import numpy\nf(1)", ("numpy",), ()),
        ("import numpy.linalg as la\nf(1)", ("numpy",), ()),
        ("from scipy.special import gamma\nf(1)", ("scipy",), ()),
        ("import scipy, numpy\nf(1)", ("numpy", "scipy"), ()),
        ("import os, sys, math\nf(1)", (), ()),
        ("import solution\nsolution.f(1)", (), ()),
        ("from . import numpy\nf(1)", (), ()),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None\nf(1)", (), ()),
        ("try:\n    import unittest\nexcept ImportError:\n    pass\nf(1)", (), ("unittest",)),
        ("from unittest import mock\nf(1)", (), ("unittest",)),
        ("if f(1):\n    import pytest", ("pytest",), ()),
    ],
)
def test_packages_are_what_the_tests_import_from_outside_the_standard_library(
    tests: str, packages: tuple[str, ...], standard: tuple[str, ...]
) -> None:
    facts = read_tests(tests)
    assert (facts.packages, facts.standard) == (packages, standard)


@pytest.mark.parametrize(
    ("tests", "pytest_needed"),
    [
        ("def test_a(x):\n    assert f(x)", True),
        ("async def test_a(x):\n    assert f(x)", True),
        ("def test_a(x=1):\n    assert f(x)", False),
        ("def test_a(x, y=1):\n    assert f(x)", True),
        ("def helper(x):\n    assert f(x)\nhelper(1)", False),
        ("def test_a():\n    assert f(1)", False),
        ("def test_a(x):\n    assert f(x)\nfor n in (1, 2):\n    test_a(n)", False),
    ],
)
def test_only_pytest_can_provide_arguments_that_nobody_gives(tests: str, pytest_needed: bool) -> None:
    assert ("pytest" in read_tests(tests).packages) is pytest_needed


def test_the_function_under_test_is_wanted_even_if_the_prompt_defines_it() -> None:
    helpers = "def f(x):\n    raise NotImplementedError\ndef encode(x):\n    return x"
    assert read_tests("assert f(encode(1))", "f", helpers).wanted == ("f",)
    with pytest.raises(ConfigError, match="they never call the program"):
        read_tests("assert f(encode(1))", "", helpers)


@pytest.mark.parametrize(("characters", "fine"), [(1_000_000, True), (1_000_001, False)])
def test_tests_are_as_long_as_code_may_be(characters: int, fine: bool) -> None:
    text = "f(1)\n#".ljust(characters, "x")
    if fine:
        assert read_tests(text).wanted == ("f",)
    else:
        with pytest.raises(ConfigError, match="they have 1,000,001 characters; the limit is 1,000,000"):
            read_tests(text)


@pytest.mark.parametrize(("tests", "helpers"), [("f(", ""), ("f(1)\0", ""), ("f(1)", "def g(:")])
def test_tests_or_helpers_that_are_no_python_are_refused(tests: str, helpers: str) -> None:
    with pytest.raises(ConfigError, match="the tests cannot be run"):
        read_tests(tests, "", helpers)


def test_classes_of_the_helpers_stay_with_the_code() -> None:
    kept = without_classes(
        "import math\nKEY = 3\nclass Box:\n    size = 1\ndef encode(x):\n    return x\nasync def g(): pass"
    )
    assert "class" not in kept
    assert "import math" in kept
    assert "KEY = 3" in kept
    assert "def encode(x)" in kept
    assert without_classes("") == ""


@pytest.mark.parametrize("tests", ["from math import *", "from math import pi as solution", "import solution", "x = 1"])
def test_tests_that_take_everything_from_elsewhere_use_nothing_of_the_program(tests: str) -> None:
    with pytest.raises(ConfigError, match="they never call the program"):
        read_tests(tests)
