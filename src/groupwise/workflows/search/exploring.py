"""The search for one problem's program, kept in a file while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from groupwise.training.storage import disk
from groupwise.workflows.code.evaluation import Evaluator
from groupwise.workflows.code.problem import CodeProblem
from groupwise.workflows.search.judging import judged
from groupwise.workflows.search.mcts import Watch, plant, search
from groupwise.workflows.search.priors import Prior
from groupwise.workflows.search.programs import program_domain
from groupwise.workflows.search.saving import load_tree, save_tree
from groupwise.workflows.search.settings import Settings
from groupwise.workflows.search.tree import Tree

SECONDS_BETWEEN_SAVES = 2.0


def explore(
    problem: CodeProblem,
    prior: Prior,
    budget: int,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    file: Path | None = None,
    watch: Watch = lambda tree: None,
    stop: Callable[[], bool] = lambda: False,
) -> Tree:
    """Search a program for a problem; a tree that is in the file goes on from there, and is kept there.

    A search that was interrupted at any moment, or killed, ends like one that was not.
    """
    evaluator = Evaluator(problem)
    domain = program_domain(problem, lambda text: judged(evaluator(text)), prior)
    tree = load_tree(file) if file and file.exists() else plant(domain, settings or Settings(), seed)
    with _keeping(tree, file) as keep, _executor(tree.settings) as executor:

        def seen(tree: Tree) -> None:
            keep()
            watch(tree)

        return search(domain, budget, settings=settings, tree=tree, executor=executor, watch=seen, stop=stop)


@contextmanager
def _keeping(tree: Tree, file: Path | None) -> Iterator[Callable[[], None]]:
    """Write the tree now and then, so that it takes no more than a tenth of the time, and at the end."""
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
def _executor(settings: Settings) -> Iterator[Executor | None]:
    if settings.in_flight == 1:
        yield None
        return
    with ThreadPoolExecutor(settings.in_flight) as executor:
        yield executor
