"""What is checked of the settings of a control run and of PPO, before there is a run, without torch."""

from groupwise.config import TrainingConfig
from groupwise.control.environments import make_environment
from groupwise.control.multitask import insist_on_several_tasks
from groupwise.control.spaces import Interface, interface_of
from groupwise.errors import ConfigError
from groupwise.rollout.backends import insist_local
from groupwise.types import VectorEnvironment


def check_groups(cfg: TrainingConfig) -> None:
    """Refuse settings that cannot work, before a run folder exists."""
    refuse_sequence_losses(cfg)
    environment = make_environment(cfg.task)
    insist_on_network(cfg, interface_of(environment))
    if cfg.optim.gradient_surgery != "none" and not names_its_tasks(environment):
        insist_on_several_tasks(environment, "optim.gradient_surgery", cfg.optim.gradient_surgery)


def check_ppo(cfg: TrainingConfig) -> None:
    """Refuse settings that PPO cannot use, before a run folder exists."""
    insist_local(cfg.rollout, "PPO's copies play on from one step to the next, in one process")
    refuse_sequence_losses(cfg)
    if cfg.advantage.estimator not in ("gae", "group_gae"):
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} compares attempts in a group, but PPO has no groups",
            hint='Set advantage.estimator = "gae" (or "group_gae" for a critic in the units of each task of a suite), '
            'or task.product = "control" for groups.',
            field="advantage.estimator",
        )
    if cfg.policy.use_reference_model:
        message = "policy.use_reference_model = true, but PPO does not use a reference model"
        hint = "Leave it out; optim.kl_stop limits a single update."
        raise ConfigError(message, hint=hint, field="policy.use_reference_model")
    environment = make_environment(cfg.task)
    insist_on_network(cfg, interface_of(environment))
    if cfg.optim.gradient_surgery != "none":
        insist_on_several_tasks(environment, "optim.gradient_surgery", cfg.optim.gradient_surgery)


def insist_on_network(cfg: TrainingConfig, interface: Interface) -> None:
    """Refuse a network that is routed by task for an environment that does not tell its task."""
    if cfg.policy.architecture == "layers" or interface.tasks:
        return
    given = f"policy.architecture = {cfg.policy.architecture!r}"
    message = f"{given} is routed by task, but {cfg.task.environment} does not tell its task"
    hint = "Train on a suite, such as reward-scales or a TOML file of tasks, or leave it out."
    raise ConfigError(message, hint=hint, field="policy.architecture")


def refuse_sequence_losses(cfg: TrainingConfig) -> None:
    """Control learns from single steps; a ratio over whole attempts is not defined for its rows."""
    loss = cfg.loss
    if loss.importance_level == "sequence" or loss.loss_type in ("gspo", "luspo", "vespo"):
        given = f"loss.loss_type = {loss.loss_type!r} with importance_level = {loss.importance_level!r}"
        message = f"{given} compares whole attempts, but a control policy learns from single steps"
        hint = "Use grpo, bnpo, dr_grpo, dapo, cispo or sapo, at token level."
        raise ConfigError(message, hint=hint, field="loss.loss_type")


def names_its_tasks(environment: VectorEnvironment) -> bool:
    """Whether the info of a reset says which task an episode is about."""
    environment.reset([0])
    return any(getattr(environment, "task_names", []))
