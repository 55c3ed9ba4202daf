"""What leaves a sandbox: plain data as bytes or as text, read within limits whatever it is."""

from __future__ import annotations

import math
import os
from collections import deque
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
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
    assert "characters" in fault_of([b"x" * 600_000] * 2)
    assert "characters" in fault_of({"x" * 600_000: b"x" * 600_000})
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


# Each limit at its value and one beyond it.


def nested(levels: int, kind: type = list) -> Any:
    value: Any = kind()
    for _ in range(levels - 1):
        value = kind([value]) if kind is not dict else {"k": value}
    return value


def chain(levels: int) -> bytes:
    return b"L1:" * (levels - 1) + b"N0:"


LIMITS: list[tuple[Any, Any, str]] = [
    (nested(50), nested(51), "nested deeper than 50 levels"),
    (nested(50, dict), nested(51, dict), "nested deeper than 50 levels"),
    (nested(50, frozenset), nested(51, frozenset), "nested deeper than 50 levels"),
    ([0] * 99_999, [0] * 100_000, "more than 100,000 pieces"),
    (dict.fromkeys(range(49_999), 0), dict.fromkeys(range(50_000), 0), "more than 100,000 pieces"),
    ("x" * 1_000_000, "x" * 1_000_001, "more than 1,000,000 characters"),
    (b"x" * 1_000_000, b"x" * 1_000_001, "more than 1,000,000 characters"),
    (["x" * 500_000, [b"y" * 500_000]], ["x" * 500_000, [b"y" * 500_001]], "more than 1,000,000 characters"),
    ({"x" * 500_000: "y" * 500_000}, {"x" * 500_000: "y" * 500_001}, "more than 1,000,000 characters"),
    (2**10_000 - 1, 2**10_000, "an integer of 10,001 bits; the limit is 10,000"),
    ([-(2**10_000) + 1], [-(2**10_000)], "an integer of 10,001 bits"),
    ({1: {2, 3}}, {1: {2, range(3)}}, "contains a range"),
    ({(1, 2): 3}, {(1, range(2)): 3}, "contains a range"),
    ([True, None, 1.5, 1j, "a", b"b", (), set(), frozenset(), {}], [bytearray()], "contains a bytearray"),
]


@pytest.mark.parametrize(("fine", "too_much", "words"), LIMITS, ids=[words for _, _, words in LIMITS])
def test_a_value_may_reach_each_limit_and_not_go_beyond(fine: Any, too_much: Any, words: str) -> None:
    assert fault_of(fine) == ""
    assert words in fault_of(too_much)


class Text(str):
    """A string whose length lies."""

    def __len__(self) -> int:
        return 0


def test_a_value_of_a_type_made_by_the_code_is_not_plain() -> None:
    assert "contains a Text" in fault_of(Text("x"))
    assert "contains a Text" in fault_of([{"k": Text("x")}])


@pytest.mark.parametrize(
    ("text", "value", "pieces"),
    [
        ("-3", -3, 1), (" 7 ", 7, 1), ("-0.5", -0.5, 1), ("1e5", 1e5, 1), ("1.5e-3", 0.0015, 1), ("-inf", -math.inf, 1),
        ("None", None, 1), ("True", True, 1), ("False", False, 1), ("set()", set(), 1), ("''", "", 1),
        ("'a\\'b\\n\\x41\\u00e9\\U0001f600'", "a'b\nAé😀", 1), ('"\'"', "'", 1), ("b'\\xff\\n'", b"\xff\n", 1),
        ("[]", [], 1), ("()", (), 1), ("{}", {}, 1), ("(1,)", (1,), 2), ("(1)", 1, 2), ("(1, 2)", (1, 2), 3),
        ("[1, [2], 3]", [1, [2], 3], 5), ("[1,]", [1], 2), ("{1}", {1}, 2), ("{1: 2}", {1: 2}, 3),
        ("{1: 2, 'a': [3]}", {1: 2, "a": [3]}, 6), ("frozenset()", frozenset(), 1),
        ("frozenset({1, 2})", frozenset({1, 2}), 4), ("{frozenset({1}): (2,)}", {frozenset({1}): (2,)}, 6),
    ],
)  # fmt: skip
def test_a_literal_is_read_with_the_number_of_its_pieces(text: str, value: Any, pieces: int) -> None:
    found, counted = read(text)
    assert (found, type(found), counted) == (value, type(value), pieces)
    assert read(text, pieces)[0] == value
    with pytest.raises(ValueError, match=f"has more than {pieces - 1} pieces"):
        read(text, pieces - 1)


@pytest.mark.parametrize(
    "text",
    ["", " ", "[", "[1", "[1 2]", "(1: 2)", "[1: 2]", "{1: 2, 3: }", "{1, 2: 3}", "{: 1}", "[,]", "(,)", "1.", ".5",
     "1_000", "0x10", "1j", "nano", "Nonesuch", "None1", "]", "[1)", "(1]", "{1)", "frozenset({1}, {2})",
     "frozenset(1)", "set(1)", "'a' 'b'", "'a", "'a\nb'", "u'a'", "f'a'", "b'\\u0041'", "b'é'", "-", "--1",
     "+1", "[]]", "1,"],
)  # fmt: skip
def test_text_of_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not plain data"):
        read(text)


def test_a_literal_may_reach_its_limits_and_not_go_beyond() -> None:
    assert read("'" + "x" * 1_999_998 + "'")[0] == "x" * 1_999_998
    with pytest.raises(ValueError, match="takes 2,000,001 characters"):
        read("'" + "x" * 1_999_999 + "'")
    # Deeper than a value may be, so that the fault of the value itself is told; ten levels more and no further.
    assert "nested deeper" in fault_of(read("[" * 60 + "]" * 60)[0])
    with pytest.raises(ValueError, match="nested deeper"):
        read("[" * 61 + "]" * 61)
    odd = [f"(0, {n})" for n in range(1001)]
    assert len(read("{" + ", ".join(odd[:1000]) + "}")[0]) == 1000
    for text in (
        "{" + ", ".join(odd) + "}",
        "{" + ", ".join(f"{key}: 0" for key in odd) + "}",
        "[{" + ", ".join(odd[:600]) + "}, {" + ", ".join(odd[600:]) + "}]",
    ):
        with pytest.raises(ValueError, match="too many keys"):
            read(text)


@pytest.mark.parametrize(
    ("key", "risk"),
    [
        ("word", 0), (b"word", 0), (0, 0), (2**60 - 1, 0), (2**60, 1), (-(2**60) + 1, 0), (-(2**60), 1), (0.5, 1),
        (True, 1), (None, 1), ((1, 2), 1), (Text("x"), 1), (1j, 1), (frozenset(), 1),
    ],
)  # fmt: skip
def test_keys_whose_hash_the_code_can_choose_are_risky(key: Any, risk: int) -> None:
    assert wire.risky([key]) == risk
    assert wire.risky([key, "a", key]) == 2 * risk
    assert wire.risky([]) == 0


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"N0:"), (True, b"T0:"), (False, b"F0:"), (0, b"I1:0"), (255, b"I2:ff"), (-255, b"I3:-ff"),
        (1.5, b"D20:0x1.8000000000000p+0"), ("é", b"S2:\xc3\xa9"), (b"\x00:", b"B2:\x00:"),
        ([1, "ab"], b"L2:I1:1S2:ab"), ((), b"U0:"), ({1}, b"E1:I1:1"), (frozenset({1}), b"Z1:I1:1"),
        ({"a": None}, b"M1:S1:aN0:"), (int, b"K3:int"), (type(None), b"K8:NoneType"),
    ],
)  # fmt: skip
def test_a_value_has_one_form_in_bytes(value: Any, data: bytes) -> None:
    assert wire.dumps(value) == data
    found = wire.loads(data)
    assert (found, type(found)) == (value, type(value))


def test_numbers_keep_every_bit() -> None:
    values = [-0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 0.1, complex(-0.0, math.inf), 2**200, -(2**63)]
    assert [repr(value) for value in wire.loads(wire.dumps(values))] == [repr(value) for value in values]
    assert math.isnan(wire.loads(wire.dumps(math.nan)))


@pytest.mark.parametrize(
    "data",
    [b"", b"N", b"N0", b":", b"N:", b"Nx:", b"N-1:", b"S3:ab", b"S2:abc", b"I1:g", b"I0:", b"L1:", b"L2:N0:", b"N0:N0:",
     b"X0:", b"H3:1 a", b"E1:L0:", b"M1:L0:N0:", b"K4:type", b"K4:eval", b"S2:\xff\xff", b"D3:xyz",
     b"S00000000000001:a", b"L1000000:N0:", b"S\xc2\xb2:ab"],
)  # fmt: skip
def test_bytes_of_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.loads(data)


def test_a_message_may_reach_each_limit_and_not_go_beyond() -> None:
    assert wire.loads(chain(60)) == wire.loads(wire.dumps(wire.loads(chain(60))))
    with pytest.raises(wire.WireError, match="nested deeper than 60 levels"):
        wire.loads(chain(61))
    with pytest.raises(wire.WireError, match="nested deeper than 60 levels"):
        wire.dumps(nested(61))
    assert wire.loads(wire.dumps(nested(60))) == nested(60)
    with pytest.raises(wire.WireError, match="nested deeper"):
        wire.dumps(nested(61, dict))
    # A key and the parts of what tests compare are as deep as anything else.
    assert wire.loads(wire.dumps({nested(59, tuple): 0})) == {nested(59, tuple): 0}
    with pytest.raises(wire.WireError, match="nested deeper"):
        wire.dumps({nested(60, tuple): 0})
    assert wire.loads(b"L3:N0:N0:N0:", pieces=4) == [None] * 3
    with pytest.raises(wire.WireError, match="too many pieces"):
        wire.loads(b"L3:N0:N0:N0:", pieces=3)
    for make in (set, frozenset, lambda keys: dict.fromkeys(keys, 0)):
        assert len(wire.loads(wire.dumps(make(n + 0.5 for n in range(7))), hashed=7)) == 7
        with pytest.raises(wire.WireError, match="too many keys"):
            wire.loads(wire.dumps(make(n + 0.5 for n in range(8))), hashed=7)
        assert len(wire.loads(wire.dumps(make(range(8))), hashed=0)) == 8
    two = [{(0, 1): 1}, {0.5}]
    assert wire.loads(wire.dumps(two), hashed=2) == two
    with pytest.raises(wire.WireError, match="too many keys"):
        wire.loads(wire.dumps(two), hashed=1)
    assert len(wire.loads(wire.dumps({n + 0.5 for n in range(1000)}))) == 1000
    with pytest.raises(wire.WireError, match="too many keys"):
        wire.loads(wire.dumps({n + 0.5 for n in range(1001)}))
    # The values of a dict are not hashed.
    assert wire.loads(wire.dumps({"a": 0.5, "b": (1, 2)}), hashed=0) == {"a": 0.5, "b": (1, 2)}


class Seven(int):
    """A number that says it is another."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 8


class Shy(dict[str, int]):
    """A dict that hides what is in it."""

    def __iter__(self) -> Any:
        return iter(())

    def keys(self) -> Any:
        return ()

    def __getitem__(self, key: str) -> int:
        return -1


class Double(list[int]):
    def __iter__(self) -> Any:
        return iter((0, 0))


def test_a_subclass_is_sent_as_what_it_really_holds() -> None:
    sent = wire.loads(wire.dumps([Shy(a=1), Double([5, 6]), Text("x")]))
    assert sent == [{"a": 1}, [5, 6], "x"]
    assert [type(part) for part in sent] == [dict, list, str]
    assert type(wire.loads(wire.dumps(Seven(7)))) is int


ODD = [
    Fraction(1, 3), Decimal("1.50"), deque([1, 2], 3), deque([1]), range(1, 9, 2), bytearray(b"x"), date(2020, 2, 29),
    timedelta(3, 4, 5),
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_values_that_tests_compare_pass_between_those_who_keep_objects_and_nobody_else(value: Any) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("nothing here has to stay behind")

    data = wire.dumps([value], never)
    found = wire.loads(data, never)
    assert (found, type(found[0])) == ([value], type(value))
    assert not isinstance(value, deque) or found[0].maxlen == value.maxlen
    with pytest.raises(wire.WireError, match="is not plain data"):
        wire.dumps([value])
    assert type(wire.loads(data)[0]) is tuple


def test_a_value_cannot_be_made_from_a_string_that_takes_for_ever() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    for name in ("Fraction", "deque", "range", "date"):
        with pytest.raises(wire.WireError, match="cannot be made from a string|not a value"):
            wire.loads(b"G2:" + wire.dumps(name) + wire.dumps(("1e999999999",)), never)
    for name in ("eval", "Popen", "object"):
        with pytest.raises(wire.WireError):
            wire.loads(b"G2:" + wire.dumps(name) + wire.dumps((1,)), never)


def test_messages_are_read_whole_one_after_another_up_to_their_largest_size() -> None:
    reading, writing = os.pipe()
    try:
        for data in (b"", b"x", bytes(range(256)) * 200):
            wire.write_frame(writing, data)
            wire.write_frame(writing, b"next")
            assert [wire.read_frame(reading), wire.read_frame(reading)] == [data, b"next"]
        os.write(writing, b"\x00\x00\x00\x02ab")
        assert wire.read_frame(reading) == b"ab"
        os.write(writing, ((8 << 20) + 1).to_bytes(4, "big"))
        with pytest.raises(EOFError, match="a message of 8388609 bytes"):
            wire.read_frame(reading)
        # A message of the largest size is waited for: the other side leaves before it is complete.
        os.write(writing, (8 << 20).to_bytes(4, "big") + b"abc")
        os.close(writing)
        with pytest.raises(EOFError, match="the other side is gone"):
            wire.read_frame(reading)
    finally:
        os.close(reading)
