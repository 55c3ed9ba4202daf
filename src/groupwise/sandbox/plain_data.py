"""Plain data is all that may leave a sandbox: what counts as plain, and a reader of values written as literals.

Plain are None, numbers, strings, bytes, and lists, tuples, sets and dicts of them, within limits of depth and size. The
reader builds a value from the text that Monty wrote (`repr`), and never evaluates anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from groupwise.sandbox.fixed_limits import (
    HASHED,
    INTEGER_BITS,
    LONGEST_LITERAL,
    VALUE_CHARACTERS,
    VALUE_DEPTH,
    VALUE_PIECES,
)
from groupwise.sandbox.wire import risky


def fault_of(value: Any) -> str:
    """Why a value is not plain data, or too much of it; empty if it is fine."""
    pieces = characters = 0
    level = [value]  # level by level instead of recursion, which hostile nesting would exhaust
    for _ in range(VALUE_DEPTH):
        pieces += len(level)
        if pieces > VALUE_PIECES:
            return f"has more than {VALUE_PIECES:,} pieces"
        below: list[Any] = []
        for piece in level:
            if fault := _piece_fault(piece):
                return fault
            characters += len(piece) if type(piece) in (str, bytes) else 0
            below.extend(_inside(piece))
        if characters > VALUE_CHARACTERS:
            return f"has more than {VALUE_CHARACTERS:,} characters"
        if not below:
            return ""
        level = below
    return f"is nested deeper than {VALUE_DEPTH} levels"


def _piece_fault(piece: Any) -> str:
    kind = type(piece)
    if kind is int and piece.bit_length() > INTEGER_BITS:
        return f"contains an integer of {piece.bit_length():,} bits; the limit is {INTEGER_BITS:,}"
    known = kind in (type(None), bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
    return "" if known else f"contains a {kind.__name__}, which is not plain data"


def _inside(piece: Any) -> Iterator[Any]:
    if type(piece) is dict:
        yield from piece
        yield from piece.values()
    elif type(piece) in (list, tuple, set, frozenset):
        yield from piece


# Possessive repetition (`++`, `*+`) never backtracks, so hostile text cannot make the pattern slow.
HEX = "[0-9a-fA-F]"
ESCAPE = rf"""\\(?:[\\'"abfnrtv]|x{HEX}{{2}}|u{HEX}{{4}}|U{HEX}{{8}})"""
OF_BYTES = rf"""\\(?:[\\'"abfnrtv]|x{HEX}{{2}})"""
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number>-?(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?![\w.]))
    |(?P<whole>-?\d+(?![\w.]))
    |(?P<text>'(?:[^'\\\n]++|{ESCAPE})*+'|"(?:[^"\\\n]++|{ESCAPE})*+")
    |(?P<bytes>b'(?:[^'\\\n]++|{OF_BYTES})*+'|b"(?:[^"\\\n]++|{OF_BYTES})*+")
    |(?P<name>None\b|True\b|False\b|set\(\))
    |(?P<mark>frozenset\(|[][(){{}},:])
    )""",
    re.VERBOSE,
)
NAMES: dict[str, Any] = {"None": None, "True": True, "False": False}
CLOSES = {"[": "]", "(": ")", "{": "}", "frozenset(": ")"}


def read(text: str, most: int = VALUE_PIECES) -> tuple[Any, int]:
    """The value and the number of its pieces; raises `ValueError` with what is wrong.

    Pieces are counted while reading, because reading is our time: a list is written a hundred times as fast.
    """
    if len(text) > LONGEST_LITERAL:
        raise ValueError(f"takes {len(text):,} characters to write; the limit is {LONGEST_LITERAL:,}")
    reader = _Reader(text, most)
    value = reader.value(reader.token(), VALUE_DEPTH + 10)
    if text[reader.at :].strip():
        raise reader.fault()
    return value, reader.pieces


class _Reader:
    def __init__(self, text: str, most: int) -> None:
        self.text, self.most = text, most
        self.at = self.pieces = self.hashed = 0

    def fault(self) -> ValueError:
        return ValueError(f"is {self.text[:60]!r}, which is not plain data")

    def token(self) -> re.Match[str]:
        found = TOKEN.match(self.text, self.at)
        if found is None:
            raise self.fault()
        self.at = found.end()
        return found

    def value(self, token: re.Match[str], depth: int) -> Any:
        kind, word = token.lastgroup, token[token.lastgroup or 0]
        self.pieces += 1
        if self.pieces > self.most:
            raise ValueError(f"has more than {self.most:,} pieces")
        if kind == "whole":
            return int(word)
        if kind == "number":
            return float(word)
        if kind == "text":
            return self.unescaped(word[1:-1])
        if kind == "bytes" and word.isascii():
            return self.unescaped(word[2:-1]).encode("latin1")
        if kind == "name":
            return NAMES.get(word, set())
        if word not in CLOSES:
            raise self.fault()
        if depth == 0:
            raise ValueError(f"is nested deeper than {VALUE_DEPTH} levels")
        return self.container(word, depth - 1)

    def unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        try:
            return text.encode("ascii", "backslashreplace").decode("unicode_escape")
        except UnicodeDecodeError:  # a code point that does not exist
            raise self.fault() from None

    def container(self, opened: str, depth: int) -> Any:
        """What is between two brackets."""
        keys: list[Any] = []
        values: list[Any] = []
        comma = False
        while (token := self.token())["mark"] != CLOSES[opened]:
            keys.append(self.value(token, depth))
            after = self.token()["mark"]
            if after == ":" and opened == "{":
                values.append(self.value(self.token(), depth))
                after = self.token()["mark"]
            comma = after == ","
            if not comma:
                if after != CLOSES[opened]:
                    raise self.fault()
                break
        if opened == "[":
            return keys
        if opened == "(":
            return tuple(keys) if comma or not keys or len(keys) > 1 else keys[0]
        if opened == "frozenset(":
            if keys and not (len(keys) == 1 and type(keys[0]) is set):
                raise self.fault()
            return frozenset(*keys)
        return self.hashed_container(keys, values)

    def hashed_container(self, keys: list[Any], values: list[Any]) -> Any:
        self.hashed += risky(keys)
        if self.hashed > HASHED:
            raise ValueError("has too many keys that are neither strings nor small numbers")
        try:
            if len(values) == len(keys):
                return dict(zip(keys, values, strict=True))
            if values:
                raise self.fault()
            return set(keys)
        except TypeError:
            raise self.fault() from None
