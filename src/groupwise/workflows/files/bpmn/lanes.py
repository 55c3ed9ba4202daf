"""Lanes: one for each pool that performs tasks, in a pool that stands for the process."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.document import Document
from groupwise.workflows.endings import role_of
from groupwise.workflows.files.bpmn.wiring import Wiring
from groupwise.workflows.files.xml_tree import free_name
from groupwise.workflows.graph import Graph
from groupwise.workflows.pictures.scene import pool_of
from groupwise.xml_reader import Element, first


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of a process: the ids of their elements by pool, from above, and the pool of every node."""

    ids: Mapping[str, str]
    pools: Mapping[str, str]

    def number(self, node: str) -> int:
        return list(self.ids).index(self.pools[node])


def has_lanes(document: Document, graph: Graph) -> bool:
    """Whether we make lanes: not if the file has its own, or if sub-processes would have to cross them."""
    carried = [*document.extras, *graph.extras]
    own = any(e.name in ("laneSet", "collaboration") and e.namespace == bpmn.BPMN for e in carried)
    drawn = any(first(node.extras, "BPMNShape", bpmn.BPMNDI) is not None for node in graph.nodes)
    rest = first(document.extras, "BPMNDiagram", bpmn.BPMNDI)
    ours = drawn and rest is not None and any(e.get("isHorizontal") for e in rest.walk())
    crossing = any(node.cancels for node in graph.nodes)
    return not own and not crossing and (ours or not drawn) and bool(_performed(document, graph))


def _performed(document: Document, graph: Graph) -> dict[str, str]:
    found = {node.id: pool_of(document, node) for node in graph.nodes if node.kind == "task" and not node.silent}
    return {name: pool for name, pool in found.items() if pool}


def lanes_for(document: Document, graph: Graph, taken: set[str]) -> Lanes:
    """A lane for each pool, in the order in which a case meets them; what nobody performs stays where it comes from."""
    # An early end has no flow to the end in BPMN.
    flows = [flow for flow in graph.flows if role_of(graph.by_id[flow.source]) != "end"]
    before: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    after: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for flow in flows:
        before[flow.target].append(flow.source)
        after[flow.source].append(flow.target)
    order = list(_breadth_first(graph, after))
    pools = _performed(document, graph)
    for name in reversed(order):
        # Where paths meet belongs to what comes next; where they part, to what was done.
        if name not in pools and len(after[name]) == 1 and after[name][0] in pools:
            pools[name] = pools[after[name][0]]
    for neighbours, names in ((before, order), (after, order[::-1])):
        for name in names:
            near = [pools[other] for other in neighbours[name] if other in pools]
            if name not in pools and near:
                pools[name] = near[0]
    fallback = next(iter(pools.values()))
    pools |= {name: fallback for name in order if name not in pools}
    met = dict.fromkeys(pools[name] for name in order)
    return Lanes({pool: free_name(f"lane_{pool}", taken) for pool in met}, pools)


def _breadth_first(graph: Graph, after: Mapping[str, list[str]]) -> Iterator[str]:
    """All nodes, in the order in which a case can meet them; those it cannot, last."""
    queue, seen = [graph.start.id], {graph.start.id}
    for here in queue:
        yield here
        for target in after[here]:
            if target not in seen:
                seen.add(target)
                queue.append(target)
    yield from (node.id for node in graph.nodes if node.id not in seen)


def lane_set(wiring: Wiring, lanes: Lanes) -> Element:
    members: dict[str, list[str]] = {pool: [] for pool in lanes.ids}
    for node in wiring.graph.nodes:
        if node.id not in wiring.added:
            members[lanes.pools[node.id]] += [wiring.ids[node.id], *(gate for gate, _, _ in wiring.gates[node.id])]
    written = [bpmn.el("lane", *_members(members[pool]), id=name, name=pool) for pool, name in lanes.ids.items()]
    return bpmn.el("laneSet", *written, id=free_name(bpmn.LANES, wiring.taken))


def _members(names: Iterable[str]) -> list[Element]:
    return [bpmn.el("flowNodeRef", text=name) for name in names]


def carried_lanes(wiring: Wiring, inner: Iterable[tuple[Graph, dict[str, str]]]) -> list[Element]:
    """The file's lanes with their members, also of `inner` graphs."""
    carried = [e for e in wiring.graph.extras if e.name == "laneSet" and e.namespace == bpmn.BPMN]
    members: dict[str, list[str]] = {}
    for graph, ids in ((wiring.graph, wiring.ids), *inner):
        for name, key in _carried_members(graph, wiring):
            members.setdefault(key, []).append(ids[name])
    return [_filled(lanes, members) for lanes in carried]


def _carried_members(graph: Graph, wiring: Wiring) -> Iterator[tuple[str, str]]:
    for node in graph.nodes:
        lane = first(node.extras, "lane", bpmn.OWN)
        key = lane.text if lane is not None else node.handling.pool
        if key and node.id not in wiring.places and first(node.extras, "added", bpmn.OWN) is None:
            yield node.id, key


def _filled(lanes: Element, members: dict[str, list[str]]) -> Element:
    if lanes.name != "lane":
        return replace(lanes, children=tuple(_filled(child, members) for child in lanes.children))
    found = [*members.pop(lanes.get("id"), []), *members.pop(lanes.get("name"), [])]
    inner = tuple(_filled(child, members) for child in lanes.children)
    at = next((place for place, child in enumerate(inner) if child.name == "childLaneSet"), len(inner))
    return replace(lanes, children=(*inner[:at], *_members(found), *inner[at:]))
