"""Whether designing has converged: four values beside their targets, and the phase it is in.

convergence_table(outcome.generations, outcome.hit_rate)
phases([generation.best for generation in outcome.generations])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from groupwise.workflows.designer.outcome import Generation

PhaseName: TypeAlias = Literal["initial", "training", "plateau"]
WINDOW = 10
"""The generations that a value is taken over, the newest."""
RAPID = 1 - np.exp(-1)
"""The share of the whole gain with which the initial phase ends: what a decay makes in one time constant."""


@dataclass(frozen=True, slots=True)
class Target:
    """A value that tells of convergence: where it should be, and what it means to be there."""

    name: str
    bound: float
    above: bool
    words: str

    def met(self, value: float) -> bool:
        return value > self.bound if self.above else value < self.bound


TARGETS = (
    Target("policy loss", 0.1, False, "stable policy"),
    Target("performance variance", 0.05, False, "consistent results"),
    Target("exploration entropy", 1.0, True, "diversity is maintained"),
    Target("memory hit rate", 0.3, True, "memory is of use"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A target with what was measured; None where there was nothing to measure, and then it is neither met nor not."""

    target: Target
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.target.met(self.value)


def convergence_table(generations: Sequence[Generation], hit_rate: float | None = None) -> tuple[Reading, ...]:
    """The four values over the newest ten generations.

    Policy loss is the size of its mean; performance variance that of the generations' mean scores; exploration entropy
    that of the policy over whole designs, in nats: e equally likely designs have 1.
    """
    last = generations[-WINDOW:]
    losses = [one.policy_loss for one in last if one.policy_loss is not None]
    entropies = [one.entropy for one in last if one.origins.get("sample")]
    values = (
        abs(float(np.mean(losses))) if losses else None,
        float(np.var([one.mean for one in last])) if len(last) > 1 else None,
        float(np.mean(entropies)) if entropies else None,
        hit_rate,
    )
    return tuple(Reading(target, value) for target, value in zip(TARGETS, values, strict=True))


@dataclass(frozen=True, slots=True)
class Phase:
    """Generations `first` to `last` (both included), and what the best score gained in them."""

    name: PhaseName
    first: int
    last: int
    gain: float


def phases(bests: Sequence[float], threshold: float = 0.01, patience: int = WINDOW) -> tuple[Phase, ...]:
    """The phases of a run, from the best score of each generation.

    The plateau begins where less than `threshold` is still to be gained, if it lasts for `patience` generations or
    more. The initial phase ends when 63% of the gain up to there is made; training is what lies between.
    """
    if not len(bests):
        return ()
    best = np.maximum.accumulate(np.asarray(bests, float))
    count = len(best)
    flat = int(np.argmax(best[-1] - best < threshold))
    plateau = flat if count - flat >= patience else count
    initial = count
    if plateau < count or best[-1] - best[0] >= threshold:
        end = best[min(plateau, count - 1)]
        initial = min(int(np.argmax(best - best[0] >= RAPID * (end - best[0]))) + 1, plateau)
    bounds: list[tuple[PhaseName, int, int]] = [
        ("initial", 0, initial),
        ("training", initial, plateau),
        ("plateau", plateau, count),
    ]
    return tuple(
        Phase(name, first, end - 1, float(best[end - 1] - best[max(first - 1, 0)]))
        for name, first, end in bounds
        if end > first
    )


def phase_of(bests: Sequence[float], threshold: float = 0.01, patience: int = WINDOW) -> PhaseName:
    """The phase that a run is in."""
    found = phases(bests, threshold, patience)
    return found[-1].name if found else "initial"


def generations_to(bests: Sequence[float], tolerance: float) -> int:
    """How many generations it took to come within `tolerance` of the best there ever was."""
    best = np.maximum.accumulate(np.asarray(bests, float))
    return int(np.argmax(best >= best[-1] - tolerance)) + 1
