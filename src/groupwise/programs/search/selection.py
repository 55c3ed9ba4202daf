"""Which action comes next: PUCT over tried actions and a new one, progressive widening, and exploration by the prior.

At a node with n tries, prior p over its open actions and value q of each, scaled to the range seen in this tree:

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

from groupwise.programs.search.tree import SearchTree, TreeEdge, TreeNode

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
    """Distribute a share of probability over some actions in proportion to their (logarithmic) weights."""
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
    """The tried action with the greatest PUCT, the first of equals; None if a new one is allowed and promises more."""
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
    """A mix of the mean and the best value found below, scaled to 0 … 1; evaluations in flight count as 0."""
    if not edge.tally.count:
        return 0.0
    mean = (_scaled(tree, edge.tally.mean) * edge.tally.count) / edge.tries
    return (1 - tree.settings.greed) * mean + tree.settings.greed * _scaled(tree, edge.tally.best)


def _scaled(tree: SearchTree, value: float) -> float:
    return (value - tree.low) / (tree.high - tree.low) if tree.high > tree.low else 0.0


def _bent(tree: SearchTree, trail: Sequence[TreeNode], traits: Traits) -> list[float]:
    """The prior's log-probabilities, adjusted by experience."""
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
    """How much better than average a trait is: a running estimate down the trail, shrunk towards the one above."""
    gain = 0.0
    for node in trail:
        tally = node.experience.get(trait)
        if tally is not None:
            gain = (tally.total - tally.count * node.tally.mean + DOUBT * gain) / (tally.count + DOUBT)
    return gain
