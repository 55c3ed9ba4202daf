"""What the package knows about the control products before a run asks for one: settings, defaults, metrics."""

from groupwise.config.nameable import Known, Row
from groupwise.products import Metric, Product

# A network this small learns best with large steps on large batches, and fastest on one thread.
SMALL_NETWORK = {
    "learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_ratio": 0.0, "adam_epsilon": 1e-5,
    "per_device_train_batch_size": 256, "gradient_accumulation_steps": 1, "num_epochs": 8, "kl_stop": 0.03,
    "max_grad_norm": 0.5, "threads": 1,
    # Every step is a row of its own: a sequence ratio of one action needs the clip of a token, whatever the loss.
    "clip_ratio": 0.2,
}  # fmt: skip
METRICS = (
    Metric(name="eval/reward_mean", meaning="mean return of the evaluation episodes", better="higher"),
    Metric(name="eval/reward_std", meaning="standard deviation of their returns"),
    Metric(name="eval/reward_min", meaning="return of the worst evaluation episode", better="higher"),
    Metric(name="eval/length_mean", meaning="mean length of the evaluation episodes", unit="steps"),
    Metric(name="eval/failed_share", meaning="evaluation episodes that failed", unit="share", better="lower"),
    Metric(name="eval/*/reward_mean", meaning="mean return on one task of a suite", better="higher"),
    Metric(name="eval/*/length_mean", meaning="mean length on one task of a suite", unit="steps"),
)
# Options have no rows: text in them goes to code that is not ours, which may read it as a path. Numbers name nothing.
NAMEABLE = (
    Row(
        "task.environment",
        "an environment of ours, a suite, or an id that Gymnasium has registered",
        (Known(registry="groupwise.control.environments:registered"),),
    ),
)

CONTROL = Product(
    name="control",
    summary="a small network learns an environment from groups of episodes",
    implementation="groupwise.control.grpo",
    checks="groupwise.control.checks:check_groups",
    defaults={**SMALL_NETWORK, "estimator": "group_rtg", "advantage_scale": "batch_std", "num_generations": 8},
    metrics=METRICS,
    nameable=NAMEABLE,
)
PPO = Product(
    name="ppo",
    summary="the PPO baseline on the same environments",
    implementation="groupwise.control.ppo",
    checks="groupwise.control.checks:check_ppo",
    grouped=False,
    # Stable-Baselines3's: no value clipping, and vf_coef 0.5 on a loss without the factor ½ that ours has.
    defaults={
        **SMALL_NETWORK,
        "estimator": "gae",
        "advantage_scale": "batch_std",
        "value_clip": None,
        "value_coef": 1.0,
    },
    metrics=METRICS,
    nameable=NAMEABLE,
)
