"""Generations of designs: drawn from the policy, bred from the best, recalled from memory, and judged.

    for candidate in search(policy, requirements, evaluations=64, seed=1): ...

The first generation is the policy's likeliest design and samples. Later ones edit winners of tournaments: some
decisions are taken again, by the policy or by chance. Elites are never lost, so the best score never falls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from groupwise.config.sections import GenerationSettings
from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.construction import Plans, construct
from groupwise.workflows.designer.diversity import Diversity, diversity_of
from groupwise.workflows.designer.policy import GraphPolicy
from groupwise.workflows.designer.problem import Bools, Ints
from groupwise.workflows.designer.sampling import Parents, PolicyChooser, Retake, Views
from groupwise.workflows.designer.selection import elites, tournament
from groupwise.workflows.designer.tasks import Prepared
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import Score

Origin: TypeAlias = Literal["likeliest", "sample", "edit", "memory"]
FRESH = 0.25
"""The share of later generations that is drawn anew instead of edited."""


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
    score: Score | None = None

    @property
    def total(self) -> float:
        return self.score.total if self.score is not None else float("-inf")


class Generations:
    """Makes and keeps candidates for one set of requirements; somebody else judges them."""

    def __init__(
        self, policy: GraphPolicy, prepared: Prepared, settings: GenerationSettings | None = None, seed: int = 0
    ) -> None:
        self.prepared, self.settings = prepared, settings or GenerationSettings()
        self.views = Views(policy, prepared.problem)
        self.rng = np.random.default_rng(seed)
        self.number = 0
        self.parents: list[Candidate] = []
        self.archive: set[bytes] = set()

    def propose(self, count: int | None = None) -> list[Candidate]:
        """The candidates of the next generation, still to be judged; none of them was proposed before."""
        wanted = count or self.settings.batch_size
        found: list[Candidate] = []
        for attempt in range(4):
            drawn = self._first(wanted - len(found)) if not self.parents else self._later(wanted - len(found), attempt)
            for candidate in drawn:
                key = _key(candidate)
                if key not in self.archive:
                    self.archive.add(key)
                    found.append(candidate)
            if len(found) >= wanted:
                break
        self.number += 1
        return found

    def absorb(self, judged: Sequence[Candidate]) -> None:
        """Take the judged into account: the best of all so far and the winners of tournaments are the next parents."""
        everyone = [*self.parents, *judged]
        totals = np.array([candidate.total for candidate in everyone])
        kept = elites(totals, max(1, round(self.settings.elite_percentage * self.settings.batch_size)))
        chosen = tournament(totals, self.settings.batch_size // 4, self.settings.tournament_size, self.rng)
        self.parents = [everyone[number] for number in dict.fromkeys([*kept, *chosen])]

    @property
    def best(self) -> Candidate:
        return max(self.parents, key=lambda candidate: candidate.total)

    def _first(self, count: int) -> list[Candidate]:
        """The likeliest design, and samples."""
        greedy = np.zeros(count, np.bool_)
        greedy[0] = self.number == 0
        return self._drawn(count, np.zeros(count), greedy)

    def _later(self, count: int, attempt: int) -> list[Candidate]:
        """Edits of parents, those of high rank oftener, and some drawn anew; more by chance where nothing new came."""
        fresh = round(count * FRESH)
        found = self._drawn(fresh, self._epsilon(fresh), np.zeros(fresh, np.bool_)) if fresh else []
        return found + self._edited(count - fresh, attempt)

    def _epsilon(self, count: int) -> np.ndarray:
        exploring = round(self.settings.exploration_share * count)
        epsilon = np.full(count, self.settings.epsilon_greedy)
        epsilon[:exploring] = self.settings.exploration_epsilon
        return epsilon

    def _drawn(self, count: int, epsilon: np.ndarray, greedy: Bools) -> list[Candidate]:
        chooser = PolicyChooser(self.views, self.rng, epsilon, greedy)
        plans = construct(self.prepared.problem, chooser, count)
        logp = chooser.log_probabilities(plans).sum(1)
        origins: list[Origin] = ["likeliest" if one else "sample" for one in greedy.tolist()]
        return self._candidates(plans, origins, logp)

    def _edited(self, count: int, attempt: int) -> list[Candidate]:
        if not count:
            return []
        ranked = sorted(self.parents, key=lambda candidate: -candidate.total)
        weights = 0.7 ** np.arange(len(ranked))
        picked = self.rng.choice(len(ranked), count, p=weights / weights.sum())
        parents = [ranked[number] for number in picked]
        choices = np.stack([parent.choices for parent in parents])
        again = self._again(choices.shape, attempt)
        retake = Retake(
            self.prepared.problem,
            Parents(choices, np.stack([parent.unit_order for parent in parents]), again),
            PolicyChooser(self.views, self.rng, self._epsilon(count) + 0.2 * attempt),
        )
        plans = construct(self.prepared.problem, retake, count)
        return self._candidates(plans, ["edit"] * count, retake.logp)

    def _again(self, shape: tuple[int, ...], attempt: int) -> Bools:
        """Which decisions are taken again: one to a few, more where edits find nothing new."""
        count, slots = shape
        wanted = self.rng.geometric(0.4, count) + 2 * attempt
        return self.rng.random((count, slots)) < (wanted / slots)[:, None]

    def _candidates(self, plans: Plans, origins: Sequence[Origin], logp: np.ndarray) -> list[Candidate]:
        return [
            Candidate(design, origins[row], float(logp[row]), self.number, plans.choices[row], plans.unit_order[row])
            for row, design in enumerate(self.prepared.drafter(plans))
        ]


def _key(candidate: Candidate) -> bytes:
    return repr((candidate.design.root, candidate.design.servers)).encode()


def search(
    policy: GraphPolicy,
    requirements: Requirements | Prepared,
    evaluations: int,
    seed: int = 0,
    settings: GenerationSettings | None = None,
) -> Iterator[tuple[Design, Score]]:
    """Designs with their scores in the order they were judged, `evaluations` of them (fewer if there are no more)."""
    from groupwise.workflows.designer.product import judge

    prepared = requirements if isinstance(requirements, Prepared) else Prepared.of(requirements)
    generations = Generations(policy, prepared, settings, seed)
    left = evaluations
    while left > 0:
        proposed = generations.propose(min(left, generations.settings.batch_size))
        if not proposed:
            return
        judged = []
        for candidate in proposed:
            score = judge(prepared, candidate.design)
            judged.append(replace(candidate, score=score))
            yield candidate.design, score
        generations.absorb(judged)
        left -= len(proposed)


def diversity(candidates: Sequence[Candidate], prepared: Prepared) -> Diversity:
    """How different the candidates of a generation are."""
    return diversity_of(prepared.problem, np.stack([one.choices for one in candidates]))
