"""What differs between two workflows is told in words a designer uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupwise.workflows import differences
from groupwise.workflows.block_form import NotBlocks
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
        "~ 'back': servers none → 1",
    ]


def test_the_activity_that_moved_is_named_and_not_all_it_passed() -> None:
    (line,) = lines(Design("d", Sequence((D, A, B, C)), OLD.servers))
    assert line == "↕ 'd' is now before 'a' (it was after), before 'b' (it was after), before 'c' (it was after)"
    (line,) = lines(Design("d", Sequence((A, Parallel((B, C)), D)), OLD.servers))
    assert line == "↕ 'c' is now in parallel with 'b' (it was after)"


def test_handling_and_probabilities() -> None:
    careful = Activity("b", Handling(pool="desk", retry=Retry(2)))
    assert lines(Design("d", Sequence((A, careful, C, D)), OLD.servers)) == [
        "~ 'b': pool none → desk",
        "~ 'b': retry none → up to 2 at once",
    ]
    patient = Activity("b", Handling(retry=Retry(3, 600.0), timeout=5400.0))
    assert lines(Design("d", Sequence((A, patient, C, D)), OLD.servers)) == [
        "~ 'b': retry none → up to 3 after 10 min, each pause 2 times the last",
        "~ 'b': timeout none → 90 min",
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
    assert (found.by, [str(change) for change in found.changed]) == ("graph", ["'c': join or → and"])


def test_how_often_an_activity_is_done_counts_every_loop_around_it() -> None:
    old = Design("d", Sequence((A, B, C)))
    new = Design("d", Loop(Sequence((Loop(A, 0.5, B), C)), 0.2))
    # A round of the inner loop is repeated once on average, and one of the outer a quarter of the time.
    assert [str(one) for one in compare_workflows(old, new).changed] == [
        "'a': times per case 1 → 2.5",
        "'b': times per case 1 → 1.25",
        "'c': times per case 1 → 1.25",
    ]


def test_work_is_cancelled_with_what_is_around_it_and_its_handler_is_not() -> None:
    old = Design("d", Sequence((A, B, C)))
    new = Design("d", Cancellable(Sequence((Cancellable(A, 0.5), B)), 0.2, C))
    assert [str(one) for one in compare_workflows(old, new).changed] == [
        "'a': probability of being cancelled 0 → 0.6",
        "'b': probability of being cancelled 0 → 0.2",
        "'c': times per case 1 → 0.2",
    ]


def test_the_innermost_copies_count() -> None:
    new = Design("d", Instances(Sequence((A, Instances(B, 2, 3, 1))), 4, 4, 4))
    found = compare_workflows(Design("d", Sequence((A, B))), new).changed
    assert [(one.name, one.after) for one in found] == [("a", (4, 4, 4)), ("b", (2, 3, 1))]


def test_of_many_changed_relations_three_are_told() -> None:
    names = [Activity(name) for name in "abcde"]
    old, new = Design("d", Sequence(tuple(names))), Design("d", Sequence((*names[1:], A)))
    assert [str(move) for move in compare_workflows(old, new).moved] == [
        "'a' is now after 'b' (it was before), after 'c' (it was before), after 'd' (it was before) and 1 more"
    ]
    swapped = compare_workflows(Design("d", Sequence((A, B))), Design("d", Sequence((B, A))))
    assert [str(move) for move in swapped.moved] == ["'b' is now before 'a' (it was after)"], "of two the last by name"
    either = compare_workflows(Design("d", Parallel((A, B))), Design("d", Choice((A, B), (0.5, 0.5))))
    assert [str(move) for move in either.moved] == ["'b' is now an alternative to 'a' (it was in parallel with)"]


def test_the_fewest_moves_that_explain_all_pairs_are_told() -> None:
    """Both c and d pass the others, and keep their order: each of them is in more pairs than any other."""
    found = compare_workflows(OLD, Design("d", Sequence((C, D, A, B)), OLD.servers))
    assert [move.name for move in found.moved] == ["d", "c"]
    assert found.as_dict()["moved"][1] == {
        "name": "c",
        "words": "is now before 'a' (it was after), before 'b' (it was after)",
    }


def test_relations_are_compared_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    reverse = Design("d", Sequence((D, C, B, A)), OLD.servers)
    for limit, moved in ((4, ["d", "c", "b"]), (2, ["b"]), (1, [])):
        monkeypatch.setattr(differences, "MOST_COMPARED", limit)
        assert [move.name for move in compare_workflows(OLD, reverse).moved] == moved


def test_servers_and_documentation_of_the_design_are_compared() -> None:
    new = Design("e", OLD.root, (), "how we work")
    found = compare_workflows(OLD, new)
    assert list(found.lines()) == ["~ 'desk': servers 2 → none", "~ 'e': documentation '' → 'how we work'"]
    assert found.as_dict() == {
        "same": False, "by": "blocks", "added": (), "removed": (), "moved": (), "changed": (
            {"name": "desk", "what": "servers", "before": 2, "after": None},
            {"name": "e", "what": "documentation", "before": "", "after": "how we work"},
        ),
    }  # fmt: skip


def test_drawings_differ_in_their_nodes_flows_and_shares() -> None:
    def drawn(flows: dict[str, float | None], **changed: Any) -> Document:
        nodes = [Node("s", kind="start"), Node("a", split="or"), Node("b"), Node("c"), Node("e", kind="end")]
        used = {name for flow in flows for name in flow.split()}
        kept = tuple(replace(node, **changed) if node.id == "b" else node for node in nodes if node.id in used)
        return Document("g", (Graph("g", kept, tuple(Flow(*pair.split(), share) for pair, share in flows.items())),))

    both = {"s a": None, "a b": 0.5, "a e": 0.5, "b e": None}
    old = drawn({**both, "a c": 0.5, "c e": None})
    new = drawn({**both, "a b": 0.25, "b a": None}, handling=Handling(priority=3), documentation="new")
    found = compare_workflows(old, new)
    assert (found.by, found.added, found.removed) == ("graph", (), ("c",))
    assert [str(move) for move in found.moved] == [
        "'b → a' is a new flow", "'a → c' is no longer a flow", "'c → e' is no longer a flow",
    ]  # fmt: skip
    assert [str(change) for change in found.changed] == [
        "'b': priority 0 → 3", "'b': documentation '' → 'new'", "'a → b': probability 0.5 → 0.25",
    ]  # fmt: skip
    assert compare_workflows(new, old).added == ("c",)
    with pytest.raises(NotBlocks):
        compare_workflows(OLD, new)


@pytest.mark.parametrize(
    "found",
    [
        {"added": ("a",)}, {"removed": ("a",)}, {"moved": (differences.Move("a", "moved"),)},
        {"changed": (differences.Change("a", "pool", None, "desk"),)},
    ],
)  # fmt: skip
def test_anything_that_differs_is_a_difference(found: dict[str, Any]) -> None:
    assert not differences.Differences("blocks", **found).same
    assert differences.Differences("blocks").same
