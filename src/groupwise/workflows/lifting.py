"""From a free graph to blocks, where it has them: the same design, and sound by construction from then on.

Regions are folded from the inside: two nodes in a row, branches between a split and its join, a way back between an xor
join and an xor split, and orders between an and-split and its and-join. What is left over at the end has no block form,
and `NotBlocks` names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Choice,
    Design,
    DesignError,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
    tidied,
)
from groupwise.workflows.graph import Graph, Node, Rule
from groupwise.workflows.orders import reduced


class NotBlocks(DesignError):
    """A graph without a block form, and the part of it that has none."""

    code = "not_blocks"


@dataclass(slots=True)
class _Gate:
    """A split, a join or both, without work."""

    rule: Rule


class _Sketch:
    """The graph while it is folded: each node a block or a gate, and its arrows with their probabilities."""

    def __init__(self, graph: Graph) -> None:
        self.content: dict[str, Block | _Gate] = {}
        self.out: dict[str, dict[str, float | None]] = {}
        self.into: dict[str, set[str]] = {}
        first: dict[str, str] = {}
        last: dict[str, str] = {}
        for node in graph.nodes:
            first[node.id], last[node.id] = self._enter(graph, node)
        for flow in graph.flows:
            self._connect(last[flow.source], first[flow.target], flow.probability)
        self.start, self.end = last[graph.start.id], first[graph.end.id]

    def _enter(self, graph: Graph, node: Node) -> tuple[str, str]:
        """A task with a join or split of its own becomes up to three nodes."""
        if node.cancels:
            raise NotBlocks(f"{node.label!r} clears others away when it completes")
        joins, splits = len(graph.into(node.id)) > 1, len(graph.out_of(node.id)) > 1
        if "or" in (node.join if joins else "", node.split if splits else ""):
            raise NotBlocks(f"{node.label!r} joins or splits by or")
        if node.kind != "task":
            self._add(node.id, _Gate("xor"))
            return node.id, node.id
        names = []
        if joins:
            names.append(self._add(f"{node.id} join", _Gate(node.join)))
        names.append(self._add(node.id, _work(node)))
        if splits:
            names.append(self._add(f"{node.id} split", _Gate(node.split)))
        for before, after in pairwise(names):
            self._connect(before, after, None)
        return names[0], names[-1]

    def _add(self, name: str, content: Block | _Gate) -> str:
        self.content[name], self.out[name], self.into[name] = content, {}, set()
        return name

    def _connect(self, source: str, target: str, probability: float | None) -> None:
        self.out[source][target] = probability
        self.into[target].add(source)

    def block(self, name: str) -> Block | None:
        """The block of a node with one way in and one way out; None for gates, ends and branching nodes."""
        content = self.content.get(name)
        if name in (self.start, self.end) or len(self.out[name]) != 1 or len(self.into[name]) != 1:
            return None
        return Skip() if isinstance(content, _Gate) else content

    def is_gate(self, name: str, rule: Rule) -> bool:
        content = self.content[name]
        return isinstance(content, _Gate) and content.rule == rule and name not in (self.start, self.end)

    def target(self, name: str) -> str:
        (only,) = self.out[name]
        return only

    def remove(self, name: str) -> None:
        for target in self.out.pop(name):
            self.into[target].discard(name)
        for source in self.into.pop(name):
            self.out[source].pop(name, None)
        del self.content[name]

    def fold(self, names: set[str], entry: str, exit_: str, block: Block) -> None:
        """Put `block` in the place of the nodes: the ways into `entry` lead to it, and those out of `exit_` on."""
        before = [(source, self.out[source][entry]) for source in self.into[entry] if source not in names]
        after = [(target, p) for target, p in self.out[exit_].items() if target not in names]
        for name in names:
            self.remove(name)
        self._add(entry, block)
        for source, probability in before:
            self._connect(source, entry, probability)
        for target, probability in after:
            self._connect(entry, target, probability)


def lift(graph: Graph) -> Design:
    """The block design of a graph; `NotBlocks` where it has none."""
    sketch = _Sketch(graph)
    while any(rule(sketch) for rule in RULES):
        pass
    rest = [name for name in sketch.content if name not in (sketch.start, sketch.end)]
    block = sketch.block(rest[0]) if len(rest) == 1 else None
    if block is None:
        raise NotBlocks(f"{graph.name}: no blocks around {', '.join(sorted(rest)[:6])}")
    return Design(graph.name, tidied(block), documentation=graph.documentation)


def _work(node: Node) -> Block:
    if node.silent:
        return Skip()
    activity = Activity(node.label, node.handling)
    copies = node.copies
    return activity if copies.most == 1 else Instances(activity, copies.least, copies.most, copies.enough)


def _fold_sequence(sketch: _Sketch) -> bool:
    for name in list(sketch.content):
        first = sketch.block(name)
        if first is None:
            continue
        following = sketch.target(name)
        second = sketch.block(following)
        if second is not None and following != name:
            sketch.fold({name, following}, name, following, Sequence((first, second)))
            return True
    return False


def _fold_branches(sketch: _Sketch) -> bool:
    """Branches that lead from one split to one join of its rule; those of several that do are folded together."""
    for split in list(sketch.content):
        for rule in ("xor", "and"):
            if len(sketch.out[split]) > 1 and sketch.is_gate(split, rule):
                for join, branches in _by_join(sketch, split).items():
                    if join != split and len(branches) > 1 and sketch.is_gate(join, rule):
                        _fold_some(sketch, split, join, branches, rule)
                        return True
    return False


def _by_join(sketch: _Sketch, split: str) -> dict[str, list[tuple[str, Block, float | None]]]:
    """The branches of a split by where they lead; a flow straight to a join is an empty branch."""
    found: dict[str, list[tuple[str, Block, float | None]]] = {}
    for name, probability in sketch.out[split].items():
        block = sketch.block(name)
        if block is not None:
            found.setdefault(sketch.target(name), []).append((name, block, probability))
    for name, probability in sketch.out[split].items():
        if name in found:
            found[name].append(("", Skip(), probability))
    return found


def _fold_some(
    sketch: _Sketch, split: str, join: str, branches: list[tuple[str, Block, float | None]], rule: Rule
) -> None:
    given = [probability for _, _, probability in branches]
    known = [p for p in given if p is not None]
    shares = [p / sum(known) for p in known] if len(known) == len(given) else [1 / len(given)] * len(given)
    blocks = tuple(block for _, block, _ in branches)
    block: Block = Parallel(blocks) if rule == "and" else Choice(blocks, tuple(shares))
    kept, *others = (name for name, _, _ in branches if name)
    for name in others:
        sketch.remove(name)
    if any(not name for name, _, _ in branches):
        del sketch.out[split][join]
        sketch.into[join].discard(split)
    sketch.content[kept] = block
    sketch.out[split][kept] = sum(known) if len(known) == len(given) else None


def _fold_loop(sketch: _Sketch) -> bool:
    """An xor join, a body, an xor split, and a way back from the split to the join."""
    for entry in list(sketch.content):
        if not sketch.is_gate(entry, "xor") or len(sketch.out[entry]) != 1 or len(sketch.into[entry]) < 2:
            continue
        inside = sketch.target(entry)
        body = sketch.block(inside)
        exit_ = inside if body is None else sketch.target(inside)
        if (
            exit_ == entry
            or not sketch.is_gate(exit_, "xor")
            or len(sketch.out[exit_]) < 2
            or len(sketch.into[exit_]) != 1
        ):
            continue
        for back, probability in sketch.out[exit_].items():
            redo = sketch.block(back)
            if back != entry and not (redo is not None and sketch.target(back) == entry):
                continue
            names = {entry, exit_} | ({inside} if body is not None else set()) | ({back} if back != entry else set())
            if len(sketch.out[exit_]) != 2 or len(sketch.into[entry]) != 2:
                continue
            again = 0.5 if probability is None else probability
            loop = Loop(body or Skip(), again, Skip() if back == entry else redo or Skip())
            sketch.fold(names, entry, exit_, loop)
            return True
    return False


def _fold_order(sketch: _Sketch) -> bool:
    """Everything between an and-split and the and-join that all of it leads to, in the order of its arrows."""
    for split in list(sketch.content):
        if sketch.is_gate(split, "and") and len(sketch.out[split]) > 1:
            region = _region(sketch, split)
            if region is not None:
                names, join = region
                sketch.fold({split, join, *names}, split, join, _ordered(sketch, split, names))
                return True
    return False


def _region(sketch: _Sketch, split: str) -> tuple[set[str], str] | None:
    """The nodes behind a split up to its join; None if anything but blocks and and-gates lies between."""
    for join in _candidates(sketch, split):
        names: set[str] = set()
        stack = [name for name in sketch.out[split] if name != join]
        while stack:
            name = stack.pop()
            if name in names:
                continue
            names.add(name)
            stack += [target for target in sketch.out[name] if target != join]
        sealed = all(sketch.block(n) is not None or sketch.is_gate(n, "and") for n in names)
        inside = names | {split}
        closed = all(sketch.into[n] <= inside for n in (*names, join)) and split not in names
        if names and sealed and closed and not _has_ring(sketch, names):
            return names, join
    return None


def _candidates(sketch: _Sketch, split: str) -> Iterator[str]:
    return (n for n in sketch.content if n != split and sketch.is_gate(n, "and") and len(sketch.into[n]) > 1)


def _has_ring(sketch: _Sketch, names: set[str]) -> bool:
    waits = {name: len(sketch.into[name] & names) for name in names}
    ready = [name for name, count in waits.items() if count == 0]
    seen = 0
    while ready:
        name = ready.pop()
        seen += 1
        for target in sketch.out[name]:
            if target in waits:
                waits[target] -= 1
                if waits[target] == 0:
                    ready.append(target)
    return seen < len(names)


def _ordered(sketch: _Sketch, split: str, names: set[str]) -> Block:
    parts = [name for name in sketch.content if name in names and not isinstance(sketch.content[name], _Gate)]
    number = {name: place for place, name in enumerate(parts)}
    edges = set()
    for name in parts:
        stack = list(sketch.out[name])
        while stack:
            target = stack.pop()
            if target in number:
                edges.add((number[name], number[target]))
            elif target in names:
                stack += sketch.out[target]
    blocks = tuple(block for name in parts if (block := sketch.block(name)) is not None)
    if len(blocks) < 2:
        return blocks[0] if blocks else Skip()
    return PartialOrder(blocks, reduced(len(blocks), frozenset(edges)))


RULES = (_fold_sequence, _fold_branches, _fold_loop, _fold_order)
