"""Operators: what each computes, worked out by hand, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.programs.language.operators import Operator, OperatorError, Registry, Type, same
from groupwise.programs.language.pure_operators import PURE

ROWS = [
    {"name": "Ann", "team": "red", "age": 30},
    {"name": "Ben", "team": "blue", "age": 20},
    {"name": "Eva", "team": "red", "age": 41},
]
BY_HAND: dict[str, list[tuple[Any, ...]]] = {
    "add": [(2, 3, 5)], "sub": [(2, 3, -1)], "mul": [(4, 6, 24)], "div": [(17, 5, 3)], "rest": [(17, 5, 2)],
    "double": [(7, 14)], "half": [(7, 3)],
    "sort": [([3, 1, 2], [1, 2, 3])], "reverse": [([3, 1, 2], [2, 1, 3])], "unique": [([2, 1, 2], [2, 1])],
    "evens": [([1, 2, 4], [2, 4])], "odds": [([1, 2, 3], [1, 3])], "squares": [([2, 3], [4, 9])],
    "running": [([1, 2, 3], [1, 3, 6])], "take": [([5, 6, 7], 2, [5, 6])], "drop": [([5, 6, 7], 2, [7])],
    "above": [([1, 5, 9], 5, [9])], "below": [([1, 5, 9], 5, [1])], "add_each": [([1, 2], 3, [4, 5])],
    "times_each": [([1, 2], 3, [3, 6])], "total": [([1, 2, 3], 6)], "count": [([7, 7], 2)], "largest": [([1, 9, 3], 9)],
    "smallest": [([4, 2], 2)], "first": [([8, 1], 8)], "last": [([8, 1], 1)],
    "upper": [("cat", "CAT")], "mirror": [("cat", "tac")], "no_vowels": [("apple", "ppl")], "length": [("cat", 3)],
    "split": [("a b", ["a", "b"])], "join": [(["a", "b"], "a b")], "glue": [(["a", "b"], "ab")],
    "initials": [(["cat", "dog"], "cd")], "sort_words": [(["b", "a"], ["a", "b"])],
    "reverse_words": [(["b", "a", "c"], ["c", "a", "b"])], "unique_words": [(["a", "a"], ["a"])],
    "take_words": [(["a", "b"], 1, ["a"])], "drop_words": [(["a", "b"], 1, ["b"])], "count_words": [(["a", "b"], 2)],
    "longest": [(["a", "bbb", "ccc"], "bbb")], "shortest": [(["aa", "b", "c"], "b")], "first_word": [(["a", "b"], "a")],
    "last_word": [(["a", "b"], "b")],
    "where": [(ROWS, "red", [ROWS[0], ROWS[2]])], "without": [(ROWS, "red", [ROWS[1]])],
    "over": [(ROWS, "age", 30, [ROWS[2]])], "under": [(ROWS, "age", 30, [ROWS[1]])], "count_rows": [(ROWS, 3)],
    "sum_of": [(ROWS, "age", 91)], "mean_of": [(ROWS, "age", 30)], "highest": [(ROWS, "age", 41)],
    "lowest": [(ROWS, "age", 20)], "who_most": [(ROWS, "age", "Eva")], "who_least": [(ROWS, "age", "Ben")],
    "look": [(ROWS, "Ben", "age", 20)],
}  # fmt: skip


def test_every_pure_operator_computes_what_is_worked_out_by_hand() -> None:
    assert set(BY_HAND) == set(PURE)
    for name, examples in BY_HAND.items():
        for *given, answer in examples:
            assert same(PURE[name](*given), answer), name


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("div", (3, 0), "division by zero"),
        ("rest", (3, 0), "division by zero"),
        ("first", ([],), "empty list"),
        ("largest", ([],), "empty list"),
        ("take", ([1], -1), "0 or more, not -1"),
        ("add", (1, True), "takes int as argument 2, not True"),
        ("sort", ([1, "a"],), "takes numbers as argument 1"),
        ("take", ([1],), "takes 2 arguments, not 1: take(numbers, int) -> numbers"),
        ("mul", (10**14, 10**14), "beyond 1,000,000,000,000,000"),
        ("times_each", ([10**14], 10**14), "beyond"),
        ("highest", ([], "age"), "without rows"),
        ("highest", (ROWS, "team"), "needs a column of numbers"),
        ("look", (ROWS, "Zoe", "age"), "no row is named 'Zoe'"),
    ],
)
def test_an_operator_says_why_it_refuses(name: str, given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OperatorError, match=None) as caught:
        PURE[name](*given)
    assert said in str(caught.value)


def test_operators_leave_what_they_are_given_alone() -> None:
    numbers = [3, 1, 2]
    for name in ("sort", "reverse", "unique", "running"):
        PURE[name](numbers)
    assert numbers == [3, 1, 2]


def test_a_registry_refuses_a_second_operator_of_one_name_and_helps_with_misspelt_ones() -> None:
    registry = Registry([Operator("sort", (Type.NUMBERS,), Type.NUMBERS, sorted)])
    with pytest.raises(ConfigError, match="already an operator 'sort'"):
        registry.add(registry["sort"])
    with pytest.raises(ConfigError, match="not a valid operator name"):
        registry.add(Operator("two words", (), Type.INT, int))
    assert registry.like("srot") == "Did you mean sort(numbers) -> numbers?"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [(3, 3.0, True), (1, True, False), ([1, 2], (1, 2), True), ([1], [1, 2], False), ("3", 3, False), (None, 0, False)],
)
def test_answers_are_compared_by_value_but_not_across_kinds(one: Any, other: Any, alike: bool) -> None:
    assert same(one, other) is alike
