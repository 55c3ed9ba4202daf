"""`groupwise check | convert | diff`: what can be done with a workflow file without evaluating it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from groupwise.errors import StorageError
from groupwise.reporting.command_options import Common, RequirementsFile, WorkflowFile, answer, say

if TYPE_CHECKING:
    from groupwise.workflows.inspection import Inspection
    from groupwise.workflows.soundness.check import Soundness


MARKS = {"sound": "✓", "unsound": "✗", "unknown": "?"}


def check(file: WorkflowFile, *, requirements: RequirementsFile = None, common: Common = Common()) -> int:
    """Check whether a workflow is sound: it can always end, ends cleanly, and no task is dead.

    For an unsound workflow it prints the steps that lead to the problem. With requirements, it checks their rules too.
    The exit status is 1 if anything is wrong.
    """
    from groupwise.workflows.inspection import inspect_workflow, open_workflow

    found = inspect_workflow(open_workflow(file, requirements))
    if common.json:
        answer({"file": str(file), **found.as_dict()})
    else:
        say(*_lines(found))
    return 0 if found.fine else 1


def _lines(found: Inspection) -> Iterator[str]:
    for name, verdict in found.verdicts.items():
        why = f": {verdict.rule}, {verdict.explanation}" if verdict.rule else ""
        yield f"{MARKS[verdict.verdict]} {name} is {_verdict(verdict)}{why}"
        if verdict.trace:
            yield f"  after {' → '.join(verdict.trace)}"
    if asked := found.opened.requirements:
        yield from (f"✗ the requirements contradict themselves: {conflict}" for conflict in found.conflicts)
        yield from (f"✗ {violation}" for violation in found.broken)
        if found.unread:
            yield f"? the rules cannot be checked, because the workflow has no block form: {found.unread}"
        elif not found.broken:
            yield f"✓ it obeys every rule of {asked.name!r} (the deadline needs `groupwise simulate`)"
    yield from (f"note: {note}" for note in found.opened.document.notes)


def _verdict(verdict: Soundness) -> str:
    return {"sound": "sound", "unsound": "not sound", "unknown": "not decided"}[verdict.verdict]


def convert(
    source: WorkflowFile,
    target: Annotated[Path, Parameter(help="The file to write; its suffix determines the format.")],
    *,
    to: Annotated[str | None, Parameter(help="The format, if the suffix does not determine it.")] = None,
    requirements: RequirementsFile = None,
    common: Common = Common(),
) -> None:
    """Convert a workflow to YAWL, BPMN, PNML, Actions, Argo, Airflow, WfCommons, Mermaid, SVG, PNG or JSON.

    If the target format cannot express something, the conversion is refused. Notes list what else was lost.
    """
    from groupwise.workflows.files import write_workflow
    from groupwise.workflows.inspection import open_workflow

    opened = open_workflow(source, requirements)
    document = opened.document
    if opened.requirements is not None and document.requirements is None:
        document = replace(document, requirements=opened.requirements)
    try:
        notes = (*document.notes, *write_workflow(document, target, to))
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}") from error
    if common.json:
        answer({"source": str(source), "target": str(target), "notes": list(notes)})
        return
    say(*(f"note: {note}" for note in notes), f"{target} written")


def diff(old: WorkflowFile, new: WorkflowFile, *, common: Common = Common()) -> int:
    """Show what was added, removed, moved or reconfigured. The exit status is 1 if the workflows differ."""
    from groupwise.workflows.differences import compare_workflows
    from groupwise.workflows.inspection import open_workflow

    found = compare_workflows(open_workflow(old).document, open_workflow(new).document)
    if common.json:
        answer({"old": str(old), "new": str(new), **found.as_dict()})
    elif found.same:
        say("the workflows behave the same" if found.by == "blocks" else "the diagrams are the same")
    else:
        say(*found.lines())
    return 0 if found.same else 1
