"""A BPMN process while it is read: its nodes and flows are brought into the form of a graph, step by step."""

from dataclasses import dataclass, field, replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.endings import MARK, asked_for, mark_of, role_of
from groupwise.workflows.graph import Flow, Node, Rule
from groupwise.xml_reader import Element

# Marks nodes that only the graph needs (one start, one end); the writer skips them.
ADDED = Element(f"{{{bpmn.OWN}}}added")


@dataclass(slots=True)
class Region:
    """A sub-process that stands for a body and the guard that may cancel it (`wiring.GuardedBody`)."""

    names: dict[str, str]
    chance: float | None
    inside: list[str]
    first: str
    last: str


@dataclass(slots=True)
class Sketch:
    """Nodes and flows by their ids in the file.

    `gates` maps gateways to their rule; `parts` are gateways that exist only for the join or split of another node;
    `rules` are annotated joins and splits; `attached` maps boundary events to their owners; `repeats` maps activities
    to their loop characteristics.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    gates: dict[str, Rule] = field(default_factory=dict)
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    rules: dict[str, dict[str, str]] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    attached: dict[str, str] = field(default_factory=dict)
    repeats: dict[str, Element] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def into(self, node: str) -> list[Flow]:
        return [flow for flow in self.flows if flow.target == node]

    def out_of(self, node: str) -> list[Flow]:
        return [flow for flow in self.flows if flow.source == node]

    def change(self, name: str, **changes: object) -> None:
        self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]

    def free(self, name: str) -> str:
        while name in self.nodes:
            name += "_"
        return name

    def shaped(self) -> None:
        """Apply all steps. Their order matters: parts must be merged before regions open, and ends are joined last."""
        self._forget_our_conditions()
        self._set_rules()
        self._merge_parts()
        self._open_regions()
        self._connect_links()
        self._attach_boundaries()
        self._add_repeats()
        self._one_start()
        self._one_end()

    def _by_source(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {name: [] for name in self.nodes}
        for place, flow in enumerate(self.flows):
            found[flow.source].append(place)
        return found

    def _forget_our_conditions(self) -> None:
        places = self._by_source()
        for gate, rule in self.gates.items():
            ways = [self.flows[place] for place in places[gate]]
            asks = asked_for(self.nodes[gate], ways)
            usual = bpmn.generated_routes(gate, rule, [flow.target for flow in ways], asks)
            if len(ways) > 1 and [bpmn.BpmnRoute(flow.condition, flow.default) for flow in ways] == usual:
                for place in places[gate]:
                    self.flows[place] = replace(self.flows[place], condition="", default=False)

    def _set_rules(self) -> None:
        """A gateway's rule applies where flows meet or split; conditions on its flows make an activity an or-split."""
        counts: dict[str, list[int]] = {name: [0, 0] for name in self.nodes}
        for flow in self.flows:
            counts[flow.source][1] += 1
            counts[flow.target][0] += 1
        for name, rule in self.gates.items():
            if self.nodes[name].kind == "task":
                inputs, outputs = counts[name]
                self.change(name, join=rule if inputs > 1 else "xor", split=rule if outputs > 1 else "and")
        for flow in self.flows:
            if flow.condition and flow.source not in self.gates and counts[flow.source][1] > 1:
                self.change(flow.source, split="or")
        for name, rules in self.rules.items():
            self.change(name, **rules)

    def _merge_parts(self) -> None:
        """Merge gateways that were written only for the join or split of a task back into it."""
        owner = {name: task for name, (task, _) in self.parts.items()}
        # The flows between them, in that direction; one in the other is a loop of the task on itself.
        between = {(name, task) if side == "join" else (task, name) for name, (task, side) in self.parts.items()}
        kept = []
        for flow in self.flows:
            if (flow.source, flow.target) in between:
                continue
            source, target = (owner.get(end, end) for end in (flow.source, flow.target))
            moved = (source, target) != (flow.source, flow.target)
            kept.append(replace(flow, source=source, target=target) if moved else flow)
        self.flows = kept
        for name, (task, side) in self.parts.items():
            del self.nodes[name]
            if self.nodes[task].kind == "task" and side in ("join", "split"):
                self.change(task, **{side: self.gates[name]})

    def _open_regions(self) -> None:
        """Turn the sub-process of a guarded body back into the body beside its guard."""
        for name, region in self.regions.items():
            split, guard, done, complete, abort = (region.names[key] for key in bpmn.GUARDED)
            del self.nodes[name]
            # Inserted before the node that cancels, so that a document comes back in the same order.
            at = list(self.nodes).index(abort)
            added = {guard: Node(guard, kind="condition"), done: Node(done, kind="condition")}
            items = list(self.nodes.items())
            self.nodes = dict([*items[:at], *added.items(), *items[at:]])
            inside = region.inside
            # Regions nest: an outer region now contains guard and done instead of the sub-process.
            for other in self.regions.values():
                if name in other.inside:
                    place = other.inside.index(name)
                    other.inside[place : place + 1] = [guard, done]
            ways = [f for f in self.flows if f.source in inside and f.target in inside]
            self.flows = [flow for flow in self.flows if name not in (flow.source, flow.target)]
            self.attached.pop(abort, None)
            rest = None if region.chance is None else 1 - region.chance
            self.flows += [Flow(split, region.first), Flow(split, guard), Flow(region.last, done)]
            self.flows += [Flow(guard, complete, rest), Flow(done, complete), Flow(guard, abort, region.chance)]
            cleared = [*inside, *(flow.id for flow in ways), done, f"{split}→{region.first}", f"{region.last}→{done}"]
            self.change(split, split="and")
            self.change(complete, join="and")
            self.change(abort, cancels=tuple(cleared), extras=())

    def _connect_links(self) -> None:
        def links(kind: str) -> dict[str, str]:
            found = {}
            for name, node in self.nodes.items():
                event = bpmn.source_element(node)
                if event is not None and event.name == kind and (link := event.find("linkEventDefinition")) is not None:
                    found[name] = link.get("name")
            return found

        caught = {link: name for name, link in links("intermediateCatchEvent").items()}
        for name, link in links("intermediateThrowEvent").items():
            if link in caught:
                self.flows.append(Flow(name, caught[link]))
            else:
                self.notes.append(f"the link {link!r} is thrown by {name!r} but never caught")

    def _attach_boundaries(self) -> None:
        """An activity with a boundary event continues normally or, instead, with the event."""
        for event, owner in self.attached.items():
            ways = self.out_of(owner)
            # The normal exit becomes one branch of the new split, so several normal flows need a node of their own.
            normal = [flow for flow in ways if flow.target not in self.attached]
            if len(normal) > 1:
                after = self.free(f"{owner}_after")
                self.nodes[after] = Node(after, silent=True, split=self.nodes[owner].split)
                self.flows = [replace(f, source=after) if f in normal else f for f in self.flows]
                self.flows.append(Flow(owner, after))
            self.flows.append(Flow(owner, event, _chance(self.nodes[event])))
            # BPMN events interrupt unless they say otherwise.
            interrupts = (bpmn.source_element(self.nodes[event]) or ADDED).get("cancelActivity", "true") != "false"
            if not interrupts:
                self.notes.append(f"the event {event!r} does not interrupt {owner!r}; it is treated as an or-split")
            rule: Rule = "xor" if interrupts and self.nodes[owner].split != "or" else "or"
            self.change(owner, split=rule)

    def _add_repeats(self) -> None:
        """Loop characteristics become an xor split with a flow back."""
        for name, loop in self.repeats.items():
            again = self.free(f"{name}_again")
            condition = loop.says("loopCondition")
            # A while loop: the test comes before the first round.
            if loop.get("testBefore") == "true":
                self.nodes[again] = Node(again, silent=True, join=self.nodes[name].join, split="xor")
                self.flows = [replace(f, target=again) if f.target == name else f for f in self.flows]
                self.flows = [replace(f, source=again) if f.source == name else f for f in self.flows]
                self.flows += [Flow(again, name, condition=condition), Flow(name, again)]
                self.change(name, join="xor", split="and")
            else:
                self.nodes[again] = Node(again, silent=True, split="xor")
                split = self.nodes[name].split
                ways = self.out_of(name)
                self.flows = [flow for flow in self.flows if flow.source != name]
                target = again
                if len(ways) > 1:
                    target = self.free(f"{name}_after")
                    self.nodes[target] = Node(target, silent=True, split=split)
                    self.flows.append(Flow(again, target))
                self.flows += [Flow(name, again), *(replace(flow, source=target) for flow in ways)]
                self.flows.append(Flow(again, name, condition=condition))
                self.change(name, split="and", join="xor")

    def _one_start(self) -> None:
        starts = [name for name, node in self.nodes.items() if node.kind == "start"]
        targets = {flow.target for flow in self.flows}
        loose = [name for name, node in self.nodes.items() if name not in targets and node.kind == "task"]
        # A boundary event starts from its owner, although no flow leads to it.
        loose = [name for name in loose if name not in self.attached]
        if len(starts) == 1 and not loose:
            return
        for name in starts:
            self._as_event(name, "startEvent")
        start = self.free("start")
        first = Node(start, kind="start", extras=(ADDED,))
        self.nodes = {start: first, **self.nodes}
        self.flows += [Flow(start, name) for name in (*starts, *loose)]

    def _one_end(self) -> None:
        """Join several ends, by an or-join if several tokens may arrive; a terminate event cancels everything else."""
        self._end_early()
        sources = {flow.source for flow in self.flows}
        ends = [name for name, node in self.nodes.items() if node.kind == "end"]
        loose = [name for name, node in self.nodes.items() if name not in sources and node.kind != "end"]
        final = [name for name in ends if bpmn.has_event(bpmn.source_element(self.nodes[name]), "terminate")]
        if len(ends) == 1 and not loose and not final:
            return
        tasks = [name for name, node in self.nodes.items() if node.kind == "task" and node.split != "xor"]
        ways = self._by_source()
        # Several tokens can only exist if something splits by and or or.
        parallel = any(len(ways[name]) > 1 for name in tasks)
        for name in ends:
            self._as_event(name, "endEvent")
        end = self.free("end")
        self.nodes[end] = Node(end, kind="end", extras=(ADDED,))
        quiet = [name for name in (*ends, *loose) if name not in final]
        if parallel and len(quiet) > 1:
            join = self.free("all_ended")
            self.nodes[join] = Node(join, silent=True, join="or", extras=(ADDED,))
            self.flows += [Flow(name, join) for name in quiet] + [Flow(join, end)]
        else:
            self.flows += [Flow(name, end) for name in quiet]
        self.flows += [Flow(name, end) for name in final]
        everything = [name for name in self.nodes if name not in (end, *final)] + [flow.id for flow in self.flows]
        for name in final:
            self.change(name, cancels=tuple(one for one in everything if not one.startswith(f"{name}→")))

    def _end_early(self) -> None:
        """Early ends lead to the end; if there is not exactly one, they are ends like any other."""
        early = [name for name, node in self.nodes.items() if role_of(node) == "end" and not self.out_of(name)]
        ends = [name for name, node in self.nodes.items() if node.kind == "end"]
        for name in early:
            if len(ends) == 1:
                self.flows.append(Flow(name, ends[0]))
            else:
                kept = tuple(e for e in self.nodes[name].extras if e.name != MARK)
                self.change(name, kind="end", silent=False, extras=kept)

    def _as_event(self, name: str, element: str) -> None:
        """A start or end that becomes a silent task is still written as an event."""
        extras = self.nodes[name].extras
        carried = () if bpmn.source_element(self.nodes[name]) is not None else (bpmn.el(element),)
        self.change(name, kind="task", silent=True, extras=(*carried, *extras))


def _chance(event: Node) -> float | None:
    """The probability that our mark on an event gives."""
    found = mark_of(event)
    try:
        return float(found.get("chance")) if found is not None else None
    except ValueError:
        return None
