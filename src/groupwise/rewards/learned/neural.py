"""`NeuralRewardFunction`: a reward that learns while it is used, and counts only once it can be trusted.

It learns from a teacher (any reward, whose scores of a group are turned into pairs), from preferences you have
(`add_preferences`), or from both. Until its held-out accuracy beats chance, and whenever it fails, the heuristic scores
the group, and the scores are flagged. It never stops a run.
"""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.event_loop import contained
from groupwise.rewards.function import FALLBACK_FLAG, RewardFunction, score_conversation, turns_of
from groupwise.rewards.learned.preferences import RewardTranscript, Row, read_preferences
from groupwise.rewards.learned.trainer import NeuralRewardTrainer
from groupwise.rewards.registry import make_reward
from groupwise.rewards.rules.heuristic import HeuristicReward
from groupwise.rewards.scoring import score_group
from groupwise.types import Failed, Group, Message, Reward, Score, Task, Trajectory

logger = logging.getLogger(__name__)
UNPROVEN, BROKEN = "neural_unproven", "neural_failed"
RECENT = 1000  # evaluations that the shares in metrics are over
HEURISTIC, NOBODY = "heuristic", "none"


class NeuralRewardFunction(RewardFunction):
    """Scores in (0, 1); the part `certainty` is 1 minus the disagreement of the heads.

    `teacher` scores every group, and the network learns from its scores. It is a reward, or a name as in the settings
    (`reward.name`); None or "none" learns from given preferences alone. `heuristic` scores groups while the network is
    not trusted. The network is updated after every `update_frequency` attempts. Groups are processed in the order in
    which they arrive, however long the teacher takes over each, so that the same run learns the same.
    """

    def __init__(
        self,
        weight: float = 1.0,
        name: str = "neural",
        *,
        trainer: NeuralRewardTrainer | None = None,
        update_frequency: int = 100,
        teacher: Reward | str | None = HEURISTIC,
        heuristic: Reward | None = None,
    ) -> None:
        super().__init__(weight, name)
        if update_frequency < 1:
            raise ConfigError(f"update_frequency = {update_frequency} must be at least 1", hint="Its default is 100.")
        self.trainer = trainer or NeuralRewardTrainer()
        self.update_frequency = update_frequency
        self.heuristic: Reward = heuristic or HeuristicReward()
        self.teacher = self._found(teacher)
        self.evaluations = 0
        self.recent: deque[tuple[float, bool]] = deque(maxlen=RECENT)
        # Learning changes the network, so groups learn in the order in which they arrived.
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    def _found(self, teacher: Reward | str | None) -> Reward | None:
        if teacher == HEURISTIC:
            return self.heuristic
        if isinstance(teacher, str):
            return None if teacher == NOBODY else make_reward(teacher)
        return teacher

    def add_preferences(self, pairs: Iterable[Row]) -> None:
        """Learn from preferences: (prompt, better, worse), or rows with prompt, chosen and rejected."""
        self.trainer.add_preferences(pairs)

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        """Score one conversation by itself. It counts as an evaluation like any other."""
        return score_conversation(self, turns)

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        attempts = Group(group[0].group_id if group else "", task, tuple(group))
        # The teacher may work on several groups at once; learning takes turns.
        lesson = asyncio.ensure_future(contained(self._taught(attempts)))
        try:
            async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                taught = await lesson
                scores = self._judged(attempts) or await self._fallen_back(attempts, taught)
                self._learn(attempts, taught)
                return scores
        finally:
            # If we are cancelled while we wait for our turn, the teacher need not go on.
            lesson.cancel()

    async def _taught(self, group: Group) -> Sequence[Score | Failed]:
        return (await score_group(self.teacher, group)).scores if self.teacher else []

    def _judged(self, group: Group) -> list[Score | Failed] | None:
        """The network's scores of the group; None while it is not trusted."""
        if not self.trainer.trusted:
            return None
        try:
            totals, doubts = self.trainer.score([_transcript(member) for member in group.members])
        except Exception as error:  # the boundary: no failure of the network may end a run
            logger.warning("the learned reward could not score a group: %s: %s", type(error).__name__, error)
            return None
        self.recent.extend((doubt, False) for doubt in doubts)
        return [Score(total, {"certainty": 1 - doubt}) for total, doubt in zip(totals, doubts, strict=True)]

    async def _fallen_back(self, group: Group, taught: Sequence[Score | Failed]) -> list[Score | Failed]:
        """The heuristic's scores for the group, with flags that say so and why."""
        flags = (FALLBACK_FLAG, BROKEN if self.trainer.trusted else UNPROVEN)
        known = taught if self.teacher is self.heuristic else (await score_group(self.heuristic, group)).scores
        self.recent.extend((np.nan, True) for _ in known)
        return [s if isinstance(s, Failed) else replace(s, flags=(*s.flags, *flags)) for s in known]

    def _learn(self, group: Group, taught: Sequence[Score | Failed]) -> None:
        # Not strict: without a teacher there are no scores at all.
        pairs = zip(group.members, taught, strict=False)
        self.trainer.add_scores([(_transcript(m), s.total) for m, s in pairs if isinstance(s, Score)])
        due = self.evaluations // self.update_frequency
        self.evaluations += len(group.members)
        # Updates are due at multiples of `update_frequency`, however many attempts a group adds at once.
        for _ in range(self.evaluations // self.update_frequency - due):
            self.trainer.update()

    def metrics(self) -> dict[str, float]:
        """Shares and uncertainty are over the last thousand evaluations."""
        doubts = [doubt for doubt, fallback in self.recent if not fallback]
        found = self.trainer.metrics()
        if doubts:
            found["uncertainty"] = float(np.mean(doubts))
        if self.recent:
            found["fallback_share"] = float(np.mean([fallback for _, fallback in self.recent]))
        return {f"neural/{name}": value for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "trainer": self.trainer.state_dict(),
            "evaluations": self.evaluations,
            "recent": [list(entry) for entry in self.recent],
            **{part: reward.state_dict() for part, reward in self._others() if hasattr(reward, "state_dict")},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trainer.load_state_dict(state["trainer"])
        self.evaluations = state["evaluations"]
        self.recent = deque(((doubt, fallback) for doubt, fallback in state["recent"]), RECENT)
        for part, reward in self._others():
            if part in state and hasattr(reward, "load_state_dict"):
                reward.load_state_dict(state[part])

    def _others(self) -> list[tuple[str, Any]]:
        teacher = [] if self.teacher is self.heuristic else [("teacher", self.teacher)]
        return [("heuristic", self.heuristic), *teacher]


def create_neural_reward_function(
    embedding_dim: int = 128,
    hidden_dim: int = 256,
    learning_rate: float = 1e-4,
    weight: float = 1.0,
    update_frequency: int = 100,
    *,
    teacher: Reward | str | None = HEURISTIC,
    heuristic: Reward | None = None,
    preferences: str | None = None,
    seed: int = 0,
) -> NeuralRewardFunction:
    """A learned reward with a new network; `preferences` is a file of preferences to start with."""
    trainer = NeuralRewardTrainer(embedding_dim, hidden_dim, learning_rate, seed=seed)
    if preferences is not None:
        trainer.add_preferences(read_preferences(Path(preferences)))
    return NeuralRewardFunction(
        weight, trainer=trainer, update_frequency=update_frequency, teacher=teacher, heuristic=heuristic
    )


def _transcript(attempt: Trajectory) -> RewardTranscript:
    return RewardTranscript.of(turns_of(attempt))
