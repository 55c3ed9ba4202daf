"""Transformations of lists and strings, described by examples and words.

Every question shows examples. Most also say in words what happens, some without the numbers ("keep the first n"), and a
few show examples only, so that part of the answer must be found by trying. The first case is the first example; hidden
cases are other lists or words. Difficulty is the number of operators.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from groupwise.programs.language.operators import OperatorError, Type, Value
from groupwise.programs.language.program import Argument, Case, Constant, Parameter, Program, Result, Signature, Word
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.problems.generator import LETTERS, ProblemDraft, program_of, sentence, trace, words_of

LEVELS = 3
LARGEST_SHOWN = 99
VAGUE, SILENT = 0.2, 0.1

SMALL, LIMIT = (2, 3, 4), (4, 5, 6)
CONSTANTS: dict[str, tuple[int, ...]] = {
    "take": SMALL, "drop": SMALL, "add_each": SMALL, "times_each": SMALL, "above": LIMIT, "below": LIMIT,
    "take_words": SMALL, "drop_words": SMALL,
}  # fmt: skip
WORD_LIST = (
    "red", "blue", "green", "pink", "gold", "cat", "dog", "fox", "owl", "hen", "apple", "pear", "plum", "fig", "sun",
    "moon", "star", "rain", "tree", "leaf", "rose", "boat", "lamp", "milk",
)  # fmt: skip

PHRASES: dict[str, tuple[str, ...]] = {
    "sort": ("sort the numbers", "put the numbers in order"),
    "reverse": ("reverse the list", "write the list backwards"),
    "unique": ("remove repeated numbers", "keep each number only once"),
    "evens": ("keep the even numbers", "throw away the odd numbers"),
    "odds": ("keep the odd numbers", "throw away the even numbers"),
    "squares": ("square each number", "multiply each number by itself"),
    "running": ("replace each number by the sum so far", "add up as you go along"),
    "take": ("keep the first # numbers", "take # numbers from the front"),
    "drop": ("leave out the first # numbers", "skip # numbers"),
    "above": ("keep numbers above #", "keep what is greater than #"),
    "below": ("keep numbers below #", "keep what is less than #"),
    "add_each": ("add # to each number", "make every number # larger"),
    "times_each": ("multiply each number by #", "make every number # times as large"),
    "total": ("give the sum", "find the total"),
    "count": ("count the numbers", "say how many numbers there are"),
    "largest": ("give the largest number", "find the maximum"),
    "smallest": ("give the smallest number", "find the minimum"),
    "first": ("give the first number", "pick the number in front"),
    "last": ("give the last number", "pick the number at the end"),
    "upper": ("write it in capitals", "use big letters"),
    "mirror": ("write the letters backwards", "reverse the letters"),
    "no_vowels": ("leave out the vowels", "remove all vowels"),
    "length": ("count the letters", "say how many letters there are"),
    "join": ("join the words with spaces", "make one line of the words"),
    "glue": ("glue the words together", "write the words as one"),
    "initials": ("take the first letter of each word", "write down the initials"),
    "sort_words": ("sort the words", "put the words in alphabetical order"),
    "reverse_words": ("reverse the words", "put the last word first"),
    "unique_words": ("keep each word only once", "remove repeated words"),
    "take_words": ("keep the first # words", "take # words from the front"),
    "drop_words": ("leave out the first # words", "skip # words"),
    "count_words": ("count the words", "say how many words there are"),
    "longest": ("find the longest word", "pick the word with most letters"),
    "shortest": ("find the shortest word", "pick the word with fewest letters"),
    "first_word": ("give the first word", "pick the word in front"),
    "last_word": ("give the last word", "pick the word at the end"),
}
LINKS = (", then ", " and then ", ", and ")
SHOWN = ("For example {given} becomes {made}.", "So {given} gives {made}.", "Thus {given} turns into {made}.")
ALONE = ("From {given} make {made}.", "Given {given}, the answer is {made}.", "Turn {given} into {made}.")
# What a transformation starts from. Numbers are drawn more often, because more of their examples are rejected.
STARTS = {
    1: (*[Type.NUMBERS] * 5, *[Type.WORDS] * 4, Type.TEXT),
    2: (*[Type.NUMBERS] * 3, Type.WORDS),
    3: (*[Type.NUMBERS] * 3, Type.WORDS),
}
Mode = Literal["said", "vague", "silent"]


def vocabulary() -> list[str]:
    texts = [text for texts in PHRASES.values() for text in texts]
    words = words_of([*texts, *LINKS, *SHOWN, *ALONE, "n"])
    return sorted(words | {*WORD_LIST, *LETTERS, *LETTERS.upper()})


def draw(rng: random.Random, difficulty: int) -> ProblemDraft | None:
    """A chain of operators on numbers, words or a string; None if the draw leads nowhere."""
    start = rng.choice(STARTS[difficulty])
    chain = _chain(rng, start, difficulty)
    if chain is None:
        return None
    signature = Signature((start,), PURE[chain[-1]].gives)
    numbers = {name: rng.choice(CONSTANTS[name]) for name in chain if name in CONSTANTS}
    program = program_of(signature, _steps(chain, numbers))
    inputs = INPUTS[start]
    mode = _mode(rng, bool(numbers), difficulty)
    words = _said(rng, chain, numbers, mode)
    frame = rng.choice(SHOWN if words else ALONE)
    extra = _example(rng, program, inputs) if mode != "said" else ""
    if extra is None:
        return None
    constants = sorted({*SMALL, *LIMIT}) if start is Type.NUMBERS else SMALL
    return ProblemDraft(
        lambda case: " ".join(part for part in (words, _shown(frame, case), extra) if part),
        signature,
        program,
        inputs,
        tuple(Word(number, Type.INT) for number in constants),
        _is_informative,
        wording=f"{words} {frame}" if words else "",
    )


def _chain(rng: random.Random, start: Type, length: int) -> list[str] | None:
    # Different operators, each of which takes the result of the one before.
    at, chain = start, list[str]()
    for _ in range(length):
        fitting = [name for name in PHRASES if PURE[name].takes[0] == at and name not in chain]
        if not fitting:
            return None
        chain.append(rng.choice(fitting))
        at = PURE[chain[-1]].gives
    return chain


def _steps(chain: list[str], numbers: Mapping[str, int]) -> list[tuple[str, list[Argument]]]:
    steps: list[tuple[str, list[Argument]]] = []
    for name in chain:
        value: Argument = Result(len(steps) - 1) if steps else Parameter(0)
        steps.append((name, [value, Constant(numbers[name])] if name in numbers else [value]))
    return steps


def _mode(rng: random.Random, has_numbers: bool, difficulty: int) -> Mode:
    chance = rng.random()
    if chance < SILENT and difficulty < 3:
        return "silent"
    return "vague" if has_numbers and chance < SILENT + VAGUE else "said"


def _said(rng: random.Random, chain: list[str], numbers: Mapping[str, int], mode: Mode) -> str:
    if mode == "silent":
        return ""
    phrases = []
    for name in chain:
        number = "n" if mode == "vague" else str(numbers.get(name, ""))
        phrases.append(rng.choice(PHRASES[name]).replace("#", number))
    text = phrases[0]
    for phrase in phrases[1:]:
        text += rng.choice(LINKS) + phrase
    return sentence(text) + "."


def _example(rng: random.Random, program: Program, inputs: Callable[[random.Random], tuple[Value, ...]]) -> str | None:
    # A second example, for questions that leave something unsaid.
    for _ in range(20):
        given = inputs(rng)
        try:
            results = trace(program, given)
        except OperatorError:
            continue
        if _is_informative(given, results):
            return _shown(rng.choice(ALONE), Case(given, results[-1]))
    return None


def _words(rng: random.Random) -> tuple[Value, ...]:
    few = rng.sample(WORD_LIST, rng.randint(3, 5))
    return ([*few, rng.choice(few)] if rng.random() < 0.5 else few,)


INPUTS: dict[Type, Callable[[random.Random], tuple[Value, ...]]] = {
    Type.NUMBERS: lambda rng: ([rng.randint(1, 9) for _ in range(rng.randint(4, 6))],),
    Type.WORDS: _words,
    Type.TEXT: lambda rng: (rng.choice(WORD_LIST),),
}


def _is_informative(inputs: Sequence[Value], results: Sequence[Value]) -> bool:
    # It shows a change, in values that fit into a question.
    return inputs[0] != results[-1] and all(_showable(value) for value in (*inputs, *results))


def _showable(value: Value) -> bool:
    # Whether a value fits into a question: not empty, and no number with more than two digits.
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(0 <= one <= LARGEST_SHOWN if isinstance(one, int) else one for one in values)


def _shown(frame: str, case: Case) -> str:
    return frame.format(given=_listed(case.inputs[0]), made=_listed(case.answer))


def _listed(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
