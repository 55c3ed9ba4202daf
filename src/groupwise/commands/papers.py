"""`groupwise paper`: a paper's central experiment in seconds, and whether its effect appears."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from groupwise.commands.options import Common, answer
from groupwise.control.papers import PAPERS
from groupwise.control.papers.finding import PaperFinding
from groupwise.errors import ConfigError
from groupwise.reporting.bench import bench_result
from groupwise.training.session import use_threads


def paper(
    name: Annotated[str, Parameter(help=f"One of {', '.join(PAPERS)}.")],
    *,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="The first seed.")] = 0,
    seeds: Annotated[int | None, Parameter(validator=Number(gte=2), help="How many, at least 2.")] = None,
    common: Common = Common(),
) -> None:
    """Repeat a paper's central experiment in small, from several seeds, and say whether its effect appears."""
    if name not in PAPERS:
        raise ConfigError(f"{name!r} is not a paper we have an experiment for", hint=f"Known: {', '.join(PAPERS)}.")
    experiment, usual = PAPERS[name]
    use_threads(1)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = common.json or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(name, total=None)
        found = experiment(
            range(seed, seed + (seeds or usual)),
            lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if common.json:
        answer(as_json(found))
        return
    show(found)


def as_json(found: PaperFinding) -> dict[str, object]:
    """The shape of every benchmark, with the claim in words."""
    claims = {"appeared": found.appeared, **{name: effect.value for name, effect in found.effects.items()}}
    intervals = {name: effect.as_list()[1:] for name, effect in found.effects.items()}
    command = shlex.join(["groupwise", *sys.argv[1:]])
    result = bench_result(
        f"paper_{found.name}", command, claims, seeds=found.seeds, intervals=intervals, raw=found.raw
    )  # fmt: skip
    return {**result, "sentence": found.sentence, "lesson": found.lesson}


def show(found: PaperFinding) -> None:
    """The table, the sentence, and what to make of it."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(f"{found.title}\n", "bold"))
    console.print(table)
    console.print(Text(f"\n{found.sentence}"))
    console.print(Text(f"{found.lesson}\nMeans with 95% intervals over {len(found.seeds)} seeds.", "dim"))
