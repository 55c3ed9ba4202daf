"""`groupwise simulate`: how a workflow performs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import RequirementsFile, WorkflowFile, patiently, say
from groupwise.workflows.blocks import Design
from groupwise.workflows.document import Document
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.simulation import simulate as simulate_events
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.opening import open_workflow
from groupwise.workflows.pictures.writing import write_figures
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.rules import Violation, broken_rules

TRACED = 1_000


def simulate(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    cases: Annotated[
        int | None, Parameter(validator=Number(gte=20), help="How many are measured; 10,000, or 1,000 runs.")
    ] = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="The same seed, the same cases.")] = 0,
    tier: Annotated[
        Literal["auto", "analytic", "simulation", "schedule"],
        Parameter(help="Formulas, events one by one, or a schedule of one run; auto takes what the design allows."),
    ] = "simulation",
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="A folder for figures of the first cases.")
    ] = None,
    common: Common = Common(),
) -> int:
    """Tell how long cases take, what they cost and how busy everybody is.

    With -o there are figures too: a Gantt chart, queues, who is busy, and tokens that move (SVG and GIF).

    The exit status is 1 if a hard rule is broken, the deadline among them.
    """
    opened = open_workflow(file, requirements)
    asked = opened.insist_on_requirements("a simulation")
    insist_feasible(asked)
    design = opened.design()
    with patiently(common.json):
        found = evaluate(design, asked, tier=tier, seed=seed, cases=cases)
    broken = broken_rules(design, asked, found.cycle_time)
    figures = draw(opened.document, design, asked, seed, out) if out is not None else []
    if common.json:
        told = [asdict(violation) for violation in broken]
        answer({"file": str(file), **asdict(found), "broken": told, "figures": [str(path) for path in figures]})
    else:
        show(found, broken)
        say(*(f"{path} written" for path in figures))
    return 1 if broken else 0


def draw(document: Document, design: Design, asked: Requirements, seed: int, folder: Path) -> list[Path]:
    """Figures of what happens first, from an empty start."""
    encoded = encode(design, asked)
    tries = simulate_events(encoded, TRACED, seed, trace=TRACED).trace
    servers = dict(zip(asked.pools, map(int, encoded.servers), strict=True))
    return write_figures(replace(document, requirements=asked), tries, servers, folder)


def show(found: Performance, broken: list[Violation]) -> None:
    """The table, and below it what should be known before it is believed."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows(found):
        table.add_row(name, value)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if not found.valid:
        console.print(f"careful: {found.reason}", markup=False)
    for violation in broken:
        console.print(f"✗ {violation}", markup=False)


def rows(found: Performance) -> Iterator[tuple[str, str]]:
    low, high = found.interval
    yield "tier", found.tier
    margin = f"  (95% interval {duration(low)} to {duration(high)})" if high > low else ""
    yield "cycle time", duration(found.cycle_time) + margin
    for percent, seconds in found.percentiles.items():
        yield f"  {percent}% of cases within", duration(seconds)
    yield "waiting", duration(found.waiting)
    yield "throughput", f"{found.throughput * 3600:.4g} cases per hour"
    yield "cost", f"{found.cost:.4g} per case"
    yield "completed", f"{found.completed:.1%} of cases"
    if found.cpu:
        yield "CPU", f"{found.cpu:.3g} cores on average" + _peak(found.cpu_peak, "")
    if found.memory:
        yield "memory", f"{found.memory / 2**20:.4g} MiB on average" + _peak(found.memory_peak / 2**20, " MiB")
    for pool, load in found.utilisation.items():
        yield f"busy: {pool}", f"{load:.1%}"


def _peak(value: float, unit: str) -> str:
    return f", {value:.4g}{unit} at most" if value == value else ""


def duration(seconds: float) -> str:
    """Seconds in the unit people would use."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size and seconds < float("inf"):
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"
