"""What is checked of the settings of a run that writes programs, before there is a run, without torch."""

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.samplers.vllm_server import check_sampler
from groupwise.programs.declaration import TINY, code_options
from groupwise.rollout.backends import insist_local


def check(cfg: TrainingConfig) -> None:
    """Refuse settings that no run can be made of."""
    insist_local(cfg.rollout, "programs are written by the model and run in its sandbox")
    check_sampler(cfg)
    options = code_options(cfg)
    if cfg.language.chat_template_kwargs:
        raise ConfigError(
            f"language.chat_template_kwargs = {dict(cfg.language.chat_template_kwargs)} has no effect: a program is "
            "continued from its header, so the model does not think first",
            hint="Leave it out.",
            field="language.chat_template_kwargs",
        )
    if cfg.advantage.estimator != "outcome":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} needs rewards of single steps; a program has one score",
            hint='Set advantage.estimator = "outcome".',
            field="advantage.estimator",
        )
    if options.search_samples == "ratio" and cfg.loss.importance_level != "sequence":
        raise ConfigError(
            'task.options.search_samples = "ratio" needs ratios of complete programs',
            hint='Set loss.importance_level = "sequence".',
            field="loss.importance_level",
        )
    if options.warm_steps > cfg.training.num_episodes:
        raise ConfigError(
            f"task.options.warm_steps = {options.warm_steps} exceeds the number of steps, {cfg.training.num_episodes}",
            hint="Raise training.num_episodes.",
            field="task.options.warm_steps",
        )
    if (cfg.policy.model_name or TINY) == TINY and not options.warm_steps and not options.start:
        raise ConfigError(
            "a new model does not write programs yet, so all its programs would score the same",
            hint="Teach it the form first (task.options.warm_steps = 100), or start from a run (task.options.start).",
            field="task.options.warm_steps",
        )
