"""Is a workflow sound? It can always finish, finishes cleanly, has no dead task, and never has two tokens in one place.

    structure → reduction rules → reachability over bit masks

Reduction comes first: twenty parallel branches become one place after a few rules, instead of 2^20 markings. What is
left is searched marking by marking up to a bound; beyond it the verdict is "unknown", with the reason. An unsound net
comes with a trace that shows the fault. A design of blocks needs no search: see `check_design`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.document import Document
from groupwise.workflows.graph import Graph, only_order
from groupwise.workflows.partial_orders import bits
from groupwise.workflows.soundness.net import WIDEST_OR, Net, NetTransition, OrJoin, graph_net, mask_of, titles
from groupwise.workflows.soundness.or_joins import OrJoinWait, TooFarAhead
from groupwise.workflows.soundness.reduction import Reduced, reduce_net

# The average number of steps per marking that a search may look at; or-splits could have thousands.
FIRINGS_PER_MARKING = 20


Verdict: TypeAlias = Literal["sound", "unsound", "unknown"]


@dataclass(frozen=True, slots=True)
class Soundness:
    """The verdict, the broken rule (or why the verdict is unknown), and the steps that show it.

    `rule` is one of "structure", "unsafe", "no way to complete", "improper completion", "dead task", "endless calls",
    "too large", or empty if the workflow is sound.
    """

    verdict: Verdict
    rule: str = ""
    explanation: str = ""
    trace: tuple[str, ...] = ()
    markings: int = 0

    @property
    def sound(self) -> bool:
        return self.verdict == "sound"


@dataclass(frozen=True, slots=True)
class SearchFinding:
    """The result of a search: the broken rule, the steps that lead there, and a mask of the steps that ever happened.

    An empty `rule` means that no marking is faulty; steps that never happened may still be dead tasks.
    """

    rule: str
    explanation: str
    steps: tuple[int, ...]
    happened: int
    markings: int


def search(
    net: Net, bound: int, may: Callable[[int, int], bool] | None = None, start: int | None = None
) -> SearchFinding:
    """Visit every reachable marking, breadth first, up to the first that is unsafe or improper.

    `may(step, marking)` can forbid a step. The search stops after `bound` markings, or twenty times as many steps.
    """
    start = net.start if start is None else start
    # The steps by the lowest place they take from, so that each marking looks at few of them.
    by_place: list[list[tuple[int, NetTransition]]] = [[] for _ in net.places]
    for number, step in enumerate(net.transitions):
        by_place[(step.takes & -step.takes).bit_length() - 1].append((number, step))
    came_from: dict[int, tuple[int, int]] = {start: (-1, -1)}
    leads: dict[int, list[int]] = {}
    queue = deque([start])
    fired = firings = 0  # a bit mask of the steps that happened, and how often any did

    def found(rule: str, explanation: str, marking: int = start, *more: int) -> SearchFinding:
        return SearchFinding(rule, explanation, (*_way(came_from, marking), *more), fired, len(came_from))

    while queue:
        here = queue.popleft()
        leads[here] = followers = []
        for place in bits(here):
            for number, step in by_place[place]:
                if step.takes & here != step.takes or (may is not None and not may(number, here)):
                    continue
                fired |= 1 << number
                rest = here & ~step.takes & ~step.clears
                if rest & step.puts:
                    words = f"{net.marking(rest & step.puts)[0]!r} can receive a second token while it still has one"
                    return found("unsafe", words, here, number)
                after = rest | step.puts
                followers.append(after)
                if after in came_from:
                    continue
                came_from[after] = (here, number)
                # Proper completion: the end place may only be marked alone.
                if after & net.goal and after != net.goal:
                    left = ", ".join(net.marking(after & ~net.goal))
                    return found("improper completion", f"the case can end while work is left at {left}", after)
                queue.append(after)
        firings += len(followers)
        if len(came_from) > bound or firings > bound * FIRINGS_PER_MARKING:
            return found("too large", f"the search stopped after {bound:,} markings")
    lost = _lost(net, leads)
    if lost is None:
        return found("", "")
    words = "the case can go on forever but never end" if leads[lost] else "the case is stuck"
    return found("no way to complete", f"with tokens at {', '.join(net.marking(lost))}, {words}", lost)


def _lost(net: Net, leads: dict[int, list[int]]) -> int | None:
    """A marking from which the end cannot be reached, preferably one where the case is stuck; None if there is none."""
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
    lost = [marking for marking in leads if marking not in able]
    return next((marking for marking in lost if not leads[marking]), lost[0] if lost else None)


def _way(came_from: dict[int, tuple[int, int]], marking: int) -> list[int]:
    steps: list[int] = []
    while came_from[marking][1] >= 0:
        marking, number = came_from[marking]
        steps.append(number)
    return steps[::-1]


BOUND = 100_000
# Markings visited to learn whether a graph can end without an endless call; beyond that it counts as one that can.
CALL_BOUND = 5_000
SOUND = Soundness("sound")
BY_CONSTRUCTION = Soundness("sound", explanation="by construction: it is a tree of blocks")


def check_design(design: Design) -> Soundness:
    """Always sound, without a search.

    Every block turns one token at its start into one token at its end and leaves nothing behind, so a tree of blocks
    does the same. Tests check this against the nets and graphs of random designs.
    """
    return BY_CONSTRUCTION


def check_soundness(net: Net, bound: int = BOUND) -> Soundness:
    """Whether a net is sound: reduce it, then visit up to `bound` markings."""
    return _checked(net, (), bound)


def check_graph(graph: Graph, bound: int = BOUND) -> Soundness:
    """Whether a graph is sound; a task that calls another graph counts as one step (see `check_document`)."""
    if only_order(graph):
        # Its net is an acyclic marked graph from one source to one sink: each step happens once, and no token is left.
        return SOUND
    try:
        found = graph_net(graph)
    except DesignError as error:
        return Soundness("unsound", "structure", error.message)
    if found.too_wide:
        names = ", ".join(map(repr, found.too_wide))
        return Soundness("unknown", "too large", f"{names} has more than {WIDEST_OR} or-branches")
    try:
        return _checked(found.net, found.or_joins, bound)
    except TooFarAhead as error:
        words = f"it takes too long to find out what can still reach the or-join of {error}"
        return Soundness("unknown", "too large", words)


def check_document(document: Document, bound: int = BOUND) -> dict[str, Soundness]:
    """The verdict on every graph; one that must wait for another case of itself, or call such a graph, never ends."""
    verdicts = {graph.name: check_graph(graph, bound) for graph in document.graphs}
    ending = _ending(document.graphs, {name for name, found in verdicts.items() if found.rule == "structure"})
    for graph in document.graphs:
        endless = [node.label for node in graph.nodes if node.calls and node.calls not in ending]
        if endless and verdicts[graph.name].verdict != "unsound":
            ways = "and there is no way around it" if graph.name not in ending else "and a case may choose it"
            words = f"{', '.join(map(repr, endless[:5]))} calls a graph that can never end, {ways}"
            verdicts[graph.name] = Soundness("unsound", "endless calls", words)
    return verdicts


def _ending(graphs: Iterable[Graph], broken: set[str]) -> set[str]:
    """The graphs that can end with every call ended; those too large or too broken to tell are counted in."""
    ending = set(broken)
    rest = [graph for graph in graphs if graph.name not in broken]
    while rest:
        new = {graph.name for graph in rest if _can_end(graph, ending)}
        if not new:
            break
        ending |= new
        rest = [graph for graph in rest if graph.name not in new]
    return ending


def _can_end(graph: Graph, ending: set[str]) -> bool:
    """Whether the end can be reached calling only graphs in `ending`; or-joins are not made to wait."""
    if all(not node.calls or node.calls in ending for node in graph.nodes):
        return True
    names = titles(graph)
    barred = {names[node.id] for node in graph.nodes if node.calls and node.calls not in ending}
    net = graph_net(graph).net
    steps = [step for step in net.transitions if step.name not in barred]
    seen, stack = {net.start}, [net.start]
    while stack and len(seen) <= CALL_BOUND:
        here = stack.pop()
        if here & net.goal:
            return True
        for step in steps:
            after = here & ~step.takes & ~step.clears | step.puts
            if step.takes & here == step.takes and after not in seen:
                seen.add(after)
                stack.append(after)
    return len(seen) > CALL_BOUND


def _checked(net: Net, joins: tuple[OrJoin, ...], bound: int) -> Soundness:
    broken = structure(net)
    if broken is not None:
        return broken
    # Places of or-joins must not be fused: look-ahead asks about each of them.
    apart = 0
    for join in joins:
        apart |= join.places
    less = reduce_net(net, apart)
    rest = less.net
    # Reduced to a single step from start to goal: sound, without a search.
    if len(rest.transitions) == 1 and rest.transitions[0].takes == rest.start and rest.transitions[0].puts == rest.goal:
        return SOUND
    found = search(rest, bound, OrJoinWait(rest, _renumbered(joins, less)) if joins else None)
    verdict: Verdict = "unsound" if found.rule else "sound"
    if found.rule == "too large":
        verdict = "unknown"
    # Some step never happened: a dead task, unless other ways to do the same did.
    if not found.rule and found.happened.bit_count() < len(rest.transitions):
        return _dead(net, less, found) or Soundness("sound", markings=found.markings)
    steps = tuple(number for step in found.steps for number in less.row(step))
    words = found.explanation
    if found.rule == "no way to complete":
        # Reduction drops steps that go in circles: only the original net can tell a loop from a deadlock.
        seen = search(net, CALL_BOUND, OrJoinWait(net, joins) if joins else None, _after(net, steps))
        if seen.rule == found.rule:
            steps, words = (*steps, *seen.steps), seen.explanation
    names = filter(None, (net.transitions[number].name for number in steps))
    return Soundness(verdict, found.rule, words, tuple(names), found.markings)


def _after(net: Net, steps: Iterable[int]) -> int:
    marking = net.start
    for step in (net.transitions[number] for number in steps):
        marking = marking & ~step.takes & ~step.clears | step.puts
    return marking


def _dead(net: Net, less: Reduced, found: SearchFinding) -> Soundness | None:
    possible = set().union(*(less.possible(step) for step in bits(found.happened)))
    alive = {net.transitions[number].name for number in possible}
    dead = dict.fromkeys(step.name for step in net.transitions if step.name and step.name not in alive)
    if not dead:
        return None
    words = f"{', '.join(map(repr, list(dead)[:5]))} can never happen"
    return Soundness("unsound", "dead task", words, markings=found.markings)


def _renumbered(joins: tuple[OrJoin, ...], less: Reduced) -> tuple[OrJoin, ...]:
    found = []
    for join in joins:
        places = mask_of(less.places[place] for place in bits(join.places))
        found.append(OrJoin(join.task, places, frozenset(less.steps[number] for number in join.transitions)))
    return tuple(found)


def structure(net: Net) -> Soundness | None:
    """Require one source, one sink, and everything on a path from one to the other."""
    taken = put = 0
    for step in net.transitions:
        taken |= step.takes
        put |= step.puts
    if put & net.start:
        return Soundness("unsound", "structure", f"{net.places[net.source]!r} is the start, but steps lead back to it")
    if taken & net.goal:
        return Soundness("unsound", "structure", f"{net.places[net.sink]!r} is the end, but steps lead on from it")
    for step in net.transitions:
        if not step.takes or not step.puts:
            what = "needs nothing to happen" if not step.takes else "leads nowhere"
            name = step.name or ", ".join(net.marking(step.takes | step.puts))
            return Soundness("unsound", "structure", f"{name!r} {what}")
    forward, backward = _closure(net, net.start, False), _closure(net, net.goal, True)
    all_places = (1 << len(net.places)) - 1
    for mask, words in ((forward, "cannot be reached from the start"), (backward, "has no way to the end")):
        stray = all_places & ~mask
        if stray:
            return Soundness("unsound", "structure", f"{', '.join(net.marking(stray)[:5])}: {words}")
    return None


def _closure(net: Net, mask: int, backwards: bool) -> int:
    """Places on a directed path from those in `mask`, whether or not every input of a step is there."""
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
