"""The code product: problems, a language model that writes programs for them, and searches, ready for the loop."""

from __future__ import annotations

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine
from groupwise.programs.learning.curriculum import ProgramExamination
from groupwise.programs.learning.model import TINY, first_policy
from groupwise.programs.learning.settings import CodeOptions, code_options
from groupwise.programs.learning.source import CodeSource, sampling
from groupwise.training.session import Parts

SLOTS = 256


def check(cfg: TrainingConfig) -> None:
    """Refuse what no run can be made of."""
    options = code_options(cfg)
    if cfg.advantage.estimator != "outcome":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} looks at single steps; a program is judged as a whole",
            hint='Set advantage.estimator = "outcome".',
            field="advantage.estimator",
        )
    if options.search_samples == "ratio" and cfg.loss.importance_level != "sequence":
        raise ConfigError(
            'task.options.search_samples = "ratio" compares whole programs with the tree they were drawn from',
            hint='Set loss.importance_level = "sequence".',
            field="loss.importance_level",
        )
    _check_warm_start(cfg, options)


def _check_warm_start(cfg: TrainingConfig, options: CodeOptions) -> None:
    if options.warm_steps > cfg.training.num_episodes:
        raise ConfigError(
            f"task.options.warm_steps = {options.warm_steps} is more than there are steps, {cfg.training.num_episodes}",
            hint="Raise training.num_episodes.",
            field="task.options.warm_steps",
        )
    if (cfg.policy.model_name or TINY) == TINY and not options.warm_steps and not options.start:
        raise ConfigError(
            "a model made from scratch writes no programs yet, so no group would ever differ",
            hint="Let it learn the form first (task.options.warm_steps = 100), or name a run in task.options.start.",
            field="task.options.warm_steps",
        )


def build(cfg: TrainingConfig) -> Parts:
    """Everything a run needs, made from its settings."""
    check(cfg)
    options = code_options(cfg)
    policy, language = first_policy(cfg)
    engine = Engine(language.model, language.tokenizer, slots=max(SLOTS, cfg.rollout.num_generations))
    source = CodeSource(cfg, options, policy, engine, language.tokenizer)
    examination = ProgramExamination(cfg, options, engine, language.tokenizer, sampling(cfg))
    return Parts(policy, source, examination, lambda: examination.shown)
