"""Plain data: all that may leave a sandbox.

What comes back is built by hostile code. It is looked at without calling anything of its own, and without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DEPTH = 50
PIECES = 100_000
CHARACTERS = 1_000_000
BITS = 10_000
"""Of a whole number: larger ones cannot be turned into decimals, which logs and JSON would try."""


def fault_of(value: Any) -> str:
    """Why a value is no plain data, or is too much of it; empty if it is fine."""
    pieces = characters = 0
    level = [value]
    for _ in range(DEPTH):
        pieces += len(level)
        if pieces > PIECES:
            return f"has more than {PIECES:,} pieces"
        below: list[Any] = []
        for piece in level:
            if fault := _piece_fault(piece):
                return fault
            characters += len(piece) if type(piece) in (str, bytes) else 0
            below.extend(_inside(piece))
        if characters > CHARACTERS:
            return f"has more than {CHARACTERS:,} characters"
        if not below:
            return ""
        level = below
    return f"is nested deeper than {DEPTH} levels"


def _piece_fault(piece: Any) -> str:
    kind = type(piece)
    if kind is int and piece.bit_length() > BITS:
        return f"holds a whole number of {piece.bit_length():,} bits, and {BITS:,} is the limit"
    known = kind in (type(None), bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
    return "" if known else f"holds a {kind.__name__}, which is no plain data"


def _inside(piece: Any) -> Iterator[Any]:
    if type(piece) is dict:
        yield from piece
        yield from piece.values()
    elif type(piece) in (list, tuple, set, frozenset):
        yield from piece
