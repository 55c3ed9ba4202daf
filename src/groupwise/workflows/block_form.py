"""The block form of a graph, if it has one: the same workflow, sound by construction.

Regions are folded from the inside out until one block is left: nodes in a row; branches between a split and its join; a
loop between an xor join and an xor split; a partial order between an and-split and its and-join; and a body beside a
guard that may cancel it. A task that calls a graph becomes the block of that graph. If nodes are left over, the graph
has no block form, and `NotBlocks` names them. Paths on which cases end early are no blocks: they are left out first.

All ends of a graph are one at first. If it has no block form then, each is an end of its own: a path that leads to one
is a branch of the split before it that ends the case, and whoever takes another goes on.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.document import Document, calling_order
from groupwise.workflows.endings import asked_for, stops, without_endings
from groupwise.workflows.graph import Graph, Node, Rule, only_order
from groupwise.workflows.partial_orders import reduced


class NotBlocks(blocks.DesignError):
    """A graph without a block form; the message names the part that cannot be folded."""

    code = "not_blocks"


@dataclass(slots=True)
class _Gate:
    rule: Rule


@dataclass(frozen=True, slots=True)
class _Breaker:
    cancels: frozenset[str]


Content: TypeAlias = blocks.Block | _Gate | _Breaker


class _Sketch:
    """The graph while it is folded: every node is a block, a gate or a breaker.

    `out` has the probabilities of the arrows, `into` the sources, and `covers` the nodes of the graph that each node
    here stands for. `asks` has the outcomes that splits ask for, `answers` the results on their arrows. With `ends`,
    every arrow to the end is one to an end of its own.
    """

    def __init__(self, graph: Graph, called: Mapping[str, blocks.Block], ends: bool = False) -> None:
        self.graph, self.called = graph, called
        self.content: dict[str, Content] = {}
        self.out: dict[str, dict[str, float | None]] = {}
        self.into: dict[str, set[str]] = {}
        self.covers: dict[str, frozenset[str]] = {}
        self.asks: dict[str, str] = {}
        self.answers: dict[tuple[str, str], tuple[str, ...]] = {}
        first: dict[str, str] = {}
        last: dict[str, str] = {}
        for node in graph.nodes:
            first[node.id], last[node.id] = self._enter(node)
        finish = _finish(graph) if ends else set()
        for flow in graph.flows:
            source, target = last[flow.source], first[flow.target]
            if flow.source in finish or stops(graph.by_id[flow.source]):
                continue
            if flow.target in finish:
                target = self.add(self.free("end"), blocks.Finish(), frozenset())
            # Parallel arrows would be one edge in `out`, and their probabilities would be lost.
            if target in self.out[source]:
                raise NotBlocks(f"{graph.name}: two flows lead from {flow.source!r} to {flow.target!r}")
            self.connect(source, target, flow.probability)
        for node in graph.nodes:
            ways = graph.out_of(node.id)
            if asks := asked_for(node, ways) if len(ways) > 1 else None:
                self.asks[last[node.id]] = asks[0]
                for way, some in zip(ways, asks[1], strict=True):
                    self.answers[last[node.id], first[way.target]] = some
        self.start, self.end = last[graph.start.id], first[graph.end.id]

    def _enter(self, node: Node) -> tuple[str, str]:
        """Add a node and return its first and last part: a join, the work and a split are separate nodes here."""
        joins, splits = len(self.graph.into(node.id)) > 1, len(self.graph.out_of(node.id)) > 1
        if "or" in (node.join if joins else "", node.split if splits else ""):
            raise NotBlocks(f"{self.graph.name}: {node.label!r} is an or-join or or-split, which blocks do not have")
        # A condition passes its token to one of its flows, as an xor gateway does.
        if node.kind != "task":
            self.add(node.id, _Gate("xor"), frozenset({node.id}))
            return node.id, node.id
        wanted: list[tuple[str, Content]] = [(node.id, self._work(node))]
        if joins:
            wanted.insert(0, (self.free(f"{node.id} join"), _Gate(node.join)))
        if splits:
            wanted.append((self.free(f"{node.id} split"), _Gate(node.split)))
        names = [self.add(name, content, frozenset({node.id})) for name, content in wanted]
        for before, after in pairwise(names):
            self.connect(before, after, None)
        return names[0], names[-1]

    def free(self, name: str) -> str:
        while name in self.graph.by_id or name in self.content:
            name += "_"
        return name

    def _work(self, node: Node) -> Content:
        if node.cancels:
            if not node.silent:
                raise NotBlocks(f"{self.graph.name}: {node.label!r} does work and also cancels others")
            return _Breaker(frozenset(node.cancels))
        copies = node.copies
        block = self._body(node)
        return block if copies.most == 1 else blocks.Instances(block, copies.least, copies.most, copies.enough)

    def _body(self, node: Node) -> blocks.Block:
        if stops(node):
            return blocks.Finish()
        if not node.calls:
            return blocks.Skip() if node.silent else blocks.Activity(node.label, node.handling)
        if node.handling != blocks.PLAIN:
            raise NotBlocks(f"{self.graph.name}: {node.label!r} calls {node.calls!r} and also has its own handling")
        return self.called[node.calls]

    def add(self, name: str, content: Content, covers: frozenset[str]) -> str:
        self.content[name], self.out[name], self.into[name], self.covers[name] = content, {}, set(), covers
        return name

    def connect(self, source: str, target: str, probability: float | None) -> None:
        self.out[source][target] = probability
        self.into[target].add(source)

    def block(self, name: str) -> blocks.Block | None:
        """The block of a node with one arrow in and one out; None for breakers, the two ends and branching nodes."""
        content = self.content[name]
        if name in (self.start, self.end) or len(self.out[name]) != 1 or len(self.into[name]) != 1:
            return None
        if isinstance(content, _Gate):
            return blocks.Skip()
        return None if isinstance(content, _Breaker) else content

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
        del self.content[name], self.covers[name]

    def fold(self, names: set[str], entry: str, exit_: str, block: blocks.Block) -> None:
        """Replace the nodes by `block`, with the arrows into `entry` and those out of `exit_`."""
        before = [(source, self.out[source][entry]) for source in self.into[entry] if source not in names]
        after = [(target, p) for target, p in self.out[exit_].items() if target not in names]
        covers = frozenset().union(*(self.covers[name] for name in names))
        for name in names:
            self.remove(name)
        self.add(entry, block, covers)
        for source, probability in before:
            self.connect(source, entry, probability)
        for target, probability in after:
            self.connect(entry, target, probability)


def lift(workflow: Document | Graph) -> blocks.Design:
    """The block design of a document or a single graph; raises `NotBlocks` if it has none."""
    document = workflow if isinstance(workflow, Document) else Document(workflow.name, (workflow,))
    root = document.root
    order, ring = calling_order(document.graphs)
    if ring:
        raise NotBlocks(f"{root.name}: graphs call each other in a cycle: {' → '.join(ring)}")
    called: dict[str, blocks.Block] = {}
    for graph in sorted((g for g in document.graphs if g.name in order), key=lambda g: order.index(g.name)):
        called[graph.name] = _block_of(without_endings(graph), called)
    block = blocks.tidied(blocks.asked_again(blocks.tidied(called[root.name])))
    twice = [name for name, count in Counter(one.name for one in blocks.activities(block)).items() if count > 1]
    if twice:
        raise NotBlocks(f"{root.name}: {', '.join(map(repr, twice[:5]))} would occur more than once")
    try:
        return blocks.Design(document.name, block, document.servers, root.documentation)
    except NotBlocks:
        raise
    except blocks.DesignError as error:
        raise NotBlocks(f"{root.name}: {error.message}") from error


def _block_of(graph: Graph, called: Mapping[str, blocks.Block]) -> blocks.Block:
    try:
        return _folded(graph, called)
    except NotBlocks:
        if len(_into_finish(graph)) < 2:
            raise
    # The end of the whole case is no end within it.
    return _without_last(_folded(graph, called, ends=True))


def _finish(graph: Graph) -> set[str]:
    """The end of a graph, and the node where a reader joined several ends."""
    into = [graph.by_id[flow.source] for flow in graph.into(graph.end.id)]
    joins = [node for node in into if node.silent and node.join == "or" and len(graph.into(node.id)) > 1]
    return {graph.end.id, *(node.id for node in joins if len(graph.out_of(node.id)) == 1)}


def _into_finish(graph: Graph) -> list[str]:
    finish = _finish(graph)
    return [flow.source for name in finish for flow in graph.into(name) if flow.source not in finish]


def _without_last(block: blocks.Block) -> blocks.Block:
    """A block at the end of a case, without ends that say no more than that."""
    match block:
        case blocks.Finish():
            return blocks.Skip()
        case blocks.Sequence(parts):
            return blocks.Sequence((*parts[:-1], _without_last(parts[-1])))
        case blocks.Choice(parts):
            return blocks.with_children(block, tuple(_without_last(part) for part in parts))
        case _:
            return block


def _folded(graph: Graph, called: Mapping[str, blocks.Block], ends: bool = False) -> blocks.Block:
    sketch = _Sketch(graph, called, ends)
    if only_order(graph):
        # All of it is one partial order: folding it piece by piece would only take longer.
        return _ordered(sketch, sketch.content.keys() - {sketch.start, sketch.end})
    # `any` stops at the first rule that folded something, so simple rules are always tried first.
    while any(rule(sketch) for rule in RULES):
        pass
    rest = [name for name in sketch.content if name not in (sketch.start, sketch.end)]
    block = sketch.block(rest[0]) if len(rest) == 1 else None
    if block is None and len(rest) == 1 and _is_last(sketch, rest[0]) and sketch.into[rest[0]] == {sketch.start}:
        block = sketch.content[rest[0]]  # type: ignore[assignment]
    if block is not None:
        return block
    breakers = sorted(name for name in rest if isinstance(sketch.content[name], _Breaker))
    if breakers:
        raise NotBlocks(f"{graph.name}: {breakers[0]!r} cancels something other than one block beside a guard")
    raise NotBlocks(f"{graph.name}: no block form around {', '.join(sorted(rest)[:6])}")


def _fold_sequence(sketch: _Sketch) -> bool:
    done = False
    for name in list(sketch.content):
        block = sketch.block(name) if name in sketch.content else None
        if block is None:
            continue
        names, parts, here = {name}, [block], name
        # As far as blocks follow each other; a cycle of blocks must not run for ever.
        while (following := sketch.block(sketch.target(here))) is not None and sketch.target(here) not in names:
            here = sketch.target(here)
            names.add(here)
            parts.append(following)
        if len(parts) > 1:
            flat = [inner for part in parts for inner in (part.parts if isinstance(part, blocks.Sequence) else (part,))]
            sketch.fold(names, name, here, blocks.Sequence(tuple(flat)))
            done = True
    return done


def _fold_branches(sketch: _Sketch) -> bool:
    """Fold the branches of a split that lead to the same join, if split and join have the same rule."""
    done = False
    for split in list(sketch.content):
        content = sketch.content.get(split)
        if not isinstance(content, _Gate) or len(sketch.out[split]) < 2 or not sketch.is_gate(split, content.rule):
            continue
        for join, branches in _by_join(sketch, split).items():
            if join != split and len(branches) > 1 and sketch.is_gate(join, content.rule):
                _fold_some(sketch, split, join, branches, content.rule)
                done = True
    return done


def _by_join(sketch: _Sketch, split: str) -> dict[str, list[tuple[str, blocks.Block, float | None]]]:
    """The branches of a split by the node they lead to; a flow straight to that node is an empty branch."""
    found: dict[str, list[tuple[str, blocks.Block, float | None]]] = {}
    for name, probability in sketch.out[split].items():
        block = sketch.block(name)
        if block is not None:
            found.setdefault(sketch.target(name), []).append((name, block, probability))
    for name, probability in sketch.out[split].items():
        if name in found:
            found[name].append(("", blocks.Skip(), probability))
    return found


def _fold_some(
    sketch: _Sketch, split: str, join: str, branches: list[tuple[str, blocks.Block, float | None]], rule: Rule
) -> None:
    # Probabilities are relative to these branches; if any is unknown, all are equally likely.
    given = [probability for _, _, probability in branches]
    known = [p for p in given if p is not None]
    shares = [p / sum(known) for p in known] if len(known) == len(given) else [1 / len(given)] * len(given)
    parts = tuple(block for _, block, _ in branches)
    answers = [sketch.answers.get((split, name or join), ()) for name, _, _ in branches]
    block: blocks.Block = blocks.Parallel(parts) if rule == "and" else _choice(sketch, split, parts, shares, answers)
    # All branches become one node between split and join; a later fold makes them a sequence.
    kept, *others = (name for name, _, _ in branches if name)
    sketch.covers[kept] = sketch.covers[kept].union(*(sketch.covers[name] for name in others))
    for name in others:
        sketch.remove(name)
    if any(not name for name, _, _ in branches):
        del sketch.out[split][join]
        sketch.into[join].discard(split)
    sketch.answers[split, kept] = tuple(answer for some in answers for answer in some)
    sketch.content[kept] = block
    sketch.out[split][kept] = sum(known) if len(known) == len(given) else None


def _choice(
    sketch: _Sketch, split: str, parts: tuple[blocks.Block, ...], shares: list[float], answers: list[tuple[str, ...]]
) -> blocks.Choice:
    asks = sketch.asks.get(split, "")
    if not asks or not all(answers):
        return blocks.Choice(parts, tuple(shares))
    return blocks.Choice(parts, tuple(shares), asks, tuple(answers))


def _is_last(sketch: _Sketch, name: str) -> bool:
    """Whether every case is over after a node."""
    content = sketch.content[name]
    return not isinstance(content, _Gate | _Breaker) and not sketch.out[name] and blocks.always_ends(content)


def _fold_ends(sketch: _Sketch) -> bool:
    """Fold what ends the case into the block before it."""
    for name in list(sketch.content):
        if not _is_last(sketch, name):
            continue
        sources = sorted(sketch.into[name])
        if len(sources) > 1 and sketch.content[name] == blocks.Finish():
            # Several ways lead to one end: each has an end of its own.
            for source in sources[1:]:
                own = sketch.add(sketch.free("end"), blocks.Finish(), frozenset())
                sketch.connect(source, own, sketch.out[source].pop(name))
                sketch.answers[source, own] = sketch.answers.get((source, name), ())
                sketch.into[name].discard(source)
            return True
        before = sketch.block(sources[0]) if len(sources) == 1 else None
        if before is not None:
            end = sketch.content[name]
            assert not isinstance(end, _Gate | _Breaker)
            sketch.fold({sources[0], name}, sources[0], name, blocks.Sequence((before, end)))
            return True
    return False


def _fold_last(sketch: _Sketch) -> bool:
    """Fold the branches of a split that end the case into a choice before the others."""
    for name in list(sketch.content):
        (split, *others) = [*sketch.into[name]] or [""]
        if _is_last(sketch, name) and not others and sketch.is_gate(split, "xor") and len(sketch.out[split]) > 1:
            _set_apart(sketch, split)
            return True
    return False


def _set_apart(sketch: _Sketch, split: str) -> None:
    ways = sketch.out[split]
    known = [p for p in ways.values() if p is not None]
    # If any probability is unknown, all are equally likely.
    total = sum(known) if len(known) == len(ways) else len(ways)
    shares = {name: (p if p is not None and len(known) == len(ways) else 1.0) / total for name, p in ways.items()}
    said = {name: sketch.answers.get((split, name), ()) for name in ways}
    last = [name for name in ways if _is_last(sketch, name) and sketch.into[name] == {split}]
    going = [name for name in ways if name not in last]
    rest = sum(shares[name] for name in going)
    parts = [content for name in last if not isinstance(content := sketch.content[name], _Gate | _Breaker)]
    odds, answers = [shares[name] for name in last], [said[name] for name in last]
    if going:
        parts.append(blocks.Skip())
        odds.append(rest)
        answers.append(tuple(answer for name in going for answer in said[name]))
    block = _choice(sketch, split, tuple(parts), odds, answers)
    covers = frozenset().union(*(sketch.covers[name] for name in last))
    for name in last:
        sketch.remove(name)
    for name in going:
        sketch.into[name].discard(split)
    sketch.out[split] = {}
    source = sketch.add(sketch.free(f"{split} ends"), block, covers)
    sketch.connect(split, source, None)
    asks = sketch.asks.pop(split, "")
    if len(going) > 1:
        other = sketch.add(sketch.free(f"{split} rest"), _Gate("xor"), frozenset())
        sketch.connect(source, other, None)
        sketch.asks |= {other: asks} if asks else {}
        source = other
    for name in going:
        sketch.connect(source, name, shares[name] / rest if len(going) > 1 else None)
        sketch.answers[source, name] = said[name]


def _fold_loop(sketch: _Sketch) -> bool:
    """Fold an xor join, a body, an xor split, and a path back from the split to the join."""
    done = False
    for entry in list(sketch.content):
        if entry not in sketch.content or not sketch.is_gate(entry, "xor"):
            continue
        if len(sketch.out[entry]) != 1 or len(sketch.into[entry]) != 2:
            continue
        inside = sketch.target(entry)
        body = sketch.block(inside)
        exit_ = inside if body is None else sketch.target(inside)
        if exit_ == entry or not sketch.is_gate(exit_, "xor"):
            continue
        if len(sketch.out[exit_]) != 2 or len(sketch.into[exit_]) != 1:
            continue
        # One way out of the split leads back to the entry, directly or through one block.
        for back, probability in sketch.out[exit_].items():
            redo = blocks.Skip() if back == entry else sketch.block(back)
            if redo is None or (back != entry and sketch.target(back) != entry):
                continue
            again = 0.5 if probability is None else probability  # an unknown probability counts as one half
            sketch.fold({entry, inside, exit_, back}, entry, exit_, blocks.Loop(body or blocks.Skip(), again, redo))
            done = True
            break
    return done


def _fold_order(sketch: _Sketch) -> bool:
    """Fold everything between an and-split and the and-join where all of it meets into a partial order."""
    done = False
    for split in list(sketch.content):
        if split in sketch.content and sketch.is_gate(split, "and") and len(sketch.out[split]) > 1:
            region = _region(sketch, split)
            if region is not None:
                names, join = region
                sketch.fold({split, join, *names}, split, join, _ordered(sketch, names))
                done = True
    return done


def _region(sketch: _Sketch, split: str) -> tuple[set[str], str] | None:
    # The nodes after a split up to the join where all paths meet; None unless only blocks and and-gates are between.
    # A node is visited once all its predecessors have been. `open_ways` counts arrows that leave visited nodes for
    # nodes not visited yet; a gate that takes all of them is the join.
    names: set[str] = set()
    waits: dict[str, int] = {}
    ready, open_ways = [split], 0
    while ready:
        here = ready.pop()
        if here != split:
            if len(sketch.into[here]) == open_ways > 1 and sketch.is_gate(here, "and"):
                return names, here
            if sketch.block(here) is None and not sketch.is_gate(here, "and"):
                return None
            names.add(here)
        # Each visited node closes the arrows into it and opens those out of it.
        open_ways += len(sketch.out[here]) - (len(sketch.into[here]) if here != split else 0)
        for target in sketch.out[here]:
            waits[target] = waits.get(target, len(sketch.into[target])) - 1
            if waits[target] == 0:
                ready.append(target)
    return None


def _ordered(sketch: _Sketch, names: Set[str]) -> blocks.Block:
    parts = [name for name in sketch.content if name in names and not isinstance(sketch.content[name], _Gate)]
    number = {name: place for place, name in enumerate(parts)}
    edges = set()
    # Gates inside only connect parts, so the edges run through them.
    for name in parts:
        reached = dict.fromkeys(sketch.out[name])
        stack = list(reached)
        while stack:
            target = stack.pop()
            if target in number:
                edges.add((number[name], number[target]))
            elif target in names:
                new = sketch.out[target].keys() - reached.keys()
                reached.update(dict.fromkeys(new))
                stack += new
    folded = tuple(block for name in parts if (block := sketch.block(name)) is not None)
    if len(folded) < 2:
        return folded[0] if folded else blocks.Skip()
    return blocks.PartialOrder(folded, reduced(len(folded), frozenset(edges)))


def _fold_cancellable(sketch: _Sketch) -> bool:
    """Fold a body beside a guard: both end together, or the breaker takes the guard's token and cancels the body.

    split ─ body ──── end ─ (nothing) ─ join
         └─ guard ─┘
                └──── breaker ─ handler ┘
    """
    done = False
    for breaker, content in list(sketch.content.items()):
        if not isinstance(content, _Breaker) or len(sketch.into[breaker]) != 1 or len(sketch.out[breaker]) != 1:
            continue
        (guard,) = sketch.into[breaker]
        around = _guarded(sketch, guard, breaker)
        if around is None:
            continue
        split, inside, end = around
        after, handler = sketch.target(end), sketch.target(breaker)
        body, ending, handling = sketch.block(inside), sketch.block(after), sketch.block(handler)
        if body is None or not isinstance(ending, blocks.Skip) or handling is None:
            continue
        join = sketch.target(after)
        if join != sketch.target(handler) or not sketch.is_gate(join, "xor"):
            continue
        if not _clears_just(sketch.graph, content.cancels, sketch.covers[inside]):
            continue
        breaks, ends = sketch.out[guard][breaker], sketch.out[guard][end]
        chance = breaks if breaks is not None else 0.5 if ends is None else 1 - ends
        names = {split, inside, guard, end, after, breaker, handler}
        sketch.fold(names, split, after, blocks.Cancellable(body, chance, handling))
        done = True
    return done


def _guarded(sketch: _Sketch, guard: str, breaker: str) -> tuple[str, str, str] | None:
    """The split before the guard, the body beside it, and the and-join where both end."""
    if not sketch.is_gate(guard, "xor") or len(sketch.into[guard]) != 1 or len(sketch.out[guard]) != 2:
        return None
    (split,) = sketch.into[guard]
    (end,) = sketch.out[guard].keys() - {breaker}
    beside = sketch.out[split].keys() - {guard}
    if not sketch.is_gate(split, "and") or not sketch.is_gate(end, "and") or len(beside) != 1:
        return None
    (inside,) = beside
    if sketch.into[end] != {guard, inside} or len(sketch.out[end]) != 1:
        return None
    return split, inside, end


def _clears_just(graph: Graph, cancels: frozenset[str], body: frozenset[str]) -> bool:
    """Whether exactly the body is cancelled: all of its nodes and flows, including those into and out of it."""
    touching = [flow for flow in graph.flows if flow.source in body or flow.target in body]
    between_tasks = {
        flow.id
        for flow in touching
        if graph.by_id[flow.source].kind == "task" and graph.by_id[flow.target].kind == "task"
    }
    return body | between_tasks <= cancels <= body | {flow.id for flow in touching}


# Tried in this order until none fits: simple folds first, so that later ones see larger blocks.
RULES = (_fold_sequence, _fold_branches, _fold_loop, _fold_ends, _fold_order, _fold_cancellable, _fold_last)
