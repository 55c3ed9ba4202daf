"""Columns of a layered drawing (after Sugiyama): back edges reversed, each node as far left as possible, few crossings.

Vertices are numbers: nodes first, then bends, the places where a flow crosses a column without stopping in it. A flow
that goes back leaves its node and enters its target from above, each through a bend in that node's own column (a hook).
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Edge = tuple[int, int]
SWEEPS = 16  # most passes over all columns to reduce crossings


@dataclass(slots=True)
class DrawingColumns:
    """`column` of each vertex; `order` of each column from top to bottom; `paths`, the vertices each flow passes.

    `owner` maps a hook to its node. `right` and `left` are the neighbours of a vertex in the next and the previous
    column, whichever way the flow points. `backward` are nodes that lie only on ways back.
    """

    column: list[int]
    order: list[list[int]] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)
    right: list[list[int]] = field(default_factory=list)
    left: list[list[int]] = field(default_factory=list)
    backward: set[int] = field(default_factory=set)

    def links(self) -> list[Edge]:
        return [(a, b) for a, targets in enumerate(self.right) for b in targets]


def in_columns(count: int, edges: Sequence[Edge], start: int, end: int) -> DrawingColumns:
    """Put the nodes 0 … count − 1 and the flows between them into ordered columns."""
    turned, backward = _turned(count, edges, start, end)
    columns = DrawingColumns(_longest_paths(count, edges, turned, end), backward=backward)
    _lay_paths(columns, edges, turned)
    _first_order(columns, start)
    _fewer_crossings(columns)
    return columns


def _turned(count: int, edges: Sequence[Edge], start: int, end: int) -> tuple[list[bool], set[int]]:
    """Which flows to reverse so that no cycle is left, and the nodes that lie on ways back."""
    turned = [a == b for a, b in edges]
    for number in _closing(count, edges, turned, start):
        turned[number] = True
    backward = _on_the_way_back(count, edges, turned, end) - {start, end}
    for number, (a, b) in enumerate(edges):
        if b in backward and a != b:
            turned[number] = True
    # Reversing whole ways back may have closed new cycles: undo what closes them.
    for number in _closing(count, edges, turned, start):
        turned[number] = not turned[number]
    ahead = {end for number, edge in enumerate(edges) if not turned[number] for end in edge}
    return turned, backward - ahead


def _closing(count: int, edges: Sequence[Edge], turned: Sequence[bool], start: int) -> list[int]:
    """The flows that close a cycle in a depth-first search from the start."""
    ways: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, (a, b) in enumerate(edges):
        if a != b:
            source, target = (b, a) if turned[number] else (a, b)
            ways[source].append((target, number))
    state, found = [0] * count, []  # 0 not seen, 1 on the current path, 2 done
    for root in [start, *range(count)]:
        stack = [(root, 0)] if state[root] == 0 else []
        while stack:
            here, step = stack.pop()
            state[here] = 1
            if step == len(ways[here]):
                state[here] = 2
                continue
            stack.append((here, step + 1))
            target, number = ways[here][step]
            if state[target] == 1:
                found.append(number)
            elif state[target] == 0:
                stack.append((target, 0))
    return found


def _on_the_way_back(count: int, edges: Sequence[Edge], turned: Sequence[bool], end: int) -> set[int]:
    """Nodes from which the end can only be reached by going back first."""
    forward = [edge for number, edge in enumerate(edges) if not turned[number]]
    ending = _reaching(count, forward, {end})
    returning = {a for number, (a, b) in enumerate(edges) if turned[number] and b in ending}
    return _reaching(count, forward, returning) - ending


def _reaching(count: int, edges: Sequence[Edge], goals: set[int]) -> set[int]:
    """Nodes from which one of the goals can be reached, the goals included."""
    before: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
    seen, stack = set(goals), list(goals)
    while stack:
        for source in before[stack.pop()]:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return seen


def _longest_paths(count: int, edges: Sequence[Edge], turned: Sequence[bool], end: int) -> list[int]:
    """Columns by longest path from the left; a node with more flows out than in then moves right as far as it can."""
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for number, (a, b) in enumerate(edges):
        if a != b:
            source, target = (b, a) if turned[number] else (a, b)
            after[source].append(target)
            before[target].append(source)
    waits = [len(sources) for sources in before]
    ready = [node for node in range(count) if waits[node] == 0]
    column = [0] * count
    for node in ready:
        for target in after[node]:
            column[target] = max(column[target], column[node] + 1)
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)
    # The end stands in the last column, whatever leads to it.
    column[end] = max(column)
    for node in reversed(ready):
        if len(after[node]) > len(before[node]):
            column[node] = max(column[node], min(column[target] for target in after[node]) - 1)
    first = min(column)
    return [place - first for place in column]


def _lay_paths(columns: DrawingColumns, edges: Sequence[Edge], turned: Sequence[bool]) -> None:
    """Add the bends of every flow, hooks included, and the links between neighbouring columns."""
    column, owner, backward = columns.column, columns.owner, columns.backward

    def bend(place: int, of: int | None = None) -> int:
        column.append(place)
        if of is not None:
            owner[len(column) - 1] = of
        return len(column) - 1

    for (a, b), back in zip(edges, turned, strict=True):
        # Forward: a bend in every column between. To itself: one hook. Back: out by a hook, bends, in by a hook.
        if not back:
            path = [a, *(bend(place) for place in range(column[a] + 1, column[b])), b]
        elif a == b:
            path = [a, bend(column[a], a), a]
        else:
            leave = [] if a in backward else [bend(column[a], a)]
            enter = [] if b in backward else [bend(column[b], b)]
            path = [a, *leave, *(bend(place) for place in range(column[a] - 1, column[b], -1)), *enter, b]
        columns.paths.append(tuple(path))
    columns.right = [[] for _ in column]
    columns.left = [[] for _ in column]
    for path_ in columns.paths:
        for a, b in pairwise(path_):
            if column[a] != column[b]:
                near, far = (a, b) if column[a] < column[b] else (b, a)
                columns.right[near].append(far)
                columns.left[far].append(near)


def _first_order(columns: DrawingColumns, start: int) -> None:
    """A first order, depth first from the start: branches in the order of their flows, ways back above them."""
    hooks: dict[int, list[int]] = {}
    for hook, node in columns.owner.items():
        hooks.setdefault(node, []).append(hook)
    order: list[list[int]] = [[] for _ in range(max(columns.column) + 1)]
    seen: set[int] = set()
    for root in [start, *range(len(columns.column))]:
        stack = [columns.owner.get(root, root)]
        while stack:
            here = stack.pop()
            here = columns.owner.get(here, here)
            if here in seen:
                continue
            unit = [*hooks.get(here, []), here]  # a node and the hooks above it stay together
            seen.update(unit)
            order[columns.column[here]] += unit
            stack += [target for vertex in reversed(unit) for target in reversed(columns.right[vertex])]
    columns.order = order


def _fewer_crossings(columns: DrawingColumns) -> None:
    """Sweep right and left, moving each vertex to the mean of its neighbours; keep the order with fewest crossings."""
    best, least = [list(column) for column in columns.order], _crossings(columns)
    for sweep in range(SWEEPS):
        if least == 0:
            break
        rightward = sweep % 2 == 0
        places = range(1, len(columns.order)) if rightward else range(len(columns.order) - 2, -1, -1)
        near = columns.left if rightward else columns.right
        for place in places:
            neighbour = columns.order[place - 1 if rightward else place + 1]
            columns.order[place] = _sorted_column(columns, columns.order[place], neighbour, near)
        count = _crossings(columns)
        if count < least:
            best, least = [list(column) for column in columns.order], count
    columns.order = best


def _sorted_column(
    columns: DrawingColumns, column: list[int], neighbour: list[int], near: list[list[int]]
) -> list[int]:
    """A column sorted by the mean position of each unit's neighbours (the barycentre heuristic)."""
    place = {vertex: number for number, vertex in enumerate(neighbour)}
    hooks: dict[int, list[int]] = {}
    for vertex in column:
        if vertex in columns.owner:
            hooks.setdefault(columns.owner[vertex], []).append(vertex)
    units = [vertex for vertex in column if vertex not in columns.owner]
    middles: dict[int, float] = {}
    last = -1.0
    for unit in units:
        pulls = [place[other] for vertex in (unit, *hooks.get(unit, ())) for other in near[vertex]]
        last = middles[unit] = sum(pulls) / len(pulls) if pulls else last
    units.sort(key=lambda unit: middles[unit])
    ordered: list[int] = []
    for unit in units:
        own = hooks.get(unit, [])
        own.sort(key=lambda hook: place[near[hook][0]] if near[hook] else -1)
        ordered += [*own, unit]
    return ordered


def _crossings(columns: DrawingColumns) -> int:
    """The number of crossings between all neighbouring columns, counted as inversions."""
    total = 0
    for left, right in pairwise(columns.order):
        place = {vertex: number for number, vertex in enumerate(right)}
        seen: list[int] = []
        for vertex in left:
            # Every earlier target below this one is a crossing.
            targets = sorted(place[target] for target in columns.right[vertex])
            for target in targets:
                total += len(seen) - bisect_right(seen, target)
            for target in targets:
                insort(seen, target)
    return total
