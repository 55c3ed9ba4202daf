"""What all families share: drawing problems until one is sound and belongs to the wanted split."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from groupwise.errors import ConfigError
from groupwise.workflows.code.grammar import one_step_programs
from groupwise.workflows.code.interpreter import run_straight
from groupwise.workflows.code.problem import SPLITS, Case, CodeProblem, Split, Word
from groupwise.workflows.code.problems.wording import split_of
from groupwise.workflows.code.pure import PURE
from groupwise.workflows.code.steps import Argument, Constant, Parameter, Program, Result, Signature, Step
from groupwise.workflows.code.straight import straight
from groupwise.workflows.code.values import OperatorError, Value

CASES = 6
TRIES = 150


@dataclass(frozen=True, slots=True)
class Draft:
    """A question and its right program, before cases were found for it.

    `inputs` draws arguments for `solve`; `sound` may refuse arguments under which the question would make no sense,
    from what every step gives. `asked` are the arguments of the question as asked, where they are not to be drawn.
    `wording` is the part of the question that decides its split; all of it, if empty.
    """

    question: Callable[[Case], str]
    signature: Signature
    program: Program
    inputs: Callable[[random.Random], tuple[Value, ...]]
    constants: tuple[Word, ...] = ()
    sound: Callable[[tuple[Value, ...], list[Value]], bool] = lambda inputs, results: True
    asked: tuple[Value, ...] | None = None
    wording: str = ""


Draw = Callable[[random.Random, int], Draft | None]


def make(family: str, draw: Draw, seed: int, split: Split, difficulty: int, levels: int) -> CodeProblem:
    """The problem of a seed: drafts are drawn until one has sound cases and a wording of the split."""
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
    """A straight program from operators and arguments; its last step is the result."""
    made = [Step(name, tuple(given)) for name, given in steps]
    return straight(len(signature.takes), made, Result(len(made) - 1), signature, PURE)


def _cases(draft: Draft, rng: random.Random) -> tuple[Case, ...] | None:
    """Sound cases under which every step of the program matters; None if there are none to be found."""
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
    """What every step of a straight program gives."""
    return [run_straight(replace(program, result=Result(at)), inputs) for at in range(len(program.steps))]


def _differs(other: Program, cases: Sequence[Case]) -> bool:
    """Whether another program is wrong for at least a third of the cases."""
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
    """The program cut short, or with one step left out and an argument of the same type in its place."""
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

    kept = [Step(step.operator, tuple(map(moved, step.arguments))) for n, step in enumerate(program.steps) if n != at]
    assert program.result is not None
    return replace(program, steps=tuple(kept), result=moved(program.result))
