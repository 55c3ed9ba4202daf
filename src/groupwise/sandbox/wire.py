"""Plain data as bytes, and messages of them, between processes that do not trust each other.

A value is a letter, a length or count, a colon, and what it counts: `L2:I1:1S2:ab` is [1, "ab"]. Whatever the bytes
are, reading makes only plain values, within limits; `marshal` and `pickle` would not. A message (frame) is four bytes
of length, big-endian, and that many bytes. This file also runs inside the sandbox, where every import costs time, so
it imports nothing but `os` and `fixed_limits`.
"""

from __future__ import annotations

import os

from groupwise.sandbox.fixed_limits import FRAME, HASHED, WIRE_DEPTH, WIRE_PIECES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Keep = Callable[[Any], tuple[int, str]]
    Make = Callable[[int, str], Any]

# Stands for an object that stays where it is: a number and the name of its type.
HANDLE = "H"


class WireError(ValueError):
    """A value that cannot be sent, or bytes that are not a value."""


def dumps(value: Any, keep: Keep | None = None) -> bytes:
    """The value as bytes; `keep` gives a number and a name to an object that is not plain data."""
    out: list[bytes] = []
    _write(value, out, keep, WIRE_DEPTH)
    return b"".join(out)


def loads(data: bytes, make: Make | None = None, hashed: int = HASHED, pieces: int = WIRE_PIECES) -> Any:
    """The value of the bytes; `make` makes a stand-in for an object that stayed on the other side."""
    reader = _Reader(data, make, hashed, pieces)
    value = reader.value(WIRE_DEPTH)
    if reader.at != len(data):
        raise WireError(f"{len(data) - reader.at} unexpected bytes at the end")
    return value


def _write(value: Any, out: list[bytes], keep: Keep | None, depth: int) -> None:
    if depth == 0:
        raise WireError(f"it is nested deeper than {WIRE_DEPTH} levels")
    kind = type(value)
    if kind in SINGLE and (kind is not type or KINDS.get(value.__name__) is value):
        out.append(SINGLE[kind](value))
        return
    # A subclass is sent as its plain base, read by the base's own methods: the subclass may lie about its contents.
    base = next((known for known in PLAIN if isinstance(value, known)), None)
    if base is None:
        if keep is None:
            raise WireError(f"a {kind.__name__} is not plain data")
        if ODD.get(kind.__name__, ("", None))[0] == kind.__module__:
            out.append(b"G2:")
            _write(kind.__name__, out, keep, depth - 1)
            _write(ODD[kind.__name__][1](value), out, keep, depth - 1)
            return
        number, name = keep(value)
        out.append(_sized("H", f"{number} {name}".encode()))
    elif base in SINGLE:
        out.append(SINGLE[base](base(value)))
    elif base is dict:
        out.append(b"M%d:" % len(value))
        for key in dict.keys(value):
            _write(key, out, keep, depth - 1)
            _write(dict.__getitem__(value, key), out, keep, depth - 1)
    else:
        out.append(b"%s%d:" % (LETTERS[base].encode(), len(value)))
        for item in base.__iter__(value):
            _write(item, out, keep, depth - 1)


def _sized(letter: str, data: bytes) -> bytes:
    return b"%s%d:%s" % (letter.encode(), len(data), data)


def risky(keys: list[Any]) -> int:
    """How many keys could be chosen to share a hash: not strings (their hashes are salted), nor integers below 2^60."""
    return sum(not (type(key) in (str, bytes) or (type(key) is int and -(2**60) < key < 2**60)) for key in keys)


class _Reader:
    def __init__(self, data: bytes, make: Make | None, hashed: int, pieces: int) -> None:
        self.data, self.make = data, make
        self.at = 0
        self.room, self.pieces = hashed, pieces

    def value(self, depth: int) -> Any:
        if depth == 0:
            raise WireError(f"it is nested deeper than {WIRE_DEPTH} levels")
        self.pieces -= 1
        if self.pieces < 0:
            raise WireError("it has too many pieces")
        data, at = self.data, self.at
        colon = data.find(b":", at, at + 12)
        if colon < 0 or not data[at + 1 : colon].isdigit():
            raise WireError("the bytes are not a value")
        letter, count, self.at = chr(data[at]), int(data[at + 1 : colon]), colon + 1
        if letter in CONTAINERS:
            return self.container(letter, count, depth)
        if self.at + count > len(data):
            raise WireError("the bytes end too early")
        self.at += count
        return _one(letter, data[self.at - count : self.at], self.make)

    def container(self, letter: str, count: int, depth: int) -> Any:
        items = [self.value(depth - 1) for _ in range(2 * count if letter == "M" else count)]
        if letter in "EZM":
            self.room -= risky(items[::2] if letter == "M" else items)
            if self.room < 0:
                raise WireError("it has too many keys that are neither strings nor small numbers")
        try:
            if letter == "M":
                return dict(zip(items[::2], items[1::2], strict=True))
            return _odd(*items) if letter == "G" and self.make else CONTAINERS[letter](items)
        except (TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise WireError(f"not a value: {error}") from None


def _odd(name: str, args: tuple[Any, ...]) -> Any:
    if name != "Decimal" and any(type(arg) is str for arg in args):  # Fraction("1e999999999") takes forever
        raise ValueError(f"a {name} cannot be made from a string")
    return getattr(__import__(ODD[name][0]), name)(*args)


def _one(letter: str, data: bytes, make: Make | None) -> Any:
    try:
        if letter == HANDLE and make is not None:
            number, _, name = data.decode().partition(" ")
            return make(int(number), name)
        return READERS[letter](data)
    except (KeyError, ValueError, OverflowError) as error:
        raise WireError(f"not a value of kind {letter!r}: {error}") from None


def _complex(data: bytes) -> complex:
    real, _, imag = data.decode().partition(" ")
    return complex(float.fromhex(real), float.fromhex(imag))


SINGLE: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N0:",
    bool: lambda value: b"T0:" if value else b"F0:",
    int: lambda value: _sized("I", b"%x" % value if value >= 0 else b"-%x" % -value),
    float: lambda value: _sized("D", value.hex().encode()),
    complex: lambda value: _sized("C", f"{value.real.hex()} {value.imag.hex()}".encode()),
    str: lambda value: _sized("S", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _sized("B", value),
    type: lambda value: _sized("K", value.__name__.encode()),
}
READERS: dict[str, Callable[[bytes], Any]] = {
    "N": lambda data: None,
    "T": lambda data: True,
    "F": lambda data: False,
    "I": lambda data: int(data, 16),
    "D": lambda data: float.fromhex(data.decode()),
    "C": _complex,
    "S": lambda data: data.decode("utf-8", "surrogatepass"),
    "B": lambda data: data,
    "K": lambda data: KINDS[data.decode()],
}
# Types that are the same everywhere.
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, object, type(None))
}
LETTERS: dict[Any, str] = {list: "L", tuple: "U", set: "E", frozenset: "Z"}
CONTAINERS: dict[str, Any] = {**{letter: kind for kind, letter in LETTERS.items()}, "M": dict, "G": tuple}
# Values that tests compare. They only pass between processes inside a sandbox, where both sides may keep objects.
ODD: dict[str, tuple[str, Any]] = {
    "Fraction": ("fractions", lambda value: (value.numerator, value.denominator)),
    "Decimal": ("decimal", lambda value: (str(value),)),
    "deque": ("collections", lambda value: (list(value), value.maxlen)),
    "range": ("builtins", lambda value: (value.start, value.stop, value.step)),
    "bytearray": ("builtins", lambda value: (bytes(value),)),
    "date": ("datetime", lambda value: (value.year, value.month, value.day)),
    "timedelta": ("datetime", lambda value: (value.days, value.seconds, value.microseconds)),
}
PLAIN: tuple[Any, ...] = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)


# File descriptors of the dispatcher and the judge to the outside.
JOBS, REPORTS = 60, 61
# The byte in front of a job: more may follow, or it is the last.
NEXT, LAST = b"N", b"L"
# Stands for the seconds of a run after which the dispatcher has ended.
GONE = -1.0
# Random bytes in front of every question, repeated in front of its answer: no answer can be given in advance.
MARK = 8
# The mark of the code's first message, which answers no question.
UNASKED = bytes(MARK)


def read_frame(fd: int) -> bytes:
    """The next message; `EOFError` if the other side is gone."""
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if size > FRAME:
        raise EOFError(f"a message of {size} bytes")
    return read_exactly(fd, size)


def read_exactly(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def write_frame(fd: int, data: bytes) -> None:
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(fd, data) :]
