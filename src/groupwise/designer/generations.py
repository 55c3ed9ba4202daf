"""Generations of candidate designs: sampled from the policy, edited from the best, recalled from memory.

The first generation consists of the policy's likeliest design and samples. Later generations edit the winners of
tournaments: some decisions are taken again, by the policy or at random. Elites are never lost, so the best score never
falls. The widest designs are always looked at; where requirements differ from the policy's training data, other
heuristics are tried as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from groupwise.designer.construction import construct
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.familiarity import training_distance
from groupwise.designer.heuristics import Heuristic, HeuristicQueue, heuristic_plans
from groupwise.designer.plans import Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import HEADS, Bools, DesignProblem, Floats, Head, Ints
from groupwise.designer.sampling import Parents, PolicyChooser, PolicyView, Preference, Preferences, Retake
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.blocks import Design
from groupwise.workflows.scoring import DesignScore


def elites(totals: npt.NDArray[np.float64], count: int) -> list[int]:
    """The best, in order; of equals the earlier one first."""
    return [int(number) for number in np.argsort(-totals, kind="stable")[:count]]


def tournament(totals: npt.NDArray[np.float64], count: int, size: int, rng: np.random.Generator) -> list[int]:
    """`count` winners of random knockout tournaments with `size` players."""
    winners: list[int] = []
    for _ in range(count):
        players: list[int] = rng.choice(len(totals), min(size, len(totals)), replace=False).tolist()
        while len(players) > 1:
            pairs = [players[n : n + 2] for n in range(0, len(players), 2)]
            players = [max(pair, key=lambda player: totals[player]) for pair in pairs]
        winners += players
    return winners


def pareto_front(values: npt.NDArray[np.float64]) -> list[int]:
    """The Pareto-optimal rows of [candidates, objectives], all of them minimised; of equal rows the first."""
    _, first = np.unique(values, axis=0, return_index=True)
    distinct = values[np.sort(first)]
    as_good = (distinct[:, None] <= distinct).all(-1)
    beaten = (as_good & (distinct[:, None] < distinct).any(-1)).any(0)
    found: list[int] = np.sort(first)[~beaten].tolist()
    return found


# The probability that an edit ends after each decision: most edits take one or two decisions again.
PATIENCE = 0.5


Origin: TypeAlias = Literal["likeliest", "sample", "edit", "memory", "rule", "start"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A design with its origin, its log-probability and, once evaluated, its score.

    `logp` is that of all its decisions under the mixture they were sampled from; for an edit, of those taken again.
    """

    design: Design
    origin: Origin
    logp: float
    generation: int
    choices: Ints
    unit_order: Ints
    free: Bools
    # The same for equal designs of one call.
    key: int
    score: DesignScore | None = None
    # Whether only the rules make anything wait in it, not stages and lanes.
    widest: bool = False

    @property
    def total(self) -> float:
        return self.score.total if self.score is not None else float("-inf")

    @property
    def standing(self) -> float:
        """What candidates are compared by: the total; below 0 if a rule is broken, and lower the slower it is.

        So a search whose designs all miss the deadline still goes towards it.
        """
        if self.score is None or not self.score.broken:
            return self.total
        return -2.0 if self.score.performance is None else 1 / (1 + self.score.performance.cycle_time) - 1


class EditStatistics:
    """How often edits of each kind of decision led to a better design."""

    def __init__(self, problem: DesignProblem) -> None:
        self.heads = problem.heads
        # A prior of one success in two, so that kinds never tried are tried too.
        self.tried = np.ones(len(HEADS)) * 2
        self.better = np.ones(len(HEADS))
        self.waiting: dict[int, tuple[float, Bools]] = {}

    def decisions(self, parents: Sequence[Candidate], rng: np.random.Generator, more: int = 0) -> Bools:
        """Which decisions of each parent to take again: kinds in proportion to their success, then any of a kind."""
        again = np.zeros((len(parents), len(self.heads)), np.bool_)
        rates = self.better / self.tried
        for row, parent in enumerate(parents):
            free = np.flatnonzero(parent.free)
            if not len(free):
                continue
            kinds, counts = np.unique(self.heads[free], return_counts=True)
            # The square root favours kinds with many decisions, without letting them crowd out the others.
            weights = rates[kinds] * np.sqrt(counts)
            for kind in rng.choice(kinds, int(rng.geometric(PATIENCE)) + more, p=weights / weights.sum()):
                again[row, rng.choice(free[self.heads[free] == kind])] = True
        return again

    def remember(self, children: Sequence[Candidate], parents: Sequence[Candidate], again: Bools) -> None:
        """Note what was edited, until the children are evaluated."""
        for child, parent, decisions in zip(children, parents, again, strict=True):
            self.waiting.setdefault(child.key, (parent.standing, decisions))

    def learn(self, judged: Sequence[Candidate]) -> None:
        for candidate in judged:
            known = self.waiting.pop(candidate.key, None)
            if known is not None:
                before, decisions = known
                kinds = np.unique(self.heads[decisions])
                self.tried[kinds] += 1
                self.better[kinds] += candidate.standing > before


FAMILIES = {
    "structural": (Head.KEEP, Head.BRANCHING, Head.NEXT, Head.ALLOCATION),
    "temporal": (Head.PLACE, Head.RETRY, Head.TIMEOUT, Head.TIMING),
    "resource": (Head.TYPE, Head.SCHEDULING, Head.CONSTRAINT, Head.STAFFING),
}
TARGETS = {"structural": 0.6, "temporal": 0.5, "resource": 0.4}
# Targets: share of distinct designs by family, and of designs that were not proposed before.
NOVELTY = 0.3


@dataclass(frozen=True, slots=True)
class Diversity:
    """By family of decisions: the share of distinct designs, and the mean distance between two of them."""

    distinct: dict[str, float]
    distance: dict[str, float]

    def met(self) -> bool:
        return all(self.distinct[family] >= target for family, target in TARGETS.items())


def diversity_of(problem: DesignProblem, choices: Ints) -> Diversity:
    """The diversity of plans [plans, slots]."""
    distinct, distance = {}, {}
    for family, heads in FAMILIES.items():
        mine = choices[:, np.isin(problem.heads, heads)]
        distinct[family] = len({row.tobytes() for row in np.ascontiguousarray(mine)}) / len(mine)
        distance[family] = _mean_distance(mine)
    return Diversity(distinct, distance)


def _mean_distance(rows: Ints) -> float:
    count, slots = rows.shape
    if count < 2 or not slots:
        return 0.0
    same = np.zeros((count, count))
    for column in rows.T:
        same += column[:, None] == column
    return float(1 - (same.sum() - count * slots) / (count * (count - 1) * slots))


# Candidates from memory follow their preference with this probability, otherwise the policy.
GUIDED = 0.9
# The share of later generations that is sampled from scratch instead of edited.
FRESH = 0.05
# The first samples of a generation, drawn without exploration unless nothing new came up.
SMALL = 8
# Heuristic candidates of the first generation, and of later ones while heuristics beat samples.
RULED, RULED_LATER = 5, 2
# How many of the best designs are also tried with everything in parallel that may be.
TWINS = 3
# The share of edits that are decided uniformly at random.
CHANCE = 0.3
# The temperature of the policy in edits; it is 1 in samples.
WARMTH = 2.0


@dataclass(frozen=True, slots=True)
class DesignDraft:
    """Candidates that were made together, with the plans behind them."""

    plans: Plans
    candidates: tuple[Candidate, ...]
    # [candidates, slots]: log-probabilities under the sampled mixture; only where the policy sampled everything.
    logp: Floats | None = None


class Generations:
    """Proposes candidates for one set of requirements and keeps the best; the caller evaluates them.

    Candidates of one origin are made in lockstep, as one batch: each decision is taken for all of them at once.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        prepared: PreparedRequirements,
        settings: GenerationSettings | None = None,
        seed: int = 0,
        record: bool = False,
    ) -> None:
        self.prepared, self.settings, self.record = prepared, settings or GenerationSettings(), record
        self.policy = policy
        self._view: PolicyView | None = None
        self.rng = np.random.default_rng(seed)
        self.number = 0
        self.heuristics = HeuristicQueue(familiar=not training_distance(prepared.problem).unfamiliar)
        # The heuristics that were followed, by the key of the design they led to.
        self.ruled: dict[int, Heuristic] = {}
        # The best score of a sample from the policy.
        self.drawn = float("-inf")
        self.parents: list[Candidate] = []
        self.keys: dict[Design, int] = {}
        self.proposed: set[int] = set()
        # The score of every evaluated design, by its key.
        self.scores: dict[int, DesignScore] = {}
        self.edits = EditStatistics(prepared.problem)
        # Everything made for the newest generation, including designs that had been proposed before.
        self.drafts: list[DesignDraft] = []

    def propose(self, count: int | None = None, recalled: Sequence[Candidate] = ()) -> list[Candidate]:
        """The candidates of the next generation, to be evaluated; none of them was proposed before.

        `recalled` candidates, made by `recall` or `follow`, come first.
        """
        wanted = count or self.settings.batch_size
        found = self._new(recalled)
        # Designs that were proposed before are dropped; further attempts explore more to replace them.
        for attempt in range(4):
            if len(found) >= wanted:
                break
            left = wanted - len(found)
            if self.parents:
                found += self._new(self._later(left, attempt))
            else:
                ruled = self._ruled(self.heuristics, min(RULED, left - 1)) if attempt == 0 else []
                found += self._new(self._sampled(left - len(ruled), attempt) + ruled)
        return found

    def recall(self, preferences: Sequence[Preference]) -> list[Candidate]:
        """One candidate for each preference, which takes most of the decisions; the policy takes the rest."""
        chooser = PolicyChooser(self.view, self.rng, GUIDED, guide=Preferences(preferences))
        return self._made(construct(self.prepared.problem, chooser, len(preferences), self.record), "memory")

    def follow(self, choices: Ints, unit_order: Ints, widest: Bools) -> list[Candidate]:
        """Plans of earlier calls again; the policy decides what is no longer legal."""
        parents = Parents(choices, unit_order, np.zeros(choices.shape, np.bool_))
        retake = Retake(self.prepared.problem, parents, PolicyChooser(self.view, self.rng))
        return self._made(construct(self.prepared.problem, retake, len(choices), self.record, widest), "memory")

    def _made(self, plans: Plans, origin: Origin) -> list[Candidate]:
        # Candidates not sampled from the policy: they have no log-probability and stay out of the gradient.
        found = self._candidates(plans, [origin] * len(plans), np.zeros(len(plans)))
        self._keep(DesignDraft(plans, tuple(found)))
        return found

    def _keep(self, draft: DesignDraft) -> None:
        # Store a draft, and drop those of earlier generations.
        self.drafts = [*(old for old in self.drafts if old.candidates[0].generation == self.number), draft]

    def _new(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        found = []
        for candidate in candidates:
            if candidate.key not in self.proposed:
                self.proposed.add(candidate.key)
                found.append(candidate)
        return found

    def absorb(self, judged: Sequence[Candidate]) -> None:
        """Learn from an evaluated generation: its elites and the winners of tournaments become the next parents."""
        self.number += 1
        self.edits.learn(judged)
        for candidate in judged:
            if candidate.origin == "rule":
                self.heuristics.learn(self.ruled[candidate.key], candidate.standing)
            elif candidate.origin in ("likeliest", "sample"):
                self.drawn = max(self.drawn, candidate.standing)
        self.scores |= {candidate.key: candidate.score for candidate in judged if candidate.score is not None}
        everyone = [*self.parents, *judged]
        totals = np.array([candidate.standing for candidate in everyone])
        kept = elites(totals, max(1, round(self.settings.elite_percentage * self.settings.batch_size)))
        chosen = tournament(totals, self.settings.batch_size // 4, self.settings.tournament_size, self.rng)
        self.parents = [everyone[number] for number in dict.fromkeys([*kept, *chosen])]

    @property
    def view(self) -> PolicyView:
        """The policy applied to the problem; recomputed when the policy has changed."""
        if self._view is None or self._view.version != self.policy.version:
            self._view = PolicyView(self.policy, self.prepared.problem)
        return self._view

    @property
    def best(self) -> Candidate:
        return max(self.parents, key=lambda candidate: candidate.standing)

    def _ruled(self, queue: HeuristicQueue, most: int) -> list[Candidate]:
        # Candidates of the next heuristics that lead to new designs, at most that many.
        problem, found = self.prepared.problem, list[Candidate]()
        while len(found) < most and (rules := queue.next(most - len(found))):
            for candidate, rule in zip(
                self._made(heuristic_plans(problem, rules, self.record), "rule"), rules, strict=True
            ):
                if candidate.key in self.scores:
                    queue.learn(rule, replace(candidate, score=self.scores[candidate.key]).standing)
                elif candidate.key not in self.proposed and candidate.key not in self.ruled:
                    self.ruled[candidate.key] = rule
                    found.append(candidate)
        return found

    def _sampled(self, count: int, attempt: int) -> list[Candidate]:
        # The likeliest design, a few plain samples, and samples with exploration; more of it with every attempt.
        greedy = np.zeros(count, np.bool_)
        greedy[0] = attempt == 0
        epsilon = self._epsilon(count) + 0.2 * attempt
        epsilon[:SMALL] *= attempt > 0
        return self._drawn(count, np.minimum(epsilon, 1.0), greedy)

    def _later(self, count: int, attempt: int) -> list[Candidate]:
        # Edits of parents, higher ranks more often, and a few fresh samples.
        ruled = attempt == 0 and self.heuristics.total >= self.drawn
        found = self._ruled(self.heuristics, min(RULED_LATER, count - 1)) if ruled else []
        found += self._twins(min(TWINS, count - 1 - len(found))) if attempt == 0 else []
        count -= len(found)
        fresh = round(count * FRESH)
        found += self._drawn(fresh, self._epsilon(fresh), np.zeros(fresh, np.bool_)) if fresh else []
        return found + self._edited(count - fresh, attempt)

    def _twins(self, most: int) -> list[Candidate]:
        # The best designs with everything in parallel that rules and data allow, staff and all else as they are.
        parents = [one for one in sorted(self.parents, key=lambda one: -one.standing) if not one.widest][:most]
        if not parents:
            return []
        choices, order = (np.stack([getattr(one, name) for one in parents]) for name in ("choices", "unit_order"))
        retake = Retake(
            self.prepared.problem,
            Parents(choices, order, np.zeros(choices.shape, np.bool_)),
            PolicyChooser(self.view, self.rng),
        )
        widest = np.ones(len(parents), np.bool_)
        plans = construct(self.prepared.problem, retake, len(parents), self.record, widest)
        found = self._candidates(plans, ["edit"] * len(parents), retake.logp.sum(1))
        self._keep(DesignDraft(plans, tuple(found)))
        return found

    def _epsilon(self, count: int) -> np.ndarray:
        exploring = round(self.settings.exploration_share * count)
        epsilon = np.full(count, self.settings.epsilon_greedy)
        epsilon[count - exploring :] = self.settings.exploration_epsilon
        return epsilon

    def _drawn(self, count: int, epsilon: np.ndarray, greedy: Bools) -> list[Candidate]:
        chooser = PolicyChooser(self.view, self.rng, epsilon, greedy)
        plans = construct(self.prepared.problem, chooser, count, self.record)
        logp = chooser.log_probabilities(plans)
        origins: list[Origin] = ["likeliest" if one else "sample" for one in greedy.tolist()]
        found = self._candidates(plans, origins, logp.sum(1))
        self._keep(DesignDraft(plans, tuple(found), logp))
        return found

    def _edited(self, count: int, attempt: int) -> list[Candidate]:
        if not count:
            return []
        ranked = sorted(self.parents, key=lambda candidate: -candidate.standing)
        weights = 0.7 ** np.arange(len(ranked))  # each rank is chosen 0.7 times as often as the one above
        picked = self.rng.choice(len(ranked), count, p=weights / weights.sum())
        parents = [ranked[number] for number in picked]
        choices = np.stack([parent.choices for parent in parents])
        again = self.edits.decisions(parents, self.rng, attempt)
        epsilon = np.where(self.rng.random(count) < CHANCE, 1.0, self._epsilon(count))
        retake = Retake(
            self.prepared.problem,
            Parents(choices, np.stack([parent.unit_order for parent in parents]), again),
            PolicyChooser(self.view, self.rng, epsilon, temperature=WARMTH),
            other=True,
        )
        problem = self.prepared.problem
        moved = again[:, problem.rounds : problem.staffing].any(1)
        widest = np.array([parent.widest for parent in parents]) & ~moved
        plans = construct(problem, retake, count, self.record, widest)
        found = self._candidates(plans, ["edit"] * count, retake.logp.sum(1))
        self.edits.remember(found, parents, again)
        self._keep(DesignDraft(plans, tuple(found)))
        return found

    def _candidates(self, plans: Plans, origins: Sequence[Origin], logp: np.ndarray) -> list[Candidate]:
        found = []
        for row, design in enumerate(self.prepared.drafter(plans)):
            decided = plans.choices[row], plans.unit_order[row], plans.free[row]
            key = self.keys.setdefault(design, len(self.keys))
            widest = bool(plans.widest[row])
            made = Candidate(design, origins[row], float(logp[row]), self.number, *decided, key, widest=widest)
            found.append(made)
        return found
