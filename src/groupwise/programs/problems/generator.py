"""What all families share: the words and the split of questions, and drawing problems until one is sound."""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from groupwise.errors import ConfigError
from groupwise.programs.language.grammar import one_step_programs
from groupwise.programs.language.operators import OperatorError, Value
from groupwise.programs.language.program import (
    SPLITS,
    Argument,
    Case,
    CodeProblem,
    Constant,
    Parameter,
    Program,
    ProgramStep,
    Result,
    Signature,
    Split,
    Word,
)
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight_form import run_straight, straight

NAMES = (
    "Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jack", "Kate", "Leo", "Mia", "Nora", "Omar",
    "Pia",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKEN = re.compile(r"\d+|\w+|[^\w\s]")
SLOT = re.compile(r"\{\w+\}")
DIGITS = re.compile(r"\d+")
# Buckets of the hash, out of ten.
SHARES: dict[Split, range] = {"train": range(7), "valid": range(7, 8), "test": range(8, 10)}


def tokens(text: str, known: Iterable[str] = ()) -> list[str]:
    """A question as tokens: words in lower case, numbers, punctuation. Words not in `known` are split into letters."""
    found = TOKEN.findall(text)
    listed = frozenset(known)
    if not listed:
        return [token.lower() for token in found]
    whole: list[str] = []
    for token in found:
        lower, shouted = token.lower(), len(token) > 1 and token.isupper()
        whole += [lower] if lower in listed and not shouted else list(token)
    return whole


def words_of(templates: Iterable[str]) -> set[str]:
    """The words and punctuation marks of templates, without their slots."""
    return {token.lower() for text in templates for token in TOKEN.findall(SLOT.sub(" ", text)) if token not in "#~"}


def split_of(wording: str) -> Split:
    """The split of a wording: 70% train, 10% valid, 20% test, by hash, ignoring numbers."""
    digest = hashlib.sha256(DIGITS.sub("#", wording).encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 10
    return next(split for split, buckets in SHARES.items() if bucket in buckets)


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# The question as asked and five hidden variations.
CASES = 6
# Arguments drawn before a draft is given up.
TRIES = 150


@dataclass(frozen=True, slots=True)
class ProblemDraft:
    """A question and its correct program, before it has cases.

    `inputs` draws arguments for `solve`. `sound` may reject arguments, given the results of all steps, if the question
    would make no sense with them. `asked` are the arguments of the question as asked, if they are not to be drawn.
    `wording` is the part of the question that decides its split; empty means all of it.
    """

    question: Callable[[Case], str]
    signature: Signature
    program: Program
    inputs: Callable[[random.Random], tuple[Value, ...]]
    constants: tuple[Word, ...] = ()
    sound: Callable[[tuple[Value, ...], list[Value]], bool] = lambda inputs, results: True
    asked: tuple[Value, ...] | None = None
    wording: str = ""


Draw = Callable[[random.Random, int], ProblemDraft | None]


def make(family: str, draw: Draw, seed: int, split: Split, difficulty: int, levels: int) -> CodeProblem:
    """The problem of a seed: draw drafts until one has sound cases and a wording that belongs to the split."""
    if split not in SPLITS:
        raise ConfigError(f"split = {split!r}; it must be one of {', '.join(SPLITS)}", field="split")
    if not 1 <= difficulty <= levels:
        raise ConfigError(f"difficulty = {difficulty!r}; {family} has 1 to {levels}", field="difficulty")
    rng = random.Random(f"{family}/{split}/{difficulty}/{seed}")
    for _ in range(100_000):
        draft = draw(rng, difficulty)
        if draft is None or (draft.wording and split_of(draft.wording) != split):
            continue
        cases = _cases(draft, rng)
        if cases is None:
            continue
        question = draft.question(cases[0])
        if split_of(draft.wording or question) == split:
            problem = CodeProblem(
                f"{family}/{split}/{difficulty}/{seed}", family, split, difficulty, question, draft.signature, cases,
                draft.constants, len(draft.program.steps) + 1, gold=draft.program.text,
            )  # fmt: skip
            if difficulty == 1 or all(_differs(shorter, cases) for shorter in one_step_programs(problem)):
                return problem
    raise AssertionError(f"{family} found no problem of difficulty {difficulty} for {split}")


def program_of(signature: Signature, steps: Sequence[tuple[str, Sequence[Argument]]]) -> Program:
    """A straight program from operators and arguments; the last step is its result."""
    made = [ProgramStep(name, tuple(given)) for name, given in steps]
    return straight(len(signature.takes), made, Result(len(made) - 1), signature, PURE)


def _cases(draft: ProblemDraft, rng: random.Random) -> tuple[Case, ...] | None:
    # Sound cases for which every step of the program matters; None if they cannot be found.
    found: list[Case] = []
    for number in range(TRIES):
        inputs = draft.asked if draft.asked is not None and number == 0 else draft.inputs(rng)
        try:
            results = trace(draft.program, inputs)
        except OperatorError:
            continue
        if draft.sound(inputs, results):
            found.append(Case(inputs, results[-1]))
        elif inputs is draft.asked:
            return None
        if len(found) == CASES:
            break
    if len(found) < CASES or len({repr(case.answer) for case in found}) < CASES // 2:
        return None
    return tuple(found) if all(_differs(other, found) for other in _shorter(draft.program)) else None


def trace(program: Program, inputs: tuple[Value, ...]) -> list[Value]:
    return [run_straight(replace(program, result=Result(at)), inputs) for at in range(len(program.steps))]


def _differs(other: Program, cases: Sequence[Case]) -> bool:
    # Whether another program is wrong for at least a third of the cases.
    wrong = 0
    for case in cases:
        try:
            wrong += run_straight(other, case.inputs) != case.answer
        except OperatorError:
            wrong += 1
        if 3 * wrong >= len(cases):
            return True
    return False


def _shorter(program: Program) -> Iterator[Program]:
    # The program cut short, or with one step replaced by one of its arguments of the same type.
    for at in range(len(program.steps) - 1):
        yield replace(program, result=Result(at))
    for at in range(len(program.parameters)):
        yield replace(program, result=Parameter(at))
    for at, step in enumerate(program.steps):
        gives = PURE[step.operator].gives
        for argument, wanted in zip(step.arguments, PURE[step.operator].takes, strict=True):
            if wanted == gives and not isinstance(argument, Constant):
                yield _skipping(program, at, argument)


def _skipping(program: Program, at: int, instead: Argument) -> Program:
    def moved(argument: Argument) -> Argument:
        argument = instead if argument == Result(at) else argument
        return Result(argument.at - 1) if isinstance(argument, Result) and argument.at > at else argument

    others = [step for n, step in enumerate(program.steps) if n != at]
    kept = [ProgramStep(step.operator, tuple(map(moved, step.arguments))) for step in others]
    assert program.result is not None
    return replace(program, steps=tuple(kept), result=moved(program.result))
