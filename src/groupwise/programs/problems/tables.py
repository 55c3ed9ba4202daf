"""Questions about small tables.

The table is the parameter of `solve`; its columns and cells are the words a program may contain. Hidden cases are other
tables with the same columns and names, so a program must answer the question for any table. Difficulty is the number of
operators.
"""

import random
from dataclasses import dataclass

from groupwise.programs.language.operators import Type, Value
from groupwise.programs.language.program import Argument, Constant, Parameter, Result, Signature, Word
from groupwise.programs.problems.generator import NAMES, ProblemDraft, program_of, sentence, words_of

LEVELS = 3
ROWS = 6
# By difficulty, how often a question asks for the rows themselves.
LISTINGS = {1: 0.5, 2: 0.2, 3: 0.0}
THRESHOLDS = (10, 20, 30, 40, 50, 60, 70, 80)


@dataclass(frozen=True, slots=True)
class TableKind:
    """A kind of table: what its rows are, its columns of words with their cells, and its columns of numbers."""

    rows: str
    names: tuple[str, ...]
    words: tuple[tuple[str, tuple[str, ...], str], ...]
    numbers: tuple[str, ...]


SHEETS = (
    TableKind("players", NAMES[:8], (("team", ("red", "blue", "green"), "in the {cell} team"),
                             ("city", ("Rome", "Oslo", "Lima"), "from {cell}")), ("age", "score", "height")),
    TableKind("goods", ("bread", "milk", "soap", "rice", "tea", "salt", "jam", "oil"),
          (("shelf", ("top", "middle", "low"), "on the {cell} shelf"),
           ("maker", ("Alba", "Boro", "Ceda"), "made by {cell}")),
          ("price", "weight", "stock")),
    TableKind("trains", ("Comet", "Swift", "Arrow", "Star", "Eagle", "Wolf", "Storm", "River"),
          (("line", ("north", "south", "east"), "on the {cell} line"),
           ("class", ("fast", "slow", "night"), "of the {cell} class")),
          ("speed", "length", "delay")),
)  # fmt: skip

WHICH = {
    "where": ("{phrase}", "that are {phrase}"),
    "without": ("not {phrase}", "that are not {phrase}"),
    "over": ("with {column} over #", "with more than # in {column}", "whose {column} is above #"),
    "under": ("with {column} under #", "with less than # in {column}", "whose {column} is below #"),
}
ASKED = {
    "count_rows": ("how many {which} are there?", "count the {which}.", "what is the number of {which}?"),
    "sum_of": ("what is the total {column} of the {which}?", "add up the {column} of all {which}."),
    "mean_of": ("what is the average {column} of the {which}?", "give the mean {column} of the {which}."),
    "highest": ("what is the highest {column} of the {which}?", "give the maximum {column} among the {which}."),
    "lowest": ("what is the lowest {column} of the {which}?", "give the minimum {column} among the {which}."),
    "who_most": (
        "which of the {which} has the highest {column}?",
        "name the one with the greatest {column} among the {which}.",
    ),
    "who_least": (
        "which of the {which} has the lowest {column}?",
        "name the one with the smallest {column} among the {which}.",
    ),
}
LISTED = ("list the {which}.", "show all {which}.")
LOOKED = ("what is the {column} of {A}?", "look up the {column} of {A}.", "which {column} does {A} have?")
PAIRED = {
    "sub": (
        "by how much is the {column} of {A} above that of {B}?",
        "how much larger is the {column} of {A} than that of {B}?",
    ),
    "add": ("which {column} do {A} and {B} have together?", "add the {column} of {A} to that of {B}."),
}
SPREAD = ("how far apart are the highest and the lowest {column}?", "what is the range of {column} over all {rows}?")


def vocabulary() -> list[str]:
    texts = [text for table in (WHICH, ASKED, PAIRED) for texts in table.values() for text in texts]
    texts += [*LISTED, *LOOKED, *SPREAD, "and"]
    for sheet in SHEETS:
        texts += [sheet.rows, *sheet.names, *sheet.numbers]
        for column, cells, phrase in sheet.words:
            texts += [column, *cells, phrase]
    return sorted(words_of(texts))


def draw(rng: random.Random, difficulty: int) -> ProblemDraft | None:
    """A question about one kind of table, with as many operators as the difficulty."""
    sheet = rng.choice(SHEETS)
    names = rng.sample(sheet.names, ROWS)
    if difficulty == 1 and rng.random() < 0.2:
        question, steps, gives = _lookup(rng, names, sheet)
    elif difficulty == 3 and rng.random() < 0.35:
        question, steps, gives = _comparison(rng, names, sheet)
    else:
        question, steps, gives = _selection(rng, sheet, difficulty, listed=rng.random() < LISTINGS[difficulty])
    signature = Signature((Type.TABLE,), gives)
    program = program_of(signature, steps)
    if len(program.steps) != difficulty:
        return None
    return ProblemDraft(
        lambda case: sentence(question),
        signature,
        program,
        lambda rng: (_table(rng, sheet, names),),
        _constants(rng, sheet, names, question),
        lambda inputs, results: all(result for result in results if isinstance(result, list)),
        wording=question,
    )


Steps = list[tuple[str, list[Argument]]]
Told = tuple[str, Steps, Type]


def _lookup(rng: random.Random, names: list[str], sheet: TableKind) -> Told:
    column, who = rng.choice(sheet.numbers), rng.choice(names)
    question = rng.choice(LOOKED).replace("{column}", column).replace("{A}", who)
    return question, [("look", [Parameter(0), Constant(who), Constant(column)])], Type.INT


def _comparison(rng: random.Random, names: list[str], sheet: TableKind) -> Told:
    column, (one, other) = rng.choice(sheet.numbers), rng.sample(names, 2)
    table = Parameter(0)
    if rng.random() < 0.3:
        question = rng.choice(SPREAD).replace("{column}", column).replace("{rows}", sheet.rows)
        ends: Steps = [("highest", [table, Constant(column)]), ("lowest", [table, Constant(column)])]
        return question, [*ends, ("sub", [Result(0), Result(1)])], Type.INT
    kind = rng.choice(list(PAIRED))
    question = rng.choice(PAIRED[kind]).replace("{column}", column).replace("{A}", one).replace("{B}", other)
    looks: Steps = [("look", [table, Constant(who), Constant(column)]) for who in (one, other)]
    return question, [*looks, (kind, [Result(0), Result(1)])], Type.INT


def _selection(rng: random.Random, sheet: TableKind, difficulty: int, listed: bool) -> Told:
    steps: Steps = []
    conditions: list[str] = []
    fresh = list(sheet.words)
    for _ in range(difficulty if listed else difficulty - 1):
        value: Argument = Result(len(steps) - 1) if steps else Parameter(0)
        kind = rng.choice(list(WHICH))
        if kind in ("where", "without") and fresh:
            _, cells, phrase = fresh.pop(rng.randrange(len(fresh)))
            cell = rng.choice(cells)
            conditions.append(rng.choice(WHICH[kind]).format(phrase=phrase.format(cell=cell)))
            steps.append((kind, [value, Constant(cell)]))
        else:
            kind, column, limit = rng.choice(("over", "under")), rng.choice(sheet.numbers), rng.choice(THRESHOLDS[2:6])
            conditions.append(rng.choice(WHICH[kind]).format(column=column).replace("#", str(limit)))
            steps.append((kind, [value, Constant(column), Constant(limit)]))
    value = Result(len(steps) - 1) if steps else Parameter(0)
    asked, column = rng.choice(list(ASKED)), rng.choice(sheet.numbers)
    which = " ".join([sheet.rows, " and ".join(conditions)]).strip()
    if listed:
        return rng.choice(LISTED).format(which=which), steps, Type.TABLE
    question = rng.choice(ASKED[asked]).format(which=which, column=column)
    steps.append((asked, [value] if asked == "count_rows" else [value, Constant(column)]))
    return question, steps, Type.TEXT if asked.startswith("who") else Type.INT


def _table(rng: random.Random, sheet: TableKind, names: list[str]) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for name in rng.sample(names, len(names)):
        row: dict[str, Value] = {"name": name}
        row |= {column: rng.choice(cells) for column, cells, _ in sheet.words}
        rows.append(row | {column: rng.randint(1, 99) for column in sheet.numbers})
    return rows


def _constants(rng: random.Random, sheet: TableKind, names: list[str], question: str) -> tuple[Word, ...]:
    # The table's columns and cells, four of its names and two numbers, including all that the question mentions.
    mentioned = [name for name in names if name in question]
    others = rng.sample([name for name in names if name not in mentioned], 4 - len(mentioned))
    limits = {int(word) for word in question.replace("?", "").replace(".", "").split() if word.isdecimal()}
    while len(limits) < 2:
        limits.add(rng.choice(THRESHOLDS[2:6]))
    return (
        *(Word(column, Type.COLUMN) for column in sheet.numbers),
        *(Word(cell, Type.CELL) for _, cells, _ in sheet.words for cell in cells),
        *(Word(name, Type.ROW) for name in sorted([*mentioned, *others])),
        *(Word(limit, Type.INT) for limit in sorted(limits)),
    )
