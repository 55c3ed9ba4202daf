"""`groupwise search`: programs for many problems, in a folder that can be gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from groupwise.commands.code_options import PolicyRun, chosen_prior
from groupwise.commands.options import RUNS, Common, RunsDir, answer
from groupwise.errors import ConfigError
from groupwise.reporting.text import printable
from groupwise.training.stopping import graceful_stop
from groupwise.workflows.code.problem import CodeProblem, Split
from groupwise.workflows.code.problems import FAMILIES, OFFLINE
from groupwise.workflows.search.campaign import Found, Plan, campaign, shares
from groupwise.workflows.search.settings import Settings
from groupwise.workflows.search.tree import Tree

SHOWN = 40


def search(
    *families: Annotated[str, Parameter(help=f"Which problems: {', '.join(OFFLINE)} (all of them), reasoning_gym.")],
    budget: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations for each problem.")] = 64,
    problems: Annotated[int, Parameter(validator=Number(gte=1), help="How many of each family and difficulty.")] = 5,
    difficulty: Annotated[tuple[int, ...], Parameter(negative=(), help="Which levels; all by default.")] = (1, 2, 3),
    split: Annotated[Split, Parameter(help="Of the problems.")] = "test",
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Of the first problem, and of the searches.")] = 0,
    policy: PolicyRun = None,
    runs_dir: RunsDir = Path(RUNS),
    in_flight: Annotated[int, Parameter(validator=Number(gte=1), help="Evaluations under way at once.")] = 1,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="The folder; under searches/ by default.")] = None,
    common: Common = Common(),
) -> int:
    """Search programs for many problems and tell how many are solved within how many evaluations.

    Every tree and every program is kept in the folder. Ctrl-C stops; the same command then goes on where it stood, and
    one with a larger budget goes on from there.
    """
    chosen = families or OFFLINE
    if unknown := [family for family in chosen if family not in FAMILIES]:
        raise ConfigError(f"{unknown[0]!r} is not a family", hint=f"Known: {', '.join(FAMILIES)}.", field="families")
    prior = chosen_prior(policy, runs_dir)
    plan = Plan(chosen, difficulty, problems, budget, split, seed, prior.name, Settings(in_flight=in_flight))
    folder = out or Path("searches") / f"{'+'.join(chosen)}-{split}-{seed}-{prior.name.replace(' ', '-')}"
    with graceful_stop() as flag, progress(plan, common.json) as (watch, done):
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
        show(found, table, folder, flag.raised)
    return 130 if flag.raised else 0


Watch = Callable[[CodeProblem, Tree], None]


@contextmanager
def progress(plan: Plan, quiet: bool) -> Iterator[tuple[Watch, Callable[[Found], None]]]:
    """A bar over the problems, with what is being searched and how many were solved."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    solved = 0
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bars:
        bar = bars.add_task("", total=len(plan))

        def watch(problem: CodeProblem, tree: Tree) -> None:
            words = f"{printable(problem.id)}  {len(tree.records)} of {plan.budget}  ({solved} solved)"
            bars.update(bar, description=words)

        def done(one: Found) -> None:
            nonlocal solved
            solved += one.solved
            bars.advance(bar)

        yield watch, done


def show(found: Sequence[Found], table: dict[str, dict[str, float]], folder: Path, stopped: bool) -> None:
    console = Console()
    if found:
        console.print(problems_table(found[:SHOWN]))
        if len(found) > SHOWN:
            console.print(f"… and {len(found) - SHOWN} more, in {folder}/results.json", style="dim", markup=False)
        console.print()
        console.print(shares_table(table))
    console.print(f"\nevery tree and program: {folder}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        console.print("stopped; the same command goes on with it", style="yellow")


def problems_table(found: Sequence[Found]) -> Table:
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
    """The share of problems solved, by family, within so many evaluations."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("solved within")
    for mark in next(iter(table.values())):
        shown.add_column(mark, justify="right")
    for name, row in table.items():
        shown.add_row(name, *(f"{share:.0%}" for share in row.values()), style="bold" if name == "all" else "")
    return shown
