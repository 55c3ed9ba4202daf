"""Values as models write them outside JSON: Python literals, Gemma's objects, and plain text typed by a schema."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from groupwise.agents.conversation.call_formats.reading import DEEPEST, finite, strict_json

SPACE = re.compile(r"\s*")
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?(?![\w.])")
WORD = re.compile(r"[^,:=(){}\[\]'\"<]+")
QUOTED = {
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
}
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/"}
CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
LONGEST_NUMBER = 300  # digits; Python converts long ones in quadratic time


class Literals:
    """Reads values out of a text, from left to right. `quote` is a mark that encloses strings besides ' and \"."""

    def __init__(self, text: str, quote: str = "") -> None:
        self.text, self.quote, self.place = text, quote, 0

    def skip(self, mark: str = "") -> bool:
        """Move past white space, and past the mark if it is next; return whether it was."""
        self.place = SPACE.match(self.text, self.place).end()  # type: ignore[union-attr]
        found = bool(mark) and self.text.startswith(mark, self.place)
        self.place += len(mark) if found else 0
        return found

    def insist(self, mark: str) -> None:
        if not self.skip(mark):
            raise ValueError(f"the call has {self.text[self.place : self.place + 20]!r} where {mark!r} must be")

    def word(self) -> str:
        """Return a name, up to a space or a sign."""
        self.skip()
        found = WORD.match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found[0].strip() if found else ""

    def value(self, depth: int = 0) -> Any:
        if depth >= DEEPEST:
            raise ValueError(f"the call is nested more than {DEEPEST} levels deep")
        if self.skip("["):
            return self._list(depth)
        if self.skip("{"):
            return self.pairs("}", ":", depth)
        if (text := self._string()) is not None:
            return text
        if number := NUMBER.match(self.text, self.place):
            self.place = number.end()
            if len(number[0]) > LONGEST_NUMBER:
                raise ValueError(f"a number of the call has more than {LONGEST_NUMBER} digits")
            return finite(number[0]) if number[1] or number[2] else int(number[0])
        word = self.word()
        if not word:
            raise ValueError(f"the call has no value at {self.text[self.place : self.place + 20]!r}")
        return CONSTANTS.get(word, word)

    def pairs(self, end: str, between: str, depth: int = 0) -> dict[str, Any]:
        """Return what follows up to `end`: names, each with `between` and a value."""
        found: dict[str, Any] = {}
        while not self.skip(end):
            name = self._string() or self.word()
            if not name:
                raise ValueError(f"the call has no name at {self.text[self.place : self.place + 20]!r}")
            self.insist(between)
            found[name] = self.value(depth + 1)
            # Some templates forget the comma.
            self.skip(",")
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.skip("]"):
            found.append(self.value(depth + 1))
            self.skip(",")
        return found

    def _string(self) -> str | None:
        if self.quote and self.text.startswith(self.quote, self.place):
            start = self.place + len(self.quote)
            end = self.text.find(self.quote, start)
            if end < 0:
                raise ValueError("a text of the call does not end")
            self.place = end + len(self.quote)
            return self.text[start:end]
        pattern = QUOTED.get(self.text[self.place : self.place + 1])
        if pattern is None:
            return None
        found = pattern.match(self.text, self.place)
        if found is None:
            raise ValueError("a text of the call does not end")
        self.place = found.end()
        return ESCAPE.sub(_unescaped, found[1])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else ESCAPED.get(code, f"\\{code}")


def typed(text: str, schema: Any) -> Any:
    """Return a value that was written as plain text: text, unless its schema allows no text."""
    kinds = _kinds(schema)
    if not kinds or "string" in kinds:
        return text
    with suppress(ValueError):
        return strict_json(text)
    with suppress(ValueError):
        reader = Literals(text.strip())
        value = reader.value()
        if reader.place == len(reader.text):
            return value
    # What is no value at all stays text, so that the tool can say what it expected.
    return text


def _kinds(schema: Any) -> set[str]:
    """Return the types that a JSON schema names; none if it leaves them open."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    kinds = set(named if isinstance(named, list) else [named] if named else [])
    options = [_kinds(option) for option in schema.get("anyOf") or schema.get("oneOf") or ()]
    # An option that leaves the type open allows text too.
    return kinds.union(*options) if all(options) else {"string"}
