"""`groupwise feedback`: what a design really did, for the next one to be better."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import patiently, say
from groupwise.workflows.designer.correction import (
    Measured,
    known_correction,
    learn_from,
    measured_from_log,
    predict,
    remember_correction,
)
from groupwise.workflows.designer.memories import MEMORY_FILE, open_memory
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.opening import open_workflow
from groupwise.workflows.requirements import read_requirements


def feedback(
    requirements: Annotated[Path, Parameter(help="The requirements that were designed for (YAML or JSON).")],
    design: Annotated[Path, Parameter(help="The workflow that was run, in any format.")],
    *,
    cycle_time: Annotated[float | None, Parameter(help="Measured: seconds a case took on average.")] = None,
    cost: Annotated[float | None, Parameter(help="Measured: what a case cost on average.")] = None,
    log: Annotated[
        Path | None, Parameter(name="--from", help="An event log (CSV or XES): times of cases and of activities.")
    ] = None,
    memory: Annotated[Path, Parameter(help="Where it is remembered, for `groupwise design`.")] = Path(MEMORY_FILE),
    common: Common = Common(),
) -> int:
    """Tell how a design did: what was mispredicted, by how much, and what is predicted otherwise from now on."""
    stated = read_requirements(requirements)
    insist_feasible(stated)
    found = open_workflow(design, stated).design()
    told = measured_from_log(log) if log is not None else Measured(cycle_time, cost)
    measured = replace(told, cycle_time=cycle_time or told.cycle_time, cost=cost or told.cost)
    with open_memory(memory) as kept, patiently(common.json):
        analysis = learn_from(found, stated, measured, known_correction(kept, stated))
        remember_correction(kept, stated, analysis.correction)
        now = predict(found, stated, analysis.correction)
    if common.json:
        losses = {**asdict(analysis.losses), "total": analysis.losses.total}
        mistakes = [{**asdict(mistake), "error": mistake.error} for mistake in analysis.mistakes]
        correction = asdict(analysis.correction)
        answer({"mistakes": mistakes, "losses": losses, "correction": correction, "cycle_time_now": now.cycle_time})
    else:
        say(*analysis.lines(), f"a cycle time of {now.cycle_time:.4g} s is predicted for it now; kept in {memory}")
    return 0
