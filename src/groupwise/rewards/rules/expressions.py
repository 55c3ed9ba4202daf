"""Parses mathematical expressions as people and models write them, plain or in LaTeX, into SymPy.

The grammar is our own, because SymPy's parser runs its input as code.

    list     = sum {"," sum}
    sum      = product {("+" | "-") product}
    product  = signed {("*" | "/" | nothing) signed}
    signed   = ("+" | "-") signed | power
    power    = atom {"!"} ["^" signed]
    atom     = number | name | function atom | "(" list ")" | "\\frac" group group | "\\sqrt" ["[" sum "]"] group
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sympy

LONGEST = 400  # characters
DEEPEST = 40  # nested brackets and powers
LARGEST_POWER = 200  # also of factorials: 9^9^9^9 would fill the memory
MEMORY = 2 << 30  # bytes of address space for a process that compares
TOKEN = re.compile(
    r"\s*(?:((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3}(?!\d))?)|(\\?[A-Za-z]+)|(\*\*|[-+*/^!(){}\[\],|]))"
)
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)")
LEFT_SIDE = re.compile(r"^\s*[A-Za-z]\s*=")
PLAIN = {
    "\u2212": "-", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u03c0": " pi ", "\u221a": " sqrt ", "\u221e": " oo ",
}  # fmt: skip
LATEX = {
    "\\cdot": "*", "\\times": "*", "\\div": "/", "\\left": "", "\\right": "", "\\dfrac": "\\frac", "\\tfrac": "\\frac",
    "\\,": " ", "\\;": " ", "\\!": "", "\\ ": " ", "\\$": "", "\\pi": " pi ", "\\infty": " oo ",
}  # fmt: skip
GREEK = ("alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "sigma", "phi", "omega")
CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec, "csc": sympy.csc,
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "asin": sympy.asin, "acos": sympy.acos,
    "atan": sympy.atan, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh, "exp": sympy.exp, "log": sympy.log,
    "ln": sympy.log, "sqrt": sympy.sqrt, "abs": sympy.Abs,
}  # fmt: skip


class Unreadable(ValueError):
    """The text is not an expression, or one too large to work out."""


def read_expression(text: str) -> Any:
    """The expression, or a tuple of several; "x =" in front is ignored."""
    if len(text) > LONGEST:
        raise Unreadable(f"{len(text)} characters; the limit is {LONGEST}")
    return _Reader(_tokens(text)).whole()


def same_expression(first: str, second: str) -> bool:
    """Whether two expressions are equal, as far as SymPy can tell; tuples are compared member by member."""
    one, other = read_expression(first), read_expression(second)
    if isinstance(one, tuple) or isinstance(other, tuple):
        pairs = zip(one, other, strict=False) if isinstance(one, tuple) and isinstance(other, tuple) else ()
        return type(one) is type(other) and len(one) == len(other) and all(_equal(a, b) for a, b in pairs)
    return _equal(one, other)


def comparer() -> Callable[[tuple[str, str]], bool]:
    """`same_expression` for a worker process, so that an expression that takes for ever costs a second, not the run."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    same_expression("0", "0")  # what SymPy loads on first use must not count against a time limit
    return lambda pair: same_expression(*pair)


def _equal(one: Any, other: Any) -> bool:
    if one == other:
        return True
    difference = one - other
    # ∞ − ∞ is not 0
    if difference.has(sympy.nan, sympy.zoo, sympy.oo):
        return False
    return bool(difference.equals(0) or sympy.simplify(difference) == 0)


def _tokens(text: str) -> list[str]:
    text = THOUSANDS.sub("", LEFT_SIDE.sub("", text))
    # Only whole commands: \pi must not match the start of \pitchfork.
    for written, meant in (LATEX | PLAIN).items():
        text = re.sub(re.escape(written) + r"(?![A-Za-z])", meant.replace("\\", "\\\\"), text)
    text = SHORT_FRACTION.sub(r"(\1/\2)", text).strip()
    tokens, place = [], 0
    while place < len(text):
        found = TOKEN.match(text, place)
        if not found:
            raise Unreadable(f"{text[place : place + 10]!r} cannot be parsed")
        tokens.append(next(filter(None, found.groups())))
        place = found.end()
    return tokens


class _Reader:
    """A recursive-descent parser with one method per line of the grammar."""

    def __init__(self, tokens: list[str]) -> None:
        # The empty token at the end means that `next` always exists.
        self.tokens = [*tokens, ""]
        self.place = self.depth = 0

    @property
    def next(self) -> str:
        return self.tokens[self.place]

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]

    def insist(self, token: str) -> None:
        if self.take() != token:
            raise Unreadable(f"{token!r} is missing")

    def whole(self) -> Any:
        found = self.list()
        if self.next:
            raise Unreadable(f"{self.next!r} is unexpected")
        return found

    def list(self) -> Any:
        members = [self.sum()]
        while self.next == ",":
            self.take()
            members.append(self.sum())
        return members[0] if len(members) == 1 else tuple(members)

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"deeper than {DEEPEST} levels")
        total = self.product()
        while self.next in ("+", "-"):
            total = _sum(total, self.product()) if self.take() == "+" else _sum(total, _product(-1, self.product()))
        self.depth -= 1
        return total

    def product(self) -> Any:
        total = self.signed()
        while self.next in ("*", "/", "(", "{") or self.next[:1].isalnum() or self.next[:1] in ("\\", "."):
            if self.next == "/":
                self.take()
                # Left to right: 8/4/2 is 1. No precedence for juxtaposition: 1/2x is x/2.
                total = _product(total, _power(self.signed(), -1))
            else:
                if self.next == "*":
                    self.take()
                total = _product(total, self.signed())
        return total

    def signed(self) -> Any:
        sign = 1
        while self.next in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return _product(sign, self.power())

    def power(self) -> Any:
        base = self.atom()
        while self.next == "!":
            self.take()
            base = _factorial(base)
        if self.next not in ("^", "**"):
            return base
        self.take()
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"deeper than {DEEPEST} levels")
        # Right-associative through `signed`: 2^3^2 is 2^9, and 2^-1 is 1/2.
        raised = _power(base, self.signed())
        self.depth -= 1
        return raised

    def atom(self) -> Any:
        token = self.take()
        if token[:1].isdigit() or token[:1] == ".":
            return sympy.Rational(token)
        if token in ("(", "{", "["):
            found = self.list()
            self.insist({"(": ")", "{": "}", "[": "]"}[token])
            return found
        if token == "|":
            found = self.sum()
            self.insist("|")
            return sympy.Abs(_one(found))
        if token == "\\frac":
            return _product(self.atom(), _power(self.atom(), -1))
        name = token.removeprefix("\\")
        if name == "sqrt" and self.next == "[":
            degree = self.atom()
            return _power(self.atom(), _power(degree, -1))
        if name in FUNCTIONS:
            return self.applied(FUNCTIONS[name])
        if not token.isalpha() and name not in GREEK:
            raise Unreadable(f"{token!r} is not allowed there" if token else "it ends too soon")
        return CONSTANTS[name] if name in CONSTANTS else sympy.Symbol(name)

    def applied(self, function: Callable[..., Any]) -> Any:
        if self.next in ("^", "**"):  # sin^2 x
            self.take()
            power = self.atom()
            return _power(function(_one(self.atom())), power)
        return function(_one(self.atom()))


def _one(value: Any) -> Any:
    if isinstance(value, tuple):
        raise Unreadable("expected one value, found several")
    return value


def _sum(first: Any, second: Any) -> Any:
    return sympy.Add(_one(first), _one(second))


def _product(first: Any, second: Any) -> Any:
    if isinstance(second, tuple) and first == 1:
        return second
    return sympy.Mul(_one(first), _one(second))


def _power(base: Any, exponent: Any) -> Any:
    """A power, unless the number would have more digits than anyone writes."""
    power = sympy.sympify(_one(exponent))
    if power.is_number and not abs(complex(power.evalf())) <= LARGEST_POWER:
        raise Unreadable(f"a power above {LARGEST_POWER}")
    return sympy.Pow(_one(base), power)


def _factorial(value: Any) -> Any:
    if not (value.is_Integer and 0 <= value <= LARGEST_POWER):
        raise Unreadable("a factorial of anything but a small integer")
    return sympy.factorial(value)
