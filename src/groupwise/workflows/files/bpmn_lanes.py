"""Lanes: the pools that do the work of a process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from groupwise.workflows.elements import Element, first
from groupwise.workflows.files.bpmn_wiring import Wiring
from groupwise.workflows.files.bpmn_words import BPMN, LANES, OWN, el
from groupwise.workflows.files.names import free_name
from groupwise.workflows.graph import Graph


def lanes_of(wiring: Wiring, inner: Iterable[tuple[Graph, dict[str, str]]], embedded: bool) -> list[Element]:
    """The lanes there were with their members, those of `inner` graphs too; without any, new ones for the pools.

    An embedded process stands in the lanes of what it is embedded in, unless it has its own.
    """
    carried = [e for e in wiring.graph.extras if e.name == "laneSet" and e.namespace == BPMN]
    members: dict[str, list[str]] = {}
    for graph, ids in ((wiring.graph, wiring.ids), *inner):
        for node in graph.nodes:
            lane = first(node.extras, "lane", OWN)
            key = lane.text if lane is not None else node.handling.pool
            if key and node.id not in wiring.places and first(node.extras, "added", OWN) is None:
                members.setdefault(key, []).append(ids[node.id])
    written = [_filled(lanes, members) for lanes in carried]
    if members and not carried and not embedded:
        new = [
            el("lane", *_members(names), id=free_name(f"lane_{pool}", wiring.taken), name=pool)
            for pool, names in members.items()
        ]
        written.append(el("laneSet", *new, id=free_name(LANES, wiring.taken)))
    return written


def _members(names: Iterable[str]) -> list[Element]:
    return [el("flowNodeRef", text=name) for name in names]


def _filled(lanes: Element, members: dict[str, list[str]]) -> Element:
    """Lanes with the nodes that stand in them, by the lane's id or by its name."""
    if lanes.name != "lane":
        return replace(lanes, children=tuple(_filled(child, members) for child in lanes.children))
    found = [*members.pop(lanes.get("id"), []), *members.pop(lanes.get("name"), [])]
    inner = tuple(_filled(child, members) for child in lanes.children)
    at = next((place for place, child in enumerate(inner) if child.name == "childLaneSet"), len(inner))
    return replace(lanes, children=(*inner[:at], *_members(found), *inner[at:]))
