"""`groupwise check`: is a workflow sound, does it keep the rules, and can the rules be kept at all?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import RequirementsFile, WorkflowFile, say
from groupwise.workflows.blocks import DesignError
from groupwise.workflows.feasibility import Contradiction, contradictions
from groupwise.workflows.lifting import lift
from groupwise.workflows.markings import Soundness
from groupwise.workflows.opening import Opened, open_workflow
from groupwise.workflows.rules import Violation, broken_rules
from groupwise.workflows.scoring import structure_of
from groupwise.workflows.soundness import check_document

MARKS = {"sound": "✓", "unsound": "✗", "unknown": "?"}


def check(file: WorkflowFile, *, requirements: RequirementsFile = None, common: Common = Common()) -> int:
    """Check whether a workflow is sound: it can always end, ends cleanly, and no task is dead.

    An unsound one comes with the steps that show it. With requirements, their rules are checked too. The exit status is
    0 if everything holds and 1 if not.
    """
    opened = open_workflow(file, requirements)
    verdicts = check_document(opened.document)
    conflicts = contradictions(opened.requirements) if opened.requirements else []
    broken, unread = _rules(opened)
    fine = all(verdict.sound for verdict in verdicts.values()) and not conflicts and not broken
    if common.json:
        answer(
            {
                "file": str(file),
                "ok": fine,
                "graphs": {name: asdict(verdict) for name, verdict in verdicts.items()},
                "metrics": {graph.name: structure_of(graph).as_dict() for graph in opened.document.graphs},
                "blocks": not unread,
                "broken": [asdict(violation) for violation in broken],
                "contradictions": [_conflict(conflict) for conflict in conflicts],
                "notes": [*opened.document.notes, *([unread] if unread else [])],
            }
        )
    else:
        say(*_lines(opened, verdicts, conflicts, broken, unread))
    return 0 if fine else 1


def _rules(opened: Opened) -> tuple[list[Violation], str]:
    """The rules that are broken; or why they cannot be told, if the workflow has no block form."""
    try:
        design = lift(opened.document)
    except DesignError as error:
        return [], error.message
    return (broken_rules(design, opened.requirements) if opened.requirements else []), ""


def _conflict(conflict: Contradiction) -> dict[str, Any]:
    return {"words": conflict.words, "rules": [str(statement) for statement in conflict.statements]}


def _lines(
    opened: Opened,
    verdicts: Mapping[str, Soundness],
    conflicts: list[Contradiction],
    broken: list[Violation],
    unread: str,
) -> Iterator[str]:
    for name, verdict in verdicts.items():
        why = f": {verdict.rule}, {verdict.explanation}" if verdict.rule else ""
        yield f"{MARKS[verdict.verdict]} {name} is {_told(verdict)}{why}"
        if verdict.trace:
            yield f"  after {' → '.join(verdict.trace)}"
    if opened.requirements:
        yield from (f"✗ the requirements contradict themselves: {conflict}" for conflict in conflicts)
        yield from (f"✗ {violation}" for violation in broken)
        if unread:
            yield f"? the rules cannot be checked, because the workflow has no block form: {unread}"
        elif not broken:
            yield f"✓ it keeps every rule of {opened.requirements.name!r} (the deadline needs `groupwise simulate`)"
    yield from (f"note: {note}" for note in opened.document.notes)


def _told(verdict: Soundness) -> str:
    return {"sound": "sound", "unsound": "not sound", "unknown": "not decided"}[verdict.verdict]
