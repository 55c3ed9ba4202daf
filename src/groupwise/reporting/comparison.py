"""Trainings of several algorithms become one comparison: what each reached, and which differences may be claimed."""

import itertools
import math
import statistics as plain_statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError, ContractError, RunError
from groupwise.readers import data_limits, load_json, read_bytes
from groupwise.reporting import statistics as st
from groupwise.reporting.statistics import Difference, Interval, Survival, Table
from groupwise.training.formatting import finite


@dataclass(frozen=True, slots=True)
class Course:
    """The scores of one task over the steps of one run: an algorithm, in an environment, from a seed.

    `steps` are environment steps (or tokens) since the start, `scores` the evaluations made there. A run over several
    tasks has one course per task; a single task goes by the environment's name. `wall_seconds` is the training time
    without evaluations. Times that a log of another tool does not tell are NaN.
    """

    algorithm: str
    environment: str
    task: str
    seed: int
    steps: tuple[int, ...]
    scores: tuple[float, ...]
    wall_seconds: float
    cpu_seconds: float

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.scores) or not self.steps:
            raise self._broken(f"{len(self.steps)} steps and {len(self.scores)} scores", "each step needs one score")
        if any(after <= before for before, after in zip(self.steps, self.steps[1:], strict=False)):
            raise self._broken("steps that do not increase", "sort the evaluations by step")
        if not np.isfinite(self.scores).all():
            raise self._broken("scores that are not finite", "leave out failed evaluations")

    def _broken(self, what: str, rule: str) -> ContractError:
        return ContractError(f"the run of {self.algorithm} in {self.task} with seed {self.seed} has {what}; {rule}")

    @property
    def budget(self) -> int:
        """The step of the last evaluation."""
        return self.steps[-1]

    @property
    def final(self) -> float:
        """The mean of the evaluations in the last tenth of the steps, at least the last one."""
        # A single evaluation can be lucky or unlucky.
        late = np.array(self.steps) >= 0.9 * self.budget
        return float(np.mean(np.array(self.scores)[late]))

    def at(self, steps: Any) -> NDArray[np.float64]:
        """The scores at any steps: straight lines between evaluations, constant after the last."""
        return np.asarray(np.interp(steps, self.steps, self.scores), np.float64)

    def first_reach(self, threshold: float) -> int | None:
        """The step of the first evaluation at or above the threshold, or None."""
        return next((step for step, score in zip(self.steps, self.scores, strict=True) if score >= threshold), None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A course from plain values, without evaluations that are not numbers."""
        pairs = zip(values["steps"], values["scores"], strict=True)
        sound = [(int(step), score) for step, raw in pairs if (score := finite(raw)) is not None]
        steps, scores = zip(*sound, strict=True) if sound else ((), ())
        algorithm, environment, task = (str(values[name]) for name in ("algorithm", "environment", "task"))
        wall, cpu = float(values["wall_seconds"]), float(values["cpu_seconds"])
        return cls(algorithm, environment, task, int(values["seed"]), steps, scores, wall, cpu)


@dataclass(frozen=True, slots=True)
class FailedCourse:
    """A run that ended in an error or was refused: counted and reported, never scored."""

    algorithm: str
    environment: str
    seed: int
    message: str
    hint: str = ""


def read_courses(path: Path) -> list[Course]:
    """The courses in a JSON file."""
    limits = data_limits()
    try:
        return [Course.from_dict(values) for values in load_json(read_bytes(path, limits), limits)]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not a list of courses: {error}", hint="Run the comparison again.") from error


def unique(names: Iterable[str]) -> list[str]:
    """The distinct names in order of appearance."""
    return list(dict.fromkeys(names))


# A difference is claimed at a corrected p-value below this.
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Scale:
    """How a task's scores are normalised: `low` becomes 0 and `high` becomes 1.

    `solved` is the score that counts as solved, or None. Without it, `low` and `high` are the first and the best score
    of this comparison: fine for ranking, but not comparable with other reports.
    """

    low: float
    high: float
    solved: float | None = None

    def normalise(self, scores: Any) -> Table:
        return np.asarray((np.asarray(scores, np.float64) - self.low) / ((self.high - self.low) or 1.0))


@dataclass(frozen=True, slots=True)
class Standing:
    """One algorithm: final scores and efficiency (normalised), stability, fairness over tasks, and cost."""

    algorithm: str
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    final: Mapping[str, Interval]
    efficiency: Interval
    seed_spread: float
    drawdown: float
    collapses: int
    courses: int
    fairness: Mapping[str, Interval]
    steps: float
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Duel:
    """Two algorithms on the seeds and tasks they share; `final_p` and `efficiency_p` are Holm-corrected."""

    ours: str
    theirs: str
    seeds: int
    final: Difference
    efficiency: Difference
    improvement: Interval
    final_p: float
    efficiency_p: float

    @property
    def distinguishable(self) -> bool:
        """Whether a difference in final scores may be claimed."""
        return claimable(self.final, self.final_p)

    @property
    def verdict(self) -> str:
        words = [self._measure("final score", self.final, self.final_p)]
        words.append(self._measure("sample efficiency", self.efficiency, self.efficiency_p))
        caution = f" Exploratory: only {count_seeds(self.seeds)}." if self.final.exploratory else ""
        return f"{self.ours} and {self.theirs}: {'; '.join(words)}.{caution}"

    def _measure(self, what: str, found: Difference, p: float) -> str:
        if not claimable(found, p):
            return f"{what} not distinguishable ({signed(found.interval)})"
        better = self.ours if found.interval.value > 0 else self.theirs
        return f"{better} has the better {what} ({signed(found.interval)})"


def claimable(found: Difference, p: float) -> bool:
    """A difference may be claimed if its interval excludes 0 and its corrected p-value is below 5%."""
    return not found.interval.spans_zero and p < LEVEL


def signed(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f"{interval.value:+.3f}, one seed"
    return f"{interval.value:+.3f}, 95% {interval.low:+.3f} to {interval.high:+.3f}"


def count_seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


@dataclass(frozen=True)
class Comparison:
    """Everything a report says about several algorithms, computed from their courses.

    `known` gives the score of a random policy and the score that counts as solved, by task or environment; `thresholds`
    override the latter. `notes` are caveats about the courses that their maker knows.
    """

    courses: tuple[Course, ...]
    failures: tuple[FailedCourse, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    repetitions: int = st.REPETITIONS
    known: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.courses:
            reasons = "; ".join(unique(f"{f.algorithm}: {f.message}" for f in self.failures)[:3])
            message = f"no run was finished, so there is nothing to compare ({reasons or 'none was requested'})"
            raise RunError(message, hint="Try each algorithm alone first: groupwise train FILE.")

    @cached_property
    def algorithms(self) -> list[str]:
        return unique(course.algorithm for course in self.courses)

    @cached_property
    def tasks(self) -> list[str]:
        return unique(course.task for course in self.courses)

    @cached_property
    def environment_of(self) -> dict[str, str]:
        return {course.task: course.environment for course in self.courses}

    @cached_property
    def by_key(self) -> dict[tuple[str, str, int], Course]:
        return {(course.algorithm, course.task, course.seed): course for course in self.courses}

    def of(self, algorithm: str, task: str) -> list[Course]:
        """The courses of an algorithm in a task, sorted by seed."""
        found = (c for c in self.courses if (c.algorithm, c.task) == (algorithm, task))
        return sorted(found, key=lambda course: course.seed)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        return {task: self._scale(task) for task in self.tasks}

    def _scale(self, task: str) -> Scale:
        known = self.known.get(task) or self.known.get(self.environment_of[task])
        solved = self.thresholds.get(task, self.thresholds.get(self.environment_of[task]))
        courses = [course for course in self.courses if course.task == task]
        # Without a known score of random play, the mean of the first evaluations stands in for it.
        low = known[0] if known else plain_statistics.fmean(course.scores[0] for course in courses)
        solved = solved if solved is not None else known[1] if known else None
        return Scale(low, max(max(c.scores) for c in courses) if solved is None else solved, solved)

    @cached_property
    def horizons(self) -> dict[str, int]:
        """The last evaluated step of each task: learning curves and efficiency extend to it."""
        return {task: max(c.budget for c in self.courses if c.task == task) for task in self.tasks}

    def curve(self, course: Course, points: int = 101) -> Table:
        """Normalised scores of a course at evenly spaced steps up to the task's horizon."""
        # Evaluations come at different steps in different runs; a common grid makes them comparable.
        steps = np.linspace(0, self.horizons[course.task], points)
        return self.scales[course.task].normalise(course.at(steps))

    def final(self, course: Course) -> float:
        return float(self.scales[course.task].normalise(course.final))

    def efficiency(self, course: Course) -> float:
        """The mean of the normalised curve over all steps: it rewards learning early and not forgetting."""
        return float(np.mean(self.curve(course)))

    def shared(self, algorithms: Sequence[str]) -> tuple[list[str], list[int]]:
        """The tasks that all of these algorithms finished with some seed, and the seeds they all finished."""
        seeds = sorted({course.seed for course in self.courses})
        tasks = [task for task in self.tasks if all(self.of(name, task) for name in algorithms)]
        keys = list(itertools.product(algorithms, tasks))
        return tasks, [s for s in seeds if all((name, task, s) in self.by_key for name, task in keys)] if tasks else []

    def table(self, algorithm: str, tasks: Sequence[str], seeds: Sequence[int], measure: str) -> Table:
        """`final` or `efficiency` of an algorithm: [seeds, tasks]."""
        value = self.final if measure == "final" else self.efficiency
        return np.array([[value(self.by_key[algorithm, task, seed]) for task in tasks] for seed in seeds])

    def strata(self, tasks: Sequence[str]) -> list[int]:
        """Tasks of one environment come from the same run, so they are resampled together."""
        environments = unique(self.environment_of.values())
        return [environments.index(self.environment_of[task]) for task in tasks]

    @cached_property
    def standings(self) -> list[Standing]:
        return [self._standing(name) for name in self.algorithms if self.shared([name])[1]]

    def _standing(self, algorithm: str) -> Standing:
        tasks, seeds = self.shared([algorithm])
        final, efficiency = (self.table(algorithm, tasks, seeds, measure) for measure in ("final", "efficiency"))
        courses = [self.by_key[algorithm, task, seed] for task in tasks for seed in seeds]
        curves = [self.scales[course.task].normalise(course.scores) for course in courses]
        fairness = st.FAIRNESS if len(tasks) > 1 else {}

        def sure(statistic: st.Statistic, scores: Table) -> Interval:
            return st.estimate(statistic, scores, strata=self.strata(tasks), repetitions=self.repetitions)

        return Standing(
            algorithm,
            tuple(seeds),
            tuple(tasks),
            final={name: sure(statistic, final) for name, statistic in st.AGGREGATES.items()},
            efficiency=sure(st.interquartile_mean, efficiency),
            seed_spread=float(st.seed_spread(final)),
            drawdown=plain_statistics.fmean(map(st.max_drawdown, curves)),
            collapses=sum(map(st.collapsed, curves)),
            courses=len(courses),
            fairness={name: sure(statistic, final) for name, statistic in fairness.items()},
            steps=plain_statistics.median(course.budget for course in courses),
            wall_seconds=plain_statistics.median(course.wall_seconds for course in courses),
            cpu_seconds=plain_statistics.median(course.cpu_seconds for course in courses),
        )

    @cached_property
    def duels(self) -> list[Duel]:
        """Every pair of algorithms on what they share; the p-values of each measure are corrected over all pairs."""
        raw = []
        for ours, theirs in itertools.combinations(self.algorithms, 2):
            tasks, seeds = self.shared([ours, theirs])
            if seeds:
                raw.append(self._duel(ours, theirs, tasks, seeds))
        # Final score and efficiency are two families of tests, each corrected by itself.
        finals, efficiencies = (st.holm([pair[key].p for pair in raw]) for key in ("final", "efficiency"))
        corrected = zip(raw, finals, efficiencies, strict=True)
        return [Duel(**pair, final_p=final, efficiency_p=efficiency) for pair, final, efficiency in corrected]

    def _duel(self, ours: str, theirs: str, tasks: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
        strata = self.strata(tasks)
        tables = {m: [self.table(name, tasks, seeds, m) for name in (ours, theirs)] for m in ("final", "efficiency")}
        differences = {m: st.paired_difference(*pair, strata=strata) for m, pair in tables.items()}
        # The pairwise statistic costs seeds² per repetition, so it gets fewer of them.
        beats = st.estimate(
            st.probability_of_improvement, *tables["final"], strata=strata, repetitions=min(self.repetitions, 5000)
        )
        return {"ours": ours, "theirs": theirs, "seeds": len(seeds), "improvement": beats, **differences}

    @cached_property
    def survivals(self) -> dict[tuple[str, str], Survival]:
        """Steps until solved, by algorithm and task, for tasks with a threshold."""
        found = {}
        for algorithm, task in itertools.product(self.algorithms, self.tasks):
            solved, courses = self.scales[task].solved, self.of(algorithm, task)
            if solved is not None and courses:
                reached = [course.first_reach(solved) for course in courses]
                # A run that never reached the threshold is censored at its last evaluation.
                times = [c.budget if r is None else r for c, r in zip(courses, reached, strict=True)]
                found[algorithm, task] = st.kaplan_meier(times, [r is not None for r in reached])
        return found

    @property
    def headline(self) -> str:
        """The result in a sentence or two."""
        if not self.duels:
            return f"{self.standings[0].algorithm} has nothing to be compared with." if self.standings else "No result."
        claims = [duel for duel in self.duels if duel.distinguishable]
        if not claims:
            return "No difference in final score may be claimed."
        words = []
        for duel in claims:
            better, worse = (duel.ours, duel.theirs) if duel.final.interval.value > 0 else (duel.theirs, duel.ours)
            words.append(f"{better} ends above {worse}")
        rest = len(self.duels) - len(claims)
        return f"{'; '.join(words)}.{f' The other {rest} pairs are not distinguishable.' if rest > 1 else ''}"

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values."""
        return {
            "headline": self.headline,
            "algorithms": self.algorithms,
            "tasks": {task: asdict(scale) for task, scale in self.scales.items()},
            "standings": [_plain(asdict(standing)) for standing in self.standings],
            "duels": [
                {**_plain(asdict(duel)), "distinguishable": duel.distinguishable, "verdict": duel.verdict}
                for duel in self.duels
            ],
            "solved": [
                {"algorithm": a, "task": t, "solved": s.solved, "runs": s.runs, "median_steps": s.median}
                for (a, t), s in self.survivals.items()
            ],
            "failures": [asdict(failure) for failure in self.failures],
        }


def _plain(value: Any) -> Any:
    """Nested values with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
