"""The settings of `task.options` under `task.product = "code"`, read into their types and checked.

Annotations here are read at run time, so this module does not postpone their evaluation.
"""

from typing import ClassVar, Literal

from groupwise.config import Finding, Section, TrainingConfig, setting
from groupwise.config.fields import quoted, raise_findings
from groupwise.programs.problems import FAMILIES, OFFLINE


class CodeOptions(Section):
    """What a run of the code product does beside GRPO on the policy's own groups."""

    SECTION: ClassVar[str] = "task.options"

    families: str = setting(",".join(OFFLINE), "which problems, with commas between")
    problems: int = setting(400, "training problems of each family and level", ge=1)
    levels: int = setting(3, "the hardest level that the curriculum reaches", ge=1, le=3)
    warm_steps: int = setting(0, "first steps that imitate random legal programs, for the form alone", ge=0)
    search_every: int = setting(0, "steps between rounds of search; 0 never searches", ge=0)
    search_problems: int = setting(100, "problems searched in a round", ge=1)
    search_budget: int = setting(16, "evaluations a search may spend on a problem", ge=1)
    first_search: int = setting(4, "the first round searches so many times as many problems", ge=1)
    search_samples: Literal["imitate", "ratio"] = setting(
        "imitate", "how the search's programs teach: solved ones by their likelihood, or all by the ratio to the tree"
    )
    imitate_rows: int = setting(48, "programs that search found, imitated in every step", ge=1)
    imitate_weight: float = setting(1.0, "weight of their likelihood beside the loss of the groups", ge=0)
    partial_credit: float = setting(0.0, "share of its score that a program earns which is right in part", ge=0, le=1)
    placebo: bool = setting(False, "shuffle scores inside every group and every tree: nothing can be learned")
    programs: str | None = setting(None, "folder in which every searched program is kept as a file; none unless given")
    start: str | None = setting(None, "a run of this product whose weights this one begins with")

    @property
    def family_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.families.split(",") if name.strip())


def code_options(cfg: TrainingConfig) -> CodeOptions:
    """The options of a run; an unknown one is refused."""
    options = CodeOptions(**dict(cfg.task.options))  # type: ignore[arg-type]
    raise_findings([_no_family(name) for name in options.family_names if name not in FAMILIES])
    return options


def _no_family(name: str) -> Finding:
    return Finding("task.options.families", f"{quoted(name)} is no family of problems", f"one of {', '.join(FAMILIES)}")
