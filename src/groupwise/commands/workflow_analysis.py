"""`groupwise score | simulate`: how good a workflow is, and how it performs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from groupwise.errors import ConfigError
from groupwise.reporting.command_options import Common, RequirementsFile, WorkflowFile, answer, patiently, say

if TYPE_CHECKING:
    from groupwise.workflows.blocks import Design
    from groupwise.workflows.document import Document
    from groupwise.workflows.evaluation import Performance
    from groupwise.workflows.requirements import Requirements, Weights
    from groupwise.workflows.scoring import ScorePart
    from groupwise.workflows.wording import Violation


Words = tuple[str, ...]
Tier = Annotated[
    Literal["auto", "measured", "analytic", "simulation", "schedule"],
    Parameter(
        help="Formulas, discrete events, or the schedule of one run; measured: events, or a schedule for one run."
    ),
]


def score_file(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    tier: Tier = "measured",
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Seed of the simulation.")] = 0,
    weight: Annotated[Words, Parameter(help="Change a weight: --weight performance=0.7.")] = (),
    common: Common = Common(),
) -> int:
    """Score a workflow: performance 40%, structure 25%, maintainability 20%, resources 15%, each explained.

    A workflow that is unsound or breaks a hard rule has no score, and the exit status is 1.
    """
    from groupwise.workflows.evaluation import evaluate
    from groupwise.workflows.feasibility import insist_feasible
    from groupwise.workflows.inspection import open_workflow
    from groupwise.workflows.requirements import Weights
    from groupwise.workflows.rules import broken_rules
    from groupwise.workflows.scoring import score
    from groupwise.workflows.soundness.check import check_document

    opened = open_workflow(file, requirements)
    asked = opened.insist_on_requirements("a score")
    insist_feasible(asked)
    unsound = {name: verdict for name, verdict in check_document(opened.document).items() if not verdict.sound}
    if unsound:
        name, verdict = next(iter(unsound.items()))
        raise ConfigError(
            f"{name} is {verdict.verdict}; only sound workflows have a score: {verdict.rule}, {verdict.explanation}",
            hint="`groupwise check` shows the steps that lead there.",
        )
    design = opened.design()
    with patiently(common.json):
        performance = None if broken_rules(design, asked) else evaluate(design, asked, tier=tier, seed=seed)
    chosen = asked.objective if isinstance(asked.objective, Weights) else Weights()
    found = score(design, asked, performance, weighted(chosen, weight))
    if common.json:
        answer({"file": str(file), **found.as_dict()})
    else:
        # A terminal gets lines wrapped inside the tree; a file or a pipe gets whole lines.
        Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST).print(tree(found.explain()))
    return 1 if found.broken else 0


def weighted(weights: Weights, words: Words) -> Weights:
    """The weights, changed by words of the form NAME=NUMBER."""
    from groupwise.workflows.requirements import Weights

    changed = weights.model_dump()
    for word in words:
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in changed or not 0 <= value < float("inf"):
            known = ", ".join(changed)
            raise ConfigError(
                f"--weight {word!r} must be NAME=NUMBER, with a number of at least 0", hint=f"Names: {known}."
            )
        changed[name] = value
    return Weights(**changed)


def tree(part: ScorePart) -> Tree:
    """A part of the score above its own parts."""
    drawn = Tree(line(part), guide_style="")
    for inner in part.parts:
        drawn.children.append(tree(inner))
    return drawn


def line(part: ScorePart) -> str:
    if part.share is None:
        return f"[dim]–      {escape(part.name)}: {escape(part.words)}[/dim]"
    weight = f" [dim]{part.weight:.1%}[/dim]" if 0 < part.weight < 1 else ""
    scale = f" [dim]({escape(part.scale)})[/dim]" if part.scale else ""
    return f"[bold]{part.share:.3f}[/bold]  {escape(part.name)}{weight}: {escape(part.words)}{scale}"


TRACED = 1_000
WIDEST = 1_000  # columns of a line that nobody wraps


def simulate(
    file: WorkflowFile,
    *,
    requirements: RequirementsFile = None,
    cases: Annotated[
        int | None,
        Parameter(validator=Number(gte=20), help="Cases to measure; by default 10,000, or 1,000 runs of a schedule."),
    ] = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="The same seed gives the same cases.")] = 0,
    tier: Tier = "measured",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="Folder for figures of the first cases.")] = None,
    overhead: Annotated[
        float, Parameter(validator=Number(gte=0), help="Seconds by which every activity takes longer.")
    ] = 0.0,
    common: Common = Common(),
) -> int:
    """Simulate a workflow: how long cases take, what they cost, and how busy the resources are.

    For a recorded run (WfCommons), it also shows how long that took, and the overhead per task that would explain the
    difference. With -o it also draws a Gantt chart, queues, utilisation and an animation (SVG and GIF). The exit status
    is 1 if a hard rule is broken: the deadline, or one that the design breaks by its shape or staff, which is then not
    simulated.
    """
    from groupwise.workflows.evaluation import evaluate
    from groupwise.workflows.evaluation.performance import NOT_SIMULATED, unknown_performance
    from groupwise.workflows.evaluation.recorded_runs import overhead_per_task, with_overhead
    from groupwise.workflows.feasibility import insist_feasible
    from groupwise.workflows.files.wfcommons import recorded_makespan
    from groupwise.workflows.inspection import open_workflow
    from groupwise.workflows.pictures.summary import is_large
    from groupwise.workflows.rules import broken_rules

    opened = open_workflow(file, requirements)
    stated = opened.insist_on_requirements("a simulation")
    insist_feasible(stated)
    design = opened.design()
    asked = with_overhead(stated, overhead) if overhead else stated
    if broken := broken_rules(design, asked):
        if common.json:
            violations = [asdict(violation) for violation in broken]
            answer({"file": str(file), **unknown_performance(), "broken": violations, "figures": []})
        else:
            say(*(f"✗ {violation}" for violation in broken), NOT_SIMULATED)
        return 1
    with patiently(common.json):
        found = evaluate(design, asked, tier=tier, seed=seed, cases=cases)
    recorded = recorded_makespan(file) if found.tier == "schedule" else None
    spare = overhead_per_task(design, stated, recorded) if recorded is not None else None
    broken = broken_rules(design, asked, found.cycle_time)
    figures = draw(opened.document, design, asked, seed, out) if out is not None else []
    if common.json:
        violations = [asdict(violation) for violation in broken]
        record = {"makespan": recorded, "overhead_per_task": spare} if recorded is not None else None
        figures_ = [str(path) for path in figures]
        answer({"file": str(file), **asdict(found), "recorded": record, "broken": violations, "figures": figures_})
    else:
        show(found, broken)
        if recorded is not None and spare is not None:
            say(_beside(recorded, spare, found.cycle_time))
        say(*(f"{path} written" for path in figures))
        if figures and is_large(opened.document):
            drawn = any(path.name == "workflow.svg" for path in figures)
            how = "workflow.svg shows alike tasks as one" if drawn else "it is not drawn"
            say(f"note: the workflow is too large for a readable drawing, so {how}, and there is no animation")
    return 1 if broken else 0


def _beside(recorded: float, spare: float, simulated: float) -> str:
    """The recorded makespan beside the simulated one, in one sentence."""
    from groupwise.workflows.evaluation.recorded_runs import CLOSE

    apart = f"the recorded run took {duration(recorded)}; the simulated one differs by {simulated / recorded - 1:+.0%}"
    if spare < CLOSE * recorded:
        return apart
    why = "queueing, transfers and whatever else the record does not list"
    return f"{apart}. {duration(spare)} more per task, calibrated on this record, would make up for {why}"


def draw(document: Document, design: Design, asked: Requirements, seed: int, folder: Path) -> list[Path]:
    """Figures of the first cases, starting empty."""
    from groupwise.workflows.evaluation.encoding import encode
    from groupwise.workflows.evaluation.simulation import simulate as simulate_events
    from groupwise.workflows.pictures.animation import write_figures

    encoded = encode(design, asked)
    # Few cases of a large design already make that many tries.
    cases = max(20, min(TRACED, 20 * TRACED // encoded.size))
    tries = simulate_events(encoded, cases, seed, trace=TRACED).trace
    servers = dict(zip(asked.pools, map(int, encoded.servers), strict=True))
    return write_figures(replace(document, requirements=asked), tries, servers, folder)


def show(found: Performance, broken: list[Violation]) -> None:
    """The table, then warnings about how far to trust it."""
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
