"""The pure operators: on numbers, lists of numbers, strings, lists of words, and tables.

`PURE` is the registry of all of them. `Operator` checks their arguments and limits their results.
"""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import floordiv, itemgetter, mod
from typing import Any

from groupwise.programs.language.operators import Operator, OperatorError, Registry, Type, Value

INT, NUMBERS, TEXT, WORDS, TABLE, COLUMN, CELL, ROW = (
    Type.INT, Type.NUMBERS, Type.TEXT, Type.WORDS, Type.TABLE, Type.COLUMN, Type.CELL, Type.ROW,
)  # fmt: skip
Row = dict[str, Any]


def _op(
    name: str, takes: tuple[Type, ...], gives: Type, run: Callable[..., Value], doc: str, commutes: bool = False
) -> Operator:
    return Operator(name, takes, gives, run, "pure", doc, commutes)


def _division(name: str, divide: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def division(x: int, y: int) -> int:
        if y == 0:
            raise OperatorError(f"{name}({x}, 0): division by zero")
        return divide(x, y)

    return division


def _one(name: str, choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise OperatorError(f"{name} of an empty list")
        return choose(items)

    return chosen


def _counted(n: int, name: str) -> int:
    if n < 0:
        raise OperatorError(f"{name} takes a count of 0 or more, not {n}")
    return n


NUMBER_OPERATORS = (
    _op("add", (INT, INT), INT, lambda x, y: x + y, "the sum of two numbers", commutes=True),
    _op("sub", (INT, INT), INT, lambda x, y: x - y, "the first number minus the second"),
    _op("mul", (INT, INT), INT, lambda x, y: x * y, "the product of two numbers", commutes=True),
    _op("div", (INT, INT), INT, _division("div", floordiv), "the quotient, rounded down"),
    _op("rest", (INT, INT), INT, _division("rest", mod), "the remainder of dividing the first by the second"),
    _op("double", (INT,), INT, lambda x: 2 * x, "twice the number"),
    _op("half", (INT,), INT, lambda x: x // 2, "half the number, rounded down"),
)

LIST_OPERATORS = (
    _op("sort", (NUMBERS,), NUMBERS, sorted, "smallest first"),
    _op("reverse", (NUMBERS,), NUMBERS, lambda xs: xs[::-1], "last first"),
    _op("unique", (NUMBERS,), NUMBERS, lambda xs: list(dict.fromkeys(xs)), "without repetitions, in the same order"),
    _op("evens", (NUMBERS,), NUMBERS, lambda xs: [x for x in xs if x % 2 == 0], "the even ones"),
    _op("odds", (NUMBERS,), NUMBERS, lambda xs: [x for x in xs if x % 2], "the odd ones"),
    _op("squares", (NUMBERS,), NUMBERS, lambda xs: [x * x for x in xs], "each times itself"),
    _op("running", (NUMBERS,), NUMBERS, lambda xs: list(accumulate(xs)), "the sums so far"),
    _op("take", (NUMBERS, INT), NUMBERS, lambda xs, n: xs[: _counted(n, "take")], "the first n"),
    _op("drop", (NUMBERS, INT), NUMBERS, lambda xs, n: xs[_counted(n, "drop") :], "all but the first n"),
    _op("above", (NUMBERS, INT), NUMBERS, lambda xs, n: [x for x in xs if x > n], "those larger than n"),
    _op("below", (NUMBERS, INT), NUMBERS, lambda xs, n: [x for x in xs if x < n], "those smaller than n"),
    _op("add_each", (NUMBERS, INT), NUMBERS, lambda xs, n: [x + n for x in xs], "each plus n"),
    _op("times_each", (NUMBERS, INT), NUMBERS, lambda xs, n: [x * n for x in xs], "each times n"),
    _op("total", (NUMBERS,), INT, sum, "the sum of all"),
    _op("count", (NUMBERS,), INT, len, "how many there are"),
    _op("largest", (NUMBERS,), INT, _one("largest", max), "the largest"),
    _op("smallest", (NUMBERS,), INT, _one("smallest", min), "the smallest"),
    _op("first", (NUMBERS,), INT, _one("first", itemgetter(0)), "the first"),
    _op("last", (NUMBERS,), INT, _one("last", itemgetter(-1)), "the last"),
)

TEXT_OPERATORS = (
    _op("upper", (TEXT,), TEXT, str.upper, "in capitals"),
    _op("mirror", (TEXT,), TEXT, lambda s: s[::-1], "letters in reverse"),
    _op("no_vowels", (TEXT,), TEXT, lambda s: "".join(c for c in s if c.lower() not in "aeiou"), "without vowels"),
    _op("length", (TEXT,), INT, len, "how many letters"),
    _op("split", (TEXT,), WORDS, str.split, "its words"),
    _op("join", (WORDS,), TEXT, " ".join, "the words with a space between"),
    _op("glue", (WORDS,), TEXT, "".join, "the words without a space"),
    _op("initials", (WORDS,), TEXT, lambda ws: "".join(w[:1] for w in ws), "the first letter of each word"),
    _op("sort_words", (WORDS,), WORDS, sorted, "in alphabetical order"),
    _op("reverse_words", (WORDS,), WORDS, lambda ws: ws[::-1], "last word first"),
    _op("unique_words", (WORDS,), WORDS, lambda ws: list(dict.fromkeys(ws)), "each word once"),
    _op("take_words", (WORDS, INT), WORDS, lambda ws, n: ws[: _counted(n, "take_words")], "the first n words"),
    _op("drop_words", (WORDS, INT), WORDS, lambda ws, n: ws[_counted(n, "drop_words") :], "all but the first n words"),
    _op("count_words", (WORDS,), INT, len, "how many words"),
    _op("longest", (WORDS,), TEXT, _one("longest", partial(max, key=len)), "the longest word, the first of equals"),
    _op("shortest", (WORDS,), TEXT, _one("shortest", partial(min, key=len)), "the shortest word, the first of equals"),
    _op("first_word", (WORDS,), TEXT, _one("first_word", itemgetter(0)), "the first word"),
    _op("last_word", (WORDS,), TEXT, _one("last_word", itemgetter(-1)), "the last word"),
)


def _cells(rows: list[Row], column: str, name: str) -> list[int]:
    cells = [row.get(column) for row in rows]
    if not all(isinstance(cell, int) for cell in cells):
        raise OperatorError(f"{name} needs a column of numbers, and {column[:40]!r} is not one")
    return [cell for cell in cells if isinstance(cell, int)]


def _kept(name: str, test: Callable[[int, int], bool]) -> Callable[[list[Row], str, int], list[Row]]:
    def kept(rows: list[Row], column: str, n: int) -> list[Row]:
        return [row for row, cell in zip(rows, _cells(rows, column, name), strict=True) if test(cell, n)]

    return kept


def _summary(name: str, summarise: Callable[[list[int]], int]) -> Callable[[list[Row], str], int]:
    def summary(rows: list[Row], column: str) -> int:
        cells = _cells(rows, column, name)
        if not cells and name != "sum_of":
            raise OperatorError(f"{name} of a table without rows")
        return summarise(cells)

    return summary


def _who(name: str, choose: Callable[..., int]) -> Callable[[list[Row], str], str]:
    def who(rows: list[Row], column: str) -> str:
        cells = _cells(rows, column, name)
        if not cells:
            raise OperatorError(f"{name} of a table without rows")
        at = choose(range(len(cells)), key=cells.__getitem__)
        return str(rows[at].get("name", ""))

    return who


def _look(rows: list[Row], who: str, column: str) -> int:
    for row in rows:
        if row.get("name") == who:
            return _cells([row], column, "look")[0]
    raise OperatorError(f"look: no row is named {who[:40]!r}")


TABLE_OPERATORS = (
    _op("where", (TABLE, CELL), TABLE, lambda t, w: [r for r in t if w in r.values()], "the rows that hold the word"),
    _op("without", (TABLE, CELL), TABLE, lambda t, w: [r for r in t if w not in r.values()], "the rows that do not"),
    _op("over", (TABLE, COLUMN, INT), TABLE, _kept("over", lambda x, n: x > n), "the rows with more than n"),
    _op("under", (TABLE, COLUMN, INT), TABLE, _kept("under", lambda x, n: x < n), "the rows with less than n"),
    _op("count_rows", (TABLE,), INT, len, "how many rows"),
    _op("sum_of", (TABLE, COLUMN), INT, _summary("sum_of", sum), "the sum of a column"),
    _op("mean_of", (TABLE, COLUMN), INT, _summary("mean_of", lambda c: sum(c) // len(c)), "its mean, rounded down"),
    _op("highest", (TABLE, COLUMN), INT, _summary("highest", max), "the largest number of a column"),
    _op("lowest", (TABLE, COLUMN), INT, _summary("lowest", min), "the smallest number of a column"),
    _op("who_most", (TABLE, COLUMN), TEXT, _who("who_most", max), "the name in the row with the largest number"),
    _op("who_least", (TABLE, COLUMN), TEXT, _who("who_least", min), "the name in the row with the smallest number"),
    _op("look", (TABLE, ROW, COLUMN), INT, _look, "the number in the named row"),
)

PURE = Registry([*NUMBER_OPERATORS, *LIST_OPERATORS, *TEXT_OPERATORS, *TABLE_OPERATORS])
