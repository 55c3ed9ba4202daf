"""Is a workflow net sound? It can always end, ends cleanly, has no dead task, and never holds two tokens in one place.

    structure → reduction rules → reachability over bit masks

Reduction comes first: twenty parallel branches are one place after a few rules, and not 2^20 markings. What is left is
searched marking by marking up to a bound; beyond it the verdict is "unknown", and says why. An unsound net comes with
a trace that shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupwise.workflows.graph import Graph
from groupwise.workflows.graph_net import GraphNet, OrJoin, graph_net
from groupwise.workflows.net import Net
from groupwise.workflows.reduction import reduce_net

Verdict: TypeAlias = Literal["sound", "unsound", "unknown"]
BOUND = 100_000
LOOK_AHEAD = 2_000


@dataclass(frozen=True, slots=True)
class Soundness:
    """The verdict, the rule that is broken or the reason for not knowing, and the steps that show it.

    `rule` is one of "structure", "unsafe", "no way to complete", "improper completion", "dead task", "too large".
    """

    verdict: Verdict
    rule: str = ""
    explanation: str = ""
    trace: tuple[str, ...] = ()
    markings: int = 0

    @property
    def sound(self) -> bool:
        return self.verdict == "sound"


SOUND = Soundness("sound")


def check_soundness(net: Net, bound: int = BOUND) -> Soundness:
    """Whether the net is sound, by reduction and then by looking at every marking, `bound` of them at most."""
    broken = _structure(net)
    if broken is not None:
        return broken
    rest = reduce_net(net)
    if len(rest.transitions) == 1 and rest.transitions[0].takes == rest.start and rest.transitions[0].puts == rest.goal:
        return SOUND
    found = _search(rest, bound, every_step=rest is not net)
    if found.verdict != "unsound" or rest is net:
        return found
    whole = _search(net, bound)
    if whole.verdict != "unknown":
        return whole
    several = len({step.name for step in net.transitions}) < len(net.transitions)
    return whole if found.rule == "dead task" and several else found


def check_graph(graph: Graph, bound: int = BOUND) -> Soundness:
    """Whether a free graph is sound. Or-joins wait for what can still come, by Wynn's semantics, up to a bound."""
    found = graph_net(graph)
    if found.too_wide:
        names = ", ".join(map(repr, found.too_wide))
        return Soundness("unknown", "too large", f"{names} has more or-branches than are looked at")
    if not found.or_joins:
        return check_soundness(found.net, bound)
    try:
        return _structure(found.net) or _search(found.net, bound, _Patience(found))
    except _TooFarAheadError as error:
        return Soundness("unknown", "too large", f"what can still reach the or-join of {error} cannot be told in time")


class _TooFarAheadError(Exception):
    pass


class _Patience:
    """Tells which steps of or-joins may be taken: those that take all there is, when nothing more can come.

    Wynn, Edmond, van der Aalst and ter Hofstede, "Achieving a general, formal and decidable approach to the OR-join"
    (2005). Other or-joins are taken for xor-joins when looking ahead.
    """

    def __init__(self, found: GraphNet) -> None:
        self.net = found.net
        self.of_step = {number: join for join in found.or_joins for number in join.transitions}
        self.known: dict[tuple[str, int], bool] = {}

    def __call__(self, number: int, marking: int) -> bool:
        join = self.of_step.get(number)
        if join is None:
            return True
        if self.net.transitions[number].takes != marking & join.places:
            return False
        key = (join.task, marking)
        if key not in self.known:
            self.known[key] = not self._more_can_come(join, marking)
        return self.known[key]

    def _more_can_come(self, join: OrJoin, marking: int) -> bool:
        here = marking & join.places
        seen, queue = {marking}, deque([marking])
        while queue:
            before = queue.popleft()
            for number, step in enumerate(self.net.transitions):
                if number in join.transitions or step.takes & before != step.takes:
                    continue
                after = before & ~step.takes & ~step.clears | step.puts
                if after & here == here and after & join.places & ~here:
                    return True
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
                    if len(seen) > LOOK_AHEAD:
                        raise _TooFarAheadError(repr(join.task))
        return False


def _structure(net: Net) -> Soundness | None:
    """One source, one sink, and everything on a way from the one to the other."""
    taken = put = 0
    for step in net.transitions:
        taken |= step.takes
        put |= step.puts
    if put & net.start:
        return _unsound("structure", f"{net.places[net.source]!r} is the start, and steps lead back to it")
    if taken & net.goal:
        return _unsound("structure", f"{net.places[net.sink]!r} is the end, and steps lead on from it")
    for step in net.transitions:
        if not step.takes or not step.puts:
            what = "needs nothing to happen" if not step.takes else "leads nowhere"
            return _unsound("structure", f"{step.name!r} {what}")
    forward, backward = _closure(net, net.start, False), _closure(net, net.goal, True)
    all_places = (1 << len(net.places)) - 1
    for mask, words in ((forward, "cannot be reached from the start"), (backward, "has no way to the end")):
        stray = all_places & ~mask
        if stray:
            return _unsound("structure", f"{', '.join(net.marking(stray)[:5])}: {words}")
    return None


def _closure(net: Net, mask: int, backwards: bool) -> int:
    """Places with a directed path from those of `mask`; all inputs of a step need not be there."""
    steps = [(s.puts, s.takes) if backwards else (s.takes, s.puts) for s in net.transitions]
    if backwards:
        steps.reverse()
    while True:
        before = mask
        for near, far in steps:
            if near & mask:
                mask |= far
        if mask == before:
            return mask


def _search(net: Net, bound: int, may: Callable[[int, int], bool] | None = None, every_step: bool = False) -> Soundness:
    """Every marking that can be reached; an unsafe or improper one is reported with the steps that lead to it.

    With `every_step`, a step that can never happen is a fault even if another of its name can.
    """
    came_from: dict[int, tuple[int, int]] = {net.start: (-1, -1)}
    leads: dict[int, list[int]] = {}
    queue = deque([net.start])
    fired = 0
    while queue:
        here = queue.popleft()
        followers = leads.setdefault(here, [])
        for number, step in enumerate(net.transitions):
            if step.takes & here != step.takes or (may is not None and not may(number, here)):
                continue
            fired |= 1 << number
            rest = here & ~step.takes & ~step.clears
            if rest & step.puts:
                place = net.marking(rest & step.puts)[0]
                steps = (*_trace(net, came_from, here), step.name)
                return _unsound("unsafe", f"{place!r} can hold two tokens at once", steps, len(came_from))
            after = rest | step.puts
            followers.append(after)
            if after in came_from:
                continue
            came_from[after] = (here, number)
            if after & net.goal and after != net.goal:
                left = ", ".join(net.marking(after & ~net.goal))
                words = f"it can end while there is still work at {left}"
                return _unsound("improper completion", words, _trace(net, came_from, after), len(came_from))
            if len(came_from) > bound:
                words = f"it has more than {bound:,} markings, and was not searched further"
                return Soundness("unknown", "too large", words, markings=len(came_from))
            queue.append(after)
    return _completion(net, came_from, leads) or _dead(net, fired, len(came_from), every_step) or Soundness(
        "sound", markings=len(came_from)
    )  # fmt: skip


def _completion(net: Net, came_from: dict[int, tuple[int, int]], leads: dict[int, list[int]]) -> Soundness | None:
    """From every marking there must be a way to the end."""
    before: dict[int, list[int]] = {}
    for here, followers in leads.items():
        for after in followers:
            before.setdefault(after, []).append(here)
    able, stack = {net.goal}, [net.goal]
    while stack:
        for earlier in before.get(stack.pop(), ()):
            if earlier not in able:
                able.add(earlier)
                stack.append(earlier)
    lost = [marking for marking in came_from if marking not in able]
    if not lost:
        return None
    stuck = next((marking for marking in lost if not leads[marking]), lost[-1])
    words = "nothing can happen any more" if not leads[stuck] else "it goes on for ever"
    places = ", ".join(net.marking(stuck))
    return _unsound(
        "no way to complete", f"with tokens at {places}, {words}", _trace(net, came_from, stuck), len(came_from)
    )


def _dead(net: Net, fired: int, markings: int, every_step: bool) -> Soundness | None:
    if fired.bit_count() == len(net.transitions):
        return None
    alive = {step.name for number, step in enumerate(net.transitions) if fired >> number & 1}
    never = [step.name for number, step in enumerate(net.transitions) if not fired >> number & 1]
    dead = list(dict.fromkeys(name for name in never if every_step or name not in alive))
    if not dead:
        return None
    return _unsound("dead task", f"{', '.join(map(repr, dead[:5]))} can never happen", (), markings)


def _trace(net: Net, came_from: dict[int, tuple[int, int]], marking: int) -> tuple[str, ...]:
    steps: list[str] = []
    while came_from[marking][1] >= 0:
        marking, number = came_from[marking]
        steps.append(net.transitions[number].name)
    return tuple(reversed(steps))


def _unsound(rule: str, explanation: str, trace: tuple[str, ...] = (), markings: int = 0) -> Soundness:
    return Soundness("unsound", rule, explanation, trace, markings)
