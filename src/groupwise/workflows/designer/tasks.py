"""Requirements as tasks: made up ones by number, or a person's own files, each prepared once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.errors import ConfigError
from groupwise.types import Task
from groupwise.workflows.designer.blueprint import Drafter
from groupwise.workflows.designer.problem import Problem
from groupwise.workflows.designer.worlds import training_requirements
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import Scorer

KEPT = 512
WORLD = "world"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Requirements with all that designing for them needs."""

    problem: Problem
    drafter: Drafter
    scorer: Scorer

    @classmethod
    def of(cls, requirements: Requirements) -> Prepared:
        problem = Problem(requirements)
        return cls(problem, Drafter(problem), Scorer(requirements))


class Library:
    """Prepared requirements by the id of their task; those longest unused are prepared again when they come back."""

    def __init__(self, own: Mapping[str, Requirements] | None = None) -> None:
        self.own = dict(own or {})
        self.known: OrderedDict[str, Prepared] = OrderedDict()

    def task(self, number: int) -> Task:
        """The task of a number: a person's own requirements in turn, or the world of that number."""
        if self.own:
            names = list(self.own)
            return Task(f"{names[number % len(names)]}/{number}", seed=number)
        return Task(f"{WORLD}/{number}", seed=number)

    def __call__(self, task_id: str) -> Prepared:
        kind, _, number = task_id.rpartition("/")
        key = kind if kind in self.own else task_id
        found = self.known.get(key)
        if found is None:
            found = Prepared.of(self._requirements(kind, number))
            if len(self.known) >= KEPT:
                self.known.popitem(last=False)
            self.known[key] = found
        self.known.move_to_end(key)
        return found

    def _requirements(self, kind: str, number: str) -> Requirements:
        if kind in self.own:
            return self.own[kind]
        if kind != WORLD:
            raise ConfigError(f"there are no requirements {kind!r} to design for")
        return training_requirements(int(number))
