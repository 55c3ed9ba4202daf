"""What the package knows of the programs product before a run asks for it."""

from groupwise.config.sections import LanguageSettings, SamplingSettings
from groupwise.products import Metric, Product

CODE = Product(
    name="code",
    summary="a language model and a tree search learn to write programs",
    implementation="groupwise.programs.learning.product",
    sections=(SamplingSettings, LanguageSettings),
    defaults={
        "environment": "programs",
        "estimator": "outcome",
        "num_generations": 8,
        "tasks_per_step": 4,
        "max_new_tokens": 48,  # a program of three lines has about 30 tokens
        "adam_beta2": 0.99,
        "lr_scheduler_type": "linear",
        "warmup_ratio": 0.0,
    },
    metrics=(
        Metric(
            name="eval/accuracy",
            meaning="held-out problems solved by the greedy program",
            unit="share",
            better="higher",
        ),
        Metric(name="eval/reward_mean", meaning="the same as eval/accuracy", unit="share", better="higher"),
        Metric(name="eval/format", meaning="greedy answers that are programs", unit="share", better="higher"),
        Metric(name="eval/attempts", meaning="held-out problems", unit="problems"),
        Metric(
            name="eval/level_*",
            meaning="held-out problems of one level that were solved",
            unit="share",
            better="higher",
        ),
        Metric(
            name="eval/pass@*", meaning="problems that one of k sampled programs solves", unit="share", better="higher"
        ),
        Metric(name="curriculum/level", meaning="mean level of the problems handed out", better="higher"),
        Metric(name="programs/evaluations", meaning="programs evaluated so far", unit="programs"),
        Metric(
            name="search/finds", meaning="problems that a search has solved so far", unit="problems", better="higher"
        ),
        Metric(
            name="search/solved_share", meaning="problems solved by the latest searches", unit="share", better="higher"
        ),
    ),
)
