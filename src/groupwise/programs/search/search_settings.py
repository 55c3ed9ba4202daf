"""What a search is given: the domain as functions, its evaluations, and how to spend the budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from groupwise.errors import ConfigError

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of an evaluation: a value from 0 to 1 that guides the search, and whether the problem is solved.

    `notes` contain the rest (outcome, message …) as JSON values.
    """

    value: float
    solved: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


def itself(action: str) -> tuple[str, ...]:
    return (action,)


@dataclass(frozen=True, slots=True)
class Domain(Generic[State]):
    """States that are built action by action from `root`; a state without actions is finished and can be evaluated.

    name      a saved tree only continues with a domain of the same name
    root      the initial state
    actions   the possible actions of a state with their log-probabilities under the prior; none if it is finished
    step      the state after an action
    key       the same for equivalent states, which share a node and an evaluation
    evaluate  the value of a finished state; called from several threads if several are in flight
    traits    what an action has in common with others: experience with a trait applies to all of them
    """

    name: str
    root: State
    actions: Callable[[State], Sequence[tuple[str, float]]]
    step: Callable[[State, str], State]
    key: Callable[[State], str]
    evaluate: Callable[[State], Judged]
    traits: Callable[[str], Sequence[str]] = itself


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search spends its budget of evaluations.

    exploration     weight of the prior in PUCT
    widening        a node with n visits has at most `widening` · n ** `widening_power` tried children
    widening_power
    explore         probability of a step that follows the prior alone, so that every program has a positive probability
    greed           how much the value of a child is the best below it rather than the mean
    experience      how strongly experience with a trait changes what is tried next (0: not at all)
    sharpness       exponent of the weights from which new actions are sampled; 1 follows the prior
    in_flight       evaluations at the same time; results are processed in the order of submission
    """

    exploration: float = 1.0
    widening: float = 4.0
    widening_power: float = 0.75
    explore: float = 0.05
    greed: float = 0.5
    experience: float = 10.0
    sharpness: float = 3.0
    in_flight: int = 1

    def __post_init__(self) -> None:
        bounds = {
            "exploration": (0, 1e6), "widening": (1e-6, 1e6), "widening_power": (0, 1), "explore": (0, 1),
            "greed": (0, 1), "experience": (0, 1e3), "sharpness": (0, 1e3), "in_flight": (1, 1024),
        }  # fmt: skip
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}; it must be between {low:g} and {high:g}", field=name)
