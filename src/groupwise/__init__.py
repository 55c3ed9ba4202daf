"""Groupwise: Group Relative Policy Optimization for agents, workflows, programs and control.

    types errors thoughts extras files sqlite stems     vocabulary and plumbing
    products metrics                                    the table of products; what every logged number means
    readers xml_reader foreign_programs machine_memory  foreign files and programs, and what fits in memory
    workers worker_process event_loop user_code         processes, threads, and the user's own code
    config, core                                        settings; the mathematics as pure functions
    language rollout rewards memory sandbox workflows   parts, independent of each other
    training → reporting                                one loop for all products; what people see of a run
    agents designer programs control                    products, each behind its row in products.py
    compat                                              names of the documents this grew from
    service, commands, cli                              HTTP and the command line

Open training/loop.py first: the whole algorithm on one screen. docs/architecture.md explains the rest.
The names below are imported when they are first used, so that `import groupwise` stays light.
"""

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
    "policy_loss": "groupwise.core",
    "RewardFunction": "groupwise.rewards.function",
    "MultiObjectiveRewardFunction": "groupwise.rewards.combination",
    "Agent": "groupwise.agents.agent",
    "AgentConfig": "groupwise.agents.settings",
    "MultiTurnAgent": "groupwise.agents.conversation.multiturn_agent",
    "ConversationEnvironment": "groupwise.agents.environments.conversation",
    "ControlModel": "groupwise.control.model",
    "GRPOConfig": "groupwise.compat.trl_config",
    "GRPOTrainer": "groupwise.compat.trainer",
    "evaluate_policy": "groupwise.control.evaluation",
    "MemorySystem": "groupwise.memory.system",
    "product_of": "groupwise.products",
    "create_run": "groupwise.training.folder",
    "execute": "groupwise.training.session",
    "Learner": "groupwise.training.learner",
    "GroupSource": "groupwise.training.batch_source",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from groupwise.agents.agent import Agent
    from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
    from groupwise.agents.environments.conversation import ConversationEnvironment
    from groupwise.agents.settings import AgentConfig
    from groupwise.compat.trainer import GRPOTrainer
    from groupwise.compat.trl_config import GRPOConfig
    from groupwise.config import TrainingConfig, TrainingProfile, load_config
    from groupwise.control.evaluation import evaluate_policy
    from groupwise.control.model import ControlModel
    from groupwise.core import group_advantages, policy_loss
    from groupwise.errors import GroupwiseError
    from groupwise.memory.system import MemorySystem
    from groupwise.products import product_of
    from groupwise.rewards.combination import MultiObjectiveRewardFunction
    from groupwise.rewards.function import RewardFunction
    from groupwise.training.batch_source import GroupSource
    from groupwise.training.folder import create_run
    from groupwise.training.learner import Learner
    from groupwise.training.session import execute
    from groupwise.types import Batch, Failed, Group, Score, Task, Trajectory


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'groupwise' has no attribute {name!r}; compatibility names are in groupwise.compat")


def __dir__() -> list[str]:
    return sorted(__all__)
