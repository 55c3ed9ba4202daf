"""The lines around model-written code that make its value leave as text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox.source_code import called, last_expression, unusable


def value_of(text: str, **names: Any) -> str:
    """What the last line of the text makes: it is an expression."""
    lines = text.rstrip("\n").split("\n")
    space: dict[str, Any] = dict(names)
    exec("\n".join([*lines[:-1], f"written = {lines[-1]}"]), space)  # noqa: S102
    return str(space["written"])


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("1 + 1", "2"), ("x = 1", "None"), ("", "None"), ("# only words", "None"), ("'a'\n", "'a'"), ("x = 3\nx", "3"),
        ("x = 3; x + 1", "4"), ("(\n  1 +\n  2  # three\n)  # end", "3"), ("'é'; 'ü' + 'ß'  # ä", "'üß'"),
        ("y = [1,\n 2]\ny", "[1, 2]"), ("if True:\n    5", "None"), ("x = 1\r\nx + 1\r\n", "2"), ("x = 1\rx", "1"),
        ("'''a\nb'''", "'a\\nb'"), ("1, 2", "(1, 2)"), ("def f():\n    return 4\nf()", "4"), ("5;", "5"),
        ("repr = str = format = None\n7", "7"), ("lambda: 1\n8", "8"), ("é = 2\né + 1; é + 2", "4"),
        ("5\n# words", "5"), ("5  # five\n\n# more\n# words", "5"),
    ],
)  # fmt: skip
def test_the_value_is_the_last_expression_written_down(code: str, written: str) -> None:
    assert value_of(last_expression(code)) == written


def test_code_that_is_no_python_is_left_as_it_is_for_the_sandbox_to_refuse() -> None:
    assert last_expression("def f(:") == "def f(:\n\n'None'\n"
    assert "await f()" in last_expression("await f()")
    assert last_expression("await f()").endswith('f"{value_of_the_last_line!r}"\n')


@pytest.mark.parametrize(
    ("inputs", "written"), [({}, "0"), ({"a": 1}, "1"), ({"a": 1, "b": 2}, "12"), ({"b": 2, "a": 1}, "21")]
)
def test_a_function_is_called_with_the_inputs_in_their_order(inputs: dict[str, int], written: str) -> None:
    code = "def f(*given):\n    return int(''.join(map(str, given)) or 0)"
    assert value_of(called(code, "f", inputs), **inputs) == written


def test_an_async_function_is_awaited_and_its_namesakes_are_not() -> None:
    code = "async def work(x):\n    return x + 1\ndef plain(x):\n    return x"
    assert "await work(x)" in called(code, "work", {"x": 1})
    assert "await" not in called(code, "plain", {"x": 1}).rpartition("\n\n")[2]
    assert "await" not in called("async def worker(): pass\ndef work(): pass", "work", {}).rpartition("\n\n")[2]
    assert "await" not in called("class A:\n    async def work(self): pass\nwork = A", "work", {}).rpartition("\n\n")[2]
    line = called(code, "work", {"x": 1}).rstrip("\n").split("\n")[-1]
    space: dict[str, Any] = {"x": 4}
    exec(f"{code}\nasync def main():\n    return {line}", space)  # noqa: S102
    assert asyncio.run(space["main"]()) == "5"


@pytest.mark.parametrize("name", ["a b", "", "1a", "f()", "x;y", "a.b"])
def test_only_names_can_be_called_or_given(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name that a program can use"):
        called("def f(x): return x", name or "", {"x": 1})
    with pytest.raises(ConfigError, match="is not a name that a program can use"):
        called("def f(x): return x", "f", {"x": 1, name: 2})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("", ""), ("x" * 1_000_000, ""), ("x" * 1_000_001, "has 1,000,001 characters; the limit is 1,000,000"),
        ("x = 'é😀'", ""), ("x\0", "not allowed"), ("x = '\ud800'", "not allowed"),
    ],
    ids=["empty", "longest", "too long", "any letters", "zero", "half a letter"],
)  # fmt: skip
def test_code_is_worth_running_unless_it_is_too_long_or_no_text(code: str, words: str) -> None:
    assert words in unusable(code)
    assert bool(unusable(code)) is bool(words)
