"""Generations of designs: drawn from the policy, bred from the best, recalled from memory.

    for candidate in search(policy, requirements, evaluations=64, seed=1): ...

The first generation is the policy's likeliest design and samples. Later ones edit winners of tournaments: some
decisions are taken again, by the policy or by chance. Elites are never lost, so the best score never falls. Where
requirements are unlike those that the policy was trained on, a few rules of thumb are tried too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from groupwise.config.sections import GenerationSettings
from groupwise.designer.construction import construct
from groupwise.designer.familiarity import training_distance
from groupwise.designer.heuristics import Heuristic, HeuristicQueue, heuristic_keys, plans_of
from groupwise.designer.plans import Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.population import Diversity, EditStatistics, diversity_of, elites, tournament
from groupwise.designer.problem import Bools, Floats, Ints
from groupwise.designer.sampling import Parents, PolicyChooser, Preference, Preferences, Retake, Views
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.blocks import Design
from groupwise.workflows.scoring import DesignScore

Origin: TypeAlias = Literal["likeliest", "sample", "edit", "memory", "rule"]
GUIDED = 0.9
"""The share of a habit in the decisions of a recalled candidate."""
FRESH = 0.05
"""The share of later generations that is drawn anew instead of edited."""
SMALL = 8
"""Candidates of a generation of `search`."""
RULED, RULED_LATER = 3, 2
"""Candidates of the first generation that follow rules of thumb, and of later ones while rules beat samples."""
CHANCE = 0.3
"""The share of edits that are decided by chance alone."""
WARMTH = 2.0
"""How much warmer than when it samples the policy is when it decides otherwise."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A design that was made, where it comes from, its log-probability and, once judged, its score.

    `logp` is that of all its decisions under the mixture they were drawn from; of an edit, of those taken again.
    """

    design: Design
    origin: Origin
    logp: float
    generation: int
    choices: Ints
    unit_order: Ints
    free: Bools
    key: int
    """Equal for equal designs of the same call."""
    score: DesignScore | None = None

    @property
    def total(self) -> float:
        return self.score.total if self.score is not None else float("-inf")


@dataclass(frozen=True, slots=True)
class DesignDraft:
    """Candidates that were made together, with what was seen at each decision where that is recorded."""

    plans: Plans
    candidates: tuple[Candidate, ...]
    logp: Floats | None = None
    """[candidates, decisions], under the mixture that each was drawn from, where all was drawn from the policy."""


class Generations:
    """Makes and keeps candidates for one set of requirements; somebody else judges them.

    All candidates of one kind are made in lockstep, as one batch: every decision is taken for all of them at once.
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
        self._views: Views | None = None
        self.rng = np.random.default_rng(seed)
        self.number = 0
        self.thumb = HeuristicQueue() if training_distance(prepared.problem).unfamiliar else None
        self.ruled: dict[int, Heuristic] = {}
        """The rules that were followed, by the design they led to."""
        self.drawn = float("-inf")
        """The best score of what was drawn from the policy."""
        self.parents: list[Candidate] = []
        self.keys: dict[Design, int] = {}
        self.proposed: set[int] = set()
        self.scores: dict[int, DesignScore] = {}
        """Of every design that was judged, by its key."""
        self.luck = EditStatistics(prepared.problem)
        self.drafts: list[DesignDraft] = []
        """All that was made for the newest generation, designs that were there before among them."""

    def propose(self, count: int | None = None, recalled: Sequence[Candidate] = ()) -> list[Candidate]:
        """The candidates of the next generation, still to be judged; none of them was proposed before.

        Those `recalled` were made by `recall` or `follow` and come first.
        """
        wanted = count or self.settings.batch_size
        found = self._new(recalled)
        for attempt in range(4):
            if len(found) >= wanted:
                break
            left = wanted - len(found)
            found += self._new(self._later(left, attempt) if self.parents else self._first(left, attempt))
        return found

    def recall(self, habits: Sequence[Preference]) -> list[Candidate]:
        """A candidate for each habit: the habit decides most, the policy the rest."""
        chooser = PolicyChooser(self.views, self.rng, GUIDED, guide=Preferences(habits))
        return self._made(construct(self.prepared.problem, chooser, len(habits), self.record), "memory")

    def follow(self, choices: Ints, unit_order: Ints) -> list[Candidate]:
        """Plans of earlier calls once more; what is no longer legal the policy decides."""
        parents = Parents(choices, unit_order, np.zeros(choices.shape, np.bool_))
        retake = Retake(self.prepared.problem, parents, PolicyChooser(self.views, self.rng))
        return self._made(construct(self.prepared.problem, retake, len(choices), self.record), "memory")

    def _made(self, plans: Plans, origin: Origin) -> list[Candidate]:
        """Candidates that were not drawn from the policy; no log-probability is claimed for them."""
        found = self._candidates(plans, [origin] * len(plans), np.zeros(len(plans)))
        self._keep(DesignDraft(plans, tuple(found)))
        return found

    def _keep(self, draft: DesignDraft) -> None:
        """Keep what was made for the present generation, and only that."""
        self.drafts = [*(old for old in self.drafts if old.candidates[0].generation == self.number), draft]

    def _new(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        found = []
        for candidate in candidates:
            if candidate.key not in self.proposed:
                self.proposed.add(candidate.key)
                found.append(candidate)
        return found

    def absorb(self, judged: Sequence[Candidate]) -> None:
        """Take the judged into account: the best of all so far and the winners of tournaments are the next parents."""
        self.number += 1
        self.luck.learn(judged)
        for candidate in judged:
            if self.thumb is not None and candidate.origin == "rule":
                self.thumb.learn(self.ruled[candidate.key], candidate.total)
            elif candidate.origin in ("likeliest", "sample"):
                self.drawn = max(self.drawn, candidate.total)
        self.scores |= {candidate.key: candidate.score for candidate in judged if candidate.score is not None}
        everyone = [*self.parents, *judged]
        totals = np.array([candidate.total for candidate in everyone])
        kept = elites(totals, max(1, round(self.settings.elite_percentage * self.settings.batch_size)))
        chosen = tournament(totals, self.settings.batch_size // 4, self.settings.tournament_size, self.rng)
        self.parents = [everyone[number] for number in dict.fromkeys([*kept, *chosen])]

    @property
    def views(self) -> Views:
        """The requirements as the policy sees them; worked out anew when it has changed."""
        if self._views is None or self._views.version != self.policy.version:
            self._views = Views(self.policy, self.prepared.problem)
        return self._views

    @property
    def best(self) -> Candidate:
        return max(self.parents, key=lambda candidate: candidate.total)

    def _first(self, count: int, attempt: int) -> list[Candidate]:
        """The likeliest design, samples, and rules of thumb where there are any."""
        ruled = self._ruled(self.thumb, min(RULED, count - 1)) if attempt == 0 and self.thumb else []
        return self._sampled(count - len(ruled), attempt) + ruled

    def _ruled(self, thumb: HeuristicQueue, most: int) -> list[Candidate]:
        """By the next rules of thumb, at most so many; out of the gradient."""
        problem, found = self.prepared.problem, list[Candidate]()
        while len(found) < most and (rules := thumb.next(most - len(found))):
            keys = np.array([heuristic_keys(problem, one) for one in rules])
            for candidate, rule in zip(self._made(plans_of(problem, keys, self.record), "rule"), rules, strict=True):
                if candidate.key in self.scores:
                    thumb.learn(rule, self.scores[candidate.key].total)
                elif candidate.key not in self.proposed and candidate.key not in self.ruled:
                    self.ruled[candidate.key] = rule
                    found.append(candidate)
        return found

    def _sampled(self, count: int, attempt: int) -> list[Candidate]:
        """The likeliest design, a few samples, and the others with shares of chance: more where nothing new came."""
        greedy = np.zeros(count, np.bool_)
        greedy[0] = attempt == 0
        epsilon = self._epsilon(count) + 0.2 * attempt
        epsilon[:SMALL] *= attempt > 0
        return self._drawn(count, np.minimum(epsilon, 1.0), greedy)

    def _later(self, count: int, attempt: int) -> list[Candidate]:
        """Edits of parents, those of high rank oftener, and some drawn anew; more by chance where nothing new came."""
        thumb = self.thumb if attempt == 0 else None
        found = self._ruled(thumb, min(RULED_LATER, count - 1)) if thumb and thumb.total >= self.drawn else []
        count -= len(found)
        fresh = round(count * FRESH)
        found += self._drawn(fresh, self._epsilon(fresh), np.zeros(fresh, np.bool_)) if fresh else []
        return found + self._edited(count - fresh, attempt)

    def _epsilon(self, count: int) -> np.ndarray:
        exploring = round(self.settings.exploration_share * count)
        epsilon = np.full(count, self.settings.epsilon_greedy)
        epsilon[count - exploring :] = self.settings.exploration_epsilon
        return epsilon

    def _drawn(self, count: int, epsilon: np.ndarray, greedy: Bools) -> list[Candidate]:
        chooser = PolicyChooser(self.views, self.rng, epsilon, greedy)
        plans = construct(self.prepared.problem, chooser, count, self.record)
        logp = chooser.log_probabilities(plans)
        origins: list[Origin] = ["likeliest" if one else "sample" for one in greedy.tolist()]
        found = self._candidates(plans, origins, logp.sum(1))
        self._keep(DesignDraft(plans, tuple(found), logp))
        return found

    def _edited(self, count: int, attempt: int) -> list[Candidate]:
        if not count:
            return []
        ranked = sorted(self.parents, key=lambda candidate: -candidate.total)
        weights = 0.7 ** np.arange(len(ranked))
        picked = self.rng.choice(len(ranked), count, p=weights / weights.sum())
        parents = [ranked[number] for number in picked]
        choices = np.stack([parent.choices for parent in parents])
        again = self.luck.decisions(parents, self.rng, attempt)
        epsilon = np.where(self.rng.random(count) < CHANCE, 1.0, self._epsilon(count))
        retake = Retake(
            self.prepared.problem,
            Parents(choices, np.stack([parent.unit_order for parent in parents]), again),
            PolicyChooser(self.views, self.rng, epsilon, temperature=WARMTH),
            other=True,
        )
        plans = construct(self.prepared.problem, retake, count, self.record)
        found = self._candidates(plans, ["edit"] * count, retake.logp.sum(1))
        self.luck.remember(found, parents, again)
        self._keep(DesignDraft(plans, tuple(found)))
        return found

    def _candidates(self, plans: Plans, origins: Sequence[Origin], logp: np.ndarray) -> list[Candidate]:
        return [
            Candidate(
                design,
                origins[row],
                float(logp[row]),
                self.number,
                plans.choices[row],
                plans.unit_order[row],
                plans.free[row],
                self.keys.setdefault(design, len(self.keys)),
            )
            for row, design in enumerate(self.prepared.drafter(plans))
        ]


def diversity(candidates: Sequence[Candidate], prepared: PreparedRequirements) -> Diversity:
    """How different the candidates of a generation are."""
    return diversity_of(prepared.problem, np.stack([one.choices for one in candidates]))
