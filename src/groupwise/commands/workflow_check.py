"""`groupwise check`: is a workflow sound, does it keep the rules, and can the rules be kept at all?"""

from __future__ import annotations

from collections.abc import Iterator

from groupwise.commands.options import Common, answer
from groupwise.commands.workflow_options import RequirementsFile, WorkflowFile, say
from groupwise.workflows.examining import Examination, examine
from groupwise.workflows.markings import Soundness
from groupwise.workflows.opening import open_workflow

MARKS = {"sound": "✓", "unsound": "✗", "unknown": "?"}


def check(file: WorkflowFile, *, requirements: RequirementsFile = None, common: Common = Common()) -> int:
    """Check whether a workflow is sound: it can always end, ends cleanly, and no task is dead.

    An unsound one comes with the steps that show it. With requirements, their rules are checked too. The exit status is
    0 if everything holds and 1 if not.
    """
    found = examine(open_workflow(file, requirements))
    if common.json:
        answer({"file": str(file), **found.as_dict()})
    else:
        say(*_lines(found))
    return 0 if found.fine else 1


def _lines(found: Examination) -> Iterator[str]:
    for name, verdict in found.verdicts.items():
        why = f": {verdict.rule}, {verdict.explanation}" if verdict.rule else ""
        yield f"{MARKS[verdict.verdict]} {name} is {_told(verdict)}{why}"
        if verdict.trace:
            yield f"  after {' → '.join(verdict.trace)}"
    if asked := found.opened.requirements:
        yield from (f"✗ the requirements contradict themselves: {conflict}" for conflict in found.conflicts)
        yield from (f"✗ {violation}" for violation in found.broken)
        if found.unread:
            yield f"? the rules cannot be checked, because the workflow has no block form: {found.unread}"
        elif not found.broken:
            yield f"✓ it keeps every rule of {asked.name!r} (the deadline needs `groupwise simulate`)"
    yield from (f"note: {note}" for note in found.opened.document.notes)


def _told(verdict: Soundness) -> str:
    return {"sound": "sound", "unsound": "not sound", "unknown": "not decided"}[verdict.verdict]
