"""Is the answer right, and is it in the right format?

    exact      the same text, except for spaces
    numeric    the same number, within a tolerance
    symbolic   the same expression, however it is written (with SymPy)
    format     a pattern, tags, or JSON

The right answer is the one given, or the task's `answer`. If there is none, attempts fail; they do not score 0.
"""

import importlib.util
import json
import math
import re
import subprocess
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.foreign_programs import ProgramFailed, last_match
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.components import Component, ReplyText, known, replies
from groupwise.rewards.scoring import per_attempt
from groupwise.thoughts import THINK
from groupwise.types import Failed, Message, Score, Task, Trajectory
from groupwise.workers import RequestFailed, WorkerLost, Workers, WorkerTimeout

SIGN = r"(?:(?<![^\W_])[-+\u2212])?"  # after a letter or a digit it is a hyphen or a subtraction
WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
NUMBER = re.compile(rf"{SIGN}(?:{WHOLE}(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)(?:[eE][-+]?[0-9]{{1,6}})?")
TAG = re.compile(r"</?answer>", re.IGNORECASE)
BRACE = re.compile(r"\\boxed\s?\{|[{}]")
LONGEST, LONGEST_FRACTION = 100_000, 100  # characters, from the end of a reply and from the start of a fraction


def answer_in(text: str) -> tuple[str, bool]:
    """The last \\boxed{…} or <answer>…</answer> in a text, or else all of it; and whether it was marked like this."""
    text = text[-LONGEST:]
    marked = [found for found in (_tagged(text), _boxed(text)) if found]
    return (max(marked)[1].strip(), True) if marked else (text.strip(), False)


def _tagged(text: str) -> tuple[int, str] | None:
    # One pass over the tags, so that hostile text takes linear time.
    opened, found = None, None
    for tag in TAG.finditer(text):
        if not tag.group().startswith("</"):
            opened = tag.end()
        elif opened is not None:
            found, opened = (opened, text[opened : tag.start()]), None
    return found


def _boxed(text: str) -> tuple[int, str] | None:
    """The content of the last \\boxed{…} that is closed, with its position; braces may be nested."""
    # A stack of open braces (position after it, whether it is a box): nesting in one linear pass.
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
    """The last number in the text. 1,000 equals 1000.0; 1,2 and 3-4 are two numbers each."""
    found = NUMBER.findall(text)
    try:
        return Decimal(found[-1].replace(",", "").replace("\u2212", "-")) if found else None
    except InvalidOperation:
        return None


class AnswerReward(RewardFunction):
    """1 for the right answer, 0 for any other; parts `correct` and `format` (whether there is an answer at all).

    Only the assistant's last reply counts. `expected`, if given, is the right answer to every task.
    """

    label: ClassVar[str]

    def __init__(self, weight: float = 1.0, expected: Any = None, name: str | None = None) -> None:
        super().__init__(weight, name or self.label)
        self.expected = None if expected is None else str(expected)

    def read(self, text: str) -> Any:
        """The answer in a text; None if there is none."""
        raise NotImplementedError(f"{type(self).__name__} does not define read")

    def same(self, answer: Any, right: Any) -> bool:
        return bool(answer == right)

    def grade(self, text: str, right: str) -> Score:
        wanted = self.read(right)
        if wanted is None:
            message = f"the correct answer {right!r:.60} cannot be read as {self.label}"
            raise ContractError(message, hint="Correct the task.")
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
            message = f"{self.name} has no correct answer to compare with"
            raise ContractError(message, hint="Pass `expected`, or add a column `answer` to the tasks.")
        said = replies(turns)
        return self.grade(said[-1].text if said else "", right)


class ExactReward(AnswerReward):
    """The same text, apart from spaces; with `ignore_case`, also apart from capitals."""

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
    """|x − right| ≤ max(tolerance, relative_tolerance · |right|), where x is the last number of the answer.

    An answer that is just a fraction, such as 3/4, counts as its value, and 50% as 50. Without tolerances the numbers
    must be equal, as 1000.0 and 1,000 are.
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
            # These are decimals: unlike with floats, 0.1 and long integers are exact.
            return bool(answer == right) or (allowed > 0 and abs(answer - right) <= allowed)
        except ArithmeticError:  # a number with a million digits
            return False


class SymbolicReward(AnswerReward):
    """The same expression: x + x equals 2x, and 1/2 equals 0.5 and \\frac{1}{2}. It is parsed, never executed.

    Needs SymPy (the extra `symbolic`). Expressions that cannot be parsed, or take longer than `time_limit` seconds to
    compare, are compared as text and flagged `compared_as_text`.
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
        # Equal as text is equal: most answers never need SymPy.
        if graded.parts["correct"] or answer is None or wanted is None:
            return graded
        equal = self.equal(answer, wanted)
        if equal is None:
            return Score(0.0, graded.parts, ("compared_as_text",))
        return Score(float(equal), {**graded.parts, "correct": float(equal)})

    def equal(self, first: str, second: str) -> bool | None:
        """Whether two expressions are equal; None if they cannot be parsed, or not compared in time."""
        try:
            return bool(self.workers.submit((first, second), seconds=self.time_limit).result())
        except (RequestFailed, WorkerTimeout, WorkerLost):
            return None


def _fraction(text: str) -> Decimal | None:
    above, slash, below = text[:LONGEST_FRACTION].partition("/")
    if not slash or not (NUMBER.fullmatch(above.strip()) and NUMBER.fullmatch(below.strip())):
        return None
    # A denominator of 0 is falsy below: then it is not a fraction.
    numerator, denominator = last_number(above), last_number(below)
    try:
        return numerator / denominator if numerator is not None and denominator else None
    except ArithmeticError:
        return None


FENCE = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
LONGEST_JSON = 1_000_000


class FormatReward(Component):
    """The share of format requirements that a reply meets, each with the same weight.

    `pattern`: a regular expression that must match somewhere in the reply. `tags`: each `<tag>…</tag>` must occur
    exactly once, in the given order. `json_keys`: the reply must be a JSON object, optionally inside a ``` fence, with
    each of these keys; an empty list accepts any JSON. Thoughts are left out, unless the pattern contains `<think>` or
    `think` is one of the tags.
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
            raise ConfigError("format: there is nothing to check", hint="Set pattern, tags or json_keys.")
        self.pattern = pattern
        if pattern is not None:
            self._matches("")
        self.tags = _as_tuple(tags)
        self.json_keys = None if json_keys is None else _as_tuple(json_keys)

    def rate(self, reply: ReplyText) -> float:
        met = []
        if self.pattern is not None:
            met.append(self._matches(reply.written if THINK[0] in self.pattern else reply.text))
        met += self._tags_met(reply.written if "think" in self.tags else reply.text)
        met += self._json_met(reply.text)
        return sum(met) / len(met)

    def _matches(self, text: str) -> bool:
        try:
            return last_match(self.pattern or "", text, re.DOTALL) is not None
        except ProgramFailed as error:
            raise ConfigError(f"format: pattern = {self.pattern!r:.200} cannot be used: {error.message}") from None

    def _tags_met(self, text: str) -> list[bool]:
        """Whether each pair of tags occurs once, after the pair before it."""
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
            return [value is not _NOT_JSON]
        return [isinstance(value, dict) and key in value for key in self.json_keys]


_NOT_JSON = object()


def _json(text: str) -> Any:
    fenced = FENCE.match(text)
    try:
        return json.loads((fenced.group(1) if fenced else text)[:LONGEST_JSON])
    except (ValueError, RecursionError):
        return _NOT_JSON


def _as_tuple(given: Iterable[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
