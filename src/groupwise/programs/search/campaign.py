"""Searches for many problems in one folder, which can be continued at any time; every program becomes a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, StorageError
from groupwise.files import disk, write_atomic
from groupwise.programs.language.grammar import as_program
from groupwise.programs.language.problem import CodeProblem, Split
from groupwise.programs.problems import LEVELS, generate
from groupwise.programs.search.program_search import Prior, explore
from groupwise.programs.search.tree import EvaluationRecord, SearchSettings, SearchTree


def program_text(problem: CodeProblem, record: EvaluationRecord) -> str:
    return as_program(record.actions, problem) + "\n"


def save_programs(problem: CodeProblem, records: Iterable[EvaluationRecord], folder: Path) -> list[Path]:
    """Write the programs of records, one file each, and return the paths."""
    paths = []
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for record in records:
            path = folder / f"{record.number:03}.py"
            path.write_text(_heading(problem, record) + program_text(problem, record), encoding="utf8")
            paths.append(path)
    return paths


def _heading(problem: CodeProblem, record: EvaluationRecord) -> str:
    prior = sum(step.log_prior for step in record.steps)
    lines = [
        *problem.question.split("\n"),
        f"evaluation {record.number}: {record.judged.notes.get('outcome', '')}, value {record.judged.value:.3f}",
        f"log-probability {record.log_prob:.4f} when sampled, {prior:.4f} under the prior alone",
    ]
    return "".join(f"# {line}\n" for line in lines)


def record_as_json(problem: CodeProblem, record: EvaluationRecord) -> dict[str, Any]:
    """A record as JSON."""
    return {
        "evaluation": record.number,
        "program": program_text(problem, record),
        "worth": record.judged.value,
        "solved": record.judged.solved,
        **record.judged.notes,
        "log_prob": record.log_prob,
        "line_log_probs": [step.log_prob for step in record.steps],
        "line_log_priors": [step.log_prior for step in record.steps],
    }


MARKS = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """Which problems to search and how: `problems` of each family and difficulty, starting with `seed`."""

    families: tuple[str, ...]
    difficulties: tuple[int, ...]
    problems: int
    budget: int
    split: Split = "test"
    seed: int = 0
    prior: str = "uniform"
    settings: SearchSettings = field(default_factory=SearchSettings)

    def __post_init__(self) -> None:
        if not len(self):
            levels = ", ".join(f"{family} has 1 to {LEVELS[family]}" for family in self.families)
            asked = ", ".join(map(str, self.difficulties))
            raise ConfigError(f"no problems have difficulty {asked}: {levels}", field="difficulty")

    def __iter__(self) -> Iterator[CodeProblem]:
        """The problems in order."""
        for family in self.families:
            for difficulty in self.difficulties:
                if difficulty <= LEVELS[family]:
                    yield from (
                        generate(family, self.seed + number, self.split, difficulty) for number in range(self.problems)
                    )

    def __len__(self) -> int:
        levels = [sum(one <= LEVELS[family] for one in self.difficulties) for family in self.families]
        return self.problems * sum(levels)

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The result for one problem. `evaluations` are those it took to solve it, or all that were spent."""

    id: str
    family: str
    difficulty: int
    solved: bool
    evaluations: int
    best: float
    program: str
    folder: str

    def solved_within(self, evaluations: int) -> bool:
        return self.solved and self.evaluations <= evaluations


def campaign(
    plan: CampaignPlan,
    prior: Prior,
    folder: Path,
    stop: Callable[[], bool],
    watch: Callable[[CodeProblem, SearchTree], None],
) -> Iterator[CampaignResult]:
    """Search one problem after another, saving as it goes; yields the result for each problem."""
    _begin(plan, folder)
    found: list[CampaignResult] = []
    for problem in plan:
        if stop():
            break
        place = folder / re.sub(r"[^\w-]+", "-", problem.id)
        tree = explore(
            problem, prior, plan.budget, settings=plan.settings, seed=plan.seed, file=place / "tree.json",
            watch=partial(watch, problem), stop=stop,
        )  # fmt: skip
        save_programs(problem, tree.records, place / "programs")
        found.append(_result(problem, tree, place))
        yield found[-1]
    results = {"problems": [asdict(one) for one in found], "shares": shares(found, plan.budget)}
    write_atomic(folder / "results.json", json.dumps(results, ensure_ascii=False, indent=1).encode())


def shares(found: Sequence[CampaignResult], budget: int) -> dict[str, dict[str, float]]:
    """The share of problems solved within 1, 4, 16 … evaluations, by family and overall."""
    marks = [*(mark for mark in MARKS if mark < budget), budget]
    groups = {
        family: [one for one in found if one.family == family] for family in dict.fromkeys(f.family for f in found)
    }
    if len(groups) > 1:
        groups["all"] = list(found)
    return {
        name: {str(mark): sum(one.solved_within(mark) for one in members) / len(members) for mark in marks}
        for name, members in groups.items()
    }


def _result(problem: CodeProblem, tree: SearchTree, place: Path) -> CampaignResult:
    best = tree.best
    return CampaignResult(
        problem.id, problem.family, problem.difficulty, tree.solved, len(tree.records),
        best.judged.value if best else 0.0, program_text(problem, best) if best else "", str(place),
    )  # fmt: skip


def _begin(plan: CampaignPlan, folder: Path) -> None:
    """Write the plan, or check that the folder has the same one; only the budget may differ."""
    file = folder / "plan.json"
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if file.exists():
        try:
            before = json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise StorageError(f"{file} cannot be read: {error}", hint="Use another folder.") from error
        now = plan.as_dict()
        for name in now:
            if name != "budget" and before.get(name) != now[name]:
                raise ConfigError(
                    f"{folder} contains a search with {name} = {before.get(name)!r}, not {now[name]!r}",
                    hint="Continue with the same options, or name another folder with --out.",
                    field=name,
                )
        if before.get("budget", 0) > plan.budget:
            plan = replace(plan, budget=before["budget"])
    write_atomic(file, json.dumps(plan.as_dict(), indent=1).encode())
