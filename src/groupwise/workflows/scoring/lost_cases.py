"""The share of cases that a design loses through failed tries, apart from those that the world ends by knock-outs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    Finish,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    activities,
)
from groupwise.workflows.evaluation.durations import moments
from groupwise.workflows.evaluation.unfolding import unfolded
from groupwise.workflows.requirements import Requirements

# By which a measured share of completed cases may miss the exact one.
NOISE = 0.02


class LostCases:
    """For designs of one set of requirements."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.knock_out = {name: one.knock_out for name, one in requirements.activities.items()}
        self.failure = {name: one.failure for name, one in requirements.activities.items()}
        self._timed_out = cache(self._share_timed_out)

    def kept(self, design: Design, completed: float) -> float:
        """The share that is not lost, of the cases that no knock-out ends.

        It is exact for failures and timeouts. Measured cases count if clearly fewer of them were `completed`, because
        of something else.
        """
        lossy = {one.name: 1 - self.lost(one) for one in activities(design.root) if self.lost(one)}
        root = unfolded(design.root)
        possible = sum(passing(root, lambda one: 1 - self.knock_out[one.name]))
        kept = sum(passing(root, lambda one: (1 - self.knock_out[one.name]) * lossy.get(one.name, 1.0)))
        return (kept if completed >= kept - NOISE else completed) / possible

    def lost(self, activity: Activity) -> float:
        """The probability that the last try fails, because of an error or its timeout."""
        handling, failure = activity.handling, self.failure[activity.name]
        if handling.timeout is not None:
            late = self._timed_out(activity.name, handling.pool, handling.timeout)
            failure = 1 - (1 - failure) * (1 - late)
        return float(failure ** (handling.retry.most + 1))

    def _share_timed_out(self, name: str, pool: str | None, timeout: float) -> float:
        wanted = self.requirements.activities[name]
        first = pool or next(iter(wanted.pools), None)
        return moments(wanted.duration, self.requirements.pools[first].speed if first else 1.0, timeout)[2]


def passing(block: Block, one: Callable[[Activity], float]) -> tuple[float, float]:
    """The share of cases that come through a block, given that of every activity, and the share that end in it."""
    match block:
        case Activity():
            return one(block), 0.0
        case Finish():
            return 0.0, 1.0
        case Sequence(parts):
            through, ended = 1.0, 0.0
            for part in parts:
                on, over = passing(part, one)
                through, ended = through * on, ended + through * over
            return through, ended
        case Parallel(parts) | PartialOrder(parts):
            return math.prod(passing(part, one)[0] for part in parts), 0.0
        case Choice(parts, shares):
            ways = [passing(part, one) for part in parts]
            return tuple(sum(share * way[n] for share, way in zip(shares, ways, strict=True)) for n in (0, 1))  # type: ignore[return-value]
        case Loop(body, again, redo):
            # Any number of rounds: the body, then with probability `again` the work between and another round.
            (through, over), (between, broken) = passing(body, one), passing(redo, one)
            rounds = 1 / (1 - again * through * between)
            return through * (1 - again) * rounds, (over + through * again * broken) * rounds
        case Cancellable(body, chance, handler):
            return (1 - chance) * passing(body, one)[0] + chance * passing(handler, one)[0], 0.0
        case Instances(body, least):
            return passing(body, one)[0] ** least, 0.0
        case _:
            return 1.0, 0.0
