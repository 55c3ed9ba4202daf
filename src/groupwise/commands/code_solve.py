"""`groupwise solve`: search a program that solves one problem, and show how it was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.text import Text

from groupwise.commands.code_options import PolicyRun, chosen_prior
from groupwise.commands.options import RUNS, Common, RunsDir, answer
from groupwise.reporting.text import printable
from groupwise.training.stopping import graceful_stop
from groupwise.training.storage import disk
from groupwise.workflows.code.problem import CodeProblem, Split
from groupwise.workflows.search.asking import problem_named
from groupwise.workflows.search.exploring import explore
from groupwise.workflows.search.files import program_text, record_told
from groupwise.workflows.search.outline import outline
from groupwise.workflows.search.picture import tree_svg
from groupwise.workflows.search.settings import Settings
from groupwise.workflows.search.tree import Tree
from groupwise.workflows.search.view import program_view, tree_view


def solve(
    problem: Annotated[str, Parameter(help="A family (word_problems, transformations, tables …), a file, a question.")],
    *,
    budget: Annotated[int, Parameter(validator=Number(gte=1), help="How many programs may be evaluated.")] = 256,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Of the problem, and of the search.")] = 0,
    difficulty: Annotated[int, Parameter(validator=Number(gte=1), help="Of a family's problem.")] = 2,
    split: Annotated[Split, Parameter(help="Of a family's problem.")] = "test",
    expected: Annotated[str | None, Parameter(name="--answer", help="The right answer to a question.")] = None,
    policy: PolicyRun = None,
    runs_dir: RunsDir = Path(RUNS),
    in_flight: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations under way at once.")] = 1,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="Where to write the program: program.py.")] = None,
    picture: Annotated[Path | None, Parameter(help="Where to draw the tree: tree.svg.")] = None,
    tree: Annotated[Path | None, Parameter(help="Where the tree is kept; one that is there is grown further.")] = None,
    common: Common = Common(),
) -> int:
    """Search a program that solves a problem, and show the tree that found it.

    A file (YAML or JSON) holds `question`, `examples` with inputs and answer, and if need be `constants` and
    `max_lines`. Ctrl-C ends the search and shows the best so far. The exit status is 1 if no program solved it.
    """
    asked = problem_named(problem, seed, split, difficulty, expected)
    prior = chosen_prior(policy, runs_dir)
    began = time.perf_counter()
    with graceful_stop() as flag, progress(common.json, budget) as watch:
        settings = Settings(in_flight=in_flight)
        grown = explore(
            asked, prior, budget, settings=settings, seed=seed, file=tree, watch=watch, stop=lambda: flag.raised
        )
    seconds = time.perf_counter() - began
    written = [path for path in (out, picture, tree) if path is not None]
    best = grown.best
    if out is not None and best is not None:
        save(out, program_text(asked, best))
    if picture is not None:
        save(picture, tree_svg(grown, title(asked, grown)))
    if common.json:
        answer({**told(asked, grown), "seconds": seconds, "written": [str(path) for path in written]})
    else:
        show(asked, grown, seconds, written)
    return 130 if flag.raised else 0 if grown.solved else 1


def title(problem: CodeProblem, tree: Tree) -> str:
    how = "solved" if tree.solved else "not solved"
    return f"{problem.id}: {how} after {_count(len(tree.records), 'evaluation')}"


def show(problem: CodeProblem, tree: Tree, seconds: float, written: list[Path]) -> None:
    console = Console()
    console.print(Text(printable(problem.question)), style="italic")
    console.print()
    console.print(tree_view(tree, title(problem, tree)))
    console.print()
    best = tree.best
    if best is not None:
        how = "solved" if best.judged.solved else f"right in {best.judged.value:.0%} of the cases"
        console.print(program_view(program_text(problem, best).rstrip(), how, best.judged.solved))
        if message := best.judged.notes.get("message"):
            console.print(Text(printable(message), style="yellow"))
    walks = f"{_count(tree.walks, 'walk')}, {tree.free} of them free" if tree.free else _count(tree.walks, "walk")
    console.print(f"{_count(len(tree.records), 'evaluation')} in {seconds:.2f} s ({walks})", highlight=False)
    if not tree.solved and tree.exhausted:
        console.print("There is no other program of so many lines.", style="yellow")
    for path in written:
        console.print(f"{path} written", highlight=False, markup=False)


def told(problem: CodeProblem, tree: Tree) -> dict[str, Any]:
    """Everything for JSON."""
    best = tree.best
    return {
        "problem": problem.id,
        "question": problem.question,
        "solved": tree.solved,
        "evaluations": len(tree.records),
        "walks": tree.walks,
        "free": tree.free,
        "exhausted": tree.exhausted,
        "prior": tree.name.rsplit(", ", 1)[-1],
        "best": record_told(problem, best) if best else None,
        "programs": [record_told(problem, record) for record in tree.records],
        "experience": tree.experience(),
        "tree": asdict(outline(tree)),
    }


def save(path: Path, text: str) -> None:
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")


@contextmanager
def progress(quiet: bool, budget: int) -> Iterator[Callable[[Tree], None]]:
    """A line that says where the search stands, for whoever waits longer than a second at a terminal."""
    console = Console(stderr=True)
    began, status = time.perf_counter(), console.status("", spinner="dots")

    def watch(tree: Tree) -> None:
        if not quiet and console.is_terminal and time.perf_counter() - began > 1:
            status.update(f"{len(tree.records)} of {budget} evaluations, best {tree.high:.2f} (Ctrl-C keeps it)")
            status.start()

    try:
        yield watch
    finally:
        status.stop()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
