"""The search for a program: the prior over next lines, programs as a search domain, and one search kept in a file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Protocol, TypeAlias

from groupwise.files import disk
from groupwise.programs.language.evaluation import ProgramEvaluation, ProgramEvaluator
from groupwise.programs.language.grammar import as_program, legal_lines, line_weights
from groupwise.programs.language.parser import Program, parse
from groupwise.programs.language.problem import CodeProblem
from groupwise.programs.language.program import PARAMETERS
from groupwise.programs.search.mcts import Watch, plant, search
from groupwise.programs.search.tree import Domain, Judged, SearchSettings, SearchTree, load_tree, save_tree

Lines = Sequence[tuple[str, float]]


class Prior(Protocol):
    """A distribution over the next line. A saved search only continues with a prior of the same `name`."""

    @property
    def name(self) -> str: ...

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        """The lines that may follow a prefix (lines without indentation), with their log-probabilities."""
        ...


class Uniform:
    """The uninformed prior: uniform over operators (`return` is one), then over the ways to call them."""

    name = "uniform"

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        lines = legal_lines(prefix, problem)
        return [(line, log(weight)) for line, weight in zip(lines, line_weights(lines), strict=True)]


Prefix: TypeAlias = tuple[str, ...]
CALL = re.compile(r"\w+ = (\w+)\((.*)\)", re.ASCII)
RESULT = re.compile(rf"(?<![\w'\"])(?![{PARAMETERS}]\b)[a-z]\d*(?![\w'\"])", re.ASCII)


def program_domain(problem: CodeProblem, judge: Callable[[str], Judged], prior: Prior) -> Domain[Prefix]:
    """The domain of programs for a problem: a state is the lines so far, an action the next line.

    `judge` evaluates the text of a program. Programs with the same normal form are evaluated once.
    """

    def actions(prefix: Prefix) -> Lines:
        if finished(prefix) or len(prefix) >= problem.max_lines:
            return []
        return prior.lines(problem, prefix)

    def key(prefix: Prefix) -> str:
        text = as_program(prefix, problem)
        if not finished(prefix):
            return text
        program = parse(text, problem.signature)
        return program.key if isinstance(program, Program) else text

    return Domain(
        name=f"{problem.id}, {prior.name} prior",
        root=(),
        actions=actions,
        step=lambda prefix, line: (*prefix, line),
        key=key,
        evaluate=lambda prefix: judge(as_program(prefix, problem)),
        traits=traits,
    )


def finished(prefix: Sequence[str]) -> bool:
    return bool(prefix) and prefix[-1].startswith("return")


@lru_cache(maxsize=10_000)
def traits(line: str) -> tuple[str, ...]:
    """What a line shares with others: its operator, and its call with all results replaced by `_`."""
    call = CALL.fullmatch(line)
    return (call[1], f"{call[1]}({RESULT.sub('_', call[2])})") if call else ()


def judged(evaluation: ProgramEvaluation) -> Judged:
    """An evaluation as the search sees it, with the share of correct cases as its value.

    The time is left out, so that two searches with the same seed are equal.
    """
    notes = {"outcome": str(evaluation.outcome), "calls": evaluation.calls, "length": evaluation.length}
    if evaluation.message:
        notes["message"] = evaluation.message
    if evaluation.fault is not None:
        notes["fault"] = str(evaluation.fault)
    return Judged(evaluation.correctness, evaluation.solved, notes)


SECONDS_BETWEEN_SAVES = 2.0


def explore(
    problem: CodeProblem,
    prior: Prior,
    budget: int,
    *,
    settings: SearchSettings | None = None,
    seed: int = 0,
    file: Path | None = None,
    watch: Watch = lambda tree: None,
    stop: Callable[[], bool] = lambda: False,
) -> SearchTree:
    """Search for a program that solves a problem; a tree in `file` is continued, and saved there.

    A search that was interrupted or killed at any moment ends like one that was not.
    """
    evaluator = ProgramEvaluator(problem)
    domain = program_domain(problem, lambda text: judged(evaluator(text)), prior)
    tree = load_tree(file) if file and file.exists() else plant(domain, settings or SearchSettings(), seed)
    with _keeping(tree, file) as keep, _executor(tree.settings) as executor:

        def seen(tree: SearchTree) -> None:
            keep()
            watch(tree)

        return search(domain, budget, settings=settings, tree=tree, executor=executor, watch=seen, stop=stop)


@contextmanager
def _keeping(tree: SearchTree, file: Path | None) -> Iterator[Callable[[], None]]:
    """Save the tree now and then, spending at most a tenth of the time on it, and at the end."""
    if file is None:
        yield lambda: None
        return
    with disk(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    due = time.monotonic() + SECONDS_BETWEEN_SAVES

    def keep() -> None:
        nonlocal due
        began = time.monotonic()
        if began >= due:
            save_tree(tree, file)
            ended = time.monotonic()
            due = ended + max(SECONDS_BETWEEN_SAVES, 9 * (ended - began))

    try:
        yield keep
    finally:
        save_tree(tree, file)


@contextmanager
def _executor(settings: SearchSettings) -> Iterator[Executor | None]:
    if settings.in_flight == 1:
        yield None
        return
    with ThreadPoolExecutor(settings.in_flight) as executor:
        yield executor
