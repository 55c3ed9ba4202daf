"""The product `code`: what the package knows of it before a run asks for it, and its settings."""

from typing import ClassVar, Literal

from groupwise.config import Finding, Section, TrainingConfig, setting
from groupwise.config.fields import quoted, raise_findings
from groupwise.config.nameable import Known, OwnRun, Row, plain
from groupwise.config.sections import LanguageSettings, SamplingSettings, VllmSettings
from groupwise.products import Metric, Product
from groupwise.programs.problems import FAMILIES, OFFLINE

TINY = "tiny"  # a model made from scratch, which writes nothing yet


class CodeOptions(Section):
    """What a run of the product does besides GRPO on the policy's own groups."""

    SECTION: ClassVar[str] = "task.options"

    families: str = setting(",".join(OFFLINE), "families of problems, separated by commas")
    problems: int = setting(400, "training problems per family and level", ge=1)
    levels: int = setting(3, "hardest level of the curriculum", ge=1, le=3)
    warm_steps: int = setting(0, "first steps, which imitate random legal programs to learn the form", ge=0)
    search_every: int = setting(0, "steps between rounds of search; 0 disables search", ge=0)
    search_problems: int = setting(100, "problems searched per round", ge=1)
    search_budget: int = setting(16, "evaluations per problem in a search", ge=1)
    first_search: int = setting(4, "the first round searches this many times as many problems", ge=1)
    search_samples: Literal["imitate", "ratio"] = setting(
        "imitate", "how to learn from searches: imitate solved programs, or use all programs with importance ratios"
    )
    imitate_rows: int = setting(48, "found programs imitated per step", ge=1)
    imitate_weight: float = setting(1.0, "weight of imitation relative to the loss of the groups", ge=0)
    partial_credit: float = setting(0.0, "share of its score that a partly correct program earns", ge=0, le=1)
    placebo: bool = setting(False, "shuffle scores within every group and tree, so that nothing can be learned")
    programs: str | None = setting(
        None, "folder to save the programs of all searches in, one file each; null: do not save"
    )
    start: str | None = setting(None, "a run of this product to start from")

    @property
    def family_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.families.split(",") if name.strip())


def code_options(cfg: TrainingConfig) -> CodeOptions:
    options = CodeOptions(**dict(cfg.task.options))  # type: ignore[arg-type]
    unknown = [name for name in options.family_names if name not in FAMILIES]
    known = f"one of {', '.join(FAMILIES)}"
    raise_findings(
        [
            Finding(f"{CodeOptions.SECTION}.families", f"{quoted(name)} is not a problem family", known)
            for name in unknown
        ]
    )
    return options


CODE = Product(
    name="code",
    summary="a language model learns to write programs by search, imitation and GRPO",
    implementation="groupwise.programs.learning.product",
    checks="groupwise.programs.checks:check",
    grouped=False,
    sections=(SamplingSettings, LanguageSettings, VllmSettings),
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
    nameable=(
        Row("task.environment", "programs", (Known(("programs",)),)),
        Row("task.options.families", "families of problems", (Known(tuple(FAMILIES)),), separator=","),
        Row("task.options.start", "a run of yours", (OwnRun(),)),
        Row("task.options.programs", "a folder that the run writes to"),
        *plain("task.options.search_samples"),
    ),
    metrics=(
        Metric(
            name="eval/accuracy",
            meaning="held-out problems solved by the greedy program",
            unit="share",
            better="higher",
        ),
        Metric(
            name="eval/reward_mean",
            meaning="held-out problems solved by the greedy program",
            unit="share",
            better="higher",
        ),
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
