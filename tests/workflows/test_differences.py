"""What differs between two workflows is told in words a designer uses."""

from __future__ import annotations

from groupwise.workflows.blocks import (
    Activity,
    Cancellable,
    Choice,
    Design,
    Handling,
    Instances,
    Loop,
    Parallel,
    Retry,
    Sequence,
)
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.graph import Flow, Graph, Node

A, B, C, D = (Activity(name) for name in "abcd")
OLD = Design("d", Sequence((A, B, C, D)), (("desk", 2),))


def lines(new: Design, old: Design = OLD) -> list[str]:
    return list(compare_workflows(document_of(old), document_of(new)).lines())


def test_the_same_behaviour_is_the_same_however_it_is_drawn() -> None:
    nested = Design("d", Sequence((A, Sequence((B, Sequence((C, D)))))), (("desk", 2),))
    assert compare_workflows(OLD, nested).same


def test_added_removed_and_staffed() -> None:
    assert lines(Design("d", Sequence((A, B, C, Activity("e"))), (("desk", 3), ("back", 1)))) == [
        "+ 'e' was added",
        "− 'd' was removed",
        "~ 'desk': servers 2 → 3",
        "~ 'back': servers not given → 1",
    ]


def test_the_activity_that_moved_is_named_and_not_all_it_passed() -> None:
    (line,) = lines(Design("d", Sequence((D, A, B, C)), OLD.servers))
    assert line == "↕ 'd' is now before 'a' (it was after), before 'b' (it was after), before 'c' (it was after)"
    (line,) = lines(Design("d", Sequence((A, Parallel((B, C)), D)), OLD.servers))
    assert line == "↕ 'c' is now in parallel with 'b' (it was after)"


def test_handling_and_probabilities() -> None:
    careful = Activity("b", Handling(pool="desk", retry=Retry(2)))
    assert lines(Design("d", Sequence((A, careful, C, D)), OLD.servers)) == [
        "~ 'b': pool not given → 'desk'",
        "~ 'b': retry {'most': 0, 'pause': 0.0, 'growth': 2.0} → {'most': 2, 'pause': 0.0, 'growth': 2.0}",
    ]
    one = Design("d", Sequence((A, Choice((B, C), (0.5, 0.5)))))
    other = Design("d", Sequence((A, Choice((B, C), (0.25, 0.75)))))
    assert lines(other, one) == ["~ 'b': times per case 0.5 → 0.25", "~ 'c': times per case 0.5 → 0.75"]


def test_loops_instances_and_cancellation() -> None:
    new = Design("d", Sequence((Loop(A, 0.2), Instances(B, 2, 3, 1), Cancellable(C, 0.1), D)), OLD.servers)
    assert lines(new) == [
        "~ 'a': times per case 1 → 1.25",
        "~ 'b': instances (least, most, enough) (1, 1, 1) → (2, 3, 1)",
        "~ 'c': probability of being cancelled 0 → 0.1",
    ]


def test_workflows_without_blocks_are_compared_as_they_are_drawn() -> None:
    nodes = [Node("s", kind="start"), Node("a", split="or"), Node("b"), Node("c", join="or"), Node("e", kind="end")]
    flows = [("s", "a"), ("a", "b"), ("a", "c"), ("b", "c"), ("c", "e")]

    def drawn(*, join: str) -> Document:
        changed = [Node("c", join=join) if node.id == "c" else node for node in nodes]  # type: ignore[arg-type]
        return Document("g", (Graph("g", tuple(changed), tuple(Flow(*flow) for flow in flows)),))

    assert compare_workflows(drawn(join="or"), drawn(join="or")).same
    found = compare_workflows(drawn(join="or"), drawn(join="and"))
    assert (found.by, [str(change) for change in found.changed]) == ("graph", ["'c': join 'or' → 'and'"])
