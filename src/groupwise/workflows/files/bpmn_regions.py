"""Bodies that a guard may break off: in BPMN they are sub-processes with an event on their boundary.

A graph says it with a watcher beside the body, as `unfolding` draws it:

    split → first … last → done ┐
          └→ guard ─────────────┴→ complete
                └→ abort (clears first … last and done) → handler
"""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.workflows.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Guarded:
    """The nodes of one such pattern; `inside` are those of the body."""

    split: str
    guard: str
    done: str
    complete: str
    abort: str
    first: str
    last: str
    inside: frozenset[str]
    chance: float | None

    @property
    def hidden(self) -> frozenset[str]:
        """What the sub-process stands for."""
        return self.inside | {self.guard, self.done}

    @property
    def whole(self) -> frozenset[str]:
        return self.hidden | {self.split, self.complete, self.abort}


def guarded_bodies(graph: Graph) -> dict[str, Guarded]:
    """Every guarded body by the node that breaks it off."""
    maybe = [_guarded(graph, node) for node in graph.nodes if node.cancels]
    found = [body for body in maybe if body is not None]
    crossing = {one.abort for one in found for other in found if one is not other and not _apart(one, other)}
    return {body.abort: body for body in found if body.abort not in crossing}


def _apart(one: Guarded, other: Guarded) -> bool:
    """Whether one lies wholly inside the other, or wholly outside."""
    return one.whole <= other.inside or other.whole <= one.inside or not one.hidden & other.hidden


def _guarded(graph: Graph, abort: Node) -> Guarded | None:
    into = graph.into(abort.id)
    if len(into) != 1 or not abort.silent or graph.by_id[into[0].source].kind != "condition":
        return None
    guard = into[0].source
    before, after = graph.into(guard), graph.out_of(guard)
    if len(before) != 1 or len(after) != 2:
        return None
    split, complete = before[0].source, next((f.target for f in after if f.target != abort.id), "")
    done = next((f.source for f in graph.into(complete) if f.source != guard), "") if complete else ""
    first = next((f.target for f in graph.out_of(split) if f.target != guard), "")
    last = [f.source for f in graph.into(done)] if done else []
    if not first or len(last) != 1 or not _is_gate(graph, split, "split") or not _is_gate(graph, complete, "join"):
        return None
    inside = frozenset(name for name in abort.cancels if name in graph.by_id) - {done}
    body = Guarded(split, guard, done, complete, abort.id, first, last[0], inside, into[0].probability)
    return body if _is_sealed(graph, body, abort) else None


def _is_gate(graph: Graph, name: str, side: str) -> bool:
    node = graph.by_id[name]
    flows = graph.out_of(name) if side == "split" else graph.into(name)
    rule = node.split if side == "split" else node.join
    return node.kind == "task" and node.silent and rule == "and" and len(flows) == 2


def _is_sealed(graph: Graph, body: Guarded, abort: Node) -> bool:
    """Whether the body is entered and left at one place each, and cleared as a whole."""
    if body.first not in body.inside or body.last not in body.inside:
        return False
    inner = set()
    for name in body.inside:
        node = graph.by_id[name]
        if node.kind in ("start", "end"):
            return False
        for flow in graph.into(name):
            if flow.source not in body.inside and (flow.source, name) != (body.split, body.first):
                return False
            inner.add(flow.id)
        for flow in graph.out_of(name):
            if flow.target not in body.inside and (name, flow.target) != (body.last, body.done):
                return False
            inner.add(flow.id)
    return set(abort.cancels) == body.inside | {body.done} | inner
