"""`groupwise simulate`: how a workflow performs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import RequirementsFile, WorkflowFile
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.opening import open_workflow
from groupwise.workflows.rules import Violation, broken_rules


def simulate(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    cases: Annotated[int, Parameter(validator=Number(gte=20), help="How many cases are measured.")] = 10_000,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="The same seed, the same cases.")] = 0,
    tier: Annotated[
        Literal["auto", "analytic", "simulation", "schedule"],
        Parameter(help="Formulas, events one by one, or a schedule of one run; auto takes what the design allows."),
    ] = "simulation",
    common: Common = Common(),
) -> int:
    """Tell how long cases take, what they cost and how busy everybody is.

    The exit status is 1 if a hard rule is broken, the deadline among them.
    """
    opened = open_workflow(file, requirements)
    asked = opened.insist_on_requirements("a simulation")
    insist_feasible(asked)
    design = opened.design()
    found = evaluate(design, asked, tier=tier, seed=seed, cases=cases)
    broken = broken_rules(design, asked, found.cycle_time)
    if common.json:
        answer({"file": str(file), **_plain(found), "broken": [asdict(violation) for violation in broken]})
    else:
        show(found, broken)
    return 1 if broken else 0


def _plain(found: Performance) -> dict[str, Any]:
    return asdict(found)


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
