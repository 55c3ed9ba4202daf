"""What is checked of the settings of a designer run, before there is a run, without torch."""

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError


def check(cfg: TrainingConfig) -> None:
    """Refuse settings that no designer run can be made of."""
    if cfg.advantage.estimator != "outcome":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} needs rewards of single steps; a design has one score",
            hint='Set advantage.estimator = "outcome".',
            field="advantage.estimator",
        )
    edit_share(cfg)


def edit_share(cfg: TrainingConfig) -> float:
    """`task.options.edit_share`: the share of groups that consist of edits of one plan."""
    given, name = cfg.task.options.get("edit_share", 0.0), "task.options.edit_share"
    if not isinstance(given, int | float) or not 0 <= given <= 1:
        raise ConfigError(f"{name} = {given!r}; it must be between 0 and 1", field=name)
    return float(given)
