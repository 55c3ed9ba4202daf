"""How cases end early: the paths that `drawing` adds for knock-outs, failures and branches that end a case.

`Endings` has the chances. What is drawn for them is marked, so that a reader recognises it and `without_endings` takes
it away again: a design has its knock-outs in the requirements, not in its blocks.

    end      an end event of its own, named after what ended the case
    event    what happens when the last try of an activity fails
    gate     asks whether activities let the case go on
    fork     asks for the result of an outcome that others ask for, too; its flows have the answers
    merge    where a branch that ended early meets the rest of it, before a join that waits for both
"""

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import groupwise.workflows.blocks as blocks
from groupwise.errors import ConfigError
from groupwise.readers import load_json
from groupwise.workflows.case_flow import CaseFlow
from groupwise.workflows.evaluation.durations import moments
from groupwise.workflows.graph import OWN, Flow, Graph, Node
from groupwise.workflows.places import limits_of
from groupwise.workflows.requirements import Requirements
from groupwise.xml_reader import Element, first

NEVER = 1e-9  # chances below it are not drawn
MARK = "ending"
ANSWER = "answer"


def mark(role: str, of: Iterable[str] = (), **more: str) -> Element:
    """The mark of a node or flow; `of` are the activities that decide."""
    names = {"of": json.dumps(list(of), ensure_ascii=False)} if of else {}
    return Element(f"{{{OWN}}}{MARK}", (("role", role), *names.items(), *more.items()))


def mark_of(part: Node | Flow) -> Element | None:
    return first(part.extras, MARK, OWN)


def role_of(part: Node | Flow) -> str:
    found = mark_of(part)
    return "" if found is None else found.get("role")


def fork_mark(outcome: str) -> Element:
    return mark("fork", outcome=outcome)


def outcome_of(node: Node) -> str:
    """The outcome that a fork asks for; empty if others do not."""
    found = mark_of(node)
    return found.get("outcome") if found is not None and role_of(node) == "fork" else ""


def answer_mark(answers: Iterable[str]) -> Element:
    return Element(f"{{{OWN}}}{ANSWER}", (("of", json.dumps(list(answers), ensure_ascii=False)),))


def answers_of(flow: Flow) -> tuple[str, ...]:
    """The results of an outcome for which a case takes a flow."""
    found = first(flow.extras, ANSWER, OWN)
    return tuple(_names(found.get("of"))) if found is not None else ()


def asked_for(node: Node, flows: Iterable[Flow]) -> tuple[str, list[tuple[str, ...]]] | None:
    """The outcome that a node asks for, and the answers of its flows; None if it chooses for itself."""
    answers = [answers_of(flow) for flow in flows]
    return (outcome_of(node), answers) if outcome_of(node) and all(answers) else None


def stops(node: Node) -> bool:
    """Whether a node is where a block of the design ends the case."""
    found = mark_of(node)
    return found is not None and role_of(node) == "end" and found.get("stops") == "true"


def deciders(node: Node) -> list[str]:
    """The activities that decide at a gate; empty if the mark is damaged."""
    found = mark_of(node)
    return _names(found.get("of", "[]")) if found is not None else []


def _names(text: str) -> list[str]:
    try:
        names = load_json(text)
    except ConfigError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


class Endings:
    """The chances that activities and blocks end a case."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements, self.flow = requirements, CaseFlow(requirements)
        self.limits = limits_of(requirements)

    def knock_out(self, activity: blocks.Activity) -> float:
        asked = self.requirements.activities.get(activity.name)
        return 0.0 if asked is None else asked.knock_out

    def failure(self, activity: blocks.Activity) -> float:
        """The chance that the last try fails, too, or takes too long."""
        asked, handling = self.requirements.activities.get(activity.name), activity.handling
        if asked is None:
            return 0.0
        pool = self.requirements.pools.get(handling.pool or next(iter(asked.pools), ""))
        limit = math.inf if handling.timeout is None else handling.timeout
        _, _, late = moments(asked.duration, 1.0 if pool is None else pool.speed, limit)
        found = (1 - (1 - asked.failure) * (1 - late)) ** (handling.retry.most + 1)
        return float(found) if found > NEVER else 0.0

    def lost(self, block: blocks.Block) -> float:
        """The chance that a block ends its case."""
        match block:
            case blocks.Activity():
                return 1 - (1 - self.failure(block)) * (1 - self.knock_out(block))
            case blocks.Sequence(parts) | blocks.Parallel(parts) | blocks.PartialOrder(parts):
                return self.any_lost(parts)
            case blocks.Choice(parts, shares):
                return sum(share * self.lost(part) for part, share in zip(parts, shares, strict=True))
            case blocks.Loop(body, again, redo):
                return self._lost_in_loop(body, again, redo)
            case blocks.Cancellable(body, chance, handler):
                return (1 - chance) * self.lost(body) + chance * self.lost(handler)
            case blocks.Instances(body, least, most, enough):
                one = self.lost(body)
                return sum(_too_few(number, enough, one) for number in range(least, most + 1)) / (most - least + 1)
            case blocks.Skip() | blocks.Finish():
                return 0.0

    def any_lost(self, parts: Iterable[blocks.Block]) -> float:
        return 1 - math.prod(1 - self.lost(part) for part in parts)

    def _lost_in_loop(self, body: blocks.Block, again: float, redo: blocks.Block) -> float:
        here, between = self.lost(body), self.lost(redo)
        most = self.limits.get(frozenset(one.name for one in blocks.activities(body)))
        if most is None:
            return (here + (1 - here) * again * between) / (1 - (1 - here) * again * (1 - between))
        found = here
        for _ in range(most):
            found = here + (1 - here) * again * (between + (1 - between) * found)
        return found

    def deciding(self, parts: Iterable[blocks.Block]) -> list[str]:
        """The activities among the parts that may end a case."""
        found = [one for part in parts for one in blocks.activities(part)]
        return [one.name for one in found if self.lost(one)]

    def ended_by(self, choice: blocks.Choice) -> list[str]:
        """For every part of a choice the branch of an outcome that it is, if that ends the case; otherwise empty."""
        found = [self._ending_branch(part) for part in choice.parts]
        # An empty part is the branch without activities of the outcome that the other parts belong to.
        around = {place[0] for part in choice.parts for one in blocks.activities(part)
                  for place in self.flow.context(one.name)[:1]}  # fmt: skip
        for number, part in enumerate(choice.parts):
            if len(around) == 1 and not any(blocks.activities(part)):
                (outcome,) = around
                empty = {n: told for n, told in self.flow.outcome[outcome].branches.items() if not told.activities}
                if empty and all(told.ends for told in empty.values()):
                    found[number] = " or ".join(empty)
        return found if not all(found) else ["" for _ in found]

    def _ending_branch(self, part: blocks.Block) -> str:
        found = [
            next((place[1] for place in self.flow.context(one.name) if self.flow.branch(place).ends), "")
            for one in blocks.activities(part)
        ]
        # A branch around a branch that ends the case does not end it itself.
        return found[0] if found and all(found) else ""


def _too_few(number: int, enough: int, lost: float) -> float:
    """The chance that fewer than `enough` of `number` copies end well."""
    return sum(math.comb(number, well) * (1 - lost) ** well * lost ** (number - well) for well in range(enough))


def without_endings(graph: Graph) -> Graph:
    """The graph without early endings: branches that end a case are joined with the rest again.

    What a block of the design ends stays, because nothing else would say so.
    """
    marked = {node.id: role_of(node) for node in graph.nodes if role_of(node)}
    if not marked:
        return graph
    over = {n.id for n in graph.nodes if stops(n)}
    ended = [n.id for n in graph.nodes if marked.get(n.id) == "end" and mark_of(n).get("kind") == "branch"]  # type: ignore[union-attr]
    branches = {*ended} - over
    gone = {name for name, role in marked.items() if role in ("end", "event")} - branches - over
    flows = [flow for flow in graph.flows if not role_of(flow) and not {flow.source, flow.target} & gone]
    nodes = {node.id: node for node in graph.nodes if node.id not in gone}
    now: dict[str, str] = {}  # what stands in the place of nodes and flows that are gone
    for name, role in marked.items():
        into, out = [f for f in flows if f.target == name], [f for f in flows if f.source == name]
        if role in ("gate", "merge") and len(into) == len(out) == 1:
            joined = replace(into[0], target=out[0].target)
            flows = [joined if flow is into[0] else flow for flow in flows if flow is not out[0]]
            now |= dict.fromkeys((name, into[0].id, out[0].id), joined.id)
            del nodes[name]
    if branches:
        nodes, flows = _joined(nodes, flows, branches, graph.end.id)
    counts = {name: sum(flow.source == name for flow in flows) for name in nodes}
    # An activity whose failing is no longer drawn does not split.
    failing = {flow.source for flow in graph.flows if marked.get(flow.target) == "event"}
    kept = [replace(n, split="and") if n.id in failing and counts[n.id] < 2 else n for n in nodes.values()]
    flows = [replace(f, probability=None) if f.source in failing and counts[f.source] < 2 else f for f in flows]
    there = {*nodes, *(flow.id for flow in flows)}
    kept = [replace(n, cancels=_renamed(n.cancels, now, there)) if n.cancels else n for n in kept]
    return replace(graph, nodes=tuple(kept), flows=tuple(flows))


def _renamed(cancels: tuple[str, ...], now: dict[str, str], there: set[str]) -> tuple[str, ...]:
    names = list(cancels)
    while any(name in now for name in names):
        names = [now.get(name, name) for name in names]
    return tuple(name for name in dict.fromkeys(names) if name in there)


def _joined(
    nodes: dict[str, Node], flows: list[Flow], branches: set[str], end: str
) -> tuple[dict[str, Node], list[Flow]]:
    into = [flow.source for flow in flows if flow.target == end and flow.source not in branches]
    into = [source for source in into if not stops(nodes[source])]
    last = nodes[into[0]] if len(into) == 1 else None
    meets = last is not None and sum(flow.target == last.id for flow in flows) > 1
    if last is not None and last.kind == "task" and last.silent and last.join == "xor" and meets:
        join = last.id
    else:
        join = "ended"
        while join in nodes:
            join += "_"
        nodes = {**nodes, join: Node(join, silent=True)}
        flows = [replace(f, target=join) if f.target == end and f.source in into else f for f in flows]
        flows.append(Flow(join, end))
    flows = [replace(f, target=join) if f.target in branches else f for f in flows if f.source not in branches]
    return {name: node for name, node in nodes.items() if name not in branches}, flows
