"""`groupwise solve` and `groupwise search`: find a program for one problem, or for many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from groupwise.errors import ConfigError
from groupwise.files import write_output
from groupwise.programs.language.program import CodeProblem, Split
from groupwise.programs.problems import FAMILIES, OFFLINE
from groupwise.programs.search.search_settings import SearchSettings
from groupwise.reporting.command_options import RUNS, Common, RunsDir, answer
from groupwise.reporting.text import printable

if TYPE_CHECKING:
    from groupwise.programs.search.program_search import CampaignPlan, CampaignResult, Prior
    from groupwise.programs.search.tree import SearchTree

POLICY = 'A run of the product "code" whose model guides the search.'
PolicyRun = Annotated[str | None, Parameter(name="--policy", help=POLICY)]


def chosen_prior(policy: str | None, runs_dir: Path) -> Prior:
    """The model of a run as prior, or the uninformed prior."""
    from groupwise.programs.search.program_search import Uniform
    from groupwise.training.folder import find_run

    if policy is None:
        return Uniform()
    # Only a model needs torch, which takes seconds to load.
    from groupwise.programs.learning.prior import prior_of_run

    return prior_of_run(find_run(policy, str(runs_dir)))


def solve(
    problem: Annotated[
        str, Parameter(help="A family (word_problems, transformations, tables …), a file or a question.")
    ],
    *,
    budget: Annotated[int, Parameter(validator=Number(gte=1), help="Programs to evaluate.")] = 256,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Random seed of the problem and the search.")] = 0,
    difficulty: Annotated[int, Parameter(validator=Number(gte=1), help="Difficulty of a family's problem.")] = 2,
    split: Annotated[Split, Parameter(help="Split to draw a family's problem from.")] = "test",
    expected: Annotated[str | None, Parameter(name="--answer", help="The correct answer to a question.")] = None,
    policy: PolicyRun = None,
    runs_dir: RunsDir = Path(RUNS),
    in_flight: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations to run in parallel.")] = 1,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="File for the program, such as program.py.")
    ] = None,
    picture: Annotated[Path | None, Parameter(help="File for a drawing of the tree, such as tree.svg.")] = None,
    tree: Annotated[Path | None, Parameter(help="File for the tree; an existing tree is continued.")] = None,
    common: Common = Common(),
) -> int:
    """Search for a program that solves a problem, and show the search tree.

    A problem file (YAML or JSON) has a `question`, `examples` with inputs and answers, and optionally `constants` and
    `max_lines`. Ctrl-C ends the search and shows the best program so far. The exit status is 1 if none solves it.
    """
    from groupwise.programs.problems.user_problems import problem_named
    from groupwise.programs.search.program_search import explore, program_text
    from groupwise.programs.search.tree_view import tree_svg
    from groupwise.training.stop_conditions import graceful_stop

    asked = problem_named(problem, seed, split, difficulty, expected)
    prior = chosen_prior(policy, runs_dir)
    began = time.perf_counter()
    with graceful_stop() as flag, solve_progress(common.json, budget) as watch:
        settings, stop = SearchSettings(in_flight=in_flight), lambda: flag.raised
        grown = explore(asked, prior, budget, settings=settings, seed=seed, file=tree, watch=watch, stop=stop)
    seconds = time.perf_counter() - began
    written = [path for path in (out, picture, tree) if path is not None]
    best = grown.best
    if out is not None and best is not None:
        write_output(out, program_text(asked, best))
    if picture is not None:
        write_output(picture, tree_svg(grown, title(asked, grown)))
    if common.json:
        answer({**as_json(asked, grown), "seconds": seconds, "written": [str(path) for path in written]})
    else:
        show_solution(asked, grown, seconds, written)
    return 130 if flag.raised else 0 if grown.solved else 1


def title(problem: CodeProblem, tree: SearchTree) -> str:
    how = "solved" if tree.solved else "not solved"
    return f"{problem.id}: {how} after {_count(len(tree.records), 'evaluation')}"


def show_solution(problem: CodeProblem, tree: SearchTree, seconds: float, written: list[Path]) -> None:
    from groupwise.programs.search.program_search import program_text
    from groupwise.programs.search.tree_view import program_view, tree_view

    console = Console()
    console.print(Text(printable(problem.question)), style="italic")
    console.print()
    console.print(tree_view(tree, title(problem, tree)))
    console.print()
    best = tree.best
    if best is not None:
        how = "solved" if best.judged.solved else f"correct in {best.judged.value:.0%} of the cases"
        console.print(program_view(program_text(problem, best).rstrip(), how, best.judged.solved))
        if message := best.judged.notes.get("message"):
            console.print(Text(printable(message), style="yellow"))
    walks = f"{_count(tree.walks, 'walk')}, {tree.free} of them free" if tree.free else _count(tree.walks, "walk")
    console.print(f"{_count(len(tree.records), 'evaluation')} in {seconds:.2f} s ({walks})", highlight=False)
    if not tree.solved:
        ended = "every program of this length has been tried" if tree.exhausted else "a larger --budget may find one"
        console.print(f"No program is right in all cases; {ended}.", style="yellow")
    for path in written:
        console.print(f"Wrote {path}", highlight=False, markup=False)


def as_json(problem: CodeProblem, tree: SearchTree) -> dict[str, Any]:
    """Everything as JSON."""
    from groupwise.programs.search.program_search import record_as_json
    from groupwise.programs.search.tree_view import outline

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
        "best": record_as_json(problem, best) if best else None,
        "programs": [record_as_json(problem, record) for record in tree.records],
        "experience": tree.experience(),
        "tree": asdict(outline(tree)),
    }


@contextmanager
def solve_progress(quiet: bool, budget: int) -> Iterator[Callable[[SearchTree], None]]:
    """A status line on the terminal for searches that take longer than a second."""
    console = Console(stderr=True)
    began, status = time.perf_counter(), console.status("", spinner="dots")

    def watch(tree: SearchTree) -> None:
        if not quiet and console.is_terminal and time.perf_counter() - began > 1:
            status.update(f"{len(tree.records)} of {budget} evaluations, best {tree.high:.2f} (Ctrl-C keeps it)")
            status.start()

    try:
        yield watch
    finally:
        status.stop()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


SHOWN = 40


def search(
    *families: Annotated[
        str, Parameter(help=f"Families of problems: {', '.join(OFFLINE)} (the default), reasoning_gym.")
    ],
    budget: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations per problem.")] = 64,
    problems: Annotated[int, Parameter(validator=Number(gte=1), help="Problems per family and difficulty.")] = 5,
    difficulty: Annotated[tuple[int, ...], Parameter(help="Difficulties; all by default.")] = (1, 2, 3),
    split: Annotated[Split, Parameter(help="Split to draw the problems from.")] = "test",
    seed: Annotated[
        int, Parameter(validator=Number(gte=0), help="Random seed of the first problem and of the searches.")
    ] = 0,
    policy: PolicyRun = None,
    runs_dir: RunsDir = Path(RUNS),
    in_flight: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations to run in parallel.")] = 1,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="Folder for the results; by default under searches/.")
    ] = None,
    common: Common = Common(),
) -> int:
    """Search for programs for many problems, and report how many are solved within how many evaluations.

    Every tree and every program is stored in the folder. Ctrl-C stops the search; the same command, also with a larger
    budget, continues it.
    """
    from groupwise.programs.search.program_search import CampaignPlan, campaign, shares
    from groupwise.training.stop_conditions import graceful_stop

    chosen = families or OFFLINE
    if unknown := [family for family in chosen if family not in FAMILIES]:
        hint = f"Families are {', '.join(FAMILIES)}."
        raise ConfigError(f"{unknown[0]!r} is not a family", hint=hint, field="families")
    prior, settings = chosen_prior(policy, runs_dir), SearchSettings(in_flight=in_flight)
    plan = CampaignPlan(chosen, difficulty, problems, budget, split, seed, prior.name, settings)
    folder = out or Path("searches") / f"{'+'.join(chosen)}-{split}-{seed}-{prior.name.replace(' ', '-')}"
    with graceful_stop() as flag, search_progress(plan, common.json) as (watch, done):
        found = []
        for one in campaign(plan, prior, folder, lambda: flag.raised, watch):
            found.append(one)
            done(one)
    table = shares(found, budget)
    if common.json:
        answer({
            "folder": str(folder), "complete": not flag.raised, "shares": table,
            "problems": [asdict(one) for one in found],
        })  # fmt: skip
    else:
        show_found(found, table, folder, flag.raised)
    return 130 if flag.raised else 0


Watch = Callable[[CodeProblem, "SearchTree"], None]


@contextmanager
def search_progress(plan: CampaignPlan, quiet: bool) -> Iterator[tuple[Watch, Callable[[CampaignResult], None]]]:
    """A progress bar over the problems, with the current one and the number solved."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    solved = 0
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bars:
        bar = bars.add_task("", total=len(plan))

        def watch(problem: CodeProblem, tree: SearchTree) -> None:
            words = f"{printable(problem.id)}  {len(tree.records)} of {plan.budget}  ({solved} solved)"
            bars.update(bar, description=words)

        def done(one: CampaignResult) -> None:
            nonlocal solved
            solved += one.solved
            bars.advance(bar)

        yield watch, done


def show_found(
    found: Sequence[CampaignResult], table: dict[str, dict[str, float]], folder: Path, stopped: bool
) -> None:
    console = Console()
    if found:
        console.print(problems_table(found[:SHOWN]))
        if len(found) > SHOWN:
            console.print(f"… and {len(found) - SHOWN} more, in {folder}/results.json", style="dim", markup=False)
        console.print()
        console.print(shares_table(table))
    console.print(f"\nTrees and programs: {folder}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        console.print("Stopped. The same command continues.", style="yellow")


def problems_table(found: Sequence[CampaignResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("problem")
    for heading in ("evaluations", "best"):
        table.add_column(heading, justify="right")
    table.add_column("program")
    for one in found:
        body = "; ".join(line.strip() for line in one.program.strip().split("\n")[1:])
        mark = Text("✓ ", style="bold green") if one.solved else Text("  ")
        table.add_row(
            mark + Text(printable(one.id)), str(one.evaluations), f"{one.best:.2f}",
            Text(printable(body), style="" if one.solved else "dim", overflow="ellipsis", no_wrap=True),
        )  # fmt: skip
    return table


def shares_table(table: dict[str, dict[str, float]]) -> Table:
    """The share of problems solved within a number of evaluations, by family."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("solved within")
    for mark in next(iter(table.values())):
        shown.add_column(mark, justify="right")
    for name, row in table.items():
        shown.add_row(name, *(f"{share:.0%}" for share in row.values()), style="bold" if name == "all" else "")
    return shown
