"""Which action comes next: PUCT among known children and a new one, widening with visits, a share by the prior alone.

At a node with n tries, prior p over its open actions and value q of each, rescaled to what was seen in this tree:

    w(a)    ∝ p(a) · exp(experience · gain(a))     gain: how much more than usual programs with a's traits were worth
    puct(a) = q(a) + exploration · w(a) · √n / (1 + n(a))         of a known action; n(a) counts those in flight too
    puct(*) = q + exploration · max w · √n                        of a new one; q is the node's mean, w those untried
    greedy  = a new action, drawn from w ** sharpness over those untried, where puct(*) is at least that of every known
              one and there are fewer than widening · n ** widening_power of them; else the known one of greatest puct
    chance  = explore · p  +  (1 − explore) · greedy

PUCT is that of AlphaZero (Silver et al. 2017), which gives untried actions their parent's value; widening that of
Couëtoux et al. 2011. Experience is the all-moves-as-first heuristic (Gelly and Silver 2011) over traits of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

from groupwise.programs.search.tree import SearchTree, TreeEdge, TreeNode

Traits = Callable[[str], Sequence[str]]
DOUBT = 2.0


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of every action of a node at this moment, and the rule behind the greedy part of it."""

    of: list[float]
    choices: int
    rule: str


def chances(tree: SearchTree, trail: Sequence[TreeNode], traits: Traits) -> Chances | None:
    """How the next action is drawn at the last node of a trail; None where nothing is open."""
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
    """Add a share to some actions' chances, in proportion to their weights (logarithms)."""
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
    """The known action of the greatest PUCT, the first of equals; None where a new one promises more and may be had."""
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
    """Between mean and best of what was found below, from 0 to 1 in this tree; what is in flight found nothing yet."""
    if not edge.tally.count:
        return 0.0
    mean = (_scaled(tree, edge.tally.mean) * edge.tally.count) / edge.tries
    return (1 - tree.settings.greed) * mean + tree.settings.greed * _scaled(tree, edge.tally.best)


def _scaled(tree: SearchTree, value: float) -> float:
    return (value - tree.low) / (tree.high - tree.low) if tree.high > tree.low else 0.0


def _bent(tree: SearchTree, trail: Sequence[TreeNode], traits: Traits) -> list[float]:
    """The prior's log-probabilities, bent by experience."""
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
    """How much more than usual a trait was worth: what was seen further up counts until there is more at hand."""
    gain = 0.0
    for node in trail:
        tally = node.experience.get(trait)
        if tally is not None:
            gain = (tally.total - tally.count * node.tally.mean + DOUBT * gain) / (tally.count + DOUBT)
    return gain
