"""The search for programs: the prior over next lines, programs as a search domain, one search kept in a file, and
many searches in one folder, in which every program becomes a file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from math import log
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from groupwise.errors import ConfigError
from groupwise.files import disk, write_atomic, write_output
from groupwise.programs.language.evaluation import ProgramEvaluation, ProgramEvaluator
from groupwise.programs.language.grammar import as_program, legal_lines, line_weights
from groupwise.programs.language.parser import Program, parse
from groupwise.programs.language.program import PARAMETERS, CodeProblem, Split
from groupwise.programs.problems import LEVELS, generate
from groupwise.programs.search.mcts import Watch, plant, search
from groupwise.programs.search.search_settings import Domain, Judged, SearchSettings
from groupwise.programs.search.tree import EvaluationRecord, SearchTree, load_tree, save_tree
from groupwise.readers import read_record

Lines = Sequence[tuple[str, float]]


class Prior(Protocol):
    """A distribution over the next line. A saved search only continues with a prior of the same `name`."""

    @property
    def name(self) -> str: ...

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        """The lines that may follow a prefix (lines without indentation), with their log-probabilities."""
        ...


class Uniform:
    """The uninformed prior: uniform over operators (`return` is one), then over the ways to call them."""

    name = "uniform"

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        lines = legal_lines(prefix, problem)
        return [(line, log(weight)) for line, weight in zip(lines, line_weights(lines), strict=True)]


Prefix: TypeAlias = tuple[str, ...]
CALL = re.compile(r"\w+ = (\w+)\((.*)\)", re.ASCII)
RESULT = re.compile(rf"(?<![\w'\"])(?![{PARAMETERS}]\b)[a-z]\d*(?![\w'\"])", re.ASCII)


def program_domain(problem: CodeProblem, judge: Callable[[str], Judged], prior: Prior) -> Domain[Prefix]:
    """The domain of programs for a problem: a state is the lines so far, an action the next line.

    `judge` evaluates the text of a program. Programs with the same normal form are evaluated once.
    """

    def actions(prefix: Prefix) -> Lines:
        if finished(prefix) or len(prefix) >= problem.max_lines:
            return []
        return prior.lines(problem, prefix)

    def key(prefix: Prefix) -> str:
        text = as_program(prefix, problem)
        if not finished(prefix):
            return text
        program = parse(text, problem.signature)
        return program.key if isinstance(program, Program) else text

    return Domain(
        name=f"{problem.id}, {prior.name} prior",
        root=(),
        actions=actions,
        step=lambda prefix, line: (*prefix, line),
        key=key,
        evaluate=lambda prefix: judge(as_program(prefix, problem)),
        traits=traits,
    )


def finished(prefix: Sequence[str]) -> bool:
    return bool(prefix) and prefix[-1].startswith("return")


@lru_cache(maxsize=10_000)
def traits(line: str) -> tuple[str, ...]:
    """What a line shares with others: its operator, and its call with all results replaced by `_`."""
    call = CALL.fullmatch(line)
    return (call[1], f"{call[1]}({RESULT.sub('_', call[2])})") if call else ()


def judged(evaluation: ProgramEvaluation) -> Judged:
    """An evaluation as the search sees it, with the share of correct cases as its value.

    The time is left out, so that two searches with the same seed are equal.
    """
    notes = {"outcome": str(evaluation.outcome), "calls": evaluation.calls, "length": evaluation.length}
    if evaluation.message:
        notes["message"] = evaluation.message
    if evaluation.fault is not None:
        notes["fault"] = str(evaluation.fault)
    return Judged(evaluation.correctness, evaluation.solved, notes)


SECONDS_BETWEEN_SAVES = 2.0


def explore(
    problem: CodeProblem,
    prior: Prior,
    budget: int,
    *,
    settings: SearchSettings | None = None,
    seed: int = 0,
    file: Path | None = None,
    watch: Watch = lambda tree: None,
    stop: Callable[[], bool] = lambda: False,
) -> SearchTree:
    """Search for a program that solves a problem; a tree in `file` is continued, and saved there.

    A search that was interrupted or killed at any moment ends like one that was not.
    """
    evaluator = ProgramEvaluator(problem)
    domain = program_domain(problem, lambda text: judged(evaluator(text)), prior)
    tree = load_tree(file) if file and file.exists() else plant(domain, settings or SearchSettings(), seed)
    several = tree.settings.in_flight > 1
    threads: AbstractContextManager[Executor | None] = (
        ThreadPoolExecutor(tree.settings.in_flight) if several else nullcontext()
    )
    with _keeping(tree, file) as keep, threads as executor:

        def seen(tree: SearchTree) -> None:
            keep()
            watch(tree)

        return search(domain, budget, settings=settings, tree=tree, executor=executor, watch=seen, stop=stop)


@contextmanager
def _keeping(tree: SearchTree, file: Path | None) -> Iterator[Callable[[], None]]:
    # Save the tree now and then, spending at most a tenth of the time on it, and at the end.
    if file is None:
        yield lambda: None
        return
    with disk(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    due = time.monotonic() + SECONDS_BETWEEN_SAVES

    def keep() -> None:
        nonlocal due
        began = time.monotonic()
        if began >= due:
            save_tree(tree, file)
            ended = time.monotonic()
            due = ended + max(SECONDS_BETWEEN_SAVES, 9 * (ended - began))

    try:
        yield keep
    finally:
        save_tree(tree, file)


def program_text(problem: CodeProblem, record: EvaluationRecord) -> str:
    return as_program(record.actions, problem) + "\n"


def save_programs(problem: CodeProblem, records: Iterable[EvaluationRecord], folder: Path) -> list[Path]:
    """Write the programs of records, one file each, and return the paths."""
    paths = []
    for record in records:
        path = folder / f"{record.number:03}.py"
        write_output(path, _heading(problem, record) + program_text(problem, record))
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
                seeds = range(self.seed, self.seed + self.problems) if difficulty <= LEVELS[family] else ()
                yield from (generate(family, seed, self.split, difficulty) for seed in seeds)

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
    _write_plan(plan, folder)
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
    groups: dict[str, list[CampaignResult]] = {}
    for one in found:
        groups.setdefault(one.family, []).append(one)
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


def _write_plan(plan: CampaignPlan, folder: Path) -> None:
    # Write the plan, or check that the folder has the same one; only the budget may differ.
    file = folder / "plan.json"
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if file.exists():
        before = read_record(file, "Use another folder.")
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
