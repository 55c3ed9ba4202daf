"""Draws a block design as graphs. Gateways become silent tasks named after what they do.

Adjacent gateways are kept apart: every block has a split and a join of its own, so that `block_form.lift` finds it
again. Several instances of more than one activity become a task that calls a separate graph. A compact drawing, the one
that is shown, has no gateways with one way in and one way out: an empty branch is a flow from the split to the join.

An end is an event of its own, from which a case goes nowhere else. With `Endings`, cases can also leave a block early
(`_Exit`). Outside of parallel blocks, an exit leads to an end event of its own. Inside of them it leads to the end of
its branch, because the other branches are still done; what comes after the join then asks whether the case goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import groupwise.workflows.blocks as blocks
from groupwise.workflows.endings import Endings, answer_mark, fork_mark, mark
from groupwise.workflows.graph import ONCE, Flow, Graph, Node, Rule, TaskCopies
from groupwise.workflows.partial_orders import closure
from groupwise.xml_reader import Element

Ends = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Exit:
    """A way out of a block that still leads nowhere, and the name of the event it would end with."""

    source: str
    probability: float | None
    name: str
    kind: str = ""


@dataclass(slots=True)
class _Drawing:
    """The nodes and flows drawn so far, and the graphs they call, which are complete.

    `leaving` has the probability of the flow that will leave a split; `tail` are the blocks (by id) after which nothing
    follows.
    """

    name: str
    taken: set[str]
    called: list[Graph]
    compact: bool
    endings: Endings | None
    tail: set[int] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    exits: list[_Exit] = field(default_factory=list)
    # The answers of the flow that will leave a fork, the events that end blocks, and what the next one is called.
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    over: list[str] = field(default_factory=list)
    ended: str = ""

    def node(self, node: Node) -> str:
        self.nodes.append(node)
        return node.id

    def gateway(
        self,
        what: str,
        join: Rule = "xor",
        split: Rule = "and",
        cancels: tuple[str, ...] = (),
        extras: tuple[Element, ...] = (),
    ) -> str:
        node = Node(self.numbered(what), join=join, split=split, silent=True, cancels=cancels, extras=extras)
        return self.node(node)

    def numbered(self, what: str) -> str:
        self.counts[what] = number = self.counts.get(what, 0) + 1
        return self.free(f"{what}_{number}")

    def free(self, name: str) -> str:
        """The name, with underscores added if an activity already has it."""
        # Activities keep their names; gateways give way.
        while name in self.taken:
            name += "_"
        return name

    def flow(self, source: str, target: str, probability: float | None = None, answers: tuple[str, ...] = ()) -> None:
        if probability is None:
            probability, answers = self.leaving.get(source), self.answers.get(source, ())
        self.flows.append(Flow(source, target, probability, extras=(answer_mark(answers),) if answers else ()))

    def end(self) -> str:
        """An event that ends the case."""
        marks = (mark("end", kind="branch", stops="true"),)
        self.over.append(self.node(Node(self.numbered("ended"), self.ended or "ended", silent=True, extras=marks)))
        return self.over[-1]

    def leave(self, way: _Exit, target: str) -> None:
        """Draw a way out."""
        marks = () if way.kind == "branch" else (mark("exit"),)
        share = self.leaving.get(way.source) if way.kind == "branch" else None
        self.flows.append(Flow(way.source, target, share if way.probability is None else way.probability, extras=marks))

    def ask(self, after: str, names: Sequence[str], chance: float, ended: str) -> str:
        """A gate after a node that lets the case go on, or out with that chance."""
        gate = self.gateway("passed", split="xor", extras=(mark("gate", names),))
        self.flow(after, gate)
        self.leaving[gate] = 1 - chance
        self.exits.append(_Exit(gate, chance, ended))
        return gate


def drawn(design: blocks.Design, *, compact: bool = False, endings: Endings | None = None) -> tuple[Graph, ...]:
    """The graphs of a design. A case starts in the first, which calls the others."""
    called: list[Graph] = []  # filled while drawing: inner graphs before the outer ones that call them
    root = _graph(design.name, design.root, called, compact, endings, design.documentation)
    return (root, *called)


def _graph(
    name: str,
    block: blocks.Block,
    called: list[Graph],
    compact: bool,
    endings: Endings | None,
    documentation: str = "",
) -> Graph:
    taken = {activity.name for activity in blocks.activities(block)}
    drawing = _Drawing(name, taken, called, compact, endings, set(map(id, _tail(block))))
    start = drawing.node(Node(drawing.free("start"), kind="start"))
    first, last = _draw(drawing, block)
    end = drawing.node(Node(drawing.free("end"), kind="end"))
    drawing.flow(start, first)
    if last:
        drawing.flow(last, end)
    for over in drawing.over:
        drawing.flow(over, end)
    for way in drawing.exits:
        kind = {"kind": way.kind} if way.kind else {}
        over = drawing.node(Node(drawing.numbered("ended"), way.name, silent=True, extras=(mark("end", **kind),)))
        drawing.leave(way, over)
        drawing.flow(over, end)
    return Graph(name, tuple(drawing.nodes), tuple(drawing.flows), documentation)


def _tail(block: blocks.Block) -> list[blocks.Block]:
    """The block and those inside it after which nothing follows."""
    inner = block.parts[-1:] if isinstance(block, blocks.Sequence) else ()
    inner = block.parts if isinstance(block, blocks.Choice) else inner
    return [block, *(deeper for part in inner for deeper in _tail(part))]


def _draw(drawing: _Drawing, block: blocks.Block) -> Ends:
    """Draw the block, and return its first and last node; the last is empty if every case is over."""
    match block:
        case blocks.Activity():
            return _activity(drawing, block)
        case blocks.Skip():
            return (drawing.gateway("skip"),) * 2
        case blocks.Finish():
            return drawing.end(), ""
        case blocks.Instances():
            return _instances(drawing, block)
        case blocks.Sequence(parts):
            ends = [_draw(drawing, part) for part in parts]
            for (_, before), (after, _) in pairwise(ends):
                drawing.flow(before, after)
            return ends[0][0], ends[-1][1]
        case blocks.Parallel(parts):
            return _parallel(drawing, parts)
        case blocks.Choice():
            return _choice(drawing, block)
        case blocks.PartialOrder(parts, edges):
            return _order(drawing, parts, edges)
        case blocks.Loop(body, again, redo):
            return _loop(drawing, body, again, redo)
        case blocks.Cancellable():
            return _cancellable(drawing, block)


def _task(drawing: _Drawing, activity: blocks.Activity, copies: TaskCopies = ONCE) -> Node:
    told = drawing.endings.requirements.activities.get(activity.name) if drawing.endings is not None else None
    said = "" if told is None else told.documentation
    return Node(activity.name, activity.name, handling=activity.handling, copies=copies, documentation=said)


def _activity(drawing: _Drawing, block: blocks.Activity) -> Ends:
    node = _task(drawing, block)
    failure = drawing.endings.failure(block) if drawing.endings is not None else 0.0
    knock_out = drawing.endings.knock_out(block) if drawing.endings is not None else 0.0
    task = drawing.node(replace(node, split="xor") if failure else node)
    if failure:
        marks = (mark("event", [block.name], chance=repr(failure)),)
        event = drawing.node(Node(drawing.numbered("fails"), f"{block.name} fails", silent=True, extras=marks))
        drawing.flow(task, event, failure)
        drawing.leaving[task] = 1 - failure
        drawing.exits.append(_Exit(event, None, f"{block.name} failed"))
    if knock_out:
        return task, drawing.ask(task, [block.name], knock_out, f"ended after {block.name}")
    return task, task


def _instances(drawing: _Drawing, block: blocks.Instances) -> Ends:
    body, copies = block.body, TaskCopies(block.least, block.most, block.enough)
    if isinstance(body, blocks.Activity):
        task = drawing.node(_task(drawing, body, copies))
    else:
        name = drawing.numbered("instances")
        inner = f"{drawing.name}_{name}"
        drawing.called.append(_graph(inner, body, drawing.called, drawing.compact, drawing.endings))
        task = drawing.node(Node(name, calls=inner, copies=copies))
    return task, _asked(drawing, task, (block,))


def _asked(drawing: _Drawing, last: str, parts: Sequence[blocks.Block], chance: float | None = None) -> str:
    """The last node, or a gate after it if one of the parts may have ended the case."""
    if drawing.endings is None:
        return last
    lost = drawing.endings.any_lost(parts) if chance is None else chance
    if not lost:
        return last
    names = drawing.endings.deciding(parts)
    return drawing.ask(last, names, lost, f"ended after {names[0]}" if len(names) == 1 else "ended early")


def _sealed(drawing: _Drawing, block: blocks.Block) -> Ends:
    """Draw a block that something else waits for: whoever leaves it early leaves it where it ends."""
    outer, drawing.exits = drawing.exits, []
    first, last = _draw(drawing, block)
    own, drawing.exits = drawing.exits, outer
    if own and own[-1].source == last:
        # A gate at the end would have two ways to the same place.
        own, gate = own[:-1], last
        last = next(flow.source for flow in drawing.flows if flow.target == gate)
        drawing.nodes = [node for node in drawing.nodes if node.id != gate]
        drawing.flows = [flow for flow in drawing.flows if flow.target != gate]
    if not own:
        return first, last
    merge = drawing.gateway("merge", extras=(mark("merge"),))
    drawing.flow(last, merge)
    for way in own:
        drawing.leave(way, merge)
    return first, merge


def _parallel(drawing: _Drawing, parts: tuple[blocks.Block, ...]) -> Ends:
    split = drawing.gateway("and_split", split="and")
    ends = [_sealed(drawing, part) for part in parts]
    join = drawing.gateway("and_join", join="and")
    for first, last in ends:
        drawing.flow(split, first)
        drawing.flow(last, join)
    return split, _asked(drawing, join, parts)


def _choice(drawing: _Drawing, block: blocks.Choice) -> Ends:
    split = drawing.gateway("xor_split", split="xor", extras=(fork_mark(block.outcome),) if block.outcome else ())
    ended = [""] * len(block.parts)
    if drawing.endings is not None and id(block) in drawing.tail:
        ended = drawing.endings.ended_by(block)
    inside: list[tuple[str, str] | None] = []
    for part, name in zip(block.parts, _names_of_ends(drawing, block), strict=True):
        empty = isinstance(part, blocks.Skip) and drawing.compact and None not in inside
        outer, drawing.ended = drawing.ended, name or drawing.ended
        inside.append(None if empty else _draw(drawing, part))
        drawing.ended = outer
    # The parts after which a case goes on: those that do not end it, now or at their end.
    going = sum(not name and (ends is None or bool(ends[1])) for name, ends in zip(ended, inside, strict=True))
    join = drawing.gateway("xor_join") if going > 1 else ""
    last = join
    answers = block.answers or ((),) * len(block.parts)
    for ends, share, name, said in zip(inside, block.probabilities, ended, answers, strict=True):
        if ends is not None:
            drawing.flow(split, ends[0], share, said)
        if ends is not None and not ends[1]:
            continue
        if name:
            way = _Exit(split, share, name, "branch") if ends is None else _Exit(ends[1], None, name, "branch")
            drawing.exits.append(way)
        elif join:
            drawing.flow(*((split, join, share, said) if ends is None else (ends[1], join)))
        elif ends is None:
            drawing.leaving[split], drawing.answers[split] = share, said
            last = split
        else:
            last = ends[1]
    return split, last


def _names_of_ends(drawing: _Drawing, block: blocks.Choice) -> list[str]:
    """What an event is called that ends the case in each part of a choice: the result, or the activity before it."""
    named = drawing.endings.ended_by(block) if drawing.endings is not None else [""] * len(block.parts)
    found = []
    for number, part in enumerate(block.parts):
        acts = [one.name for one in blocks.activities(part)]
        said = " or ".join(block.answers[number]) if block.outcome else named[number]
        found.append(said or (f"ended after {acts[-1]}" if acts else ""))
    return found


def _order(drawing: _Drawing, parts: tuple[blocks.Block, ...], edges: frozenset[tuple[int, int]]) -> Ends:
    """A part with several predecessors gets a join before it; one with several successors gets a split after it."""
    sources = [number for number in range(len(parts)) if not any(b == number for _, b in edges)]
    sinks = [number for number in range(len(parts)) if not any(a == number for a, _ in edges)]
    # A compact drawing has no gateways before a single first part and after a single last one.
    opens, closes = (not drawing.compact or len(ends) > 1 for ends in (sources, sinks))
    split = drawing.gateway("and_split", split="and") if opens else ""
    ends = _skippable(drawing, parts, edges, [_sealed(drawing, part) for part in parts])
    join = drawing.gateway("and_join", join="and") if closes else ""
    # Where arrows enter and leave each part: the part itself, or its own join or split.
    opened, closed = [], []
    for number, (first, last) in enumerate(ends):
        several_before = sum(b == number for _, b in edges) > 1
        several_after = sum(a == number for a, _ in edges) > 1
        opened.append(drawing.gateway("and_join", join="and") if several_before else first)
        closed.append(drawing.gateway("and_split", split="and") if several_after else last)
        if several_before:
            drawing.flow(opened[-1], first)
        if several_after:
            drawing.flow(last, closed[-1])
    for number in sources if opens else ():
        drawing.flow(split, opened[number])
    for number in sinks if closes else ():
        drawing.flow(closed[number], join)
    for a, b in sorted(edges):
        drawing.flow(closed[a], opened[b])
    return split or opened[sources[0]], _asked(drawing, join or closed[sinks[0]], parts)


def _skippable(
    drawing: _Drawing, parts: tuple[blocks.Block, ...], edges: frozenset[tuple[int, int]], ends: list[Ends]
) -> list[Ends]:
    """The parts of an order, passed over if a part before them ended the case."""
    if drawing.endings is None:
        return ends
    later = closure(len(parts), edges)
    found = []
    for number, (first, last) in enumerate(ends):
        before = [part for other, part in enumerate(parts) if later[other] >> number & 1]
        lost = drawing.endings.any_lost(before)
        if not lost:
            found.append((first, last))
            continue
        gate = drawing.gateway("passed", split="xor", extras=(mark("gate", drawing.endings.deciding(before)),))
        drawing.flow(gate, first, 1 - lost)
        merge = drawing.gateway("merge", extras=(mark("merge"),))
        drawing.flow(last, merge)
        drawing.leave(_Exit(gate, lost, ""), merge)
        found.append((gate, merge))
    return found


def _loop(drawing: _Drawing, body: blocks.Block, again: float, redo: blocks.Block) -> Ends:
    entry = drawing.gateway("loop_start")
    if drawing.compact and isinstance(body, blocks.Skip):
        exit_ = drawing.gateway("loop_end", split="xor")
        drawing.flow(entry, exit_)
    else:
        first, last = _draw(drawing, body)
        exit_ = drawing.gateway("loop_end", split="xor")
        drawing.flow(entry, first)
        drawing.flow(last, exit_)
    if isinstance(redo, blocks.Skip):
        drawing.flow(exit_, entry, again)
    else:
        back, forth = _draw(drawing, redo)
        drawing.flow(exit_, back, again)
        drawing.flow(forth, entry)
    drawing.leaving[exit_] = 1 - again
    return entry, exit_ if drawing.compact else _after(drawing, exit_, "loop_done")


def _after(drawing: _Drawing, last: str, what: str) -> str:
    """A node after a split, so that the flow out of the block has a place for its probability."""
    done = drawing.gateway(what)
    drawing.flow(last, done)
    return done


def _cancellable(drawing: _Drawing, block: blocks.Cancellable) -> Ends:
    """A guard runs beside the body: either both end together, or the guard cancels the body and the handler follows.

    split → body → guarded ──┐
          └→ guard ──────────┴→ guard_end ──────→ xor_join
                  └→ break_off → handler ─────────┘
    """
    split = drawing.gateway("guard_split", split="and")
    before_nodes, before_flows = {node.id for node in drawing.nodes}, len(drawing.flows)
    first, last = _sealed(drawing, block.body)
    last = _after(drawing, last, "loop_done") if last in drawing.leaving else last
    inside = [node.id for node in drawing.nodes if node.id not in before_nodes]
    inside += [flow.id for flow in drawing.flows[before_flows:]]
    guard = drawing.node(Node(drawing.numbered("guard"), kind="condition"))
    # The body's token waits here for the guard; cancelling clears it as well.
    done = drawing.node(Node(drawing.numbered("guarded"), kind="condition"))
    drawing.flow(split, first)
    drawing.flow(split, guard)
    drawing.flow(last, done)
    complete = drawing.gateway("guard_end", join="and")
    drawing.flow(guard, complete, 1 - block.chance)
    drawing.flow(done, complete)
    # Everything inside, and the places before and after it, so that no token is left behind.
    cancels = (*inside, done, f"{split}→{first}", f"{last}→{done}")
    abort = drawing.gateway("break_off", cancels=cancels)
    drawing.flow(guard, abort, block.chance)
    ended = drawing.endings.lost(block.body) if drawing.endings is not None else 0.0
    complete = _asked(drawing, complete, (block.body,), ended)
    handle_first, handle_last = _draw(drawing, block.handler)
    drawing.flow(abort, handle_first)
    join = drawing.gateway("xor_join")
    drawing.flow(complete, join)
    drawing.flow(handle_last, join)
    return split, join
