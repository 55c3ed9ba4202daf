"""Names and signatures of the documents Groupwise grew from: thin faces over the products, for code written to them.

    trainer                `GRPOTrainer`, `MultiTurnGRPOTrainer` and `train` for agents
    distributed            the same on many ranks: `DistributedGRPOTrainer` and `launch_distributed_training`
    computational          `create_computational_engine`: the same trainer with many workers
    trl_trainer            TRL's call, `GRPOTrainer(model=…, reward_funcs=…)`, over our loop; trl_tools for its tools
    trl_config             `GRPOConfig`, TRL's arguments and what each of them is here
    trl_bridge             the same training handed to TRL's trainer
    language               `TrajectoryDataset`, with its prompt template, and `ValueFunction`
    control                `GRPO(...).update(rollouts)` for Gymnasium
    clipped_ppo            the plan's `base_ppo`: advantages and the clipped loss
    rollouts               rollouts made elsewhere, as trajectories
    comparison             `GRPOvsPPOAnalyzer`
    core                   `compute_grpo_advantages`, `compute_grpo_loss`, and group advantages in JAX

docs/migration.md maps every name of the documents to these and to the rest of the package.
All of them can be imported from here: `from groupwise.compat import MultiTurnGRPOTrainer`.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "groupwise.compat.core": "compute_grpo_advantages compute_grpo_loss compute_group_advantages_vectorized",
    "groupwise.core": "loss_denominator",
    "groupwise.compat.language": "ValueFunction create_value_function TrajectoryDataset",
    "groupwise.language.policy": "ValueHead",
    "groupwise.memory.experiences": "Experience",
    "groupwise.designer.results.outcome": "GenerationMetrics WorkflowResult PolicyUpdateResult",
    "groupwise.rewards.learned.neural": "NeuralRewardFunction create_neural_reward_function",
    "groupwise.rewards.learned.trainer": "NeuralRewardTrainer",
    "groupwise.agents.environments.task": "TaskEnvironment",
    "groupwise.compat.trainer": "GRPOTrainer MultiTurnGRPOTrainer train",
    "groupwise.compat.distributed": "DistributedConfig DistributedGRPOTrainer launch_distributed_training",
    "groupwise.compat.trl_config": "GRPOConfig",
    "groupwise.compat.trl_bridge": "train_with_trl_grpo",
    "groupwise.rewards.rules.components": "LengthRewardComponent KeywordRewardComponent",
    "groupwise.rewards.presets": (
        "create_customer_service_reward create_technical_support_reward create_sales_reward "
        "create_educational_reward create_creative_reward"
    ),
    "groupwise.rewards.judge.judge_reward": (
        "RulerRewardFunction create_customer_service_ruler create_technical_support_ruler create_sales_ruler "
        "create_educational_ruler create_creative_ruler"
    ),
    "groupwise.compat.control": "GRPO GroupingStrategy GroupAdvantageNormalizer GroupWeightCalculator AdaptiveGrouper",
    "groupwise.compat.comparison": "GRPOvsPPOAnalyzer",
    "groupwise.compat.computational": "ComputationalGRPOEngine create_computational_engine",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
