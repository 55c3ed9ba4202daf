"""Names for what a workflow leaves unnamed: the questions of its choices and the answers on their branches.

They come from the requirements where those say what is decided (outcomes, branches, loops), otherwise from the
activities that a branch leads to. Names that the workflow has are kept.
"""

import itertools
from dataclasses import replace
from functools import cached_property

from groupwise.workflows.case_flow import CaseFlow
from groupwise.workflows.endings import asked_for, deciders, role_of
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.requirements import RequiredOutcome, Requirements

Answers = dict[str, str]
# Branches without work that are tried at every place, and by how much probabilities may differ.
MOST_FITTED, FITS = 5, 1e-6


def titled(graph: Graph, requirements: Requirements | None = None) -> Graph:
    """The graph with a name for every choice and for each of its branches."""
    titles = _Titles(graph, requirements)
    names: dict[str, str] = {}
    answers: Answers = {}
    for node in graph.nodes:
        if titles.chooses(node):
            names[node.id], found = titles.question(node)
            answers |= found
    # A task that itself chooses has a name already: its own.
    own = {node.id for node in graph.nodes if node.name or not (node.silent or node.kind == "condition")}
    nodes = tuple(replace(n, name=names[n.id]) if n.id in names and n.id not in own else n for n in graph.nodes)
    flows = tuple(
        replace(flow, name=_with_share(flow, answers[flow.id])) if flow.id in answers and not flow.name else flow
        for flow in graph.flows
    )
    return replace(graph, nodes=nodes, flows=flows)


def asked_by(graph: Graph, node: Node, requirements: Requirements | None = None) -> str:
    """The question that a task answers which itself chooses between its flows."""
    return _Titles(graph, requirements).question(node)[0]


def _with_share(flow: Flow, name: str) -> str:
    return name if flow.probability is None else f"{name} ({percent(flow.probability)})"


def percent(share: float) -> str:
    """62%, 2.5%, 0.1%: as many digits as are useful."""
    value = 100 * share
    if 0 < value < 0.05 or 99.95 <= value < 100:
        return "under 0.1%" if value < 1 else "over 99.9%"
    if 9.95 <= value < 99.5 or abs(value - round(value)) < 0.05:
        return f"{value:.0f}%"
    return f"{value:.1g}%" if value < 1 else f"{value:.1f}%"


class _Titles:
    def __init__(self, graph: Graph, requirements: Requirements | None) -> None:
        self.graph, self.requirements = graph, requirements
        self.flow = CaseFlow(requirements) if requirements is not None else None

    def chooses(self, node: Node) -> bool:
        rule = node.split if node.kind == "task" else "xor"
        drawn = [flow for flow in self.graph.out_of(node.id) if role_of(self.graph.by_id[flow.target]) != "event"]
        return len(drawn) > 1 and rule != "and"

    def question(self, node: Node) -> tuple[str, Answers]:
        flows = self.graph.out_of(node.id)
        if asks := asked_for(node, flows):
            return _asked(asks[0]), {flow.id: " or ".join(some) for flow, some in zip(flows, asks[1], strict=True)}
        if role_of(node) == "gate":
            names = deciders(node)
            asked = f"{names[0]} passed?" if len(names) == 1 else "does the case go on?"
            return asked, {flow.id: "no" if role_of(flow) else "yes" for flow in flows}
        back = [flow for flow in flows if self._leads_back(flow)]
        if back and len(back) < len(flows):
            asked, yes = self._again(node, back)
            return asked, {flow.id: yes if flow in back else "no" for flow in flows}
        return self._outcome(flows) or self._branch(flows) or self._by_activities(flows)

    def _again(self, node: Node, back: list[Flow]) -> tuple[str, str]:
        """The question of a loop, and the answer that leads back."""
        last = self._works(node.id, forward=False) if node.silent else [node.label]
        for loop in self.requirements.loops if self.requirements is not None else ():
            if loop.after in last:
                times = "once" if loop.most == 1 else f"up to {loop.most} times"
                return _asked(loop.name), "yes" if loop.most is None else f"yes, {times}"
        first = next((name for flow in back for name in self._firsts(flow)), node.label)
        return f"{first} again?", "yes"

    def _outcome(self, flows: list[Flow]) -> tuple[str, Answers] | None:
        leading = [flow for flow in flows if self._firsts(flow) and not self._skips(flow)]
        for outcome in self.requirements.outcomes if self.requirements is not None else ():
            found = Answers()
            for flow in leading:
                places = {branch for name in self._firsts(flow) for branch in self._branches(outcome.name, name)}
                found |= {flow.id: places.pop()} if len(places) == 1 else {}
            rest = [name for name in outcome.branches if name not in found.values()]
            # Every branch that does something is one of this outcome's, and no two are the same.
            if found and len(found) == len(leading) == len(set(found.values())):
                names = {f.id: found.get(f.id) or " or ".join(rest) or "otherwise" for f in flows}
                return _asked(outcome.name), _by_shares(outcome, flows, found) or names
        return None

    def _branches(self, outcome: str, name: str) -> list[str]:
        """The branch of an outcome that an activity is directly in; not one around another outcome."""
        assert self.flow is not None
        return [branch for other, branch in self.flow.context(name)[:1] if other == outcome]

    def _branch(self, flows: list[Flow]) -> tuple[str, Answers] | None:
        for branch in self.requirements.branches if self.requirements is not None else ():
            taken = {f.id: n for f in flows for n in self._firsts(f)[:1] if n in branch.options and not self._skips(f)}
            if taken:
                yes = len(taken) == 1 and len(flows) == 2
                names = dict.fromkeys(taken, "yes") if yes else taken
                # A fork for one of several options asks about that one.
                alone = yes and len(branch.options) > 1
                asked = f"{branch.name}: {next(iter(taken.values()))}?" if alone else _asked(branch.name)
                return asked, {f.id: names.get(f.id, "no" if yes else "none of them") for f in flows}
        return None

    def _by_activities(self, flows: list[Flow]) -> tuple[str, Answers]:
        firsts = {f.id: next(iter(self._firsts(f)), "end") for f in flows}
        skipped = [flow.id for flow in flows if self._skips(flow)]
        if len(flows) == 2 and len(skipped) == 1:
            (taken,) = firsts.keys() - skipped
            return f"{firsts[taken]} needed?", {taken: "yes", skipped[0]: "no"}
        shown = [name for key, name in firsts.items() if key not in skipped]
        asked = ", ".join(shown[:-1]) + f" or {shown[-1]}?" if len(shown) > 1 else "which way?"
        return asked, {key: "none of them" if key in skipped else name for key, name in firsts.items()}

    def _skips(self, flow: Flow) -> bool:
        """Whether a flow leads straight to where branches meet."""
        target = self.graph.by_id[flow.target]
        return target.kind == "task" and target.silent and len(self.graph.into(target.id)) > 1

    def _firsts(self, flow: Flow) -> list[str]:
        """The activities that come first on a branch."""
        target = self.graph.by_id[flow.target]
        return [target.label] if _is_work(target) else self._works(flow.target, forward=True)

    def _works(self, start: str, *, forward: bool) -> list[str]:
        """The activities next to a node, with only gateways between."""
        found, seen, queue = list[str](), {start}, [start]
        for here in queue:
            flows = self.graph.out_of(here) if forward else self.graph.into(here)
            for other in (flow.target if forward else flow.source for flow in flows):
                if other in seen:
                    continue
                seen.add(other)
                node = self.graph.by_id[other]
                if _is_work(node):
                    found.append(node.label)
                else:
                    queue.append(other)
        return found

    def _leads_back(self, flow: Flow) -> bool:
        return flow.id in self._backward or flow.target not in self._ahead

    @cached_property
    def _backward(self) -> set[str]:
        """The flows that close a cycle in a depth-first search from the start."""
        found, path, done = set[str](), set[str](), set[str]()
        stack: list[tuple[str, int]] = [(self.graph.start.id, 0)]
        while stack:
            here, step = stack.pop()
            path.add(here)
            ways = self.graph.out_of(here)
            if step == len(ways):
                path.discard(here)
                done.add(here)
                continue
            stack.append((here, step + 1))
            target = ways[step].target
            if target in path:
                found.add(ways[step].id)
            elif target not in done:
                stack.append((target, 0))
        return found

    @cached_property
    def _ahead(self) -> set[str]:
        """The nodes from which the end is reached without going back."""
        found, queue = {self.graph.end.id}, [self.graph.end.id]
        for here in queue:
            for flow in self.graph.into(here):
                if flow.id not in self._backward and flow.source not in found:
                    found.add(flow.source)
                    queue.append(flow.source)
        return found


def _by_shares(outcome: RequiredOutcome, flows: list[Flow], found: Answers) -> Answers | None:
    """The answers such that their probabilities are those of the flows: branches that do nothing go where they fit.

    Cases of some branches may have left before this choice, which then is among the others.
    """
    branches = list(outcome.branches)
    rest = [name for name in branches if name not in found.values()]
    if len(rest) > MOST_FITTED or any(flow.probability is None for flow in flows):
        return None
    # Each of the rest goes to one of the flows, or (the last choice) has left before; those who stay are tried first.
    for places in itertools.product(range(len(flows) + 1), repeat=len(rest)):
        sets = [{found[flow.id]} if flow.id in found else set[str]() for flow in flows]
        for name, place in zip(rest, places, strict=True):
            if place < len(flows):
                sets[place].add(name)
        shares = [sum(outcome.branches[name].probability for name in names) for names in sets]
        total = sum(shares)
        if all(sets) and all(
            abs(share / total - (flow.probability or 0.0)) < FITS for share, flow in zip(shares, flows, strict=True)
        ):
            ordered = (" or ".join(name for name in branches if name in names) for names in sets)
            return dict(zip((flow.id for flow in flows), ordered, strict=True))
    return None


def _is_work(node: Node) -> bool:
    return node.kind == "task" and not node.silent


def _asked(name: str) -> str:
    return name if name.endswith("?") else f"{name}?"
