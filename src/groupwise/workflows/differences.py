"""What changed between two workflows, in words: what was added, removed, moved or reconfigured.

If both have a block form, their behaviour is compared: an activity has moved if its relation to another (before, after,
in parallel, exclusive) has changed, however the workflow is drawn. Otherwise nodes and flows are compared.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Block, Cancellable, Design, DesignError, Instances, Loop, children
from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Node
from groupwise.workflows.places import ActivityPlace, places_of, relation
from groupwise.workflows.violations import in_time

MOST_COMPARED = 400  # activities whose pairs are compared: 80,000 pairs
SHOWN = 3  # relations listed for each move
TIMES = ("timeout", "delay", "due")


@dataclass(frozen=True, slots=True)
class Change:
    """A value that changed, of an activity, a pool or the design."""

    name: str
    what: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name!r}: {self.what} {_shown(self.what, self.before)} → {_shown(self.what, self.after)}"


@dataclass(frozen=True, slots=True)
class Move:
    """An activity whose relation to some others has changed."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name!r} {self.words}"


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences; `by` says whether behaviour ("blocks") or nodes and flows ("graph") were compared."""

    by: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[Move, ...] = ()
    changed: tuple[Change, ...] = ()

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.moved or self.changed)

    def as_dict(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}

    def lines(self) -> Iterator[str]:
        marks = "+" * len(self.added) + "−" * len(self.removed) + "↕" * len(self.moved) + "~" * len(self.changed)
        yield from map(" ".join, zip(marks, self.sentences(), strict=True))

    def sentences(self) -> Iterator[str]:
        """The lines without their marks."""
        yield from (f"{name!r} was added" for name in self.added)
        yield from (f"{name!r} was removed" for name in self.removed)
        yield from map(str, self.moved)
        yield from map(str, self.changed)


def compare_workflows(old: Document | Design, new: Document | Design) -> Differences:
    """The changes from `old` to `new`."""
    try:
        before = old if isinstance(old, Design) else lift(old)
        after = new if isinstance(new, Design) else lift(new)
    except DesignError:
        if isinstance(old, Document) and isinstance(new, Document):
            return _drawings(old, new)
        raise
    return _designs(before, after)


def _designs(old: Design, new: Design) -> Differences:
    before = {place.activity.name: place for place in places_of(old.root)}
    after = {place.activity.name: place for place in places_of(new.root)}
    both = [name for name in before if name in after]
    changed: list[Change] = []
    for name in both:
        was, now = before[name].activity.handling, after[name].activity.handling
        changed += _changes(name, asdict(was), asdict(now))
    for name in both:
        changed += _changes(name, _around(old.root, before[name]), _around(new.root, after[name]))
    changed += _staffed(old, new)
    return Differences(
        "blocks",
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(_moves(old.root, before, new.root, after, both[:MOST_COMPARED])),
        tuple(changed),
    )


def _changes(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    return [Change(name, what, was[what], now[what]) for what in was if was[what] != now[what]]


def _around(root: Block, place: ActivityPlace) -> dict[str, Any]:
    times, cancelled, copies = place.share, 0.0, (1, 1, 1)
    block = root
    for number in place.path:
        match block:
            case Loop(_, again):
                # The body of a loop runs 1 / (1 − again) times on average.
                times /= 1 - again
            case Cancellable(_, chance) if number == 0:
                cancelled = 1 - (1 - cancelled) * (1 - chance)
            case Instances(_, least, most, enough):
                copies = (least, most, enough)
        block = children(block)[number]
    return {
        "times per case": round(times, 9),
        "probability of being cancelled": round(cancelled, 9),
        "instances (least, most, enough)": copies,
    }


def _staffed(old: Design, new: Design) -> Iterator[Change]:
    before, after = dict(old.servers), dict(new.servers)
    for pool in dict.fromkeys([*before, *after]):
        if before.get(pool) != after.get(pool):
            yield Change(pool, "servers", before.get(pool), after.get(pool))
    if old.documentation != new.documentation:
        yield Change(new.name, "documentation", old.documentation, new.documentation)


def _moves(
    old: Block, before: Mapping[str, ActivityPlace], new: Block, after: Mapping[str, ActivityPlace], both: list[str]
) -> Iterator[Move]:
    """As few activities as explain every changed pair: greedily, the one in the most pairs first."""
    # Pairs of activities whose relation changed, with the relation before and after.
    pairs: dict[tuple[str, str], tuple[str, str]] = {}
    for a, b in combinations(both, 2):
        was, now = relation(old, before[a].path, before[b].path), relation(new, after[a].path, after[b].path)
        if was != now:
            pairs[a, b] = (was, now)
    while pairs:
        counts = Counter(name for pair in pairs for name in pair)
        name = max(counts, key=lambda name: (counts[name], name))
        own = {pair: found for pair, found in pairs.items() if name in pair}
        pairs = {pair: found for pair, found in pairs.items() if name not in pair}
        yield Move(name, _moved(name, own))


def _moved(name: str, pairs: Mapping[tuple[str, str], tuple[str, str]]) -> str:
    turned = {"before": "after", "after": "before"}
    relations = []
    for (a, b), (was, now) in list(pairs.items())[:SHOWN]:
        if a != name:
            was, now = turned.get(was, was), turned.get(now, now)
        relations.append(f"{_WORDS[now]} {b if a == name else a!r} (it was {_WORDS[was]})")
    more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return f"is now {', '.join(relations)}{more}"


_WORDS = {"before": "before", "after": "after", "beside": "in parallel with", "never both": "an alternative to"}


def _drawings(old: Document, new: Document) -> Differences:
    before, after = _nodes(old), _nodes(new)
    flows, others = _flows(old), _flows(new)
    changed = [change for name in before if name in after for change in _node_changes(name, before[name], after[name])]
    for name, flow in flows.items():
        if name in others and others[name].probability != flow.probability:
            changed.append(Change(name, "probability", flow.probability, others[name].probability))
    moved = [Move(name, "is a new flow") for name in others if name not in flows]
    moved += [Move(name, "is no longer a flow") for name in flows if name not in others]
    return Differences(
        "graph",
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(moved),
        tuple(changed),
    )


def _nodes(document: Document) -> dict[str, Node]:
    return {node.label: node for graph in document.graphs for node in graph.nodes}


def _flows(document: Document) -> dict[str, Flow]:
    flows = [(graph, flow) for graph in document.graphs for flow in graph.flows]
    return {f"{graph.by_id[f.source].label} → {graph.by_id[f.target].label}": f for graph, f in flows}


def _node_changes(name: str, old: Node, new: Node) -> list[Change]:
    compared = ("kind", "join", "split", "copies", "calls", "cancels", "documentation")
    was, now = ({what: getattr(node, what) for what in compared} for node in (old, new))
    return _changes(name, asdict(old.handling), asdict(new.handling)) + _changes(name, was, now)


def _shown(what: str, value: Any) -> str:
    if value is None:
        return "none"
    if what == "retry":
        return _retries(value)
    if isinstance(value, float):
        return in_time(value) if what in TIMES else f"{value:.6g}"
    return repr(value) if what == "documentation" else str(value)


def _retries(retry: Mapping[str, Any]) -> str:
    most, pause, growth = retry["most"], retry["pause"], retry["growth"]
    if not most:
        return "none"
    longer = f", each pause {growth:g} times the last" if most > 1 and growth != 1 else ""
    return f"up to {most} " + (f"after {in_time(pause)}{longer}" if pause else "at once")
