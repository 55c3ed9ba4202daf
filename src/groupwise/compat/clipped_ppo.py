"""What the founding plan builds GRPO on: PPO's advantages and its clipped loss, for rollouts made elsewhere."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.control.grpo import critic_values
from groupwise.control.policy import MLPPolicy
from groupwise.core.losses import policy_loss
from groupwise.core.returns_and_gae import gae
from groupwise.errors import ContractError
from groupwise.types import Trajectory


class ClippedPPO:
    """PPO's two formulas with a run's settings. `policy` is None until the first rollouts show what it must fit."""

    def __init__(self, cfg: TrainingConfig, policy: MLPPolicy | None = None) -> None:
        self.cfg, self.policy = cfg, policy

    def advantages(self, trajectories: Sequence[Trajectory]) -> Tensor:
        """Generalised advantage estimates of all steps, one trajectory after the other: [steps]."""
        policy = self._policy()
        if not needs_critic(self.cfg.advantage.estimator):
            message = f"advantages need a critic, which estimator = {self.cfg.advantage.estimator!r} does not have"
            raise ContractError(message, hint="Use GRPO(estimator='group_gae').")
        found = []
        for trajectory, values in zip(trajectories, critic_values(policy)(trajectories), strict=True):
            last = np.zeros(len(trajectory), np.bool_)
            last[-1:] = True
            rows = [
                torch.from_numpy(np.asarray(row))[None]
                for row in (
                    trajectory.rewards, values[:-1], values[1:], last & trajectory.terminated,
                    last & (not trajectory.terminated), trajectory.mask,
                )
            ]  # fmt: skip
            settings = self.cfg.advantage
            found.append(gae(*rows, gamma=settings.gamma, lam=settings.gae_lambda).advantages[0])
        return torch.cat(found)

    def loss(self, trajectories: Sequence[Trajectory], advantages: Tensor) -> Tensor:
        """−mean min(r·A, clip(r, 1−ε, 1+ε)·A) over all steps; differentiable. Advantages are [steps]."""
        steps = sum(map(len, trajectories))
        adv = torch.as_tensor(advantages, dtype=torch.float32).detach().reshape(-1)
        if len(adv) != steps:
            raise ContractError(f"there are {steps} steps but {len(adv)} advantages, not one for each")
        obs = torch.from_numpy(np.concatenate([trajectory.obs for trajectory in trajectories])).float()
        actions = torch.from_numpy(np.concatenate([trajectory.actions for trajectory in trajectories]))
        old = torch.from_numpy(np.concatenate([trajectory.behavior_logp for trajectory in trajectories]))
        seen = self._policy().evaluate({"obs": obs, "actions": actions})
        loss, everywhere = self.cfg.loss, torch.ones(1, steps, dtype=torch.bool)
        return policy_loss(
            seen.logp[None], old[None], adv[None], everywhere, denominator=max(steps, 1),
            clip_low=loss.clip_ratio, clip_high=loss.clip_ratio_high,
        ).loss  # fmt: skip

    def _policy(self) -> MLPPolicy:
        if self.policy is None:
            raise ContractError("there is no policy yet", hint="Pass one: GRPO(policy=…), or call update first.")
        return self.policy
