"""A workflow too large to draw is summarised: alike tasks become one node, in the order they had."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from time import process_time

from groupwise.workflows.blocks import Activity, Choice, Design, Sequence
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.evaluation.performance import SimulatedTry
from groupwise.workflows.files.step_dag import WorkflowStep, graph_of
from groupwise.workflows.graph import only_order
from groupwise.workflows.pictures.animation import write_figures
from groupwise.workflows.pictures.summary import LARGEST, is_large, summarised


def mosaic(count: int) -> Document:
    """`count` projections, a difference of every two neighbours, and one sum of everything."""
    steps = [WorkflowStep(f"project_ID{n:05}") for n in range(count)]
    steps += [WorkflowStep(f"diff-{n}", needs=(steps[n].id, steps[n + 1].id)) for n in range(count - 1)]
    steps.append(WorkflowStep("add", needs=tuple(step.id for step in steps[count:])))
    return Document("mosaic", (graph_of("mosaic", steps),))


def test_alike_tasks_become_one_node() -> None:
    assert not is_large(mosaic(100))
    large = mosaic(1000)
    assert is_large(large)
    found = summarised(large)
    assert found is not None
    assert only_order(found.root)
    named = {node.id: node.label for node in found.root.nodes}
    flows = [(named[flow.source], named[flow.target]) for flow in found.root.flows]
    assert flows == list(pairwise(["start", "project × 1,000", "diff × 999", "add", "end"]))


def test_a_chain_with_too_many_names_has_no_summary_and_neither_has_a_choice() -> None:
    chain = [WorkflowStep(f"t{n}x", needs=(f"t{n - 1}x",) if n else ()) for n in range(LARGEST + 1)]
    assert summarised(Document("chain", (graph_of("chain", chain),))) is None
    tree = Sequence((Activity("a"), Choice((Activity("b"), Activity("c")), (0.5, 0.5))))
    assert summarised(document_of(Design("choice", tree))) is None


def test_two_thousand_tasks_are_drawn_within_seconds(tmp_path: Path) -> None:
    tries = [SimulatedTry(0, f"project_ID{n:05}", 0.0, float(n), n + 1.0, "m", 0, "done") for n in range(400)]
    start = process_time()
    files = write_figures(mosaic(1000), tries, {"m": 1}, tmp_path)
    assert process_time() - start < 10
    assert [path.name for path in files] == ["workflow.svg", "gantt.svg", "queues.svg", "utilisation.svg"]
    assert "1,000" in (tmp_path / "workflow.svg").read_text(encoding="utf8")
