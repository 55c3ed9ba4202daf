"""Workflows: a library without torch that reads, checks, evaluates, scores, draws and writes workflow designs.

    opened = open_workflow("claims.bpmn", requirements="claims.yaml")
    check_document(opened.document)
    score(opened.design(), opened.requirements).explain()

In the order in which data flows:

    requirements.py    what is asked: activities, rules, pools, demand; process_mining.py finds it in event_logs.py,
                       requirement_errors.py says what is wrong with it
    files/             BPMN, YAWL, PNML, JSON and other formats to a document and back
    document.py        the graphs of a file; graph.py has their nodes and flows, titles.py names for their choices
    blocks.py          a design as a tree of blocks, sound by construction; drawing.py draws it as graphs, with the
                       ways in which cases end early (endings.py); block_form.py finds the blocks of a graph,
                       modular_decomposition.py those of an order; partial_orders.py has the basics of orders
    soundness/         can every case finish, and cleanly?
    rules.py           which requirements a design breaks: pair_rules.py (order, exclusion), case_rules.py (outcomes,
                       loops, people), places.py (where activities stand), violations.py
                       (what is reported, and how times are said)
    feasibility.py     whether any design can meet them all, with case_flow.py (outcomes, loops, data) and duties.py
                       (people, skills, hours); lower_bounds.py has what no design can beat
    evaluation/        how a design performs: formulas, simulation, schedules
    scoring/           performance, structure, maintainability and resources as one number
    pictures/          layouts, SVG, PNG, figures and animations
    differences.py     what changed between two workflows
    editing/           moves, probabilities, rules and staff changed by hand, and what that does
    inspection.py      opens a workflow from any file and runs every check: open this file first

Importing this loads nothing heavy: numba and lxml are imported when a design is evaluated or XML is written.
"""

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Design
from groupwise.workflows.differences import Differences, compare_workflows
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.feasibility import contradictions
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.inspection import Opened, open_workflow
from groupwise.workflows.lower_bounds import best_cycle_time
from groupwise.workflows.process_mining import requirements_from_log
from groupwise.workflows.requirements import Requirements, parse_requirements, read_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.scoring import DesignScore, DesignScorer, score, score_batch, structure_of
from groupwise.workflows.soundness.check import Soundness, check_design, check_document, check_graph

__all__ = [
    "Design", "DesignScore", "DesignScorer", "Differences", "Document", "Opened", "Performance", "Requirements",
    "Soundness", "best_cycle_time", "broken_rules", "check_design", "check_document", "check_graph",
    "compare_workflows", "contradictions", "document_of", "evaluate", "lift", "open_workflow", "parse_requirements",
    "read_requirements", "read_workflow", "requirements_from_log", "score", "score_batch", "structure_of",
    "write_workflow",
]  # fmt: skip
