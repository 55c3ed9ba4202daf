"""Atari from pixels: ALE's own vector form, which crops, scales, greys and stacks frames as the field does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.control.gymnasium_ids import import_gymnasium, register_atari
from groupwise.control.vector_form import RestartingVectorForm
from groupwise.errors import ConfigError
from groupwise.types import Array

# ALE ends an episode after 30 minutes of play: 108,000 frames, of which each action takes four.
LONGEST = 27_000
FRAMES_PER_SECOND = 15.0
# ALE's seeds are 31 bits.
SEEDS = 2**31 - 1


def is_atari_from_pixels(name: str, options: Mapping[str, Any]) -> bool:
    return name.startswith("ALE/") and "obs_type" not in options


class Atari(RestartingVectorForm):
    """A game as agents have seen it since 2013: the last four frames, 84 × 84 and grey, and four frames per action.

    Rewards are the game's own points; `advantage.reward_clip` is for learning. Reset draws up to 30 idle frames.
    """

    def __init__(self, name: str, *, max_steps: int | None = None, **options: Any) -> None:
        gym = import_gymnasium()
        register_atari(gym)

        def resized(count: int) -> Any:
            mode = gym.vector.AutoresetMode.NEXT_STEP
            usual = {"reward_clipping": False, "num_threads": 1, "autoreset_mode": mode}
            try:
                return gym.make_vec(name, count, "vector_entry_point", **{**usual, **options})
            except gym.error.Error as error:
                raise ConfigError(f"cannot create {name}: {error}", field="task.environment") from error

        super().__init__(resized(1), resized, max_steps=max_steps or LONGEST, name=name)

    def _first_obs(self, seeds: list[int]) -> Any:
        return self._vector.reset(seed=np.array(seeds) % SEEDS)

    def _begin(self, copies: Array, seeds: Sequence[int]) -> Any:
        mask = np.zeros(len(self._obs), np.bool_)
        mask[copies] = True
        return self._vector.reset(seed=np.array(seeds) % SEEDS, options={"reset_mask": mask})

    @property
    def frames_per_second(self) -> float:
        return FRAMES_PER_SECOND

    def render(self) -> Array:
        """The newest frame of the first copy, as the policy sees it."""
        frame = self._obs[0].reshape(self.interface.parts[0].shape)[-1]
        return np.repeat(np.rint(frame * 255).astype(np.uint8)[..., None], 3, axis=2)
