"""Everything that can be told of a workflow without running it: soundness, rules, and whether rules contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.workflows.blocks import DesignError
from groupwise.workflows.feasibility import Contradiction, contradictions
from groupwise.workflows.lifting import lift
from groupwise.workflows.markings import Soundness
from groupwise.workflows.opening import Opened
from groupwise.workflows.rules import Violation, broken_rules
from groupwise.workflows.scoring import structure_of
from groupwise.workflows.soundness import check_document


@dataclass(frozen=True)
class Examination:
    """What was found; `unread` says why the rules could not be checked, where the workflow has no block form."""

    opened: Opened
    verdicts: Mapping[str, Soundness]
    conflicts: tuple[Contradiction, ...]
    broken: tuple[Violation, ...]
    unread: str

    @property
    def fine(self) -> bool:
        return all(verdict.sound for verdict in self.verdicts.values()) and not self.conflicts and not self.broken

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        document = self.opened.document
        return {
            "ok": self.fine,
            "graphs": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "metrics": {graph.name: structure_of(graph).as_dict() for graph in document.graphs},
            "blocks": not self.unread,
            "broken": [asdict(violation) for violation in self.broken],
            "contradictions": [_conflict(conflict) for conflict in self.conflicts],
            "notes": [*document.notes, *([self.unread] if self.unread else [])],
        }


def examine(opened: Opened) -> Examination:
    """Check a workflow, and the rules it should keep where requirements came with it."""
    asked = opened.requirements
    broken, unread = _rules(opened)
    conflicts = contradictions(asked) if asked else []
    return Examination(opened, check_document(opened.document), tuple(conflicts), tuple(broken), unread)


def _rules(opened: Opened) -> tuple[list[Violation], str]:
    """The rules that are broken; or why they cannot be told, if the workflow has no block form."""
    try:
        design = lift(opened.document)
    except DesignError as error:
        return [], error.message
    return (broken_rules(design, opened.requirements) if opened.requirements else []), ""


def _conflict(conflict: Contradiction) -> dict[str, Any]:
    return {"words": conflict.words, "rules": [str(statement) for statement in conflict.statements]}
