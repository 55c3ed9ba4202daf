"""Requirements as process owners write them, each with a legal design made by hand, for `design_truth`.

    read_cases()          the files in `design_truth/`, written for this project
    derived_cases()       from WfCommons, YAWL and WorFBench files in ../shared/data; nothing where they are absent
    faults(case)          why the hand-made design is not legal; empty if it is
    chain_of(block)       the same work one step after the other

`faults` judges a tree by itself, without `groupwise.workflows.rules`, so that the two can be compared. What the trees
leave to the requirements: the limit of a loop (`most`), and who of a pool does an activity. A branch that ends the case
holds everything that still happens in it; what other cases go on to do is in the other branches, or the branch has an
end, and they go on behind it. Choices of one outcome name it, and the results that lead to each of their parts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import design_sets

import groupwise.workflows.blocks as blocks
from groupwise.readers import load_yaml
from groupwise.workflows.files.json_file import parsed
from groupwise.workflows.partial_orders import closure, find_ring, in_order, reduced

FOLDER = Path(__file__).parent / "design_truth"
TOLERANCE = 1e-6
DERIVED = {"wfcommons": 5, "yawl": 5, "worfbench": 6}
COMFORTABLE = 0.7  # the load for which derived designs are staffed
Place: TypeAlias = tuple[tuple[blocks.Block, int], ...]
Stated: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TruthCase:
    """Requirements as they stand in the file, and a design.

    `parallel` means that the design is faster than its chain with the same staff: by at least 7% where it was written
    by hand (simulated, 3,000 cases), by at least 10% without queues where it was derived.
    """

    name: str
    requirements: Stated
    design: blocks.Design
    parallel: bool


def read_cases(folder: Path = FOLDER) -> list[TruthCase]:
    return [_read(path) for path in sorted(folder.glob("*.yaml"))]


def _read(path: Path) -> TruthCase:
    value: Any = load_yaml(path.read_bytes())
    return TruthCase(
        path.stem, value["requirements"], parsed(blocks.Design, value["design"], "design"), value["parallel"]
    )


def chain_of(block: blocks.Block) -> blocks.Block:
    """The tree with everything parallel done in turn, in a legal order."""

    def in_turn(one: blocks.Block) -> blocks.Block:
        if isinstance(one, blocks.Parallel):
            return blocks.Sequence(one.parts)
        if isinstance(one, blocks.PartialOrder):
            return blocks.Sequence(tuple(one.parts[number] for number in in_order(len(one.parts), one.edges)))
        return one

    return blocks.tidied(blocks.rewritten(block, in_turn))


class _Tree:
    """Where activities stand in a tree, and how two of them relate."""

    def __init__(self, root: blocks.Block) -> None:
        self.places: dict[str, Place] = dict(self._walk(root, ()))

    def _walk(self, block: blocks.Block, place: Place) -> Iterator[tuple[str, Place]]:
        if isinstance(block, blocks.Activity):
            yield block.name, place
        for number, part in enumerate(blocks.children(block)):
            yield from self._walk(part, (*place, (block, number)))

    def relation(self, one: str, other: str) -> str:
        """How `one` stands to `other`: before, after, beside, or never in the same case."""
        known, asked = self.results(one), self.results(other)
        if any(not known[name] & asked[name] for name in known.keys() & asked.keys()):
            return "never"
        for depth, ((block, a), (_, b)) in enumerate(zip(self.places[one], self.places[other], strict=False)):
            if a == b:
                continue
            first = one if a < b else other
            if isinstance(block, blocks.Choice) or self._is_over(block, self.places[first][depth + 1 :]):
                return "never"
            if isinstance(block, blocks.Parallel):
                return "beside"
            if isinstance(block, blocks.PartialOrder):
                later = closure(len(block.parts), block.edges)
                return "before" if later[a] >> b & 1 else "after" if later[b] >> a & 1 else "beside"
            return "before" if a < b else "after"
        raise AssertionError(f"{one!r} and {other!r} are the same place")

    def results(self, name: str) -> dict[str, set[str]]:
        """The results of outcomes that lead to an activity."""
        found: dict[str, set[str]] = {}
        for block, n in self.places[name]:
            if isinstance(block, blocks.Choice) and block.outcome:
                found[block.outcome] = found.get(block.outcome, set(block.answers[n])) & set(block.answers[n])
        return found

    def _is_over(self, block: blocks.Block, inside: Place) -> bool:
        """Whether a case is over behind an activity, before it leaves the part of a block that the activity is in."""
        if not isinstance(block, blocks.Sequence | blocks.Loop):
            return False
        return any(
            isinstance(inner, blocks.Sequence) and any(passing(part) == 0 for part in inner.parts[n + 1 :])
            for inner, n in inside
        )

    def options(self, name: str, over: Set[str] = frozenset()) -> frozenset[tuple[object, object]]:
        """The options of choices that a case must take to come to an activity.

        `over` are activities that end the case: a choice between those and one other way is not counted.
        """
        found: list[tuple[object, object]] = []
        for block, n in self.places[name]:
            if isinstance(block, blocks.Choice):
                rest = [part for m, part in enumerate(block.parts) if m != n]
                if all(_only(part, over) for part in rest):
                    continue
                found.append((block.outcome, frozenset(block.answers[n])) if block.outcome else (id(block), n))
        return frozenset(found)

    def share(self, name: str) -> float:
        return self.whole(name) * self.passed(name)

    def whole(self, name: str) -> float:
        """The share of cases that would come to an activity if no block ended one."""
        steps = self.places[name]
        return math.prod(block.probabilities[n] for block, n in steps if isinstance(block, blocks.Choice))

    def passed(self, name: str) -> float:
        """The share of cases that ends on the way leave."""
        steps = [(block, n) for block, n in self.places[name] if isinstance(block, blocks.Sequence)]
        return math.prod(passing(part) for block, n in steps for part in block.parts[:n])

    def loops(self, name: str) -> list[tuple[blocks.Loop, int]]:
        return [(block, n) for block, n in self.places[name] if isinstance(block, blocks.Loop)]


def passing(block: blocks.Block) -> float:
    """The share of cases that are not over after a block; loops without their limit, which makes it smaller."""
    match block:
        case blocks.Finish():
            return 0.0
        case blocks.Sequence(parts):
            return math.prod(map(passing, parts))
        case blocks.Choice(parts, shares):
            return sum(share * passing(part) for part, share in zip(parts, shares, strict=True))
        case blocks.Loop(body, again, redo):
            return passing(body) * (1 - again) / (1 - again * passing(body) * passing(redo))
    return 1.0


def _only(block: blocks.Block, over: Set[str]) -> bool:
    """Whether a part of a choice only ends the case."""
    names = [one.name for one in blocks.activities(block)]
    return passing(block) == 0 or (bool(names) and all(name in over for name in names))


def faults(case: TruthCase) -> list[str]:
    """Every way in which the hand-made design breaks its requirements, except the deadline."""
    stated, tree = case.requirements, _Tree(case.design.root)
    missing = [n for n, one in stated["activities"].items() if not one.get("optional") and n not in tree.places]
    unknown = [name for name in tree.places if name not in stated["activities"]]
    if missing or unknown:
        return [f"missing {missing}, unknown {unknown}"]
    checks = (_branch_faults, _outcome_faults, _ending_faults, _loop_faults, _data_faults, _rule_faults)
    return [fault for check in checks for fault in check(stated, tree)] + _staff_faults(stated, case.design)


def _branch_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    for name, share in _single_options(stated).items():
        if abs(tree.share(name) - share) > TOLERANCE:
            yield f"{name!r} is done in {tree.share(name):.4g} of the cases, not {share:.4g}"


def _single_options(stated: Stated) -> dict[str, float]:
    """The options of `branches`, each of which is one activity."""
    return {name: share for branch in stated.get("branches", ()) for name, share in branch["options"].items()}


def branch_of(stated: Stated) -> dict[str, tuple[int, str]]:
    """The outcome (by number) and branch that each activity belongs to."""
    return {
        name: (number, branch)
        for number, outcome in enumerate(stated.get("outcomes", ()))
        for branch, told in outcome["branches"].items()
        for name in told.get("activities", ())
    }


def reaches(stated: Stated) -> list[float]:
    """The share of cases in which each outcome is decided."""
    outcomes, inside = stated.get("outcomes", ()), branch_of(stated)

    def reach(number: int) -> float:
        outer = inside.get(outcomes[number]["after"])
        if outer is None:
            return 1.0
        return reach(outer[0]) * outcomes[outer[0]]["branches"][outer[1]]["probability"]

    return [reach(number) for number in range(len(outcomes))]


def _over(stated: Stated) -> set[str]:
    """The activities of branches that end the case."""
    outcomes = stated.get("outcomes", ())
    branches = [told for outcome in outcomes for told in outcome["branches"].values()]
    always = {one["after"] for one in outcomes if all(told.get("ends") for told in one["branches"].values())}
    over = [told for told in branches if told.get("ends") or always & {*told.get("activities", ())}]
    return {name for told in over for name in told.get("activities", ())}


def _in_ending(stated: Stated) -> set[str]:
    """The same with those in branches inside of such branches."""
    outcomes, inside, found = stated.get("outcomes", ()), branch_of(stated), _over(stated)
    while more := {n for n, at in inside.items() if outcomes[at[0]]["after"] in found} - found:
        found |= more
    return found


def _left(stated: Stated, tree: _Tree, outcome: Stated, name: str) -> float:
    """The smallest share of cases that other outcomes leave between an outcome and an activity."""
    left = 1.0
    for other in stated.get("outcomes", ()):
        gone = sum(told["probability"] for told in other["branches"].values() if told.get("ends"))
        after = other["after"]
        if other is outcome or not gone or after == name or tree.relation(after, name) != "before":
            continue
        if after == outcome["after"] or tree.relation(after, outcome["after"]) != "before":
            left *= 1 - gone
    return min(left, tree.passed(name) / tree.passed(outcome["after"]))


def _outcome_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    over = _in_ending(stated)
    for outcome in stated.get("outcomes", ()):
        branches = outcome["branches"]
        total = sum(told["probability"] for told in branches.values())
        if abs(total - 1) > TOLERANCE:
            yield f"{outcome['name']}: probabilities add up to {total}"
        for branch, told in branches.items():
            names = told.get("activities", ())
            for name in names:
                if tree.relation(outcome["after"], name) != "before":
                    yield f"{name!r} does not wait for {outcome['after']!r}"
                share, wanted = tree.share(name), tree.share(outcome["after"]) * told["probability"]
                inside = _ended_inside(stated, (outcome["name"], branch))
                least = (wanted - inside) * _left(stated, tree, outcome, name)
                if not least - TOLERANCE <= share <= wanted + TOLERANCE:
                    yield f"{name!r} is done in {share:.4g} of the cases, not {wanted:.4g}"
                if tree.options(name, over) != tree.options(names[0], over):
                    yield f"{name!r} and {names[0]!r} are in one branch but not always both done"
            others = [n for other, told in branches.items() if other != branch for n in told.get("activities", ())]
            yield from (
                f"{a!r} and {b!r} are in different branches"
                for a in names
                for b in others
                if tree.relation(a, b) != "never"
            )


def _ending_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    """What follows a branch that ends the case, and what does not happen although the case goes on."""
    outcomes, shares, inside = stated.get("outcomes", ()), reaches(stated), branch_of(stated)
    rare = {**inside, **_single_options(stated)}
    free = [name for name in tree.places if name not in rare and not _is_redo(stated, name)]
    gone_with = _in_ending(stated)
    ended = 0.0
    for outcome, reach in zip(outcomes, shares, strict=True):
        own = {name for told in outcome["branches"].values() for name in told.get("activities", ())}
        ends = [told for told in outcome["branches"].values() if told.get("ends")]
        gone = reach * sum(told["probability"] for told in ends) * _redone(stated, outcome["after"])
        ended += gone * _rounds(stated, outcome)
        for name in free:
            late = name != outcome["after"] and tree.relation(outcome["after"], name) == "before"
            if gone and late and tree.share(name) > max(reach - gone, tree.whole(name) * (1 - gone)) + TOLERANCE:
                yield f"{name!r} is done although {outcome['name']!r} may have ended the case"
            for told in outcome["branches"].values():
                for other in own & set(told.get("activities", ())):
                    relation = tree.relation(other, name)
                    if told.get("ends") and relation == "before":
                        yield f"{name!r} follows {other!r}, which ends the case"
                    if other not in gone_with and not told.get("ends") and relation == "never":
                        yield f"{name!r} is not done together with {other!r}"
    for name in free:
        if tree.share(name) < 1 - ended - TOLERANCE:
            yield f"{name!r} is done in {tree.share(name):.4g} of the cases, not at least {1 - ended:.4g}"


def _ended_inside(stated: Stated, place: tuple[str, str]) -> float:
    """The share of cases that an outcome inside a branch ends, before all of the branch is done."""
    found, inside = 0.0, branch_of(stated)
    outcomes = stated.get("outcomes", ())
    for outcome, reach in zip(outcomes, reaches(stated), strict=True):
        at = inside.get(outcome["after"])
        while at is not None and (outcomes[at[0]]["name"], at[1]) != place:
            at = inside.get(outcomes[at[0]]["after"])
        if at is not None:
            found += reach * sum(told["probability"] for told in outcome["branches"].values() if told.get("ends"))
    return found


def _redone(stated: Stated, name: str) -> float:
    return math.prod(loop["again"] for loop in stated.get("loops", ()) if name in loop.get("redo", ()))


def _rounds(stated: Stated, outcome: Stated) -> float:
    """At most how often an outcome is decided in a case in which it is decided."""
    inside = {name for told in outcome["branches"].values() for name in told.get("activities", ())}
    found = 1.0
    for loop in stated.get("loops", ()):
        if {outcome["after"], *inside} <= {*loop["activities"], *loop.get("redo", ())}:
            found /= 1 - loop["again"]
    return found


def _is_redo(stated: Stated, name: str) -> bool:
    return any(name in loop.get("redo", ()) for loop in stated.get("loops", ()))


def _loop_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    loops = stated.get("loops", ())
    found: dict[int, blocks.Loop] = {}
    for name in tree.places:
        found |= {id(loop): loop for loop, _ in tree.loops(name)}
    inside = [
        (set(n.name for n in blocks.activities(one.body)), set(n.name for n in blocks.activities(one.redo)), one.again)
        for one in found.values()
    ]
    for loop in loops:
        told = (set(loop["activities"]), set(loop.get("redo", ())), loop["again"])
        if told not in inside:
            yield f"no loop in the design is {loop['name']!r}"
        for name in loop["activities"]:
            if name != loop["after"] and tree.relation(name, loop["after"]) not in ("before", "never"):
                yield f"{name!r} is not done when {loop['name']!r} is decided"
    if len(found) != len(loops):
        yield f"the design has {len(found)} loops, not {len(loops)}"


def data_pairs(stated: Stated) -> set[tuple[str, str]]:
    """Who writes before who reads. What a loop writes between two rounds is read in the next round."""
    pairs = {
        (writer, reader)
        for writer, one in stated["activities"].items()
        for reader, other in stated["activities"].items()
        if writer != reader and set(one.get("writes", ())) & set(other.get("reads", ()))
    }
    back = {(r, n) for loop in stated.get("loops", ()) for r in loop.get("redo", ()) for n in loop["activities"]}
    return pairs - back


def _data_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    for writer, reader in sorted(data_pairs(stated)):
        if tree.relation(writer, reader) not in ("before", "never"):
            yield f"{reader!r} reads what {writer!r} has not written"


def _rule_faults(stated: Stated, tree: _Tree) -> Iterator[str]:
    rules = stated.get("rules", {})
    holds = {
        "precedes": lambda a, b: tree.relation(a, b) in ("before", "never"),
        "excludes": lambda a, b: tree.relation(a, b) == "never",
        "not_coexist": lambda a, b: tree.relation(a, b) == "never",
        "coexist": lambda a, b: tree.options(a) == tree.options(b),
        "response": lambda a, b: tree.relation(a, b) == "before" and tree.options(b) <= tree.options(a),
        "chain": lambda a, b: _adjacent(tree, a, b),
    }
    for rule, kept in holds.items():
        for a, b in rules.get(rule, ()):
            # A response is also kept where the case ends before it could follow.
            if not kept(a, b) and not (rule == "response" and _may_end(stated, tree, a, b)):
                yield f"{rule}: {a!r}, {b!r}"


def _may_end(stated: Stated, tree: _Tree, a: str, b: str) -> bool:
    return tree.relation(a, b) == "before" and any(
        told.get("ends") for outcome in stated.get("outcomes", ()) for told in outcome["branches"].values()
    )


def _adjacent(tree: _Tree, a: str, b: str) -> bool:
    """Whether `b` is the next activity after `a`: neighbours in a sequence."""
    ends, starts = tree.places[a][-1], tree.places[b][-1]
    return ends[0] is starts[0] and isinstance(ends[0], blocks.Sequence) and ends[1] + 1 == starts[1]


def _staff_faults(stated: Stated, design: blocks.Design) -> list[str]:
    activities, pools, people = stated["activities"], stated.get("pools", {}), stated.get("people", {})
    servers, found = dict(design.servers), []
    chosen = {
        one.name: one.handling.pool or next(iter(activities[one.name].get("pools", ())), None)
        for one in blocks.activities(design.root)
    }
    for name, pool in chosen.items():
        if pool is not None and pool not in activities[name].get("pools", ()):
            found.append(f"{name!r} is done by {pool!r}")
    for pool, told in pools.items():
        if not told.get("least", 1) <= servers.get(pool, told.get("least", 1)) <= told.get("most", 1):
            found.append(f"pool {pool!r} has {servers.get(pool)} servers")
        members = [person for person, own in people.items() if pool in own["pools"]]
        if members and servers.get(pool, 1) > len(members):
            found.append(f"pool {pool!r} has {servers.get(pool)} servers but {len(members)} people")
    rules = stated.get("rules", {})
    found += [f"separate: {a!r}, {b!r}" for a, b in rules.get("separate", ()) if chosen[a] and chosen[a] == chosen[b]]
    working = _working(stated, servers)
    able = {name: _able(stated, name, pool, working) for name, pool in chosen.items()}
    found += [f"nobody has the skills for {name!r}" for name, who in able.items() if who is not None and not who]
    for a, b in rules.get("different_people", ()):
        if able[a] is not None and able[a] == able[b] and len(able[a] or ()) < 2:
            found.append(f"only {able[a]} could do {a!r} and {b!r}")
    for a, b in rules.get("same_person", ()):
        if able[a] is None or able[b] is None or not (able[a] or set()) & (able[b] or set()):
            found.append(f"nobody could do both {a!r} and {b!r}")
    return found


def _working(stated: Stated, servers: Mapping[str, int]) -> set[str]:
    """The people who work: the first of each pool, as many as it has servers."""
    found = set[str]()
    for pool, told in stated.get("pools", {}).items():
        named = [who for who, own in stated.get("people", {}).items() if pool in own["pools"]]
        found |= {*named[: servers.get(pool, max(told.get("least", 1), 1))]}
    return found


def _able(stated: Stated, name: str, pool: str | None, working: Set[str]) -> set[str] | None:
    """The people at work in the pool with the skills for an activity; None if its pool has no named people."""
    people = {who: own for who, own in stated.get("people", {}).items() if pool in own["pools"]}
    skills = set(stated["activities"][name].get("skills", ()))
    able = {who for who, own in people.items() if who in working and skills <= set(own.get("skills", ()))}
    return able if people else None


# How busy everybody is.


def visits(stated: Stated, design: blocks.Design) -> dict[str, float]:
    """How often each activity is done per case: choices, rounds of loops up to their limit, knock-outs in sequences."""
    limits = {frozenset(loop["activities"]): loop.get("most") for loop in stated.get("loops", ())}
    found: dict[str, float] = {}

    def visit(block: blocks.Block, often: float) -> float:
        match block:
            case blocks.Activity(name):
                found[name] = often
                return 1.0 - float(stated["activities"][name].get("knock_out", 0.0))
            case blocks.Finish():
                return 0.0
            case blocks.Sequence(parts):
                left = 1.0
                for part in parts:
                    left *= visit(part, often * left)
                return left
            case blocks.Choice(parts, probabilities):
                return sum(p * visit(part, often * p) for part, p in zip(parts, probabilities, strict=True))
            case blocks.Loop(body, again, redo):
                most = limits.get(frozenset(one.name for one in blocks.activities(body)))
                more = sum(again**n for n in range(1, (most or 200) + 1))
                visit(redo, often * more)
                return visit(body, often * (1 + more))
        return math.prod(visit(part, often) for part in blocks.children(block))

    visit(design.root, 1.0)
    return found


def loads(stated: Stated, design: blocks.Design) -> dict[str, float]:
    """The load of every pool that works, as a share of its working hours."""
    rate, servers, often = stated["demand"]["arrivals_per_second"], dict(design.servers), visits(stated, design)
    found: dict[str, float] = {}
    for one in blocks.activities(design.root):
        told = stated["activities"][one.name]
        pool = one.handling.pool or next(iter(told.get("pools", ())), None)
        if pool is not None:
            own = stated["pools"][pool]
            hours = own.get("calendar") or [[0, 168]]
            there = sum(end - start for start, end in hours) / 168 * servers.get(pool, 1) * own.get("speed", 1.0)
            found[pool] = found.get(pool, 0.0) + rate * often[one.name] * told["duration"]["mean"] / there
    return found


def path_time(stated: Stated, block: blocks.Block) -> float:
    """Mean seconds of a case at mean durations, without queues and closing times: the slowest of parallel parts."""
    match block:
        case blocks.Activity(name):
            return float(stated["activities"][name]["duration"]["mean"])
        case blocks.Sequence(parts):
            return sum(path_time(stated, part) for part in parts)
        case blocks.Parallel(parts):
            return max(path_time(stated, part) for part in parts)
        case blocks.Choice(parts, probabilities):
            return sum(p * path_time(stated, part) for part, p in zip(parts, probabilities, strict=True))
        case blocks.Loop(body, again, redo):
            return (path_time(stated, body) + again * path_time(stated, redo)) / (1 - again)
        case blocks.PartialOrder(parts, edges):
            done: dict[int, float] = {}
            for number in in_order(len(parts), edges):
                before = max((done[a] for a, b in edges if b == number), default=0.0)
                done[number] = before + path_time(stated, parts[number])
            return max(done.values())
    return 0.0


# Derived from files.


def derived_cases(data: Path = design_sets.DATA) -> list[TruthCase]:
    """The first few of each kind of file that give a process with parallel work."""
    found: list[TruthCase] = []
    kinds = {"wfcommons": _from_wfcommons(data), "yawl": _from_yawl(data), "worfbench": _from_worfbench(data)}
    for kind, stream in kinds.items():
        several = [case for case in stream if case is not None and case.parallel]
        found += several[: DERIVED[kind]]
    return found


def _from_wfcommons(data: Path) -> Iterator[TruthCase | None]:
    for path in sorted((data / "wfcommons" / "instances").glob("*.json")):
        yield _widest(design_sets.from_wfcommons(path).model_dump(mode="json", exclude_defaults=True))


def _from_yawl(data: Path) -> Iterator[TruthCase | None]:
    seen: set[frozenset[str]] = set()
    for path in sorted((data / "yawl" / "specs").glob("*.yawl")):
        for requirements in design_sets.from_yawl(path):
            names = frozenset(requirements.activities)
            if names not in seen:
                seen.add(names)
                yield _widest(requirements.model_dump(mode="json", exclude_defaults=True))


def _from_worfbench(data: Path) -> Iterator[TruthCase | None]:
    """Plans of seven or more steps. A step takes 5 to 90 minutes and has one of three desks, all drawn by its text."""
    path = data / "worfbench" / "wikihow_graph_eval.json"
    for item in json.loads(path.read_text()) if path.is_file() else ():
        plan = next(turn["content"] for turn in reversed(item["conversations"]) if turn["role"] == "assistant")
        steps = {number: text.strip()[:60].strip() for number, text in re.findall(r"^(\d+)[.:]\s*(.+)$", plan, re.M)}
        edges = [(a, b) for a, b in re.findall(r"\((\w+),\s*(\w+)\)", plan) if a in steps and b in steps]
        if len(steps) >= 7 and len(set(steps.values())) == len(steps):
            yield _planned(str(item["id"]), steps, edges)


def _planned(name: str, steps: Mapping[str, str], edges: Sequence[tuple[str, str]]) -> TruthCase | None:
    activities = {}
    for text in steps.values():
        draw = design_sets._chance(name, text)
        mean = round(300 * 18 ** float(draw.random()))
        pool = f"desk {1 + int(draw.integers(3))}"
        activities[text] = {"duration": {"kind": "gamma", "mean": mean, "std": mean / 2}, "pools": [pool]}
    office = [[24.0 * day + 8, 24.0 * day + 17] for day in range(5)]
    used = sorted({one["pools"][0] for one in activities.values()})
    pools = {pool: {"least": 1, "most": 9, "wage": 0.01, "calendar": office} for pool in used}
    rules = {"precedes": [[steps[a], steps[b]] for a, b in edges]}
    demand = {"arrivals_per_second": 0.5 / 3600}
    return _widest({"name": f"plan {name}", "activities": activities, "pools": pools, "rules": rules, "demand": demand})


def _widest(stated: dict[str, Any]) -> TruthCase | None:
    """A design in which only the rules make anything wait, with servers for a comfortable load, if there is one."""
    names = list(stated["activities"])
    unit = {name: number for number, name in enumerate(names)}
    units: dict[int, blocks.Block] = {number: blocks.Activity(name) for name, number in unit.items()}
    for branch in stated.get("branches", ()):
        options: dict[str, float] = branch["options"]
        first = min(unit[name] for name in options)
        rest = 1 - sum(options.values())
        parts = [(blocks.Activity(name), share) for name, share in options.items()]
        parts += [(blocks.Skip(), rest)] if rest > TOLERANCE else []
        for name in options:
            units.pop(unit[name], None)
            unit[name] = first
        shares = [share for _, share in parts]
        units[first] = (
            blocks.Choice(tuple(part for part, _ in parts), tuple(share / sum(shares) for share in shares))
            if len(parts) > 1
            else parts[0][0]
        )
    place = {number: position for position, number in enumerate(units)}
    pairs = {(place[unit[a]], place[unit[b]]) for a, b in stated.get("rules", {}).get("precedes", ())}
    edges = frozenset(pair for pair in pairs if pair[0] != pair[1])
    if len(units) < 2 or find_ring(len(units), edges):
        return None
    root = blocks.tidied(blocks.PartialOrder(tuple(units.values()), reduced(len(units), edges)))
    design = blocks.Design(stated["name"], root, tuple((pool, 1) for pool in stated["pools"]))
    busy = loads(stated, design)
    staff = {
        pool: min(max(math.ceil(busy.get(pool, 0.0) / COMFORTABLE), told.get("least", 1)), told.get("most", 1))
        for pool, told in stated["pools"].items()
    }
    design = blocks.Design(stated["name"], root, tuple(staff.items()))
    faster = path_time(stated, root) < 0.9 * path_time(stated, chain_of(root))
    keeps_up = max(loads(stated, design).values()) < 0.85
    return TruthCase(stated["name"], stated, design, faster) if keeps_up else None
