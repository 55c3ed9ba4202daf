"""The nested single-entry single-exit regions of a graph: its program structure tree.

Two edges enclose a region if every cycle through one goes through the other (Johnson, Pearson and Pingali, "The program
structure tree", 1994; for process models: Vanhatalo, Völzer and Koehler, "The refined process structure tree", 2009).
Such edges are found by labels: every edge outside a spanning tree gets a random number, and an edge of the tree the xor
of the numbers of all cycles through it, so edges on the same cycles get the same label.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Edge: TypeAlias = tuple[int, int]
TOP = -1


@dataclass(frozen=True, slots=True)
class Regions:
    """`of` is the innermost region of every node (TOP: none), `parent` the region around a region, `first` its entry.

    Regions are named by the number of the edge that opens them; a single node is not a region.
    """

    of: list[int]
    parent: dict[int, int]
    first: dict[int, int]

    def depth(self, node: int) -> int:
        """How many regions are around a node."""
        region, count = self.of[node], 0
        while region != TOP:
            region, count = self.parent[region], count + 1
        return count


def find_regions(count: int, edges: Sequence[Edge], start: int, end: int) -> Regions:
    """The regions of a graph whose nodes are numbers."""
    # An edge from the end back to the start puts every edge on a cycle.
    labels = _labels(count, [*edges, (end, start)], start)
    order = _edges_in_order(count, edges, start)
    # Walk the edges in search order: an edge may close one region and open the next, and its target lies in the latter.
    opens, closes = _pairs(labels, order)
    of = [TOP] * count
    parent: dict[int, int] = {}
    first: dict[int, int] = {}
    seen = {start}
    for number in order:
        source, target = edges[number]
        region = of[source]
        if number in closes:
            while region not in (closes[number], TOP):
                region = parent[region]
            region = parent.get(region, TOP)
        if number in opens:
            parent[opens[number]], region = region, opens[number]
            first[region] = target
        if target not in seen:
            seen.add(target)
            of[target] = region
    return _without_single(of, parent, first)


def _labels(count: int, edges: Sequence[Edge], root: int) -> list[int]:
    """Equal labels for edges that lie on the same undirected cycles."""
    near: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, (a, b) in enumerate(edges):
        near[a].append((b, number))
        near[b].append((a, number))
    numbers = random.Random(0)  # fixed: 64 random bits make a false match negligible, and results repeatable
    label, around = [0] * len(edges), [0] * count
    above: dict[int, tuple[int, int]] = {}
    visited, walked, tree = [], {root}, set()
    stack = [root]
    while stack:
        here = stack.pop()
        visited.append(here)
        for there, number in near[here]:
            if there not in walked:
                walked.add(there)
                above[there] = (here, number)
                tree.add(number)
                stack.append(there)
    for number, (a, b) in enumerate(edges):
        if number not in tree:
            label[number] = numbers.getrandbits(64)
            around[a] ^= label[number]
            around[b] ^= label[number]
    for here in reversed(visited):  # children before parents: `around` is then complete for the subtree of `here`
        if here in above:
            parent, number = above[here]
            label[number] = around[here]
            around[parent] ^= around[here]
    return label


def _edges_in_order(count: int, edges: Sequence[Edge], start: int) -> list[int]:
    """Edge numbers in the order of a depth-first search: an edge comes after all edges that dominate it."""
    out: list[list[int]] = [[] for _ in range(count)]
    for number, (source, _) in enumerate(edges):
        out[source].append(number)
    order, seen, stack = [], {start}, list(reversed(out[start]))
    while stack:
        number = stack.pop()
        order.append(number)
        target = edges[number][1]
        if target not in seen:
            seen.add(target)
            stack += reversed(out[target])
    return order


def _pairs(labels: Sequence[int], order: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Which edge opens and which closes a region: neighbours, in search order, among edges with the same label."""
    classes: dict[int, list[int]] = {}
    for number in order:
        if labels[number]:
            classes.setdefault(labels[number], []).append(number)
    opens, closes = {}, {}
    for same in classes.values():
        for before, after in pairwise(same):
            opens[before] = closes[after] = before
    return opens, closes


def _without_single(of: list[int], parent: dict[int, int], first: dict[int, int]) -> Regions:
    members = dict.fromkeys(parent, 0)
    for region in of:
        if region != TOP:
            members[region] += 1
    holders = set(parent.values())
    single = {region for region, number in members.items() if number <= 1 and region not in holders}
    kept = {region: around for region, around in parent.items() if region not in single}
    inner = [parent[region] if region in single else region for region in of]
    return Regions(inner, kept, {region: node for region, node in first.items() if region in kept})
