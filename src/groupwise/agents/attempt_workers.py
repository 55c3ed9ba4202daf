"""What the workers of a language or agent run do: the other side of conversations, and rewards."""

from collections.abc import Mapping
from typing import Any

from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.worker_environments import AttemptWorker
from groupwise.config import TrainingConfig
from groupwise.rollout.backends import RolloutWorkers, make_workers
from groupwise.training.worker_rewards import RewardWorker, ScoreRequest, reward_for_workers, sent_to
from groupwise.types import Reward


class AgentWorker:
    """The handler in a worker: `source` as in `AttemptWorker`, None for a run without conversations."""

    def __init__(self, source: Mapping[str, Any] | Scenarios | None, reward: Mapping[str, Any] | Reward | None) -> None:
        self.attempts = None if source is None else AttemptWorker(source)
        self.rewards = RewardWorker(reward)

    async def __call__(self, request: Any) -> Any:
        if isinstance(request, ScoreRequest):
            return await self.rewards(request)
        assert self.attempts is not None
        return await self.attempts(request)

    async def close(self) -> None:
        if self.attempts is not None:
            await self.attempts.close()


def workers_and_reward(
    cfg: TrainingConfig, source: Mapping[str, Any] | Scenarios | None, reward: Reward | None, own: Reward
) -> tuple[RolloutWorkers | None, Reward]:
    """The run's workers, if it has any, and the reward that it learns from.

    `reward` was given in code, or is None for that of the settings; `own` is what either comes down to here.
    """
    sent = reward_for_workers(cfg, reward)
    workers = make_workers(cfg.rollout, AgentWorker, (source, sent), per_worker=cfg.rollout.attempts_per_worker)
    return workers, own if workers is None or sent is None else sent_to(workers, cfg, own)
