"""Single-player games of TextArena: `task.environment = "textarena:GuessTheNumber-v0"`.

A scenario is the seed of a game: even seeds for training, odd ones for evaluation. `task.options` go to the game. The
model sees what is new since its last move, and gets the game's own reward at the end.
"""

import difflib
import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.types import End, Task

PREFIX = "textarena:"
RAW = "-raw"  # the variant that shows only what is new, not the entire game again


class TextArena:
    """The scenarios of one game."""

    def __init__(self, game: str, **options: Any) -> None:
        self.game, self.name, self.options = game, f"{PREFIX}{game}", options
        try:
            self.library = importlib.import_module("textarena")
        except ImportError as error:
            message = f"task.environment = {self.name!r} needs TextArena, which cannot be imported: {error}"
            raise MissingExtra(message, hint="pip install 'groupwise[textarena]'") from error
        known = self.library.envs.registration.ENV_REGISTRY
        if game + RAW not in known:
            near = difflib.get_close_matches(game, [name for name in known if name + RAW in known], 1)
            hint = f"Did you mean {PREFIX + near[0]!r}?" if near else "Its games are listed at textarena.ai."
            raise ConfigError(f"TextArena has no game {game!r}", hint=hint, field="task.environment")
        try:
            self.new_game(0)
        except Exception as error:  # games raise all kinds of errors
            message = f"{self.name!r} cannot be played alone with {options}: {error}"
            raise ConfigError(message, hint="Choose a single-player game.", field="task.environment") from error

    def training(self, seed: int, number: int) -> int:
        return 2 * random.Random(f"{seed}/{number}").getrandbits(30)

    def held_out(self, seed: int, count: int) -> list[int]:
        rng = random.Random(seed)
        return [2 * rng.getrandbits(30) + 1 for _ in range(count)]

    def make(self) -> "Game":
        return Game(self)

    def new_game(self, seed: int) -> Any:
        game = self.library.make(self.game + RAW, **self.options)
        game.reset(num_players=1, seed=seed)
        return game


class Game:
    """One game. Games draw from the global random state, so each swaps in its own while it is running."""

    def __init__(self, scenarios: TextArena) -> None:
        self.scenarios = scenarios
        self.chance: Any = None

    async def reset(self, task: Task) -> Observation:
        seed = task.payload if isinstance(task.payload, int) else task.seed
        self.chance = random.Random(seed).getstate()
        with self._own_chance():
            self.game = self.scenarios.new_game(seed)
            return Observation(({"role": "user", "content": self._news()},))

    async def step(self, reply: Reply) -> Transition:
        with self._own_chance():
            over, _ = self.game.step(reply.content)
            if not over:
                return Transition(({"role": "user", "content": self._news()},))
            rewards, info = self.game.close()
        if not rewards:
            raise ContractError(f"{self.scenarios.name} ended without a reward")
        reward = float(rewards[0])
        invalid = float(bool(info[0].get("invalid_move")))
        return Transition((), reward, End.FINISHED, {"correct": float(reward >= 1.0), "format": 1.0 - invalid})

    def _news(self) -> str:
        _, seen = self.game.get_observation()
        # Sender 0 is the player: the model has seen its own moves.
        return "\n".join(str(text).strip() for sender, text, *_ in seen if sender != 0) or "Go on."

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        before = random.getstate()
        random.setstate(self.chance)
        try:
            yield
        finally:
            self.chance = random.getstate()
            random.setstate(before)
