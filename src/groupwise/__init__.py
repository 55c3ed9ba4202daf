"""Groupwise: Group Relative Policy Optimization for agents, workflows and control.

The names below are imported when they are first used, so that `import groupwise` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "TrainingConfig": "groupwise.config",
    "TrainingProfile": "groupwise.config",
    "load_config": "groupwise.config",
    "GroupwiseError": "groupwise.errors",
    "Task": "groupwise.types",
    "Trajectory": "groupwise.types",
    "Group": "groupwise.types",
    "Score": "groupwise.types",
    "Failed": "groupwise.types",
    "Batch": "groupwise.types",
    "group_advantages": "groupwise.core",
    "compute_grpo_advantages": "groupwise.compat.core",
    "compute_grpo_loss": "groupwise.compat.core",
    "policy_loss": "groupwise.core",
    "loss_denominator": "groupwise.core",
    "ValueFunction": "groupwise.compat.language",
    "ValueHead": "groupwise.language.policy",
    "create_value_function": "groupwise.compat.language",
    "TrajectoryDataset": "groupwise.compat.language",
    "Experience": "groupwise.memory.experiences",
    "MemorySystem": "groupwise.memory.system",
    "GenerationMetrics": "groupwise.designer.outcome",
    "WorkflowResult": "groupwise.designer.outcome",
    "PolicyUpdateResult": "groupwise.designer.outcome",
    "AgentConfig": "groupwise.agents.settings",
    "NeuralRewardFunction": "groupwise.rewards.learned.neural",
    "create_neural_reward_function": "groupwise.rewards.learned.neural",
    "NeuralRewardTrainer": "groupwise.rewards.learned.trainer",
    "Agent": "groupwise.agents.agent",
    "MultiTurnAgent": "groupwise.agents.conversation.multiturn_agent",
    "ConversationEnvironment": "groupwise.agents.environments.conversation",
    "TaskEnvironment": "groupwise.agents.environments.task",
    "GRPOTrainer": "groupwise.compat.trainer",
    "MultiTurnGRPOTrainer": "groupwise.compat.trainer",
    "train": "groupwise.compat.trainer",
    "train_with_trl_grpo": "groupwise.compat.trl_bridge",
    "RewardFunction": "groupwise.rewards.function",
    "LengthRewardComponent": "groupwise.rewards.rules.components",
    "KeywordRewardComponent": "groupwise.rewards.rules.components",
    "MultiObjectiveRewardFunction": "groupwise.rewards.combination",
    "create_customer_service_reward": "groupwise.rewards.combination",
    "create_technical_support_reward": "groupwise.rewards.combination",
    "create_sales_reward": "groupwise.rewards.combination",
    "create_educational_reward": "groupwise.rewards.combination",
    "create_creative_reward": "groupwise.rewards.combination",
    "RulerRewardFunction": "groupwise.rewards.judge.ruler",
    "create_customer_service_ruler": "groupwise.rewards.judge.ruler",
    "create_technical_support_ruler": "groupwise.rewards.judge.ruler",
    "create_sales_ruler": "groupwise.rewards.judge.ruler",
    "create_educational_ruler": "groupwise.rewards.judge.ruler",
    "create_creative_ruler": "groupwise.rewards.judge.ruler",
    "ControlModel": "groupwise.control.model",
    "evaluate_policy": "groupwise.control.model",
    "GRPO": "groupwise.compat.control",
    "GroupingStrategy": "groupwise.compat.control",
    "GroupAdvantageNormalizer": "groupwise.compat.control",
    "GroupWeightCalculator": "groupwise.compat.control",
    "AdaptiveGrouper": "groupwise.compat.control",
    "compute_group_advantages_vectorized": "groupwise.compat.core",
    "GRPOvsPPOAnalyzer": "groupwise.compat.comparison",
    "Learner": "groupwise.training.learner",
    "GroupSource": "groupwise.training.source",
    "create_run": "groupwise.training.folder",
    "execute": "groupwise.training.session",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from groupwise.agents.agent import Agent
    from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
    from groupwise.agents.environments.conversation import ConversationEnvironment
    from groupwise.agents.environments.task import TaskEnvironment
    from groupwise.agents.settings import AgentConfig
    from groupwise.compat.comparison import GRPOvsPPOAnalyzer
    from groupwise.compat.control import (
        GRPO,
        AdaptiveGrouper,
        GroupAdvantageNormalizer,
        GroupingStrategy,
        GroupWeightCalculator,
    )
    from groupwise.compat.core import (
        compute_group_advantages_vectorized,
        compute_grpo_advantages,
        compute_grpo_loss,
    )
    from groupwise.compat.language import TrajectoryDataset, ValueFunction, create_value_function
    from groupwise.compat.trainer import GRPOTrainer, MultiTurnGRPOTrainer, train
    from groupwise.compat.trl_bridge import train_with_trl_grpo
    from groupwise.config import TrainingConfig, TrainingProfile, load_config
    from groupwise.control.model import ControlModel, evaluate_policy
    from groupwise.core import group_advantages, loss_denominator, policy_loss
    from groupwise.designer.outcome import GenerationMetrics, PolicyUpdateResult, WorkflowResult
    from groupwise.errors import GroupwiseError
    from groupwise.language.policy import ValueHead
    from groupwise.memory.experiences import Experience
    from groupwise.memory.system import MemorySystem
    from groupwise.rewards.combination import (
        MultiObjectiveRewardFunction,
        create_creative_reward,
        create_customer_service_reward,
        create_educational_reward,
        create_sales_reward,
        create_technical_support_reward,
    )
    from groupwise.rewards.function import RewardFunction
    from groupwise.rewards.judge.ruler import (
        RulerRewardFunction,
        create_creative_ruler,
        create_customer_service_ruler,
        create_educational_ruler,
        create_sales_ruler,
        create_technical_support_ruler,
    )
    from groupwise.rewards.learned.neural import NeuralRewardFunction, create_neural_reward_function
    from groupwise.rewards.learned.trainer import NeuralRewardTrainer
    from groupwise.rewards.rules.components import KeywordRewardComponent, LengthRewardComponent
    from groupwise.training.folder import create_run
    from groupwise.training.learner import Learner
    from groupwise.training.session import execute
    from groupwise.training.source import GroupSource
    from groupwise.types import Batch, Failed, Group, Score, Task, Trajectory


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'groupwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
