"""A sweep from its ranges to its findings: the plan, the runs, and the result file.

    <folder>/plan.json     what was asked for: files, settings, ranges, and what Optuna suggested so far
             sweep.json    everything a sweep found, written anew whenever a run ends
             jobs/ runs/ courses/ failures/ log.txt     as in a comparison: `control.comparison.campaign`

Repeating the command continues a sweep: finished runs are kept, unfinished ones resume from their checkpoints. What was
asked for must be the same; more seeds are possible, and more settings of a random draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from groupwise.config import TrainingConfig
from groupwise.control.comparison.arms import known_threshold
from groupwise.control.comparison.campaign import (
    Campaign,
    CampaignOutcome,
    Entry,
    Progress,
    available,
    gather,
    job_of,
    product_module,
    tell,
)
from groupwise.control.comparison.worker import CourseJob, write_json
from groupwise.control.sweep.axes import Axis, plain_value, read_axes
from groupwise.control.sweep.candidates import (
    Combination,
    Values,
    check_bases,
    grid,
    make_candidate,
    random_draw,
)
from groupwise.control.sweep.optuna_search import BATCH, check_installed, suggest
from groupwise.control.sweep.trials import ScoreMeaning, SweepTrial, score_trials
from groupwise.errors import ConfigError, MissingExtra
from groupwise.readers import read_record
from groupwise.training.events import plain
from groupwise.training.loop import changes

Method = Literal["grid", "random", "optuna"]
METHODS: tuple[Method, ...] = ("grid", "random", "optuna")
SETTINGS = 32


@dataclass(frozen=True)
class SweepPlan:
    """What is asked for. `files` are where the settings of the algorithms came from, for messages only."""

    bases: Mapping[str, TrainingConfig]
    axes: tuple[Axis, ...]
    method: Method = "grid"
    settings: int | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    draw_seed: int = 0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of settings of each algorithm."""
        if self.method == "grid":
            return len(grid(self.axes))
        return self.settings or SETTINGS


@dataclass(frozen=True)
class SweepResult:
    """The trials so far, in the order of their numbers, and what their scores mean."""

    plan: SweepPlan
    trials: tuple[SweepTrial, ...]
    scale: ScoreMeaning

    def of(self, algorithm: str) -> list[SweepTrial]:
        return [trial for trial in self.trials if trial.candidate.algorithm == algorithm]

    @property
    def total(self) -> int:
        """All runs of the sweep, also those that Optuna has not suggested yet."""
        return self.plan.count * len(self.plan.bases) * len(self.plan.seeds)

    @property
    def finished(self) -> bool:
        ended = sum(run.state in ("finished", "failed") for trial in self.trials for run in trial.runs)
        return ended == self.total


def make_plan(
    bases: Mapping[str, TrainingConfig],
    over: Sequence[str],
    *,
    method: str = "grid",
    settings: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    draw_seed: int = 0,
    thresholds: Mapping[str, float] | None = None,
    files: Mapping[str, str] | None = None,
) -> SweepPlan:
    """The plan of a sweep, checked as far as it can be before its runs are drawn up."""
    if method not in METHODS:
        raise ConfigError(f"--method {method!r} is not known", hint=f"Known: {', '.join(METHODS)}.")
    if method == "grid" and settings is not None:
        hint = "Say how many values of each range (LOW:HIGH:log:5), or use --method random."
        raise ConfigError(f"--settings {settings} does not apply to a grid", hint=hint)
    if method == "optuna":
        check_installed()
    axes = read_axes(over)
    check_bases(bases, axes)
    for cfg in bases.values():
        if not available(module := product_module(cfg)):
            raise MissingExtra(f"the product {cfg.task.product} cannot run here: {module} is not installed")
    limits = dict(thresholds or {})
    environment = next(iter(bases.values())).task.environment
    if (solved := known_threshold(environment)) is not None:
        limits.setdefault(environment, solved)
    chosen: Any = method
    return SweepPlan(bases, axes, chosen, settings, tuple(seeds), draw_seed, limits, files or {})


class Journal:
    """`plan.json`: what the sweep in a folder was asked for. A command that asks for something else is refused."""

    def __init__(self, folder: Path, plan: SweepPlan) -> None:
        self.path, self.plan = folder / "plan.json", plan
        self.asked: dict[str, list[Values]] = {name: [] for name in plan.bases}
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        before = read_record(self.path, "Delete the folder, or choose another with --out.")
        elsewhere = "Choose another folder (--out), or delete this one."
        mine = self._asked_for()
        for name, settings in mine["bases"].items():
            old = before.get("bases", {}).get(name)
            differing = changes(old, settings) if old else []
            if differing:
                source = self.plan.files.get(name, name)
                raise ConfigError(
                    f"{source} has changed since this sweep began ({'; '.join(differing[:3])})",
                    hint="Change it back to continue, or give the new sweep another folder (--out).",
                )
        for what in ("bases", "over", "method", "draw_seed", *(("seeds",) if self.plan.method == "optuna" else ())):
            old, new = before.get(what), mine[what]
            if what == "bases":
                old, new = sorted(old or ()), sorted(new)
            if old != new:
                message = (
                    f"{self.path.parent} has a sweep with other {WORDS[what]}: {_brief(old)}, and now {_brief(new)}"
                )
                raise ConfigError(message, hint=elsewhere)
        for name, rows in before.get("asked", {}).items():
            self.asked[name] = [tuple(map(_frozen, row)) for row in rows]

    def _asked_for(self) -> dict[str, Any]:
        plan = self.plan
        asked_for: dict[str, Any] = plain({  # as JSON has it, so that both sides are compared alike
            "bases": {name: cfg.to_dict() for name, cfg in plan.bases.items()},
            "over": {axis.name: axis.text for axis in plan.axes},
            "method": plan.method,
            "draw_seed": plan.draw_seed,
            "seeds": list(plan.seeds),
        })  # fmt: skip
        return asked_for

    def write(self) -> None:
        asked = {name: [list(map(plain_value, row)) for row in rows] for name, rows in self.asked.items()}
        write_json(self.path, {"v": 1, **self._asked_for(), "files": dict(self.plan.files), "asked": asked})


WORDS = {
    "bases": "algorithms",
    "over": "ranges",
    "method": "method",
    "draw_seed": "--draw-seed",
    "seeds": "seeds, which Optuna's suggestions depend on",
}


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class Sweep:
    """A sweep under way: its candidates so far, and what their runs have left."""

    def __init__(self, folder: Path, plan: SweepPlan) -> None:
        self.folder, self.plan = folder, plan
        self.journal = Journal(folder, plan)
        self.candidates: list[Combination] = []
        self._jobs: dict[tuple[str, int], CourseJob] = {}
        self._known: dict[str, CampaignOutcome] = {}
        if plan.method != "optuna":
            drawn = grid(plan.axes) if plan.method == "grid" else random_draw(plan.axes, plan.count, plan.draw_seed)
            for name in plan.bases:
                self._add(name, drawn)

    def _add(self, name: str, drawn: Sequence[Values]) -> None:
        have, base = sum(candidate.algorithm == name for candidate in self.candidates), self.plan.bases[name]
        for number, values in enumerate(drawn, have + 1):
            try:
                self.candidates.append(make_candidate(name, base, number, self.plan.axes, values))
            except ConfigError as error:
                if self.plan.method != "optuna":
                    raise
                self.candidates.append(Combination(name, number, values, base, error.message))

    def run(self, jobs: int | None = None, progress: Progress = None) -> SweepResult:
        """Train everything that is not finished yet."""
        with Campaign(self.folder, jobs) as campaign:
            self.journal.write()
            self.save()
            while True:
                campaign.carry_out(self.jobs(), partial(self._tell, progress))
                if self.plan.method != "optuna" or not self._ask():
                    return self.result()

    def _ask(self) -> bool:
        """Let Optuna suggest the next batch for every algorithm; what was suggested before is in the journal."""
        told = self.result()
        more = False
        for name, asked in self.journal.asked.items():
            have = told.of(name)
            count = min(BATCH, self.plan.count - len(have))
            if count <= 0:
                continue
            if len(asked) <= len(have):
                pairs = [(trial.candidate.values, trial.mean if trial.complete else None) for trial in have]
                asked += suggest(self.plan.axes, pairs, count, self.plan.draw_seed)
                self.journal.write()
            self._add(name, asked[len(have) : len(have) + count])
            more = True
        return more

    def jobs(self) -> list[CourseJob]:
        """A job for every run. Seeds first: if it is interrupted, all settings have about as many."""
        candidates = [candidate for candidate in self.candidates if not candidate.refused]
        return [self._job(candidate, seed) for seed in self.plan.seeds for candidate in candidates]

    def _job(self, candidate: Combination, seed: int) -> CourseJob:
        # Made once, because the progress is looked at several times a second.
        key = (candidate.name, seed)
        if key not in self._jobs:
            entry = Entry(candidate.name, candidate.cfg, product_module(candidate.cfg))
            self._jobs[key] = job_of(self.folder, entry, seed, snapshot=False)
        return self._jobs[key]

    def _tell(self, progress: Progress) -> None:
        jobs = self.jobs()
        if self._new(jobs):
            self.save()
        tell(progress, jobs, self.plan.count * len(self.plan.bases) * len(self.plan.seeds))

    def _new(self, jobs: Sequence[CourseJob]) -> bool:
        """Whether a run has ended since the last look."""
        ended = [job for job in jobs if job.name not in self._known and job.result.exists()]
        for job in ended:
            self._known[job.name] = gather([job])
        return bool(ended)

    def result(self) -> SweepResult:
        jobs = self.jobs()
        self._new(jobs)
        found = [self._known.get(job.name) or gather([job]) for job in jobs]
        outcome = CampaignOutcome(
            tuple(course for one in found for course in one.courses),
            tuple(failure for one in found for failure in one.failures),
        )
        begun = {(job.algorithm, int(job.settings["run"]["seed"])): (job.runs / job.name).is_dir() for job in jobs}
        trials, scale = score_trials(self.candidates, self.plan.seeds, outcome, begun, self.plan.thresholds)
        return SweepResult(self.plan, tuple(trials), scale)

    def save(self, **more: Any) -> None:
        write_json(self.folder / "sweep.json", as_json(self.result(), **more))


def as_json(result: SweepResult, **more: Any) -> dict[str, Any]:
    """The result file: docs/sweep.md says what each key means."""
    plan = result.plan
    states = [run.state for trial in result.trials for run in trial.runs]
    found: dict[str, Any] = plain({
        "v": 1,
        "kind": "sweep",
        "state": "finished" if result.finished else "unfinished",
        "method": {"name": plan.method, "settings": plan.count, "draw_seed": plan.draw_seed},
        "seeds": list(plan.seeds),
        "runs": {
            "total": result.total,
            **{state: states.count(state) for state in ("finished", "failed")},
        },
        "score": result.scale.to_dict(),
        "axes": [axis.describe() for axis in plan.axes],
        "trials": [trial.to_dict(plan.axes, result.scale.solved) for trial in result.trials],
        "algorithms": {
            name: {"file": plan.files.get(name, ""), "product": cfg.task.product, "environment": cfg.task.environment,
                   "settings": cfg.to_dict()}
            for name, cfg in plan.bases.items()
        },
        "findings": {},
        **more,
    })  # fmt: skip
    return found
