"""What the package knows of the designer before a run asks for it."""

from typing import Literal

from groupwise.config import TrainingConfig
from groupwise.config.fields import Section, setting
from groupwise.config.nameable import DataFile, Known, Row, plain
from groupwise.config.sections import MemorySettings, ScoringSettings
from groupwise.errors import ConfigError
from groupwise.products import Metric, Product


class GenerationSettings(Section):
    """How candidate workflows are made and selected."""

    batch_size: int = setting(32, "candidates per generation", ge=1)
    epsilon_greedy: float = setting(0.1, "share of random actions of an exploiting candidate", ge=0, le=1)
    exploration_epsilon: float = setting(0.3, "share of random actions of an exploring candidate", ge=0, le=1)
    exploration_share: float = setting(0.3, "share of candidates that explore", ge=0, le=1)
    elite_percentage: float = setting(0.1, "share of the best candidates always kept", ge=0, le=1)
    tournament_size: int = setting(4, "candidates of one tournament", ge=2)
    sampled_share: float = setting(
        0.05, "share of every generation but the first that is sampled from the policy; the rest are edits", ge=0, le=1
    )
    learning_share: float = setting(0.5, "the same while the policy learns, which it does from samples", ge=0, le=1)
    action_sampler: Literal["learned", "rates"] = setting(
        "learned", "which actions an edit consists of: those that led to better designs, or each kind at its rate"
    )
    branch_rate: float = setting(0.3, "rates: share of edits that change elements or branches", ge=0, le=1)
    synchronization_rate: float = setting(0.4, "rates: share of edits that change a synchronisation", ge=0, le=1)
    timing_rate: float = setting(0.2, "rates: share of edits that change retries, timeouts or due times", ge=0, le=1)
    resource_rate: float = setting(0.1, "rates: share of edits that change pools, servers or queues", ge=0, le=1)
    # What each is a share of: docs/designer.md. A generation that misses one makes the next explore more.
    structural_diversity: float = setting(0.6, "target share of distinct structures in a generation", ge=0, le=1)
    temporal_diversity: float = setting(0.5, "target share of distinct timings in a generation", ge=0, le=1)
    resource_diversity: float = setting(0.4, "target share of distinct resources in a generation", ge=0, le=1)
    novelty: float = setting(0.3, "target share of new designs among those made for a generation", ge=0, le=1)
    workers: int = setting(1, "processes that make and evaluate candidates; the designs are the same", ge=1, le=256)


class CorrectionSettings(Section):
    """The losses of self-correction in learning; the third is loss.entropy_coef. See docs/designer.md."""

    performance_loss_coef: float = setting(0.0, "weight of the squared error of a design's predicted performance", ge=0)
    structural_loss_coef: float = setting(0.0, "weight of the penalty on a design's control-flow complexity", ge=0)


DESIGNER = Product(
    name="designer",
    summary="a graph policy learns to design workflows for requirements",
    implementation="groupwise.designer.product",
    checks="groupwise.designer.declaration:check",
    sections=(GenerationSettings, MemorySettings, ScoringSettings, CorrectionSettings),
    # Those of designer.toml, with which the shipped policy was trained, for shorter runs.
    defaults={
        "environment": "worlds",
        "num_generations": 32,  # as many as generation.batch_size, which replaces it where it is set: see `prepare`
        "tasks_per_step": 8,
        "estimator": "outcome",
        "advantage_scale": "group_std",
        "loss_type": "dapo",
        "entropy_coef": 0.003,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.02,
        "per_device_train_batch_size": 128,
        "gradient_accumulation_steps": 1,
    },
    nameable=(
        Row("task.environment", "worlds: synthetic requirements", (Known(("worlds",)),)),
        Row("task.options.requirements", "files in the data folder, separated by commas", (DataFile(),), separator=","),
        Row(
            "task.options.start",
            "the policy that ships with the package, or a file in the data folder",
            (Known(("pretrained",)), DataFile()),
        ),
        Row("task.options.memory", "a file that the run writes to"),
        *plain("generation.action_sampler"),
    ),
    metrics=(
        Metric(
            name="eval/reward_mean",
            meaning="mean score of the likeliest designs for held-out requirements",
            better="higher",
        ),
        Metric(name="eval/reward_std", meaning="standard deviation of these scores"),
        Metric(name="eval/reward_min", meaning="the lowest of these scores", better="higher"),
        Metric(name="eval/attempts", meaning="held-out requirements that were designed for", unit="requirements"),
    ),
)


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
