"""Workflows: requirements, designs, whether they are sound, how they perform, and files that engines accept.

    opened = open_workflow("claims.bpmn", requirements="claims.yaml")
    check_document(opened.document)
    score(opened.design(), opened.requirements).explain()

The names below are imported when they are first used: evaluation needs numba and XML files lxml, the rest neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Design": "blocks",
    "Document": "document",
    "document_of": "document",
    "Differences": "differences",
    "compare_workflows": "differences",
    "Performance": "evaluation",
    "evaluate": "evaluation",
    "best_cycle_time": "feasibility",
    "contradictions": "feasibility",
    "read_workflow": "files",
    "write_workflow": "files",
    
    "lift": "lifting",
    "requirements_from_log": "logs",
    "Opened": "opening",
    "open_workflow": "opening",
    "Requirements": "requirements",
    "parse_requirements": "requirements",
    "read_requirements": "requirements",
    "broken_rules": "rules",
    "Score": "scoring",
    "Scorer": "scoring",
    "score": "scoring",
    "score_batch": "scoring",
    "structure_of": "scoring",
    "Soundness": "markings",
    "check_design": "soundness",
    "check_document": "soundness",
    "check_graph": "soundness",
}
__all__ = [*_HOMES]

if TYPE_CHECKING:
    from groupwise.designer.text_requirements import requirements_from_text
    from groupwise.workflows.block_form import lift
    from groupwise.workflows.blocks import Design
    from groupwise.workflows.differences import Differences, compare_workflows
    from groupwise.workflows.document import Document, document_of
    from groupwise.workflows.evaluation import Performance, evaluate
    from groupwise.workflows.feasibility import best_cycle_time, contradictions
    from groupwise.workflows.files import read_workflow, write_workflow
    from groupwise.workflows.inspection import Opened, open_workflow
    from groupwise.workflows.process_mining import requirements_from_log
    from groupwise.workflows.requirements import Requirements, parse_requirements, read_requirements
    from groupwise.workflows.rules import broken_rules
    from groupwise.workflows.scoring import DesignScore, DesignScorer, score, score_batch, structure_of
    from groupwise.workflows.soundness.check import Soundness, check_design, check_document, check_graph


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
