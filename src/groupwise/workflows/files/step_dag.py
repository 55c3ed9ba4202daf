"""Workflows as steps that depend on each other, for formats without choices, loops and cancellation.

`steps_of` turns a document into steps and refuses whatever such a format cannot express; `graph_of` turns steps into a
graph. `dump_yaml` and `safe_names` help those formats to write.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from groupwise.workflows.blocks import PLAIN, Handling
from groupwise.workflows.document import Document
from groupwise.workflows.endings import without_endings
from groupwise.workflows.files.formats import BadFile, CannotExpress
from groupwise.workflows.graph import ONCE, Flow, Graph, Node
from groupwise.workflows.partial_orders import find_ring, in_order


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A task that starts when all the steps it `needs` are done."""

    id: str
    name: str = ""
    needs: tuple[str, ...] = ()
    handling: Handling = PLAIN
    documentation: str = ""

    @property
    def label(self) -> str:
        return self.name or self.id


def steps_of(document: Document, title: str) -> list[WorkflowStep]:
    """The steps of a document in the order of its tasks; `CannotExpress` names whatever is not a plain step."""
    if len(document.graphs) > 1:
        raise CannotExpress(f"{title} has only one graph, but this workflow also has {document.graphs[1].name!r}")
    graph = without_endings(document.root)
    before = {node.id: [flow.source for flow in graph.into(node.id)] for node in graph.nodes}
    order, cycle = _in_order(before)
    if cycle:
        round_ = [graph.by_id[name] for name in cycle]
        names = [node.label for node in round_ if node.kind == "task" and not node.silent] or [round_[0].label]
        raise CannotExpress(f"{title} has no loops, but {', '.join(map(repr, names[:4]))} can be repeated")
    for node in graph.nodes:
        _only_a_step(graph, node, title)
    # Gateways vanish: only tasks with work of their own become steps.
    work = {node.id for node in graph.nodes if node.kind == "task" and not node.silent}
    if not work:
        raise CannotExpress(f"{title} needs at least one task, but {graph.name!r} has none")
    # What a gateway needs is passed on to the tasks after it.
    needed: dict[str, tuple[str, ...]] = {}
    for name in order:
        found = [inner for source in before[name] for inner in ((source,) if source in work else needed[source])]
        needed[name] = tuple(dict.fromkeys(found))
    return [
        WorkflowStep(node.id, node.name, needed[node.id], node.handling, node.documentation)
        for node in graph.nodes
        if node.id in work
    ]


def _only_a_step(graph: Graph, node: Node, title: str) -> None:
    into, out = graph.into(node.id), graph.out_of(node.id)
    # Conditions, the start and the end pass on one token, as xor does.
    splits, joins = node.split if node.kind == "task" else "xor", node.join if node.kind == "task" else "xor"
    if len(out) > 1 and splits != "and":
        ways = ", ".join(repr(graph.by_id[flow.target].label) for flow in out)
        raise CannotExpress(f"{title} has no choices, but {node.label!r} chooses between {ways} ({splits})")
    if len(into) > 1 and joins != "and":
        raise CannotExpress(f"{title} has no choices, but {node.label!r} joins the branches of one ({joins})")
    if node.cancels:
        raise CannotExpress(f"{title} has no cancellation, but {node.label!r} cancels others")
    if node.copies != ONCE:
        instances = f"{node.copies.least} to {node.copies.most} instances"
        raise CannotExpress(f"{title} has no multi-instance steps, but {node.label!r} has {instances}")
    if node.calls:
        raise CannotExpress(f"{title} has only one graph, but {node.label!r} calls {node.calls!r}")
    for flow in out:
        if flow.condition:
            raise CannotExpress(f"{title} has no conditions, but the flow {flow.id} has {flow.condition!r}")


def _in_order(before: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    names = list(before)
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[source], number[name]) for name, sources in before.items() for source in sources)
    cycle = find_ring(len(names), edges)
    order = [] if cycle else in_order(len(names), edges)
    return [names[place] for place in order], [names[place] for place in cycle[:-1]]


def by_need(steps: Sequence[WorkflowStep]) -> list[str]:
    """The ids of steps, each after those it needs."""
    return _in_order({step.id: list(step.needs) for step in steps})[0]


def refuse_handling(step: WorkflowStep, title: str, *, only: Iterable[str] = ()) -> None:
    """Refuse handling that the format cannot express; `only` lists the fields it can."""
    handling, known = step.handling, set(only)
    asked = {
        "retry": (handling.retry != PLAIN.retry, f"retries ({handling.retry.most})"),
        "timeout": (handling.timeout is not None, f"a time limit of {handling.timeout} s"),
        "delay": (handling.delay != 0, f"a delay of {handling.delay} s"),
        "due": (handling.due is not None, f"a due time of {handling.due} s"),
        "pool": (handling.pool is not None, f"the pool {handling.pool!r}"),
        "priority": (handling.priority != 0, f"priority {handling.priority}"),
        "scheduling": (handling.scheduling != "fifo", f"scheduling by {handling.scheduling}"),
    }
    for field, (there, words) in asked.items():
        if there and field not in known:
            raise CannotExpress(f"{title} cannot express {words} for {step.label!r}")


def graph_of(name: str, steps: Sequence[WorkflowStep], documentation: str = "") -> Graph:
    """The graph of steps: those that need nothing start at once, and the case ends when all are done."""
    ids = [step.id for step in steps]
    known = set(ids)
    for step in steps:
        for need in step.needs:
            if need not in known:
                raise BadFile(f"{step.id!r} needs {need!r}, which does not exist")
        if len(set(step.needs)) < len(step.needs):
            twice = next(need for need in step.needs if step.needs.count(need) > 1)
            raise BadFile(f"{step.id!r} needs {twice!r} twice")
    _, cycle = _in_order({step.id: list(step.needs) for step in steps})
    if cycle:
        raise BadFile(f"steps need each other in a cycle: {' → '.join(map(repr, [*cycle, cycle[0]]))}")
    # A task waits for all its needs, so its join is "and"; extra gateways are needed only at the two ends.
    followed = {need for step in steps for need in step.needs}
    first = [step.id for step in steps if not step.needs]
    last = [step.id for step in steps if step.id not in followed]
    start, end = _free("start", known), _free("end", known)
    begin, finish = _free("all_at_once", known), _free("all_done", known)
    nodes = [Node(start, kind="start")]
    flows = [Flow(start, begin if len(first) > 1 else first[0])]
    if len(first) > 1:
        nodes.append(Node(begin, split="and", silent=True))
        flows += [Flow(begin, one) for one in first]
    nodes += [Node(s.id, s.name, join="and", handling=s.handling, documentation=s.documentation) for s in steps]
    flows += [Flow(need, step.id) for step in steps for need in step.needs]
    if len(last) > 1:
        nodes.append(Node(finish, join="and", silent=True))
        flows += [Flow(one, finish) for one in last]
    nodes.append(Node(end, kind="end"))
    flows.append(Flow(finish if len(last) > 1 else last[0], end))
    return Graph(name, tuple(nodes), tuple(flows), documentation)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def dump_yaml(value: Any, comments: tuple[str, ...] = ()) -> bytes:
    """YAML in the order given, with comments on top, one line each."""
    top = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    return (top + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)).encode()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def safe_names(labels: dict[str, str], allowed: str, first: str, *, longest: int = 60) -> dict[str, str]:
    """Unique names of `allowed` characters (a regex class); `first` goes before one without a leading letter."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    # Unsuitable characters become a dash or an underscore, whichever the format allows.
    fill = "-" if "_" not in allowed else "_"
    for key, label in labels.items():
        base = re.sub(f"[^{allowed}]+", fill, label).strip(fill) or first
        base = (base if base[0].isalpha() and base[0].isascii() else f"{first}{fill}{base}")[:longest].rstrip(fill)
        name, number = base, 2
        # Some formats do not distinguish upper and lower case, so names differ in more than that.
        while name.lower() in taken:
            name, number = f"{base}{fill}{number}", number + 1
        taken.add(name.lower())
        names[key] = name
    return names
