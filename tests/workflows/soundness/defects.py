"""Graphs with one seeded defect each, whose truth is known from how they are made, and their sound originals.

A sound design is drawn as a graph, and one of its activities, anywhere in the tree, is replaced by a fragment with one
way in and one way out. The plain fragment keeps the graph sound; each of the others breaks one rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Design,
    Loop,
    Parallel,
    Sequence,
    children,
    rewritten,
)
from groupwise.workflows.document import to_graph
from groupwise.workflows.graph import Flow, Graph, Kind, Node, Rule
from tests.workflows.designs import FLAT, random_block

HOLE = "hole"


@dataclass(slots=True)
class Fragment:
    """Nodes and flows between `entry` and `exit`."""

    nodes: list[Node] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    entry: str = ""
    exit: str = ""

    def task(self, name: str, join: Rule = "xor", split: Rule = "and", kind: Kind = "task") -> str:
        self.nodes.append(Node(f"d_{name}", kind=kind, join=join, split=split))
        return f"d_{name}"

    def flow(self, *path: str) -> None:
        self.flows += [Flow(a, b) for a, b in pairwise(path)]

    def branches(self, split: Rule, join: Rule, count: int, length: int) -> None:
        """Branches between a split and a join of whatever rules."""
        self.entry, self.exit = self.task("split", split=split), self.task("join", join=join)
        for branch in range(count):
            tasks = [self.task(f"{branch}_{place}") for place in range(length)]
            self.flow(self.entry, *tasks, self.exit)


def plain(made: Fragment, rng: random.Random) -> None:
    made.entry = made.exit = made.task("plain")


def wrong_join(split: Rule, join: Rule) -> Callable[[Fragment, random.Random], None]:
    def make(made: Fragment, rng: random.Random) -> None:
        made.branches(split, join, rng.randint(2, 4), rng.randint(1, 3))

    return make


def wait_for_each_other(rule: Rule) -> Callable[[Fragment, random.Random], None]:
    """Two joins, each of which also waits for the other."""

    def make(made: Fragment, rng: random.Random) -> None:
        made.entry, made.exit = made.task("split"), made.task("join", join="and")
        one, two = made.task("one", join=rule), made.task("two", join=rule)
        made.flow(made.entry, one, made.exit)
        made.flow(made.entry, two, made.exit)
        made.flow(one, two)
        made.flow(two, one)

    return make


def never_both(made: Fragment, rng: random.Random) -> None:
    """A task that needs two conditions of which only one is ever marked."""
    made.entry, made.exit = made.task("split", split="xor"), made.task("join")
    conditions = [made.task(f"condition_{n}", kind="condition") for n in range(rng.randint(2, 3))]
    dead = made.task("dead", join="and")
    for number, condition in enumerate(conditions):
        made.flow(made.entry, condition, made.task(f"alive_{number}"), made.exit)
        made.flow(condition, dead)
    made.flow(dead, *(made.task(f"after_{n}") for n in range(rng.randint(0, 2))), made.exit)


def round_and_round(made: Fragment, rng: random.Random) -> None:
    """A ring whose only way out needs a token that does not come on one of the two ways into it."""
    made.entry, made.exit = made.task("split", split="xor"), made.task("out", join="and")
    ring, ticket = made.task("ring", kind="condition"), made.task("ticket", kind="condition")
    made.flow(ring, *(made.task(f"turn_{n}") for n in range(rng.randint(1, 3))), ring)
    made.flow(made.entry, made.task("without"), ring, made.exit)
    both = made.task("with")
    made.flow(made.entry, both, ring)
    made.flow(both, ticket, made.exit)


def left_over(made: Fragment, rng: random.Random) -> None:
    """A short cut past the join that a second token waits for."""
    made.entry, made.exit = made.task("split"), made.task("end")
    choose, join, short = made.task("choose", split="xor"), made.task("join", join="and"), made.task("short")
    waiting = made.task("waiting", kind="condition")
    made.flow(made.entry, choose, join, made.exit)
    made.flow(choose, short, made.exit)
    made.flow(made.entry, *(made.task(f"work_{n}") for n in range(rng.randint(1, 3))), waiting, join)


FRAGMENTS: dict[str, tuple[str, Callable[[Fragment, random.Random], None], tuple[str, ...]]] = {
    "deadlock": ("deadlock", wrong_join("xor", "and"), ("no way to complete",)),
    "deadlock, or-split": ("deadlock", wrong_join("or", "and"), ("no way to complete",)),
    "deadlock, circular": ("deadlock", wait_for_each_other("and"), ("no way to complete",)),
    "deadlock, or-joins": ("deadlock", wait_for_each_other("or"), ("no way to complete",)),
    "unsynchronised": ("lack of synchronisation", wrong_join("and", "xor"), ("unsafe", "improper completion")),
    "unsynchronised, or-split": ("lack of synchronisation", wrong_join("or", "xor"), ("unsafe", "improper completion")),
    "dead task": ("dead task", never_both, ("dead task",)),
    "livelock": ("livelock", round_and_round, ("no way to complete",)),
    "left over": ("improper completion", left_over, ("improper completion", "unsafe")),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with a defect, the rules it may be found by, and the same graph without it."""

    name: str
    defect: str
    graph: Graph
    rules: tuple[str, ...]
    original: Graph


def cases(count: int = 420) -> list[Case]:
    """`count` graphs of 5 to 40 tasks: every kind in turn, at another place of another design."""
    makers = [*FRAGMENTS, "cleared too much", "cleared too little"]
    return [_case(makers[number % len(makers)], random.Random(f"defect {number}")) for number in range(count)]


def _case(name: str, rng: random.Random) -> Case:
    if name not in FRAGMENTS:
        return _wrongly_cleared(name, rng)
    defect, make, rules = FRAGMENTS[name]
    host = to_graph(Design(name, _with_hole(rng, _host(rng), rescue=defect not in ("deadlock", "livelock"))))
    inside_or = rng.random() < 0.25
    if inside_or and defect in ("deadlock", "livelock"):
        rules = (*rules, "improper completion", "unsafe")
    broken, whole = _fragment(make, rng, inside_or), _fragment(plain, rng, inside_or)
    return Case(name, defect, _filled(host, broken), rules, _filled(host, whole))


def _host(rng: random.Random) -> Block:
    """A third is large and has everything; the rest is small, and half of it has little at once."""
    kinds = rng.choice([FLAT, ("sequence", "choice", "loop", "cancellable")])
    return random_block(rng, rng.randint(3, 8), kinds) if rng.random() < 0.67 else random_block(
        rng, rng.randint(8, 36), FLAT
    )  # fmt: skip


def _with_hole(rng: random.Random, block: Block, rescue: bool) -> Block:
    """The block with one of its activities renamed; not one that a cancellation would rescue, unless it may."""
    names = _names(block, rescue)
    chosen = rng.choice(names) if names else ""
    if not chosen:
        return Sequence((block, Activity(HOLE)))
    return _renamed(block, chosen)


def _names(block: Block, rescue: bool) -> list[str]:
    if isinstance(block, Activity):
        return [block.name]
    parts = (block.handler,) if isinstance(block, Cancellable) and not rescue else children(block)
    return [name for part in parts for name in _names(part, rescue)]


def _renamed(block: Block, name: str) -> Block:
    return rewritten(block, lambda inner: Activity(HOLE) if inner == Activity(name) else inner)


def _fragment(make: Callable[[Fragment, random.Random], None], rng: random.Random, inside_or: bool) -> Fragment:
    made = Fragment()
    make(made, rng)
    if inside_or:
        split, join = made.task("or_split", split="or"), made.task("or_join", join="or")
        made.flow(split, made.entry)
        made.flow(made.exit, join)
        made.flow(split, made.task("beside"), join)
        made.entry, made.exit = split, join
    return made


def _filled(host: Graph, made: Fragment) -> Graph:
    """The host with the fragment in the place of its hole, in what is cleared as well."""
    flows = [
        replace(flow, source=made.exit if flow.source == HOLE else flow.source,
                target=made.entry if flow.target == HOLE else flow.target)
        for flow in host.flows
    ]  # fmt: skip
    renamed = {old.id: new.id for old, new in zip(host.flows, flows, strict=True)}
    inside = [node.id for node in made.nodes] + [flow.id for flow in made.flows]
    nodes = []
    for node in host.nodes:
        if node.id == HOLE:
            nodes += made.nodes
            continue
        cancels = [renamed.get(name, name) for name in node.cancels if name != HOLE]
        nodes.append(replace(node, cancels=(*cancels, *inside) if HOLE in node.cancels else tuple(cancels)))
    return Graph(host.name, tuple(nodes), (*flows, *made.flows), host.documentation)


def _wrongly_cleared(name: str, rng: random.Random) -> Case:
    """A cancellation that forgets a task of its body, or clears one beside it."""
    body = Sequence((Activity("b0"), random_block(rng, rng.randint(1, 4), ("sequence", "choice")), Activity("b1")))
    beside: Block = Parallel((Cancellable(body, 0.5), Activity("beside")))
    host = _with_hole(rng, random_block(rng, rng.randint(2, 20), ("sequence", "choice", "parallel")), True)
    prefixed = _prefixed(host)
    root = _put(prefixed, Loop(beside, 0.3) if rng.random() < 0.3 else beside)
    original = to_graph(Design(name, root))
    nodes = tuple(_tampered(node, name, rng) if node.cancels else node for node in original.nodes)
    if name == "cleared too much":
        return Case(name, "deadlock", replace(original, nodes=nodes), ("no way to complete",), original)
    rules = ("improper completion", "unsafe")
    return Case(name, "improper completion", replace(original, nodes=nodes), rules, original)


def _tampered(node: Node, name: str, rng: random.Random) -> Node:
    if name == "cleared too much":
        return replace(node, cancels=(*node.cancels, "beside"))
    forgotten = rng.choice(["b0", "b1"])
    return replace(node, cancels=tuple(other for other in node.cancels if other != forgotten))


def _prefixed(block: Block) -> Block:
    return rewritten(block, lambda b: Activity(f"h_{b.name}") if isinstance(b, Activity) and b.name != HOLE else b)


def _put(block: Block, inner: Block) -> Block:
    return rewritten(block, lambda b: inner if b == Activity(HOLE) else b)
