"""Generations of candidate designs: sampled from the policy, edited from the best, recalled from memory.

The first generation consists of the policy's likeliest design and samples. Later generations edit the winners of
tournaments: some decisions are taken again, by the policy or at random. Elites are never lost, so the best score never
falls. The widest designs are always looked at; where requirements differ from the policy's training data, other
heuristics are tried as well.

A share of the candidates *explores*: samples take more of their decisions at random, edits all of them. The others
exploit what is known. Where a generation lacks diversity, the next one explores more (`diversity`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from groupwise.designer.candidate_workers import LocalCandidates, MadePlans, PlanRequest
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.diversity import (
    FAMILIES,
    Diversity,
    DiversityControl,
    EditStatistics,
    Signature,
    diversity_of,
    most_distinct,
    signature,
)
from groupwise.designer.familiarity import training_distance
from groupwise.designer.heuristics import Heuristic, HeuristicQueue, by_rank, genes_of, heuristic_plans, plans_of
from groupwise.designer.plans import AFTER_CHECKS, BESIDE_WAITING, STAGED, WIDEST, Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import Bools, Floats, Ints
from groupwise.designer.sampling import Parents, PolicyView, Preference
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.blocks import Design
from groupwise.workflows.scoring import DesignScore
from groupwise.workflows.scoring.score import standardised


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
    # How the plan's stages and lanes became the design (`plans.STAGED` …).
    freedom: int = STAGED
    # Whether it explores, and the groups of actions (`diversity.RATED`) that an edit consists of.
    exploring: bool = False
    actions: tuple[str, ...] = ()

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


def standings(candidates: Sequence[Candidate], normalization: str) -> Floats:
    """What the candidates of one generation and their parents are compared by.

    With "zscore": for each of the four parts of the score, how many standard deviations it is above the mean of these
    candidates, weighted. Those that break a rule stay below all others.
    """
    absolute = np.array([candidate.standing for candidate in candidates])
    legal = [one.score for one in candidates if one.score is not None and not one.score.broken]
    if normalization != "zscore" or not legal:
        return absolute
    kept = np.array([one.score is not None and not one.score.broken for one in candidates])
    found = np.empty(len(candidates))
    found[kept] = [one.total for one in standardised(legal)]
    # The standing of a design that breaks a rule is below 0.
    found[~kept] = found[kept].min() + absolute[~kept]
    return found


# Candidates from memory follow their preference with this probability, otherwise the policy.
GUIDED = 0.9
# The first samples of a generation, drawn without exploration unless nothing new came up.
SMALL = 8
# Heuristic candidates of the first generation, and of later ones while heuristics beat samples.
RULED, RULED_LATER = 5, 2
# How many designs of a generation are the best ones with less that waits.
TWINS = 4
# How often further edits are made for families that lack diversity.
ROUNDS = 3
# The temperature of the policy in edits; it is 1 in samples.
WARMTH = 2.0


@dataclass(frozen=True, slots=True)
class DesignDraft:
    """Candidates that were made together, with the plans behind them."""

    plans: Plans
    candidates: tuple[Candidate, ...]
    # [candidates, slots]: log-probabilities under the sampled mixture; only where the policy sampled everything.
    logp: Floats | None = None
    # [candidates]: the share of random decisions in that mixture.
    epsilon: Floats | None = None


class Generations:
    """Proposes candidates for one set of requirements and keeps the best; the caller evaluates them.

    Candidates of one origin are made in lockstep, as one batch: each decision is taken for all of them at once.

    Args:
      record: keep what was seen at each decision, for learning and for memory.
      learning: whether the policy learns from samples, of which there are then more.
      normalization: how candidates are compared, see `standings`.
      source: where candidates are made.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        prepared: PreparedRequirements,
        settings: GenerationSettings | None = None,
        seed: int = 0,
        record: bool = False,
        learning: bool = False,
        normalization: str = "reference",
        source: LocalCandidates | None = None,
    ) -> None:
        self.prepared, self.settings, self.record = prepared, settings or GenerationSettings(), record
        self.policy, self.normalization, self.learning = policy, normalization, learning
        self.source = source or LocalCandidates(prepared)
        self.fresh = self.settings.learning_share if learning else self.settings.sampled_share
        self._view: PolicyView | None = None
        self.rng = np.random.default_rng(seed)
        self.number = 0
        self.heuristics = HeuristicQueue(familiar=not training_distance(prepared.problem).unfamiliar)
        # The heuristics that were followed, by the key of the design they led to.
        self.ruled: dict[int, Heuristic] = {}
        # The best score of a sample from the policy.
        self.drawn = float("-inf")
        self.parents: list[Candidate] = []
        # Designs that were made with less that waits, and the way it was done.
        self.freed: set[tuple[int, int]] = set()
        self.keys: dict[Design, int] = {}
        self.proposed: set[int] = set()
        # The score of every evaluated design, by its key.
        self.scores: dict[int, DesignScore] = {}
        self.edits = EditStatistics(prepared.problem, self.settings)
        self.control = DiversityControl(self.settings)
        # What tells designs apart, by key.
        self.signs: dict[int, Signature] = {}
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
            found += self._new(self._later(left, attempt) if self.parents else self._first(left, attempt))
        return self._varied(found)

    def _varied(self, found: list[Candidate]) -> list[Candidate]:
        # Where a family falls short of its target, further edits compete with those found for their places. What the
        # policy learns from stays: choosing among samples would bias it.
        chosen_among = ("edit",) if self.learning else ("edit", "sample")
        wanted = {family: math.ceil(target * len(found)) for family, target in self.control.targets.items()}
        for attempt in range(ROUNDS):
            distinct = {family: len({self._sign(one)[family] for one in found}) for family in FAMILIES}
            short = {family: count - distinct[family] for family, count in wanted.items() if count > distinct[family]}
            fixed = [one for one in found if one.origin not in chosen_among]
            if not short or len(fixed) == len(found):
                break
            pool = [one for one in found if one.origin in chosen_among]
            for family, count in short.items():
                pressure = {**dict.fromkeys(FAMILIES, 0.0), family: 2.0 + attempt}
                pool += self._new(self._edited(3 * count + 2, 0, self.parents or found, pressure))
            signs = [self._sign(one) for one in pool]
            picked = most_distinct([self._sign(one) for one in fixed], signs, len(found) - len(fixed), wanted)
            self.proposed -= {one.key for number, one in enumerate(pool) if number not in picked}
            found = [*fixed, *(pool[number] for number in picked)]
        return found

    def _sign(self, candidate: Candidate) -> Signature:
        known = self.signs.get(candidate.key)
        if known is None:
            known = self.signs[candidate.key] = signature(candidate.design, self.prepared.problem)
        return known

    def recall(self, preferences: Sequence[Preference]) -> list[Candidate]:
        """One candidate for each preference, which takes most of the decisions; the policy takes the rest."""
        request = self._request(np.full(len(preferences), GUIDED), preferences=tuple(preferences))
        return self._kept(self.source.make(self.view, request), "memory")

    def follow(self, choices: Ints, unit_order: Ints, freedom: Ints) -> list[Candidate]:
        """Plans of earlier calls again; the policy decides what is no longer legal."""
        parents = Parents(choices, unit_order, np.zeros(choices.shape, np.bool_))
        request = self._request(np.zeros(len(choices)), parents=parents, freedom=freedom)
        return self._kept(self.source.make(self.view, request), "memory")

    def _request(
        self, epsilon: Floats, greedy: Bools | None = None, freedom: Ints | None = None, **rest: object
    ) -> PlanRequest:
        count, slots = len(epsilon), len(self.prepared.problem.slots)
        never = np.zeros(count, np.bool_)
        return PlanRequest(
            points=self.rng.random((count, slots)),
            epsilon=epsilon,
            greedy=never if greedy is None else greedy,
            freedom=np.full(count, STAGED) if freedom is None else freedom,
            record=self.record,
            **rest,  # type: ignore[arg-type]
        )

    def _kept(self, made: MadePlans, origin: Origin) -> list[Candidate]:
        # Candidates not sampled from the policy: they have no log-probability and stay out of the gradient.
        count = len(made.plans)
        found = self._candidates(made.plans, made.designs, [origin] * count, np.zeros(count))
        self._keep(DesignDraft(made.plans, tuple(found)))
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
        for candidate in judged:
            self.edits.learn(candidate.key, candidate.standing)
            if candidate.origin == "rule":
                self.heuristics.learn(self.ruled[candidate.key], candidate.standing)
            elif candidate.origin in ("likeliest", "sample"):
                self.drawn = max(self.drawn, candidate.standing)
        self.scores |= {candidate.key: candidate.score for candidate in judged if candidate.score is not None}
        everyone = [*self.parents, *judged]
        totals = standings(everyone, self.normalization)
        kept = elites(totals, max(1, round(self.settings.elite_percentage * self.settings.batch_size)))
        chosen = tournament(totals, self.settings.batch_size // 4, self.settings.tournament_size, self.rng)
        # However candidates are compared, the one with the best score is never lost.
        first = max(range(len(everyone)), key=lambda number: everyone[number].standing)
        self.parents = [everyone[number] for number in dict.fromkeys([first, *kept, *chosen])]

    def react(self, judged: Sequence[Candidate]) -> tuple[Diversity, float]:
        """The diversity and the novelty of an evaluated generation; where they fall short, the next explores more."""
        choices, free = (np.stack([getattr(one, name) for one in judged]) for name in ("choices", "free"))
        found = diversity_of(self.prepared.problem, [self._sign(one) for one in judged], choices, free)
        novelty = len(judged) / max(sum(len(draft.candidates) for draft in self.drafts), 1)
        self.control.react(found, novelty)
        return found, novelty

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
            plans = heuristic_plans(problem, rules, self.record)
            made = MadePlans(plans, self.prepared.drafter(plans), np.zeros(plans.choices.shape))
            for candidate, rule in zip(self._kept(made, "rule"), rules, strict=True):
                if candidate.key in self.scores:
                    queue.learn(rule, replace(candidate, score=self.scores[candidate.key]).standing)
                elif candidate.key not in self.proposed and candidate.key not in self.ruled:
                    self.ruled[candidate.key] = rule
                    found.append(candidate)
        return found

    def _first(self, count: int, attempt: int) -> list[Candidate]:
        ruled = self._ruled(self.heuristics, min(RULED, count - 1)) if attempt == 0 else []
        count -= len(ruled)
        if self.settings.action_sampler == "learned":
            return self._sampled(count, attempt) + ruled
        likeliest = self._drawn(np.zeros(1), np.ones(1, np.bool_)) if attempt == 0 else []
        return likeliest + self._edited(count - len(likeliest), attempt, [self._default()]) + ruled

    def _default(self) -> Candidate:
        # One activity after the other as listed, each by the first of its pools, with the fewest servers that keep up.
        problem = self.prepared.problem
        keys, units = np.zeros(genes_of(problem)), len(problem.units)
        keys[problem.rounds : problem.rounds + units] = by_rank(-np.arange(units, dtype=np.float64))
        plans = plans_of(problem, keys[None])
        return self._candidates(plans, self.prepared.drafter(plans), ["start"], np.zeros(1))[0]

    def _sampled(self, count: int, attempt: int) -> list[Candidate]:
        # The likeliest design, a few plain samples, and samples with exploration; more of it with every attempt.
        greedy = np.zeros(count, np.bool_)
        greedy[0] = attempt == 0
        epsilon = self._epsilon(count) + 0.2 * attempt
        epsilon[: min(SMALL, count - self._exploring(count))] *= attempt > 0
        return self._drawn(np.minimum(epsilon, 1.0), greedy)

    def _later(self, count: int, attempt: int) -> list[Candidate]:
        # Edits of parents, higher ranks more often, and fresh samples.
        ruled = attempt == 0 and self.heuristics.total >= self.drawn
        found = self._ruled(self.heuristics, min(RULED_LATER, count - 1)) if ruled else []
        found += self._twins(min(TWINS, count - 1 - len(found))) if attempt == 0 else []
        count -= len(found)
        fresh = round(count * self.fresh) if attempt == 0 else 0
        found += self._drawn(self._epsilon(fresh), np.zeros(fresh, np.bool_)) if fresh else []
        return found + self._edited(count - fresh, attempt, self.parents)

    def _twins(self, most: int) -> list[Candidate]:
        # The best designs with less that waits (`plans.WIDEST` …), staff and all else as they are.
        problem = self.prepared.problem
        freer = [WIDEST]
        freer += [AFTER_CHECKS] if problem.checks.any() else []
        freer += [BESIDE_WAITING] if problem.waiting.any() else []
        staged = [one for one in sorted(self.parents, key=lambda one: -one.standing) if one.freedom == STAGED]
        twins = [(one, way) for one in staged for way in freer if (one.key, way) not in self.freed][:most]
        if not twins:
            return []
        self.freed.update((one.key, way) for one, way in twins)
        parents = [one for one, _ in twins]
        choices, order = (np.stack([getattr(one, name) for one in parents]) for name in ("choices", "unit_order"))
        given = Parents(choices, order, np.zeros(choices.shape, np.bool_))
        freedom = np.array([way for _, way in twins])
        made = self.source.make(self.view, self._request(np.zeros(len(parents)), parents=given, freedom=freedom))
        found = self._candidates(made.plans, made.designs, ["edit"] * len(parents), made.logp.sum(1))
        self._keep(DesignDraft(made.plans, tuple(found)))
        return found

    def _exploring(self, count: int) -> int:
        return round(min(self.settings.exploration_share + self.control.exploration, 1.0) * count)

    def _epsilon(self, count: int) -> Floats:
        # By candidate, the share of random decisions; those that explore come last.
        epsilon = np.full(count, self.settings.epsilon_greedy)
        epsilon[count - self._exploring(count) :] = self.settings.exploration_epsilon
        return epsilon

    def _drawn(self, epsilon: Floats, greedy: Bools) -> list[Candidate]:
        made = self.source.make(self.view, self._request(epsilon, greedy))
        origins: list[Origin] = ["likeliest" if one else "sample" for one in greedy.tolist()]
        found = self._candidates(made.plans, made.designs, origins, made.logp.sum(1))
        exploring = len(epsilon) - self._exploring(len(epsilon))
        found = [replace(one, exploring=place >= exploring) for place, one in enumerate(found)]
        self._keep(DesignDraft(made.plans, tuple(found), made.logp, epsilon))
        return found

    def _edited(
        self, count: int, attempt: int, parents: Sequence[Candidate], pressure: Mapping[str, float] | None = None
    ) -> list[Candidate]:
        if count <= 0:
            return []
        ranked = sorted(parents, key=lambda candidate: -candidate.standing)
        weights = 0.7 ** np.arange(len(ranked))  # each rank is chosen 0.7 times as often as the one above
        picked = self.rng.choice(len(ranked), count, p=weights / weights.sum())
        parents = [ranked[number] for number in picked]
        free = np.stack([one.free for one in parents])
        again = self.edits.decisions(free, pressure or self.control.pressure, self.rng, attempt)
        choices, order = (np.stack([getattr(one, name) for one in parents]) for name in ("choices", "unit_order"))
        # Edits that explore decide at random.
        exploring = np.arange(count) >= count - self._exploring(count)
        problem = self.prepared.problem
        moved = again[:, problem.rounds : problem.staffing].any(1)
        request = self._request(
            np.where(exploring, 1.0, self.settings.epsilon_greedy),
            freedom=np.where(moved, STAGED, [parent.freedom for parent in parents]),
            parents=Parents(choices, order, again),
            other=True,
            temperature=WARMTH,
        )
        made = self.source.make(self.view, request)
        found = [
            replace(one, exploring=bool(exploring[row]), actions=self.edits.actions(again[row]))
            for row, one in enumerate(self._candidates(made.plans, made.designs, ["edit"] * count, made.logp.sum(1)))
        ]
        self.edits.remember([one.key for one in found], [parent.standing for parent in parents], again)
        self._keep(DesignDraft(made.plans, tuple(found)))
        return found

    def _candidates(
        self, plans: Plans, designs: Sequence[Design], origins: Sequence[Origin], logp: np.ndarray
    ) -> list[Candidate]:
        found = []
        for row, design in enumerate(designs):
            decided = plans.choices[row], plans.unit_order[row], plans.free[row]
            key = self.keys.setdefault(design, len(self.keys))
            freedom = int(plans.freedom[row])
            made = Candidate(design, origins[row], float(logp[row]), self.number, *decided, key, freedom=freedom)
            found.append(made)
        return found
