"""Problems with one answer: the contract that training and evaluation rely on, and the built-in tasks.

    find_problems(cfg.task) → Problems → Problem → the model's text → Score

`dataset.py` finds problems by name. Built-in tasks make a problem from a random generator, so there is nothing to
download. They are split by a hash of the prompt, so held-out ones never occur in training, regardless of seed.
"""

import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Generic, Protocol, Self, TypeVar

from groupwise.config.rules import TEMPLATE_ARGUMENTS
from groupwise.errors import ConfigError
from groupwise.thoughts import without_thoughts
from groupwise.types import Message, Score


def template_options(given: Any) -> dict[str, Any]:
    """The options of a chat template that came with a row or a request; `ValueError` says what is wrong with them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"chat_template_kwargs is {given!r:.60}, not a table such as {{'enable_thinking': False}}")
    taken = next((name for name in given if name in TEMPLATE_ARGUMENTS), None)
    if taken is not None:
        raise ValueError(f"chat_template_kwargs cannot set {taken!r}: every conversation sets it itself")
    # Tables from Parquet have all columns' names in every row, with null for those that a row leaves out.
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Problem:
    """A question and what is known about its answer.

    `prompt` is one text, or the messages of a chat so far. `columns` is everything that came with the problem, for
    rewards that need more than the answer. `place` says where it came from, for error messages. With `plain`, the model
    continues the prompt's text as it is, without a chat format.
    """

    prompt: str | tuple[Message, ...]
    answer: str
    columns: Mapping[str, Any] = field(default_factory=dict, repr=False)
    demonstration: str | None = None
    place: str = ""
    plain: bool = False

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ConfigError(f"{self.place or 'a problem'} has an empty prompt", hint="Fill it in, or leave it out.")

    @property
    def label(self) -> str:
        """How error messages name the problem: by its place or, without one, by its beginning."""
        return self.place or f"the problem {self.text[:40]!r}"

    @property
    def messages(self) -> list[Message]:
        """The prompt as a chat."""
        return [{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else list(self.prompt)

    @property
    def template_options(self) -> Mapping[str, Any]:
        """Options of the model's chat template for this problem alone: its column `chat_template_kwargs`."""
        return template_options(self.columns.get("chat_template_kwargs"))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the messages, in order."""
        return tuple(message["role"] for message in self.messages)

    @property
    def text(self) -> str:
        """The prompt as plain text."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(message.get("content") or "" for message in self.prompt)


class Problems(Protocol):
    """Where problems come from.

    `training` is a pure function of its arguments, so a run can resume anywhere, and never returns a problem that
    `held_out` returns, regardless of seed. `grade` is called in a thread, and its result may have to be awaited.
    `demonstration` returns the text that a supervised run imitates, or raises `ConfigError` if there is none.
    """

    @property
    def name(self) -> str: ...
    def training(self, seed: int, number: int) -> Problem: ...
    def held_out(self, seed: int, count: int) -> Sequence[Problem]: ...
    def grade(self, problem: Problem, text: str, finished: bool) -> Score | Awaitable[Score]: ...
    def demonstration(self, problem: Problem) -> str: ...


T = TypeVar("T")


class Epochs(Generic[T]):
    """Training items in a new order every epoch, and held-out items."""

    def __init__(self, train: Sequence[T], test: Sequence[T]) -> None:
        self.train, self.test = train, test
        self._orders: dict[tuple[int, int], list[int]] = {}

    def training(self, seed: int, number: int) -> T:
        epoch, place = divmod(number, len(self.train))
        return self.train[self._order(seed, epoch)[place]]

    def held_out(self, seed: int, count: int) -> list[T]:
        """Return `count` held-out items; all of them if there are no more."""
        test = self.test or self.train
        return list(test) if count >= len(test) else random.Random(seed).sample(test, count)

    def _order(self, seed: int, epoch: int) -> list[int]:
        if (seed, epoch) not in self._orders:
            order = list(range(len(self.train)))
            random.Random(f"{seed}/{epoch}").shuffle(order)
            # Two epochs at a time: attempts of a step may fall into this one and the next.
            self._orders = {**dict([*self._orders.items()][-1:]), (seed, epoch): order}
        return self._orders[seed, epoch]


def is_correct(score: Score) -> bool | None:
    """Return whether an answer is right: what the part `correct` of its score says, else whether the total is 1.

    None if that cannot be known: the total is outside 0 … 1, or combines several rewards.
    """
    said = [value for name, value in score.parts.items() if name.rpartition(".")[2] == "correct"]
    if said:
        return min(said) >= 1.0
    combined = len(score.parts) > 1 and "environment" not in score.parts
    return score.total >= 1.0 if 0.0 <= score.total <= 1.0 and not combined else None


HELD_OUT = 5  # one prompt in this many is held out
DIGITS, LETTERS, FEW_LETTERS = "0123456789", "abcdefgh", "abcd"


@dataclass(frozen=True)
class Size:
    """The size of problems: `task.options` sets the number of `unit`."""

    unit: str
    value: int
    least: int
    most: int


@dataclass(frozen=True)
class VerifiableTask:
    """A kind of problem: how to make one of a given size, and which characters an answer may contain.

    With a `marker`, the answer is what follows the marker; only characters of `scratch` may come before it.
    """

    name: str
    make: Callable[[random.Random, int], Problem]
    alphabet: str
    size: Size
    marker: str = ""
    scratch: str = ""

    def with_options(self, options: Mapping[str, object]) -> Self:
        """Return the task at the size that `task.options` asks for."""
        size = self.size
        for name, value in options.items():
            if name != size.unit or type(value) is not int or not size.least <= value <= size.most:
                message = f"task.options.{name} = {value!r} does not fit the task {self.name!r}"
                hint = f"Its option is {size.unit}, a whole number from {size.least} to {size.most}."
                raise ConfigError(message, hint=hint, field="task.options")
            size = replace(size, value=value)
        return replace(self, size=size)

    def training(self, seed: int, number: int) -> Problem:
        return self._sample(random.Random(f"{seed}/{number}"), held_out=False)

    def held_out(self, seed: int, count: int) -> list[Problem]:
        rng = random.Random(seed)
        return [self._sample(rng, held_out=True) for _ in range(count)]

    def _sample(self, rng: random.Random, held_out: bool) -> Problem:
        while True:
            problem = self.make(rng, self.size.value)
            if is_held_out(problem.text) == held_out:
                return problem

    def demonstration(self, problem: Problem) -> str:
        return problem.answer if problem.demonstration is None else problem.demonstration

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        """Score 1 for the right answer; less for one that is partly right, or only well-formed.

        total = 0.7 · correct + 0.2 · share of right places + 0.1 · well-formed. A place is a character counted from the
        end, so that the units of a sum can be right when its tens are not.
        """
        text = without_thoughts(text)
        before, marker, answer = text.rpartition(self.marker) if self.marker else ("", "", text)
        well_formed = (
            finished
            and marker == self.marker
            and set(before) <= set(self.scratch)
            and bool(answer)
            and set(answer) <= set(self.alphabet)
        )
        # From the end, so that a missing leading digit does not shift all others.
        pairs = zip(reversed(answer), reversed(problem.answer), strict=False)
        places = sum(a == b for a, b in pairs) / max(len(answer), len(problem.answer))
        correct = well_formed and answer == problem.answer
        parts = {"correct": float(correct), "places": places if well_formed else 0.0, "format": float(well_formed)}
        # Summed in tenths, because 0.7 + 0.2 + 0.1 is not exactly 1 in floating point.
        tenths = 7 * parts["correct"] + 2 * parts["places"] + parts["format"]
        return Score(tenths / 10, parts)


def is_held_out(prompt: str) -> bool:
    """Return whether a prompt is held out: one in `HELD_OUT`, chosen by its text alone."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT == 0


def addition(rng: random.Random, digits: int) -> Problem:
    first, second = rng.randrange(10**digits), rng.randrange(10**digits)
    return Problem(f"{first}+{second}", str(first + second))


def column_addition(rng: random.Random, digits: int) -> Problem:
    """A sum as on paper: both numbers with all digits, the answer from the units up, so 07+95 is 201 (for 102)."""
    first, second = rng.randrange(10**digits), rng.randrange(10**digits)
    answer = f"{first + second:0{digits + 1}}"
    return Problem(f"{first:0{digits}}+{second:0{digits}}", answer[::-1])


def addition_steps(rng: random.Random, digits: int) -> Problem:
    """A sum with its working, from the units with carries: 47+85 is 7+5=12,4+8+1=13:132."""
    problem = addition(rng, digits)
    first, second = problem.text.split("+")
    steps, carry = [], 0
    for a, b in zip_longest(reversed(first), reversed(second), fillvalue="0"):
        total = int(a) + int(b) + carry
        steps.append(f"{a}+{b}+1={total}" if carry else f"{a}+{b}={total}")
        carry = total // 10
    return replace(problem, demonstration=f"{','.join(steps)}:{problem.answer}")


def sorting(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, LETTERS, longest)
    return Problem(f"sort {letters}", "".join(sorted(letters)))


def counting(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, "ab", longest)
    return Problem(f"count a in {letters}", str(letters.count("a")))


def reversing(rng: random.Random, longest: int) -> Problem:
    letters = word(rng, LETTERS, longest)
    return Problem(f"reverse {letters}", letters[::-1])


def editing(rng: random.Random, longest: int) -> Problem:
    """Edit every occurrence of a letter: replace, delete or double it."""
    letters = word(rng, FEW_LETTERS, longest)
    while len(set(letters)) == 1:  # deleting its only letter would leave an empty answer
        letters = word(rng, FEW_LETTERS, longest)
    old = rng.choice(letters)
    new = rng.choice([letter for letter in FEW_LETTERS if letter != old])
    edits = {
        f"replace {old} by {new} in {letters}": letters.replace(old, new),
        f"delete {old} in {letters}": letters.replace(old, ""),
        f"double {old} in {letters}": letters.replace(old, old + old),
    }
    return Problem(*rng.choice(list(edits.items())))


def word(rng: random.Random, alphabet: str, longest: int) -> str:
    return "".join([rng.choice(alphabet) for _ in range(rng.randrange(3, longest + 1))])


TASKS = {
    task.name: task
    for task in (
        VerifiableTask("addition", addition, DIGITS, Size("digits", 2, 1, 9)),
        VerifiableTask("column_addition", column_addition, DIGITS, Size("digits", 2, 1, 9)),
        VerifiableTask(
            "addition_steps", addition_steps, DIGITS, Size("digits", 3, 1, 9), marker=":", scratch=f"{DIGITS}+=,"
        ),
        VerifiableTask("sorting", sorting, LETTERS, Size("letters", 6, 3, 40)),
        VerifiableTask("counting", counting, DIGITS, Size("letters", 12, 3, 40)),
        VerifiableTask("reversing", reversing, LETTERS, Size("letters", 6, 3, 40)),
        VerifiableTask("editing", editing, FEW_LETTERS, Size("letters", 6, 3, 40)),
    )
}
