"""Names and signatures of the documents Groupwise grew from: thin faces over the products, for code written to them.

    trainer                `GRPOTrainer`, `MultiTurnGRPOTrainer` and `train` for agents
    trl_bridge             the same training handed to TRL's trainer
    language               `TrajectoryDataset`, with its prompt template, and `ValueFunction`
    control                `GRPO(...).update(rollouts)` for Gymnasium
    comparison             `GRPOvsPPOAnalyzer`
    core                   `compute_grpo_advantages`, `compute_grpo_loss`, and group advantages in JAX

docs/migration.md maps every name of the documents to these and to the rest of the package.
All of them can be imported from here: `from groupwise.compat import MultiTurnGRPOTrainer`.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "compute_grpo_advantages": "groupwise.compat.core",
    "compute_grpo_loss": "groupwise.compat.core",
    "loss_denominator": "groupwise.core",
    "ValueFunction": "groupwise.compat.language",
    "ValueHead": "groupwise.language.policy",
    "create_value_function": "groupwise.compat.language",
    "TrajectoryDataset": "groupwise.compat.language",
    "Experience": "groupwise.memory.experiences",
    "GenerationMetrics": "groupwise.designer.outcome",
    "WorkflowResult": "groupwise.designer.outcome",
    "PolicyUpdateResult": "groupwise.designer.outcome",
    "NeuralRewardFunction": "groupwise.rewards.learned.neural",
    "create_neural_reward_function": "groupwise.rewards.learned.neural",
    "NeuralRewardTrainer": "groupwise.rewards.learned.trainer",
    "TaskEnvironment": "groupwise.agents.environments.task",
    "GRPOTrainer": "groupwise.compat.trainer",
    "MultiTurnGRPOTrainer": "groupwise.compat.trainer",
    "train": "groupwise.compat.trainer",
    "train_with_trl_grpo": "groupwise.compat.trl_bridge",
    "LengthRewardComponent": "groupwise.rewards.rules.components",
    "KeywordRewardComponent": "groupwise.rewards.rules.components",
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
    "GRPO": "groupwise.compat.control",
    "GroupingStrategy": "groupwise.compat.control",
    "GroupAdvantageNormalizer": "groupwise.compat.control",
    "GroupWeightCalculator": "groupwise.compat.control",
    "AdaptiveGrouper": "groupwise.compat.control",
    "compute_group_advantages_vectorized": "groupwise.compat.core",
    "GRPOvsPPOAnalyzer": "groupwise.compat.comparison",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
