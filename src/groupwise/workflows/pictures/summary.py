"""A large order of tasks as a small one: tasks of one name at one depth become one node, with their number."""

import re
from collections.abc import Callable, Iterable

from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Graph, Node, only_order
from groupwise.workflows.partial_orders import in_order

# A drawing with more nodes than this is too large to read, and slow to lay out.
LARGEST = 300
# What distinguishes tasks of one kind: "mProject_ID0000001", "align-17".
NUMBERED = re.compile(r"[\s_.#-]*(?:ID)?\d+$")


def is_large(document: Document) -> bool:
    return sum(len(graph.nodes) for graph in document.graphs) > LARGEST


def summarised(document: Document) -> Document | None:
    """The document with alike tasks as one node; None if it is not one order of tasks, or still too large."""
    graph = document.root
    if len(document.graphs) > 1 or not only_order(graph):
        return None
    depth = _depths(graph)
    keys: tuple[Callable[[Node], tuple[int, str]], ...] = (
        lambda node: (depth[node.id], NUMBERED.sub("", node.label)),
        lambda node: (depth[node.id], ""),
    )
    for key in keys:
        tasks = [node for node in graph.nodes if node.kind == "task" and not node.silent]
        group = {node.id: key(node) for node in tasks}
        if len(set(group.values())) + 2 <= LARGEST:
            return Document(document.name, (_grouped(graph, group),), document.requirements, document.servers)
    return None


def _depths(graph: Graph) -> dict[str, int]:
    """How many nodes come before each on the longest way to it."""
    names = [node.id for node in graph.nodes]
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[flow.source], number[flow.target]) for flow in graph.flows)
    found = dict.fromkeys(names, 0)
    for place in in_order(len(names), edges):
        for flow in graph.out_of(names[place]):
            found[flow.target] = max(found[flow.target], found[flow.source] + 1)
    return found


def _grouped(graph: Graph, group: dict[str, tuple[int, str]]) -> Graph:
    members: dict[tuple[int, str], list[str]] = {}
    for name, key in sorted(group.items(), key=lambda item: item[1]):
        members.setdefault(key, []).append(name)
    number = {key: f"group {place}" for place, key in enumerate(members)}
    place = {name: number[key] for name, key in group.items()}
    nodes = [
        Node(number[key], _title(graph, key, names), join="and", silent=False) for key, names in members.items()
    ]  # fmt: skip
    # Silent nodes stand for the start or the end of everything; what they connect is drawn as starting or ending.
    ends = {"start": graph.start.id, "end": graph.end.id}
    pairs = dict.fromkeys(
        (place.get(flow.source, ends["start"]), place.get(flow.target, ends["end"])) for flow in graph.flows
    )
    flows = [Flow(a, b) for a, b in pairs if (a, b) != (ends["start"], ends["end"]) and a != b]
    return Graph(graph.name, (graph.start, *nodes, graph.end), tuple(_needed(flows, ends.values())))


def _title(graph: Graph, key: tuple[int, str], names: list[str]) -> str:
    if len(names) == 1:
        return graph.by_id[names[0]].label
    return f"{key[1] or 'tasks'} × {len(names):,}"


def _needed(flows: list[Flow], ends: Iterable[str]) -> list[Flow]:
    """The flows without those from the start or to the end of groups that have others."""
    start, end = ends
    into = {flow.target for flow in flows if flow.source != start}
    out = {flow.source for flow in flows if flow.target != end}
    return [
        flow
        for flow in flows
        if not (flow.source == start and flow.target in into) and not (flow.target == end and flow.source in out)
    ]
