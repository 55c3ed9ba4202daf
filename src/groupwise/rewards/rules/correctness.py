"""Right or wrong: the answer in a text beside the one that is known.

    exact      the same text, but for spaces
    numeric    the same number, within a tolerance
    symbolic   the same expression, however it is written (with SymPy)

The known answer is the one given, or the `answer` that comes with the task; without any, an attempt fails: it is no 0.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.components import Component, ReplyText, known, replies
from groupwise.rewards.scoring import per_attempt
from groupwise.types import Failed, Message, Score, Task, Trajectory
from groupwise.workers import RequestFailed, WorkerLost, Workers, WorkerTimeout

SIGN = r"(?:(?<![^\W_])[-+\u2212])?"  # behind a letter or a digit it is a hyphen, or takes something away
WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
NUMBER = re.compile(rf"{SIGN}(?:{WHOLE}(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)(?:[eE][-+]?[0-9]{{1,6}})?")
TAG = re.compile(r"</?answer>", re.IGNORECASE)
BRACE = re.compile(r"\\boxed\s?\{|[{}]")
LONGEST, LONGEST_FRACTION = 100_000, 100


def answer_in(text: str) -> tuple[str, bool]:
    """The answer in a text, and whether it is marked: the last \\boxed{…} or <answer>…</answer>, or else all of it."""
    text = text[-LONGEST:]
    marked = [found for found in (_tagged(text), _boxed(text)) if found]
    return (max(marked)[1].strip(), True) if marked else (text.strip(), False)


def _tagged(text: str) -> tuple[int, str] | None:
    """Where the last answer between tags begins, and what it is."""
    opened, found = None, None
    for tag in TAG.finditer(text):
        if not tag.group().startswith("</"):
            opened = tag.end()
        elif opened is not None:
            found, opened = (opened, text[opened : tag.start()]), None
    return found


def _boxed(text: str) -> tuple[int, str] | None:
    """Where the last \\boxed{…} that is closed begins, and what is in it; braces may be nested."""
    opened: list[tuple[int, bool]] = []
    found: tuple[int, str] | None = None
    for brace in BRACE.finditer(text):
        if brace.group() != "}":
            opened.append((brace.end(), brace.group() != "{"))
        elif opened:
            start, is_box = opened.pop()
            if is_box and (found is None or start > found[0]):
                found = start, text[start : brace.start()]
    return found


def last_number(text: str) -> Decimal | None:
    """The last number in the text; 1,000 and 1000.0 are the same, 1,2 are two numbers, and so are 3-4."""
    found = NUMBER.findall(text)
    try:
        return Decimal(found[-1].replace(",", "").replace("\u2212", "-")) if found else None
    except InvalidOperation:
        return None


class AnswerReward(RewardFunction):
    """1 for the right answer and 0 for another; parts `correct` and `format` (whether there is an answer at all).

    What counts is the assistant's last reply. `expected` is the right answer to every task, where it is given.
    """

    label: ClassVar[str]

    def __init__(self, weight: float = 1.0, expected: Any = None, name: str | None = None) -> None:
        super().__init__(weight, name or self.label)
        self.expected = None if expected is None else str(expected)

    def read(self, text: str) -> Any:
        """The answer in a text; None where there is none."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it reads an answer")

    def same(self, answer: Any, right: Any) -> bool:
        return bool(answer == right)

    def grade(self, text: str, right: str) -> Score:
        wanted = self.read(right)
        if wanted is None:
            raise ContractError(f"the right answer {right!r:.60} cannot be read as {self.label}", hint="Mend the task.")
        answer = self.read(text)
        correct = answer is not None and self.same(answer, wanted)
        return Score(float(correct), {"correct": float(correct), "format": float(answer is not None)})

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        return self._judge(turns, self.expected)

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        answer = self.expected if self.expected is not None else known(task, "answer")
        right = None if answer is None else str(answer)
        return await per_attempt(lambda _, attempt: self._judge(turns_of(attempt), right))(task, group)

    def _judge(self, turns: Sequence[Message], right: str | None) -> Score:
        if right is None:
            raise ContractError(
                f"{self.name} has no right answer to compare with",
                hint="Give `expected`, or tasks with a column `answer`.",
            )
        said = replies(turns)
        return self.grade(said[-1].text if said else "", right)


class ExactReward(AnswerReward):
    """The same text, spaces at the ends and runs of them apart; `ignore_case` forgives capitals too."""

    label = "exact"

    def __init__(
        self, weight: float = 1.0, expected: Any = None, ignore_case: bool = False, name: str | None = None
    ) -> None:
        super().__init__(weight, expected, name)
        self.ignore_case = ignore_case

    def read(self, text: str) -> str | None:
        answer = " ".join(answer_in(text)[0].split())
        return (answer.casefold() if self.ignore_case else answer) or None


class NumericReward(AnswerReward):
    """|x − right| ≤ max(tolerance, relative_tolerance · |right|), x being the last number of the answer.

    A fraction such as 3/4 that is the whole answer counts as its value, and 50% as 50. Without tolerances, 1000.0 is
    1,000 and nothing else is.
    """

    label = "numeric"

    def __init__(
        self,
        weight: float = 1.0,
        expected: Any = None,
        tolerance: float = 0.0,
        relative_tolerance: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, expected, name)
        for setting, value in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance)):
            if not 0 <= value < math.inf:
                raise ConfigError(f"numeric: {setting} = {value} must be a finite number of at least 0")
        self.tolerance, self.relative_tolerance = Decimal(str(tolerance)), Decimal(str(relative_tolerance))

    def read(self, text: str) -> Decimal | None:
        answer = answer_in(text)[0]
        fraction = _fraction(answer)
        return last_number(answer) if fraction is None else fraction

    def same(self, answer: Any, right: Any) -> bool:
        try:
            allowed = max(self.tolerance, self.relative_tolerance * abs(right))
            return bool(answer == right) or (allowed > 0 and abs(answer - right) <= allowed)
        except ArithmeticError:  # numbers of a million digits
            return False


class SymbolicReward(AnswerReward):
    """The same expression: x + x is 2x, 1/2 is 0.5 and \\frac{1}{2}; read by a small grammar, never by running it.

    Needs SymPy (the extra `symbolic`). What cannot be read, or takes longer than `time_limit` seconds to compare, is
    compared as text and flagged `compared_as_text`.
    """

    label = "symbolic"

    def __init__(
        self, weight: float = 1.0, expected: Any = None, time_limit: float = 1.0, name: str | None = None
    ) -> None:
        super().__init__(weight, expected, name)
        if not 0 < time_limit < math.inf:
            raise ConfigError(f"symbolic: time_limit = {time_limit} must be a number of seconds above 0")
        if importlib.util.find_spec("sympy") is None:
            raise MissingExtra("comparing expressions needs SymPy", hint="pip install 'groupwise[symbolic]'")
        self.time_limit = time_limit
        self.workers = Workers("groupwise.rewards.rules.expressions:comparer", stderr=subprocess.DEVNULL)

    def read(self, text: str) -> str | None:
        answer, marked = answer_in(text)
        if not marked and "\n" in answer:
            answer = answer.splitlines()[-1]
        return answer.strip().strip("$").strip().rstrip(".") or None

    def grade(self, text: str, right: str) -> Score:
        graded = super().grade(text, right)
        answer, wanted = self.read(text), self.read(right)
        if graded.parts["correct"] or answer is None or wanted is None:
            return graded
        equal = self.equal(answer, wanted)
        if equal is None:
            return Score(0.0, graded.parts, ("compared_as_text",))
        return Score(float(equal), {**graded.parts, "correct": float(equal)})

    def equal(self, first: str, second: str) -> bool | None:
        """Whether two expressions are equal; None if they cannot be read, or not be compared in time."""
        try:
            return bool(self.workers.submit((first, second), seconds=self.time_limit).result())
        except (RequestFailed, WorkerTimeout, WorkerLost):
            return None


def _fraction(text: str) -> Decimal | None:
    above, slash, below = text[:LONGEST_FRACTION].partition("/")
    if not slash or not (NUMBER.fullmatch(above.strip()) and NUMBER.fullmatch(below.strip())):
        return None
    numerator, denominator = last_number(above), last_number(below)
    try:
        return numerator / denominator if numerator is not None and denominator else None
    except ArithmeticError:
        return None


FENCE = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
LONGEST_JSON = 1_000_000


class FormatReward(Component):
    """The share of demands that a reply meets, each counting the same.

    `pattern`: a regular expression that must match somewhere in it. `tags`: each `<tag>…</tag>` must be there exactly
    once, opened before it is closed, in the order given. `json_keys`: the reply must be a JSON object (a fence of ```
    around it is fine), and have each of the keys; with no keys, any JSON will do.
    """

    label = "format"

    def __init__(
        self,
        weight: float = 1.0,
        pattern: str | None = None,
        tags: Iterable[str] | None = None,
        json_keys: Iterable[str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name)
        if pattern is None and tags is None and json_keys is None:
            raise ConfigError("format: nothing is demanded", hint="Give pattern, tags or json_keys.")
        self.pattern = None if pattern is None else _compiled(pattern)
        self.tags = _as_tuple(tags)
        self.json_keys = None if json_keys is None else _as_tuple(json_keys)

    def rate(self, reply: ReplyText) -> float:
        met = [] if self.pattern is None else [bool(self.pattern.search(reply.text))]
        met += self._tags_met(reply.text)
        met += self._json_met(reply.text)
        return sum(met) / len(met)

    def _tags_met(self, text: str) -> list[bool]:
        """Whether each pair of tags is there once, behind the pair before it."""
        met, behind = [], 0
        for tag in self.tags:
            opened, closed = f"<{tag}>", f"</{tag}>"
            start, end = text.find(opened, behind), text.find(closed, behind)
            once = text.count(opened) == text.count(closed) == 1
            met.append(once and 0 <= start < end)
            behind = end if met[-1] else behind
        return met

    def _json_met(self, text: str) -> list[bool]:
        if self.json_keys is None:
            return []
        value = _json(text)
        if not self.json_keys:
            return [value is not _NOTHING]
        return [isinstance(value, dict) and key in value for key in self.json_keys]


_NOTHING = object()


def _json(text: str) -> Any:
    fenced = FENCE.match(text)
    try:
        return json.loads((fenced.group(1) if fenced else text)[:LONGEST_JSON])
    except (ValueError, RecursionError):
        return _NOTHING


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"format: pattern = {pattern!r} is no regular expression: {error}") from error


def _as_tuple(given: Iterable[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
