"""Rules about whole cases: what an outcome decides and ends, what is repeated, what belongs together, who is able."""

import math
from collections.abc import Iterator, Mapping

import groupwise.workflows.blocks as blocks
from groupwise.workflows.case_flow import CaseFlow, responses
from groupwise.workflows.duties import able_of, bound, colourable, on_duty
from groupwise.workflows.places import ActivityPlace, are_neighbours, comes_too, limits_of, options, places_of, relation
from groupwise.workflows.requirements import RequiredLoop, RequiredOutcome, Requirements
from groupwise.workflows.violations import ROUNDING, Violation

Places = Mapping[str, ActivityPlace]


class CaseRules:
    """The rules of requirements that concern more than the order of two activities, prepared for many designs."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements, self.flow = requirements, CaseFlow(requirements)
        self.limits = limits_of(requirements)
        rules = requirements.rules
        self.people = bool(rules.different_people or rules.same_person or requirements.people)
        self.pairs = bool(rules.coexist or rules.response or rules.chain)
        self.first = {name: next(iter(one.pools), None) for name, one in requirements.activities.items()}

    def __bool__(self) -> bool:
        return bool(self.requirements.outcomes or self.requirements.loops or self.people or self.pairs)

    def kept(self, design: blocks.Design) -> bool:
        places = {place.activity.name: place for place in places_of(design.root, self.limits)}
        return next(self.broken(design, places), None) is None

    def broken(self, design: blocks.Design, places: Places) -> Iterator[Violation]:
        """Every broken rule; activities that are missing or unknown are reported elsewhere."""
        whole = self._whole(design.root, places)
        for outcome in self.requirements.outcomes:
            if outcome.after in places:
                yield from self._shares(design.root, outcome, places)
                yield from self._endings(design.root, outcome, places, whole)
        if self.requirements.loops:
            yield from self._loops(design.root)
        if self.pairs:
            yield from self._together(design.root, places)
        if self.people:
            yield from self._able(design, places)

    def _passed(self, root: blocks.Block, outcome: RequiredOutcome, name: str, places: Places) -> float:
        """The share of cases that other outcomes leave between an outcome and an activity, at least."""
        here, decided = places[name], places[outcome.after]
        found = min(1.0, here.passed / decided.passed)
        left = 1.0
        for other in self.requirements.outcomes:
            if other is not outcome and other.after in places and other.after != name and _gone(other):
                path = places[other.after].path
                # Of two outcomes of one activity, either may end the case first.
                earlier = other.after != outcome.after and relation(root, path, decided.path) == "before"
                if not earlier and relation(root, path, here.path) == "before":
                    left *= 1 - _gone(other)
        return min(found, left)

    def _shares(self, root: blocks.Block, outcome: RequiredOutcome, places: Places) -> Iterator[Violation]:
        """A branch is taken as often as the requirements say, and all of it is done."""
        for branch, told in outcome.branches.items():
            most = places[outcome.after].share * told.probability
            inside = self._ended_inside((outcome.name, branch), places)
            for name in told.activities:
                # What happens between two rounds happens only if there is a second one.
                loops = [loop for loop in self.requirements.loops if name in loop.redo]
                again = math.prod(loop.again for loop in loops if outcome.after not in loop.redo)
                share = places[name].share / again if name in places else most
                least = (most - inside) * (self._passed(root, outcome, name, places) if name in places else 1.0)
                if not least - ROUNDING <= share <= most + ROUNDING:
                    taken = f"branch {branch!r} of {outcome.name!r} is taken in {most:.4g}"
                    yield Violation("outcome", f"{name!r} is done in {share:.4g} of the cases, but {taken}", (name,))

    def _ended_inside(self, place: tuple[str, str], places: Places) -> float:
        """The share of cases that end within a branch before all of it is done."""
        found = 0.0
        for outcome in self.requirements.outcomes:
            if outcome.after in places and place in self.flow.context(outcome.after):
                found += places[outcome.after].share * _gone(outcome)
        return found

    def _whole(self, root: blocks.Block, places: Places) -> Mapping[str, float]:
        """The share of cases that would come to each activity if no block ended one."""
        if not blocks.may_end(root):
            return {name: place.share for name, place in places.items()}
        plain = blocks.rewritten(root, lambda block: blocks.Skip() if isinstance(block, blocks.Finish) else block)
        return {place.activity.name: place.share for place in places_of(plain, self.limits)}

    def _endings(
        self, root: blocks.Block, outcome: RequiredOutcome, places: Places, whole: Mapping[str, float]
    ) -> Iterator[Violation]:
        """After an outcome has ended a case, nothing is done but the branch that ends it.

        What goes on is in another branch, and so has at most their share; or the tree ends the case, so that fewer
        come here than would otherwise.
        """
        gone = _gone(outcome)
        if not gone:
            return
        decided = places[outcome.after]
        for name, place in places.items():
            inside = dict(self.flow.context(name)).get(outcome.name)
            if name == outcome.after or inside or name in self.flow.before_end[outcome.name]:
                continue
            if self.flow.comes_after_loop(outcome, name):
                continue
            if any(self.flow.outcome[other].after == outcome.after for other, _ in self.flow.context(name)):
                continue
            if relation(root, decided.path, place.path) != "before":
                continue
            most = max(decided.share * (1 - gone), whole[name] * (1 - decided.share * gone))
            if place.share > most + ROUNDING or self._follows_end(root, outcome, place, places):
                words = f"{name!r} is done although {outcome.name!r} may have ended the case"
                yield Violation("outcome", words, (name, outcome.after))

    def _follows_end(self, root: blocks.Block, outcome: RequiredOutcome, place: ActivityPlace, places: Places) -> bool:
        ending = [name for told in outcome.branches.values() if told.ends for name in told.activities if name in places]
        return any(relation(root, places[name].path, place.path) != "never both" for name in ending)

    def _loops(self, root: blocks.Block) -> Iterator[Violation]:
        drawn = [_parts(block) for block in blocks.walk(root) if isinstance(block, blocks.Loop)]
        for loop in self.requirements.loops:
            asked = _asked(loop)
            if asked in drawn:
                drawn.remove(asked)
                continue
            between = f" with {', '.join(map(repr, loop.redo))} between two rounds" if loop.redo else ""
            listed = ", ".join(map(repr, loop.activities))
            words = f"nothing repeats {listed} with probability {loop.again:g}{between}, as {loop.name!r} asks"
            yield Violation("loop", words, loop.activities)
        for body, _, _ in drawn:
            words = f"the design repeats {', '.join(map(repr, sorted(body)))}, which the requirements do not ask for"
            yield Violation("loop", words, tuple(sorted(body)))

    def _together(self, root: blocks.Block, places: Places) -> Iterator[Violation]:
        rules = self.requirements.rules
        for one, other in rules.coexist:
            if (one in places) != (other in places):
                there, missing = (one, other) if one in places else (other, one)
                yield Violation("coexist", f"{there!r} is there without {missing!r}", (one, other))
            elif one in places and options(root, places[one]) != options(root, places[other]):
                words = f"a case may have one of {one!r} and {other!r} without the other"
                yield Violation("coexist", words, (one, other))
        for first, second in responses(self.requirements):
            if first not in places:
                continue
            if second not in places or relation(root, places[first].path, places[second].path) == "never both":
                yield Violation("response", f"{second!r} does not follow {first!r}", (first, second))
            elif not comes_too(root, places[first], places[second]):
                yield Violation("response", f"{second!r} does not always follow {first!r}", (first, second))
        for first, second in rules.chain:
            if first in places and (second not in places or not are_neighbours(root, places[first], places[second])):
                words = f"{second!r} does not come directly after {first!r}"
                yield Violation("chain", words, (first, second))

    def _able(self, design: blocks.Design, places: Places) -> Iterator[Violation]:
        """Whether people can be found for everything: skills, and duties that are separated or bound."""
        asked, rules = self.requirements, self.requirements.rules
        working = on_duty(asked, dict(design.servers))
        able = {}
        for name, place in places.items():
            pool = place.activity.handling.pool or self.first.get(name)
            if pool is not None and pool in asked.pools and name in asked.activities:
                able[name] = able_of(asked, name, pool, working)
                if not able[name]:
                    needed = " and ".join(map(repr, asked.activities[name].skills))
                    yield Violation(
                        "skills", f"nobody at work in {pool!r} has the skills for {name!r}: {needed}", (name,)
                    )
                    return
        same = [pair for pair in rules.same_person if all(name in able for name in pair)]
        different = [pair for pair in rules.different_people if all(name in able for name in pair)]
        names = list(dict.fromkeys(name for pair in (*same, *different) for name in pair))
        groups = bound(names, same)
        shared: dict[str, list[str]] = {}
        for name, group in groups.items():
            shared[group] = [who for who in shared.get(group, able[name]) if who in able[name]]
        for group, who in shared.items():
            if not who:
                inside = [name for name in names if groups[name] == group]
                words = f"nobody at work can do all of {', '.join(map(repr, inside))}, which one person must do"
                yield Violation("people", words, tuple(inside))
                return
        edges = [(groups[one], groups[other]) for one, other in different]
        if not colourable(sorted(shared, key=lambda group: (len(shared[group]), group)), shared, edges):
            listed = ", ".join(map(repr, names))
            yield Violation("people", f"too few people are at work for different people to do {listed}", tuple(names))


def _gone(outcome: RequiredOutcome) -> float:
    return sum(branch.probability for branch in outcome.branches.values() if branch.ends)


def _parts(loop: blocks.Loop) -> tuple[frozenset[str], frozenset[str], float]:
    inside = [frozenset(one.name for one in blocks.activities(part)) for part in (loop.body, loop.redo)]
    return inside[0], inside[1], round(loop.again, 9)


def _asked(loop: RequiredLoop) -> tuple[frozenset[str], frozenset[str], float]:
    return frozenset(loop.activities), frozenset(loop.redo), round(loop.again, 9)
