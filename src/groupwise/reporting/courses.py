"""One training from start to end as a comparison sees it: scores over steps, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError
from groupwise.training.numbers import finite


@dataclass(frozen=True, slots=True)
class Course:
    """How one task's score went in one run: an algorithm, in an environment, from a seed.

    `steps` are environment steps (or tokens) since the start, `scores` the evaluations made there. A run over
    several tasks makes one course for each; where there is only one task, it has the environment's name.
    `wall_seconds` is time spent training, without evaluations.
    """

    algorithm: str
    environment: str
    task: str
    seed: int
    steps: tuple[int, ...]
    scores: tuple[float, ...]
    wall_seconds: float
    cpu_seconds: float

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.scores) or not self.steps:
            raise self._broken(
                f"{len(self.steps)} steps and {len(self.scores)} scores", "there is one for each, and one at least"
            )
        if any(after <= before for before, after in zip(self.steps, self.steps[1:], strict=False)):
            raise self._broken("steps that do not grow", "an evaluation lies after the one before it")
        if not np.isfinite(self.scores).all():
            raise self._broken("scores that are not finite", "leave an evaluation out where it failed")

    def _broken(self, what: str, rule: str) -> ContractError:
        return ContractError(f"the course of {self.algorithm} in {self.task} from seed {self.seed} has {what}; {rule}")

    @property
    def budget(self) -> int:
        """The step of its last evaluation."""
        return self.steps[-1]

    @property
    def final(self) -> float:
        """The mean of the evaluations in the last tenth of its steps; the last one at least."""
        late = np.array(self.steps) >= 0.9 * self.budget
        return float(np.mean(np.array(self.scores)[late]))

    def at(self, steps: Any) -> NDArray[np.float64]:
        """The score at any steps: straight lines between evaluations, and held after the last."""
        return np.asarray(np.interp(steps, self.steps, self.scores), np.float64)

    def first_reach(self, threshold: float) -> int | None:
        """The step of the first evaluation at or above the threshold, None where there is none."""
        return next((step for step, score in zip(self.steps, self.scores, strict=True) if score >= threshold), None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A course from plain values; evaluations that are not numbers are left out."""
        pairs = zip(values["steps"], values["scores"], strict=True)
        sound = [(int(step), score) for step, raw in pairs if (score := finite(raw)) is not None]
        steps, scores = zip(*sound, strict=True) if sound else ((), ())
        algorithm, environment, task = (str(values[name]) for name in ("algorithm", "environment", "task"))
        wall, cpu = float(values["wall_seconds"]), float(values["cpu_seconds"])
        return cls(algorithm, environment, task, int(values["seed"]), steps, scores, wall, cpu)


@dataclass(frozen=True, slots=True)
class FailedCourse:
    """A run that ended in an error, or was refused before it began: counted and told, never a score."""

    algorithm: str
    environment: str
    seed: int
    message: str
    hint: str = ""


def read_courses(path: Path) -> list[Course]:
    """The courses in a JSON file: a list of them."""
    return [Course.from_dict(values) for values in json.loads(path.read_text("utf8"))]


def unique(names: Iterable[str]) -> list[str]:
    """The names in order of appearance, each once."""
    return list(dict.fromkeys(names))
