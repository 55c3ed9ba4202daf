"""One training of a comparison, from settings to scores, in a worker process that is handed one job after another.

Workers are started by `groupwise.workers`. Each job leaves a file: the scores, or why it failed.

The worker also keeps a snapshot of a few groups while the policy is still learning, for the figures that explain
advantages. Snapshots use their own generator and environment, so training is unaffected. A source without groups of
episodes (PPO, a language model) leaves none.
"""

import copy
import json
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.config import TrainingConfig
from groupwise.control.environments import make_environment
from groupwise.control.grpo import Episodes
from groupwise.control.policy import MLPPolicy
from groupwise.core import discounted_returns, group_return_to_go
from groupwise.errors import ContractError, GroupwiseError
from groupwise.files import write_atomic
from groupwise.reporting.advantage_figures import Moment
from groupwise.reporting.comparison import Course, FailedCourse
from groupwise.reporting.history import History
from groupwise.rollout.episodes import collect_groups
from groupwise.training.batch_source import GroupSource
from groupwise.training.estimators import Attempts, scored_attempts
from groupwise.training.folder import create_run
from groupwise.training.loop import SCORE
from groupwise.training.session import Build, Parts, execute
from groupwise.types import Array, Event, Group, Score, ScoredGroup

# Groups in a snapshot: enough for the figures, and quick to play.
GROUPS = 4


class GroupSnapshot:
    """Watches a run and keeps a few groups at its first evaluation after the start."""

    def __init__(self, cfg: TrainingConfig, path: Path) -> None:
        self.cfg, self.path = cfg, path
        self.parts: Parts | None = None

    def see(self, event: Event) -> None:
        if event.type == "eval" and event.step > 0 and self.parts is not None and not self.path.exists():
            source = self.parts.source
            # A failed snapshot must not cost the run; the log has the traceback.
            try:
                if isinstance(source, GroupSource) and isinstance(source.rollout, Episodes):
                    moment_of(source, source.rollout, self.cfg, event.step).write(self.path)
            except Exception:
                traceback.print_exc()


def watching(build: Build, snapshot: GroupSnapshot | None) -> Build:
    """`build`, which also hands the parts to the snapshot."""

    def built(cfg: TrainingConfig) -> Parts:
        parts = build(cfg)
        if snapshot is not None:
            snapshot.parts = parts
        return parts

    return built


def moment_of(source: GroupSource, rollout: Episodes, cfg: TrainingConfig, step: int) -> Moment:
    # A copy of the task stream: taking from the run's own would change which tasks it trains on next.
    tasks = copy.deepcopy(source.tasks).take(GROUPS)
    rng = np.random.default_rng([cfg.run.seed, step])
    environment = make_environment(cfg.task)
    groups = collect_groups(environment, rollout.policy, tasks, cfg.rollout.num_generations, rng)
    totals = [tuple(Score(float(np.sum(m.rewards)), rewards=m.rewards) for m in group.members) for group in groups]
    attempts = scored_attempts([ScoredGroup(*pair) for pair in zip(groups, totals, strict=True)])
    labels, numbers = _labels(groups)
    gamma = cfg.advantage.gamma
    returns = discounted_returns(attempts.rewards, attempts.mask, gamma)
    played = returns[attempts.mask]
    # One mean and one deviation for all steps, against the mean of the group's members alive at each step.
    everywhere = (returns - played.mean()) / played.std(correction=0).clamp(min=1e-12)
    within = group_return_to_go(attempts.rewards, attempts.mask, gamma, group_ids=attempts.group)
    within = within / within[attempts.mask].square().mean().sqrt().clamp(min=1e-12)
    label = numbers[attempts.group.numpy()]
    return Moment(
        step, gamma, labels, label, attempts.group.numpy(), attempts.rewards.numpy(), attempts.mask.numpy(),
        returns.numpy(), (everywhere * attempts.mask).numpy(), within.numpy(),
        gradient_cosines(source, rollout.policy, attempts, within, label, len(labels)),
    )  # fmt: skip


def _labels(groups: Sequence[Group]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names for the groups: their tasks if there are several, else their starts."""
    names = [group.task.id.rpartition("/")[0] or group.task.id for group in groups]
    if len(set(names)) == 1:
        names = [f"start {number + 1}" for number in range(len(groups))]
    labels = tuple(dict.fromkeys(names))
    return labels, np.array([labels.index(name) for name in names])


def gradient_cosines(
    source: GroupSource, policy: MLPPolicy, attempts: Attempts, advantages: torch.Tensor, label: Array, count: int
) -> NDArray[np.float64]:
    """The cosines [L, L] between the policy gradients of the attempts with each label."""
    rows = source.collate(attempts)
    wanted = rows.pick(advantages)
    owner = rows.pick(torch.from_numpy(label)[:, None].expand_as(attempts.mask))
    parameters = policy.actor_parameters()
    gradients = []
    for number in range(count):
        logp = policy.evaluate(rows.inputs).logp
        gain = (logp * wanted * (owner == number)).sum()
        parts = torch.autograd.grad(gain, parameters, allow_unused=True)
        gradients.append(torch.cat([part.flatten() for part in parts if part is not None]).double())
    table = torch.nn.functional.normalize(torch.stack(gradients), dim=1)
    return np.asarray((table @ table.T).numpy(), np.float64)


# A suite's evaluation names each of its tasks.
TASK_SCORE = re.compile(r"eval/(?:task/)?(?P<task>.+)/reward_mean")


@dataclass(frozen=True, slots=True)
class CourseJob:
    """One run of a comparison: an algorithm's settings with their seed, and the module that implements its product.

    `folder` is the comparison's: the run goes to `runs/<name>`, its scores to `courses/<name>.json`, a failure to
    `failures/<name>.json`.
    """

    name: str
    folder: str
    algorithm: str
    product: str
    settings: Mapping[str, Any]
    snapshot: bool = False

    @property
    def cfg(self) -> TrainingConfig:
        return TrainingConfig.from_dict(self.settings).replace(run_name=self.name, output_dir=str(self.runs))

    @property
    def runs(self) -> Path:
        return Path(self.folder) / "runs"

    @property
    def result(self) -> Path:
        return Path(self.folder) / "courses" / f"{self.name}.json"

    @property
    def failure(self) -> Path:
        return Path(self.folder) / "failures" / f"{self.name}.json"

    @property
    def record(self) -> Path:
        return Path(self.folder) / "jobs" / f"{self.name}.json"


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(value) + "\n").encode())


def carry_out(job: CourseJob) -> None:
    """Train, or resume where the run stopped, and write down its scores, or the error that ended it."""
    job.failure.unlink(missing_ok=True)  # left by an earlier try
    try:
        courses = train(job)
    except GroupwiseError as error:
        fail(job, error.message, error.hint)
    except Exception as error:
        fail(job, f"{type(error).__name__}: {error}")
    else:
        write_json(job.result, [course.to_dict() for course in courses])


def fail(job: CourseJob, message: str, hint: str = "") -> None:
    cfg = job.settings
    failure = FailedCourse(job.algorithm, cfg["task"]["environment"], cfg["run"]["seed"], message, hint)
    write_json(job.failure, asdict(failure))


def train(job: CourseJob) -> list[Course]:
    cfg = job.cfg
    path = job.runs / job.name
    if not (path / "config.toml").exists():
        create_run(cfg)
    module = import_module(job.product)
    snapshot = GroupSnapshot(cfg, Path(job.folder) / "snapshots" / f"{job.name}.npz") if job.snapshot else None
    clock = time.process_time()
    for event in execute(path, watching(module.build, snapshot), cfg):
        if snapshot is not None:
            snapshot.see(event)
    return courses_of(History.read(path), job.algorithm, time.process_time() - clock)


def courses_of(history: History, algorithm: str, cpu_seconds: float) -> list[Course]:
    """A run's evaluations over environment steps: one course per task that it names, or a single one."""
    environment, seed = str(history.setting("task.environment")), int(history.setting("run.seed"))
    samples = {0: 0.0, **dict(zip(*history.series("totals/samples"), strict=True))}
    names = {match["task"]: name for name in history.names() if (match := TASK_SCORE.fullmatch(name))}
    wall = sum(history.series("timing/total")[1])
    courses = []
    for task, metric in (names or {environment: SCORE}).items():
        steps, scores = history.series(metric)
        found = {int(samples[step]): score for step, score in zip(steps, scores, strict=True) if step in samples}
        if not found:
            hint = "Set run.eval_steps to 1 or more."
            raise ContractError(f"run {history.run} has no evaluation of {task}", hint=hint)
        scored = tuple(found), tuple(found.values())
        courses.append(Course(algorithm, environment, task, seed, *scored, wall, cpu_seconds))
    return courses


def make_handler() -> Callable[[CourseJob], None]:
    """The entry point of a worker process; `groupwise.workers` calls it."""
    return carry_out
