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
    "compute_grpo_advantages": "groupwise.core",
    "compute_grpo_loss": "groupwise.core",
    "policy_loss": "groupwise.core",
    "loss_denominator": "groupwise.core",
    "ValueFunction": "groupwise.language.value",
    "ValueHead": "groupwise.language.value",
    "create_value_function": "groupwise.language.value",
    "TrajectoryDataset": "groupwise.language.dataset",
    "Experience": "groupwise.memory.experiences",
    "MemorySystem": "groupwise.memory.system",
    "GenerationMetrics": "groupwise.workflows.designer.monitoring",
    "WorkflowResult": "groupwise.workflows.designer.monitoring",
    "PolicyUpdateResult": "groupwise.workflows.designer.monitoring",
    "AgentConfig": "groupwise.agents.settings",
    "NeuralRewardFunction": "groupwise.rewards.neural",
    "create_neural_reward_function": "groupwise.rewards.neural",
    "NeuralRewardTrainer": "groupwise.rewards.neural_trainer",
    "Agent": "groupwise.agents.agent",
    "MultiTurnAgent": "groupwise.agents.multiturn",
    "ConversationEnvironment": "groupwise.agents.environments.conversation",
    "TaskEnvironment": "groupwise.agents.environments.task",
    "GRPOTrainer": "groupwise.agents.trainer",
    "MultiTurnGRPOTrainer": "groupwise.agents.trainer",
    "train": "groupwise.agents.trainer",
    "train_with_trl_grpo": "groupwise.agents.trl_bridge",
    "RewardFunction": "groupwise.rewards.function",
    "LengthRewardComponent": "groupwise.rewards.components",
    "KeywordRewardComponent": "groupwise.rewards.components",
    "MultiObjectiveRewardFunction": "groupwise.rewards.combining",
    "create_customer_service_reward": "groupwise.rewards.presets",
    "create_technical_support_reward": "groupwise.rewards.presets",
    "create_sales_reward": "groupwise.rewards.presets",
    "create_educational_reward": "groupwise.rewards.presets",
    "create_creative_reward": "groupwise.rewards.presets",
    "RulerRewardFunction": "groupwise.rewards.judge",
    "create_customer_service_ruler": "groupwise.rewards.judge",
    "create_technical_support_ruler": "groupwise.rewards.judge",
    "create_sales_ruler": "groupwise.rewards.judge",
    "create_educational_ruler": "groupwise.rewards.judge",
    "create_creative_ruler": "groupwise.rewards.judge",
    "ControlModel": "groupwise.control.model",
    "evaluate_policy": "groupwise.control.model",
    "GRPO": "groupwise.control.grpo",
    "GroupingStrategy": "groupwise.control.grpo",
    "GroupAdvantageNormalizer": "groupwise.control.grpo",
    "GroupWeightCalculator": "groupwise.control.grpo",
    "AdaptiveGrouper": "groupwise.control.grpo",
    "compute_group_advantages_vectorized": "groupwise.core.vectorized",
    "GRPOvsPPOAnalyzer": "groupwise.control.analysis",
    "Learner": "groupwise.training.learner",
    "GroupSource": "groupwise.training.source",
    "create_run": "groupwise.training.folder",
    "execute": "groupwise.training.session",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from groupwise.agents.agent import Agent
    from groupwise.agents.environments.conversation import ConversationEnvironment
    from groupwise.agents.environments.task import TaskEnvironment
    from groupwise.agents.multiturn import MultiTurnAgent
    from groupwise.agents.settings import AgentConfig
    from groupwise.agents.trainer import GRPOTrainer, MultiTurnGRPOTrainer, train
    from groupwise.agents.trl_bridge import train_with_trl_grpo
    from groupwise.config import TrainingConfig, TrainingProfile, load_config
    from groupwise.control.analysis import GRPOvsPPOAnalyzer
    from groupwise.control.grpo import (
        GRPO,
        AdaptiveGrouper,
        GroupAdvantageNormalizer,
        GroupingStrategy,
        GroupWeightCalculator,
    )
    from groupwise.control.model import ControlModel, evaluate_policy
    from groupwise.core import (
        compute_grpo_advantages,
        compute_grpo_loss,
        group_advantages,
        loss_denominator,
        policy_loss,
    )
    from groupwise.core.vectorized import compute_group_advantages_vectorized
    from groupwise.errors import GroupwiseError
    from groupwise.language.dataset import TrajectoryDataset
    from groupwise.language.value import ValueFunction, ValueHead, create_value_function
    from groupwise.memory.experiences import Experience
    from groupwise.memory.system import MemorySystem
    from groupwise.rewards.combining import MultiObjectiveRewardFunction
    from groupwise.rewards.components import KeywordRewardComponent, LengthRewardComponent
    from groupwise.rewards.function import RewardFunction
    from groupwise.rewards.judge import (
        RulerRewardFunction,
        create_creative_ruler,
        create_customer_service_ruler,
        create_educational_ruler,
        create_sales_ruler,
        create_technical_support_ruler,
    )
    from groupwise.rewards.neural import NeuralRewardFunction, create_neural_reward_function
    from groupwise.rewards.neural_trainer import NeuralRewardTrainer
    from groupwise.rewards.presets import (
        create_creative_reward,
        create_customer_service_reward,
        create_educational_reward,
        create_sales_reward,
        create_technical_support_reward,
    )
    from groupwise.training.folder import create_run
    from groupwise.training.learner import Learner
    from groupwise.training.session import execute
    from groupwise.training.source import GroupSource
    from groupwise.types import Batch, Failed, Group, Score, Task, Trajectory
    from groupwise.workflows.designer.monitoring import GenerationMetrics, PolicyUpdateResult, WorkflowResult


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'groupwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
