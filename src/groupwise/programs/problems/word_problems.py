"""Arithmetic word problems.

A story consists of an opening, events and an ending, each with several wordings and its own operators. The numbers are
the parameters of `solve`, in order of mention; hidden cases tell the same story with other numbers. Difficulty is the
number of operators. Some stories mention a number that is irrelevant to the answer.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise.programs.language.operators import Type, Value
from groupwise.programs.language.program import Argument, Parameter, Program, Result, Signature
from groupwise.programs.language.straight_form import value_of
from groupwise.programs.problems.generator import NAMES, ProblemDraft, program_of, words_of

LEVELS = 3
MOST_NUMBERS = 4

THINGS = (
    "apples", "pens", "books", "coins", "shells", "stamps", "cards", "beads", "stones", "plums", "nuts", "balls",
    "stickers", "cookies", "marbles", "tickets",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a story: its wordings, and its operators in order.

    In an operator's arguments `q` is the quantity so far, `r` the result of the operator before, and 0, 1 … are the
    clause's own numbers in order of mention. `exact`: its numbers divide without remainder.
    """

    texts: tuple[str, ...]
    steps: tuple[tuple[str, tuple[str | int, ...]], ...] = ()
    exact: bool = False


OPENINGS = (
    Clause(("{A} has # {things}.", "{A} starts with # {things}.", "There are # {things} in the box of {A}.",
            "{A} owns # {things}.")),
    Clause(("{A} has ~ bags of ~ {things}.", "{A} packs ~ boxes with ~ {things} each.",
            "{A} has ~ rows of ~ {things}.", "In each of ~ jars {A} keeps ~ {things}."), (("mul", (0, 1)),)),
    Clause(("{A} has # {things} and {B} has #. They put them together.",
            "{A} and {B} put together # and # {things}."), (("add", (0, 1)),)),
    Clause(("{B} has # {things} and {A} has twice as many.", "{B} has # {things}. {A} has double that number."),
           (("double", (0,)),)),
    Clause(("{A} had # {things} but lost ~.", "{A} had # {things} until ~ broke."), (("sub", (0, 1)),)),
    Clause(("{A} lost ~ of # {things} and kept the others.", "{A} spent ~ of the # {things} in the box."),
           (("sub", (1, 0)),)),
)  # fmt: skip

EVENTS = (
    Clause(("{B} gives {A} # more.", "Then {A} finds # more.", "{A} buys another #.", "Then # are added."),
           (("add", ("q", 0)),)),
    Clause(("{A} gives ~ to {B}.", "Then {A} loses ~.", "{A} sells ~ of them.", "Then ~ are taken away."),
           (("sub", ("q", 0)),)),
    Clause(("Then the number doubles.", "Then {A} gets as many again."), (("double", ("q",)),)),
    Clause(("{A} gives half of them away.", "Then half of them are lost."), (("half", ("q",)),), exact=True),
    Clause(("{A} buys ~ bags of ~.", "{B} brings ~ boxes with ~ in each."), (("mul", (0, 1)), ("add", ("q", "r")))),
    Clause(("{A} gives ~ to each of ~ friends.", "{A} hands ~ friends ~ each."),
           (("mul", (0, 1)), ("sub", ("q", "r")))),
)  # fmt: skip

ENDINGS = (
    Clause(("How many {things} does {A} have now?", "How many {things} are there now?",
            "With how many {things} does {A} end up?")),
    Clause(("They are shared equally among ~ friends. How many {things} does each get?",
            "{A} shares them among ~ children. How many {things} does each child get?",
            "How many {things} does each of ~ friends get if they share equally?"), (("div", ("q", 0)),), exact=True),
    Clause(("{A} puts them into bags of ~. How many {things} are left over?",
            "{A} fills boxes of ~. How many {things} remain outside?"), (("rest", ("q", 0)),)),
    Clause(("{A} puts them into bags of ~. How many bags are full?",
            "{A} fills boxes of ~. How many full boxes are there?"), (("div", ("q", 0)),)),
    Clause(("Each costs ~ coins. How much do they cost together?",
            "{A} sells each for ~ coins. How much does {A} get?"),
           (("mul", ("q", 0)),)),
    Clause(("Half of them are red. How many {things} are red?",
            "{A} keeps only half. How many {things} does {A} keep?"),
           (("half", ("q",)),), exact=True),
    Clause(("{C} has ~. How many more {things} does {A} have than {C}?",
            "{C} has only ~. By how many {things} is {A} ahead?"), (("sub", ("q", 0)),)),
    Clause(("{C} has #. How many {things} do they have altogether?", "{C} has #. What is their total?"),
           (("add", ("q", 0)),)),
    Clause(("{C} has twice as many. How many {things} does {C} have?",), (("double", ("q",)),)),
)  # fmt: skip

WHOLE = (
    Clause(("{A} gives away # {things} and has # left. How many {things} did {A} have before?",
            "After {A} sold # {things}, # remain. How many {things} were there at first?"), (("add", (0, 1)),)),
    Clause(("{A} gives away ~ of # {things}. How many {things} are left?",), (("sub", (1, 0)),)),
    Clause(("Of # {things}, ~ are red. How many {things} are not red?",), (("sub", (0, 1)),)),
    Clause(("{A} got ~ {things} from {B} and now has #. How many {things} did {A} have before?",), (("sub", (1, 0)),)),
    Clause(("~ friends share # {things} equally. How many {things} does each get?",), (("div", (1, 0)),), exact=True),
)  # fmt: skip

ASIDES = ("{B} is ~ years old.", "It is ~ in the morning.", "{A} lives at number #.", "The trip takes # minutes.")


def vocabulary() -> list[str]:
    texts = [text for part in (*OPENINGS, *EVENTS, *ENDINGS, *WHOLE) for text in part.texts]
    return sorted(words_of([*texts, *ASIDES]) | {word.lower() for word in (*NAMES, *THINGS)})


@dataclass
class _Story:
    """A story in progress: its sentences, the largest value of each number, its steps, and the quantity so far."""

    sentences: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    steps: list[tuple[str, list[Argument]]] = field(default_factory=list)
    quantity: Argument = field(default_factory=lambda: Parameter(0))
    exact: bool = False

    def tell(self, text: str, part: Clause | None = None) -> None:
        sizes = [letter for letter in text if letter in "#~"]
        own = [Parameter(len(self.sizes) + at) for at in range(len(sizes))]
        self.sentences.append(text)
        self.sizes += sizes
        if part is None:
            return
        for name, given in part.steps:
            self.steps.append((name, [self._meant(mark, own) for mark in given]))
        if part.steps:
            self.quantity = Result(len(self.steps) - 1)
        self.exact |= part.exact

    def _meant(self, mark: str | int, own: Sequence[Parameter]) -> Argument:
        if isinstance(mark, int):
            return own[mark]
        return self.quantity if mark == "q" else Result(len(self.steps) - 1)


def draw(rng: random.Random, difficulty: int) -> ProblemDraft | None:
    """A story with as many operators as the difficulty; None if it has too many numbers."""
    story = _Story()
    parts = _parts(rng, difficulty)
    for at, part in enumerate(parts):
        if at == len(parts) - 1 > 0 and difficulty < 3 and rng.random() < 0.2:
            story.tell(rng.choice(ASIDES))
        story.tell(rng.choice(part.texts), part)
    if len(story.sizes) > MOST_NUMBERS:
        return None
    signature = Signature((Type.INT,) * len(story.sizes), Type.INT)
    program = program_of(signature, story.steps)
    text = named(" ".join(story.sentences), rng)
    return ProblemDraft(
        lambda case: filled(text, case.inputs),
        signature,
        program,
        lambda rng: tuple(rng.randint(2, 9) if size == "~" else rng.randint(10, 60) for size in story.sizes),
        sound=lambda inputs, results: _makes_sense(program, inputs, results, story.exact),
        wording=text.replace("~", "#"),
    )


def named(text: str, rng: random.Random) -> str:
    for mark, name in zip("ABC", rng.sample(NAMES, 3), strict=True):
        text = text.replace(f"{{{mark}}}", name)
    return text.replace("{things}", rng.choice(THINGS))


def filled(text: str, numbers: Sequence[Value]) -> str:
    """A text with its numbers filled in, in order of mention."""
    given = iter(numbers)
    return "".join(str(next(given)) if letter in "#~" else letter for letter in text)


def _parts(rng: random.Random, difficulty: int) -> list[Clause]:
    if difficulty == 1 and rng.random() < 0.25:
        return [rng.choice(WHOLE)]
    while True:
        events = rng.sample(EVENTS, rng.choice(range(difficulty + 1)))
        parts = [rng.choice(OPENINGS), *events, rng.choice(ENDINGS)]
        if sum(len(part.steps) for part in parts) == difficulty:
            return parts


def _makes_sense(program: Program, inputs: Sequence[Value], results: Sequence[Value], exact: bool) -> bool:
    # Whether a story makes sense: every quantity is at least 1, and halving and sharing leave no remainder.
    if any(result < 1 for result in results):
        return False
    for step in program.steps:
        whole, *parts = (value_of(one, inputs, results) for one in step.arguments)
        if (step.operator == "half" and whole % 2) or (step.operator == "div" and exact and whole % parts[0]):
            return False
    return True
