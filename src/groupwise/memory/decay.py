"""How what is not used fades.

    faded = weight · factor^((now − used) / unit)

It is always computed from the weight at the last use, never from an already faded one: to look twice changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from groupwise.types import Array


@dataclass(frozen=True, slots=True)
class Decay:
    """`factor` is what remains of a weight after `unit` generations without use."""

    factor: float = 0.999
    unit: int = 1

    def faded(self, weight: Array, used: Array, now: int) -> Array:
        """Present weights of things whose `weight` was as given when they were last `used`."""
        return weight * self.factor ** ((now - used) / self.unit)

    def rank(self, weight: float, used: int) -> float:
        """Orders things like their faded weights, at every moment alike: all fade at one pace.

        It is the logarithm of the weight faded at generation 0, so the weakest is found without fading all of them.
        """
        return math.log(weight) - used / self.unit * math.log(self.factor)
