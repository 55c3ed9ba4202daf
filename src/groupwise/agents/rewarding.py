"""`reward.name` for answers and conversations: what `groupwise.rewards` knows, and what needs a sandbox besides."""

from __future__ import annotations

from groupwise.agents.program_reward import ProgramReward
from groupwise.rewards.finding import add_reward, find_reward

__all__ = ["find_reward"]

add_reward("program", ProgramReward)
