"""What leaves a sandbox: plain data as bytes or as text, read within limits whatever it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from groupwise.sandbox import wire
from groupwise.sandbox.plain_data import fault_of, read

ATOMS = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text() | some.binary()
KEYS = ATOMS | some.tuples(some.integers(), some.text())
PLAIN = some.recursive(
    ATOMS,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.lists(inner, max_size=3).map(tuple)
        | some.dictionaries(KEYS, inner, max_size=4)
        | some.sets(KEYS, max_size=4)
        | some.frozensets(KEYS, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_survives_both_ways(value: Any) -> None:
    assert wire.loads(wire.dumps(value)) == value
    assert read(repr(value))[0] == value
    assert fault_of(value) == ""


@given(some.binary(max_size=60) | some.text("LUEZMIDCSBKHNTF0123456789:-x. ", max_size=40).map(str.encode))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = wire.loads(data, lambda number, name: (number, name))
    except wire.WireError:
        return
    hash(repr(value))


@given(some.text(max_size=60) | some.text("[](){},:'\"b\\xu0N1.e-frozenst ", max_size=40))
def test_text_is_read_or_refused(text: str) -> None:
    try:
        value, _ = read(text)
    except ValueError:
        return
    assert fault_of(value) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 70 + "]" * 70, "nested deeper"),
        ("<A object>", "is '<A object>', which is not plain data"),
        ("[1, Ellipsis]", "not plain data"),
        ("print(1)", "not plain data"),
        ("{[]: 1}", "not plain data"),
        ("{1: 2, 3}", "not plain data"),
        ("frozenset([1])", "not plain data"),
        ("1 2", "not plain data"),
        ("'\\x'", "not plain data"),
        ("b'é'", "not plain data"),
        ("b'\\u0041'", "not plain data"),
        ("'\\Uffffffff'", "not plain data"),
        ("'" + "ab" * 100_000, "not plain data"),
        ("[" + "0," * 100_000 + "]", "has more than 100,000 pieces"),
        ("9" * 5000, "digits"),
        ("'" + "x" * 2_000_000 + "'", "the limit is"),
        ("{" + ", ".join(f"(0, {n})" for n in range(1001)) + "}", "too many keys"),
    ],
)
def test_text_that_is_not_plain_data_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="(?s)") as told:
        read(text)
    assert words in str(told.value)


def test_a_message_of_many_small_pieces_is_refused_before_it_is_built() -> None:
    data = b"L2000000:" + b"N0:" * 2_000_000
    with pytest.raises(wire.WireError, match="too many pieces"):
        wire.loads(data, pieces=1000)


def test_faults_of_values_are_told() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested deeper" in fault_of(deep)
    assert "pieces" in fault_of([0] * 100_001)
    assert "bits" in fault_of(2**10_001)
    assert "characters" in fault_of(["x" * 600_000] * 2)
    assert "contains a object" in fault_of([object()])
    assert "bits" in fault_of({"key": 2**10_001})
    assert "contains a object" in fault_of({"key": [object()]})
    assert fault_of([math.nan, 1j]) == ""


def test_objects_stay_behind_by_number() -> None:
    kept: list[Any] = []

    def keep(value: Any) -> tuple[int, str]:
        kept.append(value)
        return len(kept) - 1, type(value).__name__

    assert wire.loads(wire.dumps([1, ..., int], keep), lambda number, name: (number, name)) == [1, (0, "ellipsis"), int]
    with pytest.raises(wire.WireError, match="a ellipsis is not plain data"):
        wire.dumps(...)
