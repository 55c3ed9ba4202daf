"""Monte Carlo tree search: simulate, expand, evaluate, propagate back. The domain is passed in as functions.

    tree = search(domain, budget=64)
    tree.best, tree.records

One walk makes a complete program: where the tree ends, the walk continues with the prior, and all nodes on the way are
kept. The budget counts evaluations. Nothing is evaluated twice: a walk that ends at an equal program costs nothing, and
subtrees with nothing new are closed.

Which action comes next. At a node with n tries, prior p over its open actions and value q of each, scaled to the range
seen in this tree:

    w(a)    ∝ p(a) · exp(experience · gain(a))     gain: how much better than average programs with a's traits are
    puct(a) = q(a) + exploration · w(a) · √n / (1 + n(a))         of a tried action; n(a) includes those in flight
    puct(*) = q + exploration · max w · √n                        of a new one; q is the node's mean, w of untried ones
    greedy  = a new action sampled from w ** sharpness, if puct(*) is at least that of every tried action and fewer
              than widening · n ** widening_power have been tried; otherwise the tried action with the greatest puct
    chance  = explore · p  +  (1 − explore) · greedy

PUCT is that of AlphaZero (Silver et al. 2017), with the parent's value for untried actions; widening is that of
Couëtoux et al. 2011. Experience is the all-moves-as-first heuristic (Gelly and Silver 2011) for traits of actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from math import exp, fsum, isfinite, log, sqrt
from random import Random
from typing import Any

from groupwise.errors import ConfigError, ContractError
from groupwise.programs.search.search_settings import Domain, Judged, SearchSettings, State
from groupwise.programs.search.tree import ActionDraw, EvaluationRecord, SearchTree, TreeEdge, TreeNode, TreeStep

Traits = Callable[[str], Sequence[str]]
# Observations that the estimate from further up counts for.
DOUBT = 2.0


@dataclass(frozen=True, slots=True)
class Chances:
    """The current probability of every action of a node, and the rule behind its greedy part."""

    of: list[float]
    choices: int
    rule: str


def chances(tree: SearchTree, trail: Sequence[TreeNode], traits: Traits) -> Chances | None:
    """The distribution of the next action at the last node of a trail; None if nothing is open."""
    node, settings = trail[-1], tree.settings
    opened = [number for number, edge in enumerate(node.edges) if tree.open(edge)]
    if not opened:
        return None
    known = [number for number in opened if node.edges[number].tries]
    fresh = [number for number in opened if not node.edges[number].tries]
    found = [0.0] * len(node.edges)
    _spread(found, opened, [edge.log_prior for edge in node.edges], settings.explore)
    weights = _bent(tree, trail, traits)
    best = _greatest(tree, node, known, fresh, weights)
    if best is None:
        _spread(found, fresh, [settings.sharpness * weight for weight in weights], 1 - settings.explore)
        return Chances(found, len(opened), "new")
    found[best] += 1 - settings.explore
    return Chances(found, len(opened), "puct")


def _spread(found: list[float], numbers: Sequence[int], weights: Sequence[float], share: float) -> None:
    # Distribute a share of probability over some actions in proportion to their (logarithmic) weights.
    for number, part in zip(numbers, _proportions([weights[number] for number in numbers]), strict=True):
        found[number] += share * part


def _proportions(logarithms: Sequence[float]) -> list[float]:
    top = max(logarithms)
    weights = [exp(one - top) for one in logarithms]
    whole = sum(weights)
    return [weight / whole for weight in weights]


def _greatest(
    tree: SearchTree, node: TreeNode, known: Sequence[int], fresh: Sequence[int], weights: Sequence[float]
) -> int | None:
    # The tried action with the greatest PUCT, the first of equals; None if a new one is allowed and promises more.
    settings, tries = tree.settings, node.tries
    if not known:
        return None
    parts = dict(zip([*known, *fresh], _proportions([weights[number] for number in [*known, *fresh]]), strict=True))
    reach = settings.exploration * sqrt(tries)

    def puct(number: int) -> float:
        edge = node.edges[number]
        return _value(tree, edge) + reach * parts[number] / (1 + edge.tries)

    best = max(known, key=puct)
    if fresh and len(known) < settings.widening * tries**settings.widening_power:
        new = _scaled(tree, node.tally.mean) * node.tally.count / tries + reach * max(parts[number] for number in fresh)
        if new >= puct(best):
            return None
    return best


def _value(tree: SearchTree, edge: TreeEdge) -> float:
    # A mix of the mean and the best value found below, scaled to 0 … 1; evaluations in flight count as 0.
    if not edge.tally.count:
        return 0.0
    mean = (_scaled(tree, edge.tally.mean) * edge.tally.count) / edge.tries
    return (1 - tree.settings.greed) * mean + tree.settings.greed * _scaled(tree, edge.tally.best)


def _scaled(tree: SearchTree, value: float) -> float:
    return (value - tree.low) / (tree.high - tree.low) if tree.high > tree.low else 0.0


def _bent(tree: SearchTree, trail: Sequence[TreeNode], traits: Traits) -> list[float]:
    # The prior's log-probabilities, adjusted by experience.
    edges = trail[-1].edges
    if not tree.settings.experience or tree.high <= tree.low:
        return [edge.log_prior for edge in edges]
    strength = tree.settings.experience / (tree.high - tree.low)
    gains: dict[str, float] = {}
    bent = []
    for edge in edges:
        marks = traits(edge.action)
        for trait in marks:
            if trait not in gains:
                gains[trait] = _gain(trail, trait)
        bent.append(edge.log_prior + strength * sum(gains[trait] for trait in marks) / max(1, len(marks)))
    return bent


def _gain(trail: Sequence[TreeNode], trait: str) -> float:
    # How much better than average a trait is: a running estimate down the trail, shrunk towards the one above.
    gain = 0.0
    for node in trail:
        tally = node.experience.get(trait)
        if tally is not None:
            gain = (tally.total - tally.count * node.tally.mean + DOUBT * gain) / (tally.count + DOUBT)
    return gain


Watch = Callable[[SearchTree], None]


def search(
    domain: Domain[State],
    budget: int,
    *,
    settings: SearchSettings | None = None,
    seed: int = 0,
    tree: SearchTree | None = None,
    executor: Executor | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    to_the_end: bool = False,
) -> SearchTree:
    """Spend a budget of evaluations; less if the problem is solved (unless `to_the_end`) or nothing is left.

    An earlier `tree` continues where it stopped. With the same seed, settings and budget it ends bit for bit like one
    that was never interrupted, even if it was saved and loaded while evaluations were in flight. `watch` sees the tree
    after every evaluation, and `stop` can end the search there. With an `executor`, `SearchSettings.in_flight`
    evaluations run at the same time; how long each takes does not change the result.
    """
    tree = plant(domain, settings or SearchSettings(), seed) if tree is None else _checked(tree, domain, settings)
    states: dict[int, State] = {}
    futures = deque(_submit(executor, domain, _state(domain, tree, draw.leaf, states)) for draw in tree.pending)
    while not stop() and (to_the_end or not tree.solved):
        while len(futures) < tree.settings.in_flight and len(tree.records) + len(futures) < budget:
            draw = simulate(tree, domain, states)
            if draw is None:
                break
            futures.append(_submit(executor, domain, _state(domain, tree, draw.leaf, states)))
        if not futures:
            break
        # In the order of submission, whichever finishes first: the result does not depend on timing.
        judged = futures[0].result()
        futures.popleft()
        record(tree, domain, tree.pending.popleft(), judged)
        if watch is not None:
            watch(tree)
    for future in futures:
        future.cancel()
    return tree


def plant(domain: Domain[State], settings: SearchSettings, seed: int) -> SearchTree:
    tree = SearchTree(domain.name, seed, settings)
    _node(tree, domain, domain.root, ())
    return tree


def simulate(tree: SearchTree, domain: Domain[State], states: dict[int, State]) -> ActionDraw | None:
    """Walk down until an unevaluated leaf is found, and mark it as pending; None if there is none at the moment.

    Every walk has its own random numbers, derived from the seed and the number of the walk.
    """
    while not (tree.root.closed or tree.root.waiting):
        tree.walks += 1
        draw = _walk(tree, domain, states, Random(f"{tree.seed} {tree.walks}"))
        leaf = tree.nodes[draw.leaf]
        if leaf.judged is not None:
            tree.free += 1
            backward(tree, draw, leaf.judged.value)
        elif leaf.finished and not leaf.waiting:
            leaf.waiting = True
            # Virtual losses: until it is evaluated, the path looks worse to the walks that follow.
            for node, edge in zip(draw.nodes, draw.edges, strict=True):
                tree.nodes[node].edges[edge].waiting += 1
            tree.pending.append(draw)
            return draw
    return None


def _walk(tree: SearchTree, domain: Domain[State], states: dict[int, State], random: Random) -> ActionDraw:
    # From the root to a finished node, or as far as anything is open.
    here, nodes, edges, steps = 0, [], [], []
    trail = [tree.root]
    while not trail[-1].finished:
        odds = chances(tree, trail, domain.traits)
        if odds is None:
            _set_aside(tree, here)
            break
        number = _drawn(odds, random)
        edge = trail[-1].edges[number]
        nodes.append(here)
        edges.append(number)
        steps.append(TreeStep(edge.action, log(odds.of[number]), edge.log_prior, odds.choices, odds.rule))
        here = expand(tree, domain, states, here, edge)
        trail.append(tree.nodes[here])
    return ActionDraw(tuple(nodes), tuple(edges), tuple(steps), here)


def _set_aside(tree: SearchTree, number: int) -> None:
    # Mark a node with nothing open: closed for good, or waiting until a pending evaluation returns.
    node = tree.nodes[number]
    node.closed = all(_closed(tree, edge) for edge in node.edges)
    if not node.closed:
        node.waiting = True
        tree.busy.append(number)


def _drawn(odds: Chances, random: Random) -> int:
    point, number = random.random() * fsum(odds.of), 0
    for number, chance in enumerate(odds.of):
        point -= chance
        if point < 0:
            return number
    return max(range(len(odds.of)), key=odds.of.__getitem__)


def expand(tree: SearchTree, domain: Domain[State], states: dict[int, State], here: int, edge: TreeEdge) -> int:
    """The node that an edge leads to: created when first needed, or found if it was reached another way."""
    if edge.child is None:
        state = domain.step(_state(domain, tree, here, states), edge.action)
        edge.child = _node(tree, domain, state, (*tree.nodes[here].path, edge.action))
        states.setdefault(edge.child, state)
    return edge.child


def backward(tree: SearchTree, draw: ActionDraw, value: float) -> None:
    """Propagate a value back along the path, and close nodes with nothing new below."""
    for number, place in zip(reversed(draw.nodes), reversed(draw.edges), strict=True):
        node = tree.nodes[number]
        node.tally.add(value)
        node.edges[place].tally.add(value)
        if _closed(tree, node.edges[place]):
            node.closed = all(_closed(tree, edge) for edge in node.edges)


def record(tree: SearchTree, domain: Domain[State], draw: ActionDraw, judged: Judged) -> None:
    """Record an evaluation: close the leaf, remove the virtual losses, propagate the value and the experience."""
    if not 0 <= judged.value <= 1:
        raise ContractError(f"the value of a program is {judged.value!r}; it must be between 0 and 1")
    leaf = tree.nodes[draw.leaf]
    leaf.judged, leaf.waiting, leaf.closed = judged, False, True
    leaf.tally.add(judged.value)
    tree.low = min(tree.low, judged.value) if tree.records else judged.value
    tree.high = max(tree.high, judged.value) if tree.records else judged.value
    tree.solved |= judged.solved
    actions = tuple(step.action for step in draw.steps)
    tree.records.append(EvaluationRecord(len(tree.records) + 1, actions, leaf.key, judged, draw.steps))
    for node, edge in zip(draw.nodes, draw.edges, strict=True):
        tree.nodes[node].edges[edge].waiting -= 1
    for number in tree.busy:
        tree.nodes[number].waiting = False
    tree.busy.clear()
    backward(tree, draw, judged.value)
    # A node learns from the actions taken at or below it.
    for depth, node in enumerate(draw.nodes):
        for trait in dict.fromkeys(trait for action in actions[depth:] for trait in domain.traits(action)):
            tree.nodes[node].learn(trait, judged.value)


def _closed(tree: SearchTree, edge: TreeEdge) -> bool:
    child = tree.child(edge)
    return child is not None and child.closed


def _node(tree: SearchTree, domain: Domain[State], state: State, path: tuple[str, ...]) -> int:
    # The number of a state's node. Unfinished states are only shared at the same depth, so there are no cycles.
    edges = _edges(domain.actions(state), path)
    key = domain.key(state)
    name = f"{len(path)} {key}" if edges else f"= {key}"
    if name not in tree.numbers:
        tree.numbers[name] = len(tree.nodes)
        tree.nodes.append(TreeNode(path, key, edges))
    return tree.numbers[name]


def _edges(actions: Any, path: tuple[str, ...]) -> list[TreeEdge]:
    # Edges with normalised log-probabilities.
    possible = [(action, value) for action, value in actions if value != float("-inf")]
    if not all(isfinite(value) for _, value in possible):
        raise ContractError(f"the prior of an action after {list(path)!r} is not a number")
    if len({action for action, _ in possible}) < len(possible):
        raise ContractError(f"the prior lists an action twice after {list(path)!r}")
    if not possible:
        return []
    top = max(value for _, value in possible)
    whole = top + log(fsum(exp(value - top) for _, value in possible))
    return [TreeEdge(action, value - whole) for action, value in possible]


def _state(domain: Domain[State], tree: SearchTree, number: int, states: dict[int, State]) -> State:
    # The state of a node, rebuilt from its actions if it is not cached.
    if number not in states:
        state = domain.root
        for action in tree.nodes[number].path:
            state = domain.step(state, action)
        states[number] = state
    return states[number]


def _submit(executor: Executor | None, domain: Domain[State], state: State) -> Future[Judged]:
    if executor is not None:
        return executor.submit(domain.evaluate, state)
    future: Future[Judged] = Future()
    future.set_result(domain.evaluate(state))
    return future


def _checked(tree: SearchTree, domain: Domain[Any], settings: SearchSettings | None) -> SearchTree:
    if tree.name != domain.name:
        raise ConfigError(f"the tree belongs to {tree.name!r} and cannot continue as {domain.name!r}")
    if settings is not None and settings != tree.settings:
        raise ConfigError(
            f"the tree was searched with {tree.settings} and cannot continue with {settings}",
            hint="Continue with the same settings, or start a new tree.",
        )
    return tree
