"""How a search divides its budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from groupwise.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Settings:
    """How a search divides its budget of evaluations.

    exploration     PUCT's weight of the prior against what was found
    widening        a node with n visits has at most `widening` · n ** `widening_power` children that are looked into
    widening_power
    explore         the share of steps that follow the prior alone; it gives every program a chance, and every draw a
                    distribution that covers all of them
    greed           how much a child's value is the best below it rather than the mean
    experience      how far experience with an operator under a parent bends what is tried next there (0: not at all)
    sharpness       1: new lines are drawn as the prior says; more: the likelier come first, as far as they are likelier
    in_flight       how many evaluations may be under way at once; results are taken in the order they were asked for
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
                raise ConfigError(f"{name} is {value!r}; it goes from {low:g} to {high:g}", field=name)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
