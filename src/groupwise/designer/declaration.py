"""What the package knows of the designer before a run asks for it."""

from groupwise.config.fields import Section, setting
from groupwise.config.nameable import DataFile, Known, Row
from groupwise.config.sections import MemorySettings, ScoringSettings
from groupwise.products import Metric, Product


class GenerationSettings(Section):
    """How candidate workflows are made and selected."""

    batch_size: int = setting(32, "candidates per generation", ge=1)
    epsilon_greedy: float = setting(0.1, "share of random actions of an exploiting candidate", ge=0, le=1)
    exploration_epsilon: float = setting(0.3, "share of random actions of an exploring candidate", ge=0, le=1)
    exploration_share: float = setting(0.3, "share of candidates that explore", ge=0, le=1)
    elite_percentage: float = setting(0.1, "share of the best candidates always kept", ge=0, le=1)
    tournament_size: int = setting(4, "candidates of one tournament", ge=2)


DESIGNER = Product(
    name="designer",
    summary="a graph policy learns to design workflows for requirements",
    implementation="groupwise.designer.product",
    sections=(GenerationSettings, MemorySettings, ScoringSettings),
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
