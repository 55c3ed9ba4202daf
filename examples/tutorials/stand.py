"""An ice-cream stand as an environment: every morning it decides how many crates to buy for the day.

docs/tutorials/my_environment.md trains on it.
"""

from typing import Any

import gymnasium
import numpy as np

DAYS = 28
PRICE, COST, WASTE = 3.0, 1.5, 0.5


class Stand(gymnasium.Env):
    """Four weeks; what melts overnight is lost. Weekends and warm days sell more."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(6)  # crates to buy

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.day = 0
        self.warmth = self.np_random.normal()
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        wanted = self.np_random.poisson(np.exp(0.7 + 0.5 * self.warmth + 0.6 * (self.day % 7 >= 5)))
        sold = min(int(action), wanted)
        profit = PRICE * sold - COST * action - WASTE * (action - sold)
        self.day += 1
        self.warmth = 0.7 * self.warmth + 0.7 * self.np_random.normal()
        return self._seen(), float(profit), self.day == DAYS, False, {}

    def _seen(self) -> np.ndarray:
        weekend = float(self.day % 7 >= 5)
        return np.clip(np.array([self.warmth / 3, weekend, self.day / DAYS], np.float32), -1, 1)
