"""Tests of programs are read before they run."""

from __future__ import annotations

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox.bubblewrap_command import mounts
from groupwise.sandbox.program_tests import read_tests


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
