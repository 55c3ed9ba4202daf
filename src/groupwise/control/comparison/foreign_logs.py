"""What other tools logged, as courses beside ours: `groupwise compare --log sb3=logs/ --log cleanrl=runs/`.

    *monitor.csv                  SB3: one file for each copy of the environment; a folder of them is a run
    events.out.tfevents.*         TensorBoard, as CleanRL and Stable-Baselines3 write it; a folder of them is a run
    *.csv                         a table with a column of steps and one of scores, and perhaps of seeds and tasks

A folder may hold folders: every one with logs is a run. Runs are numbered in the order of their names, from the first
seed of the comparison on, so that they meet ours in pairs. Logs of more than 200 scores, which are single episodes, are
averaged in 100 stretches of equal length.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from groupwise.control.comparison.event_files import read_scalars
from groupwise.errors import ConfigError
from groupwise.readers import Clock, data_limits, decoded, load_json, read_bytes
from groupwise.reporting.comparison import Course

MOST_FILES = 2000
MOST_COLUMNS, LONGEST_LINE = 100_000, 4_000_000  # of a table
SINGLE, STRETCHES = 200, 100
# What columns are called, the surest first: evaluations before training episodes.
LAST_STEP = 2**53  # beyond it, float64 skips whole numbers
STEPS = (
    "step",
    "steps",
    "global_step",
    "time/total_timesteps",
    "total_timesteps",
    "timesteps",
    "num_timesteps",
    "env_steps",
)
SCORES = (
    "eval/mean_reward", "eval/reward_mean", "charts/episodic_return", "rollout/ep_rew_mean", "episodic_return",
    "mean_reward", "reward_mean", "score", "return", "reward", "value",
)  # fmt: skip
USUAL: Mapping[str, Sequence[str]] = {"step": STEPS, "score": SCORES, "seed": ("seed",), "task": ("task", "env_id")}
ROLES = tuple(USUAL)
CLEANRL = re.compile(r"(?P<environment>.+)__(?P<name>.+)__(?P<seed>\d+)__\d+")


@dataclass
class LoggedRun:
    """One run of another tool: its scores over steps, and what the log says about it."""

    source: Path
    points: list[tuple[float, float]]
    environment: str = ""
    task: str = ""
    seconds: float = math.nan
    left_out: int = 0


@dataclass(frozen=True)
class ForeignLog:
    """`NAME=PATH` or `NAME@ENVIRONMENT=PATH`. `columns` names columns by role: step, score, seed, task."""

    name: str
    path: Path
    environment: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    def courses(self, first: int = 0, environment: str = "") -> tuple[list[Course], list[str]]:
        """The courses, numbered from the first seed on, and notes. `environment` is for logs that do not name one."""
        runs = read_log(self.path, self.columns)
        if not runs:
            raise ConfigError(
                f"{self.path} has no logs", hint="Logs are *monitor.csv, events.out.tfevents.* or other *.csv."
            )
        courses, seen = [], dict[str, int]()
        for run in runs:
            place = self.environment or run.environment or environment
            if not place:
                hint = f"--log {self.name}@CartPole-v1={self.path}"
                raise ConfigError(f"{run.source} does not say in which environment it was made", hint=hint)
            task = run.task or place
            number = seen[task] = seen.get(task, -1) + 1
            steps, scores = thinned(run.points)
            courses.append(Course(self.name, place, task, first + number, steps, scores, run.seconds, math.nan))
        lost = sum(run.left_out for run in runs)
        notes = [f"{self.name}: {lost} scores of its logs are not finite numbers and are left out."] if lost else []
        return courses, notes


def parse_log(word: str, columns: Sequence[str]) -> ForeignLog:
    """`--log NAME=PATH` with the `--column ROLE=NAME` given."""
    name, equals, path = word.partition("=")
    name, _, environment = name.partition("@")
    if not equals or not name or not path:
        raise ConfigError(
            f"--log {word!r} must be NAME=PATH", hint="For example --log sb3=logs/ or --log sb3@CartPole-v1=run.csv."
        )
    chosen = {}
    for column in columns:
        role, _, called = column.partition("=")
        if role not in ROLES or not called:
            hint = f"Roles are {', '.join(ROLES)}: --column score=charts/episodic_return"
            raise ConfigError(f"--column {column!r} must be ROLE=NAME", hint=hint)
        chosen[role] = called
    return ForeignLog(name, Path(path), environment, chosen)


def read_log(path: Path, columns: Mapping[str, str] | None = None) -> list[LoggedRun]:
    """The runs in a file, or in a folder and all folders within it."""
    found = []
    for group in _runs_at(path):
        try:
            found += _read(group, columns or {})
        except ConfigError as error:
            raise ConfigError(f"{group[0]}: {error.message}", hint=error.hint) from None
    return found


def _runs_at(path: Path) -> Iterator[list[Path]]:
    """The files of every run, in natural order."""
    if not path.is_dir():
        yield [path]
        return
    files = [file for file in path.rglob("*") if file.is_file() and _kind(file)]
    if len(files) > MOST_FILES:
        raise ConfigError(
            f"{path} has {len(files):,} logs; at most {MOST_FILES:,} are read", hint="Name a smaller folder."
        )
    folders: dict[Path, list[Path]] = {}
    for file in sorted(files, key=_natural):
        folders.setdefault(file.parent, []).append(file)
    for folder in sorted(folders, key=_natural):
        kinds = {
            kind: [file for file in folders[folder] if _kind(file) == kind] for kind in ("monitor", "events", "table")
        }
        if kinds["monitor"]:
            yield kinds["monitor"]
        elif kinds["events"]:
            yield kinds["events"]
        else:
            yield from ([file] for file in kinds["table"])


def _kind(path: Path) -> str:
    if "tfevents" in path.name:
        return "events"
    if path.suffix.lower() == ".csv":
        return "monitor" if path.name.endswith("monitor.csv") else "table"
    return ""


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: seed_10 comes after seed_9. CleanRL's names end in a time, after the seed."""
    parts = re.findall(r"[0-9]+|[^0-9]+", str(path))
    # By length and text, not by value: Python refuses to read thousands of digits, and a cell may hold as many.
    numbers = ((part, part.lstrip("0")) for part in parts)
    return [(len(number), number) if part[0] in "0123456789" else (-1, part) for part, number in numbers]


def _read(files: Sequence[Path], columns: Mapping[str, str]) -> list[LoggedRun]:
    if not _kind(files[0]):
        message = f"{files[0].name!r} is not a log that we can read"
        raise ConfigError(message, hint="Logs are *monitor.csv, events.out.tfevents.* or other *.csv.")
    if _kind(files[0]) == "events":
        return [_read_events(files, columns)]
    content = read_bytes(files[0], data_limits())
    # SB3's monitor has a line of JSON above its columns.
    if content.lstrip(b"\xef\xbb\xbf").startswith(b"#"):
        return [_read_monitors(files)]
    return _read_table(files[0], content, columns)


# Stable-Baselines3's monitor


def _read_monitors(files: Sequence[Path]) -> LoggedRun:
    """The episodes of all copies of an environment, in the order in which they ended."""
    episodes: list[tuple[float, float, float]] = []
    environment, lost = "", 0
    for file in files:
        text = decoded(read_bytes(file, data_limits()), data_limits())
        head, _, rest = text.partition("\n")
        try:
            about = load_json(head.lstrip("#").strip())
        except ConfigError as error:
            raise ConfigError(f"line 1 is not the JSON that a monitor begins with: {error.message}") from None
        about = about if isinstance(about, dict) else {}
        environment = str(about.get("env_id") or environment)
        begun = about.get("t_start", 0.0)
        header, rows = _rows(rest)
        reward, length, clock = (_column(header, name) for name in ("r", "l", "t"))
        for row in rows:
            score, steps, when = (_number(row[place]) for place in (reward, length, clock))
            if score is None or steps is None or when is None:
                continue
            if not math.isfinite(score):
                lost += 1
            elif 0 <= steps <= LAST_STEP and math.isfinite(when):
                episodes.append((float(begun if isinstance(begun, int | float) else 0.0) + when, steps, score))
    if not episodes:
        raise _no_scores("r", lost)
    episodes.sort()
    totals = np.cumsum([steps for _, steps, _ in episodes])
    points = [(float(total), score) for total, (_, _, score) in zip(totals, episodes, strict=True)]
    return LoggedRun(files[0], points, environment, seconds=episodes[-1][0] - episodes[0][0], left_out=lost)


# TensorBoard


def _read_events(files: Sequence[Path], columns: Mapping[str, str]) -> LoggedRun:
    found: dict[str, list[tuple[int, float, float]]] = {}
    for file in files:
        for tag, values in read_scalars(read_bytes(file, data_limits()), data_limits()).items():
            found.setdefault(tag, []).extend(values)
    tag = list(found)[_column(list(found), *_names("score", columns), what="scalar")]
    points = [(float(step), value) for step, value, _ in found[tag]]
    kept = [point for point in points if math.isfinite(point[1]) and 0 <= point[0] <= LAST_STEP]
    if not kept:
        raise _no_scores(tag, len(points))
    times = [wall for _, _, wall in found[tag] if math.isfinite(wall)]
    match = CLEANRL.fullmatch(files[0].parent.name)
    environment = match["environment"] if match else ""
    seconds = max(times) - min(times) if times else math.nan
    return LoggedRun(files[0], kept, environment, seconds=seconds, left_out=len(points) - len(kept))


# Tables


def _read_table(path: Path, content: bytes, columns: Mapping[str, str]) -> list[LoggedRun]:
    header, rows = _rows(decoded(content, data_limits()))
    step, score = (_column(header, *_names(role, columns)) for role in ("step", "score"))
    # Seeds and tasks are optional, unless they were named.
    seed, task = (
        _column(header, *_names(role, columns)) if role in columns or _has(header, USUAL[role]) else None
        for role in ("seed", "task")
    )
    runs: dict[tuple[str, str], LoggedRun] = {}
    for row in rows:
        at, value = _number(row[step]), _number(row[score])
        if at is None or value is None or not 0 <= at <= LAST_STEP:
            continue
        key = (row[task].strip() if task is not None else "", row[seed].strip() if seed is not None else "")
        run = runs.setdefault(key, LoggedRun(path, [], task=key[0]))
        if math.isfinite(value):
            run.points.append((at, value))
        else:
            run.left_out += 1
    kept = [runs[key] for key in sorted(runs, key=lambda key: (key[0], _natural(Path(key[1])))) if runs[key].points]
    if not kept:
        raise _no_scores(header[score], sum(run.left_out for run in runs.values()))
    match = CLEANRL.fullmatch(path.parent.name) or CLEANRL.fullmatch(path.stem)
    for run in kept:
        run.environment = match["environment"] if match else run.task
    return kept


def _rows(text: str) -> tuple[list[str], Iterator[list[str]]]:
    """The names of the columns, and the rows that have as many cells."""
    end = text.find("\n")
    # The delimiter is whichever candidate occurs most often in the header.
    often = {mark: text.count(mark, 0, end if end >= 0 else len(text)) for mark in ",;\t"}
    if (columns := max(often.values()) + 1) > MOST_COLUMNS:
        raise ConfigError(f"it has {columns:,} columns; the limit is {MOST_COLUMNS:,}")
    reader = csv.reader(_lines(text), delimiter=max(often, key=often.__getitem__))
    header = [name.strip() for name in _next(reader) or []]
    if not any(header):
        raise ConfigError("it is empty", hint="A table has a line with the names of its columns.")
    return header, _checked(reader, len(header))


def _lines(text: str) -> Iterator[str]:
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        if len(line) > LONGEST_LINE:
            raise ConfigError(f"line {number} has {len(line):,} characters; the limit is {LONGEST_LINE:,}")
        yield line


def _checked(reader: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    clock = Clock(data_limits())
    while (row := _next(reader)) is not None:
        clock.tick()
        # A run that was killed leaves half a line.
        if len(row) == width:
            yield row


def _next(reader: Iterator[list[str]]) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise ConfigError(f"not a table of comma-separated values: {error}") from None


def _number(cell: str) -> float | None:
    """The number in a cell; None if it is empty or text."""
    try:
        return float(cell) if cell.strip() else None
    except ValueError:
        return None


def _names(role: str, columns: Mapping[str, str]) -> Sequence[str]:
    return (columns[role],) if role in columns else USUAL[role]


def _has(header: Sequence[str], names: Sequence[str]) -> bool:
    return bool({name.lower() for name in header} & set(names))


def _column(header: Sequence[str], *names: str, what: str = "column") -> int:
    """The place of the first of these names that there is; one sentence with those that there are if there is none."""
    lowered = [name.lower() for name in header]
    for name in names:
        if name.lower() in lowered:
            return lowered.index(name.lower())
    wanted = repr(names[0]) if len(names) == 1 else f"any of {', '.join(names)}"
    there = ", ".join(header[:30]) + (f" and {len(header) - 30} more" if len(header) > 30 else "")
    role = "score" if names[0] in SCORES or what == "scalar" else "step"
    hint = f"Name one of them: --column {role}=NAME."
    raise ConfigError(
        f"there is no {what} {wanted}; there {'is' if len(header) == 1 else 'are'} {there or 'none'}", hint=hint
    )


def _no_scores(name: str, lost: int) -> ConfigError:
    why = f": all {lost} are NaN or infinite" if lost else ""
    return ConfigError(
        f"{name!r} has no scores that are numbers{why}", hint="Did the run get as far as its first episode?"
    )


def thinned(points: Iterable[tuple[float, float]]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Steps and scores in order: those of one step averaged, and many single episodes averaged in stretches."""
    pairs = np.array(sorted(points))
    steps, scores = np.floor(pairs[:, 0]), pairs[:, 1]
    if len(steps) > SINGLE and steps[-1] > steps[0]:
        width = (steps[-1] - steps[0]) / STRETCHES
        place = np.minimum((steps - steps[0]) // width, STRETCHES - 1)
        ends = steps[0] + (place + 1) * width
    else:
        ends = steps
    distinct, where = np.unique(np.floor(ends), return_inverse=True)
    # Means of finite numbers; numbers near the largest possible would overflow in their sum.
    means = np.bincount(where, scores / np.bincount(where)[where])
    return tuple(int(step) for step in distinct), tuple(float(mean) for mean in means)
