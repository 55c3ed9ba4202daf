"""`groupwise compare | paper`: compare settings, and repeat the experiments of papers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from groupwise.control.papers import PAPERS, experiment_of
from groupwise.errors import ConfigError
from groupwise.products import product_of
from groupwise.reporting.command_options import Common, Overrides, answer
from groupwise.training.machine import bench_result

if TYPE_CHECKING:
    from groupwise.config import TrainingConfig
    from groupwise.control.comparison.campaign import Entry
    from groupwise.control.comparison.foreign_logs import ForeignLog
    from groupwise.control.papers.paper_result import PaperFinding
    from groupwise.reporting.comparison import Course


Words = tuple[str, ...]


def compare(
    configs: Annotated[Words, Parameter(help="Settings files, or NAME=FILE; at least two algorithms.")] = (),
    *,
    seeds: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of seeds; at least 10 to support a claim.")
    ] = 5,
    first: Annotated[int, Parameter(validator=Number(gte=0), help="First seed.")] = 0,
    out: Annotated[
        Path, Parameter(name=["--out", "-o"], help="Output folder; an interrupted comparison continues there.")
    ] = Path("comparison"),
    jobs: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Worker processes; default: one per core.")
    ] = None,
    environment: Annotated[Words, Parameter(help="Train in these environments instead of the files' own.")] = (),
    threshold: Annotated[Words, Parameter(help="Score that solves a task: CartPole-v1=475.")] = (),
    log: Annotated[
        Words,
        Parameter(
            help="What another tool logged: NAME=PATH, a file or folder of monitor.csv, tfevents or other CSV files."
        ),
    ] = (),
    column: Annotated[Words, Parameter(help="A column of such logs: score=charts/episodic_return.")] = (),
    ablation: Annotated[str | None, Parameter(help="A ready-made comparison: outcome-grouping.")] = None,
    set_: Overrides = (),
    common: Common = Common(),
) -> None:
    """Train several settings with the same seeds and report which differences may be claimed.

    Repeat an interrupted command to continue it. The folder gets report.html, the figures with their data, and all
    numbers.
    """
    from groupwise.control.comparison.arms import KNOWN_SCALES
    from groupwise.control.comparison.campaign import Entry, extras_of, product_module
    from groupwise.control.comparison.campaign import compare as run_entries
    from groupwise.control.comparison.foreign_logs import parse_log
    from groupwise.reporting.comparison import Comparison
    from groupwise.reporting.comparison_page import as_json, write_comparison
    from groupwise.reporting.comparison_table import comparison_view, progress_bar

    logs = [parse_log(word, column) for word in log]
    title, preface, settings = chosen(configs, ablation, set_, others=len(logs))
    entries = [
        Entry(name, cfg.replace(environment=place) if place else cfg, product_module(cfg))
        for name, cfg in settings
        for place in (environment or (None,))
    ]
    foreign, notes = courses_of_logs(logs, first, entries, environment)
    check(entries, foreign)
    limits = {**environment_thresholds([*entries, *foreign]), **thresholds(threshold)}
    numbers = range(first, first + seeds)
    with progress_bar(quiet=common.json) as bar:
        outcome = run_entries(out, entries, numbers, jobs=jobs, progress=bar)
    courses = (*outcome.courses, *foreign)
    comparison = Comparison(courses, outcome.failures, limits, known=KNOWN_SCALES, notes=notes)
    command = shlex.join(["groupwise", *sys.argv[1:]])
    extras = extras_of(out, entries, first, title=title, preface=preface, command=command)
    path = write_comparison(out, comparison, extras)
    if common.json:
        answer({**as_json(comparison), "report": str(path)})
        return
    Console().print(comparison_view(comparison))
    Console(stderr=True, soft_wrap=True).print(f"report: {path}", highlight=False, markup=False)


def courses_of_logs(
    logs: Sequence[ForeignLog], first: int, entries: Sequence[Entry], environment: Sequence[str]
) -> tuple[list[Course], tuple[str, ...]]:
    """The courses in logs of other tools, and what to know about them."""
    places = {entry.environment for entry in entries} or set(environment)
    only = next(iter(places)) if len(places) == 1 else ""
    courses, notes = [], []
    for one in logs:
        found, lost = one.courses(first, only)
        courses += found
        notes += lost
    if logs:
        names = ", ".join(dict.fromkeys(one.name for one in logs))
        notes.append(
            f"{names}: read from logs, whose scores may be training episodes, with exploration; ours are evaluations "
            "without. Their runs meet ours in pairs in the order of their names, not by seed."
        )
    return courses, tuple(notes)


def chosen(
    configs: Sequence[str], ablation: str | None, overrides: Sequence[str], others: int = 0
) -> tuple[str, str, list[tuple[str, TrainingConfig]]]:
    """Title, preface and the requested settings by name."""
    from groupwise.config import TrainingConfig
    from groupwise.config.overrides import apply_overrides
    from groupwise.control.comparison.arms import ABLATIONS

    if ablation is None:
        return "", "", named_settings(configs, overrides, others)
    if configs:
        raise ConfigError(f"--ablation {ablation} has its own settings and cannot be combined with {configs[0]}")
    if ablation not in ABLATIONS:
        raise ConfigError(f"--ablation {ablation!r} is not known", hint=f"Known: {', '.join(ABLATIONS)}.")
    found = ABLATIONS[ablation]()
    # Overrides apply to every arm, so that the arms still differ in one setting only.
    arms = [(n, TrainingConfig.from_dict(apply_overrides(c.to_dict(), overrides))) for n, c in found.arms.items()]
    return found.title, found.preface, arms


def named_settings(
    configs: Sequence[str], overrides: Sequence[str], others: int = 0
) -> list[tuple[str, TrainingConfig]]:
    """The settings of every file by its given name, or by the file's; `others` are compared with them."""
    from groupwise.config import load_config

    files = [named(word) for word in configs]
    if len({name for name, _ in files}) + others < 2:
        what = "no settings file was given" if not files else f"{files[0][0]!r} has nothing to be compared with"
        raise ConfigError(what, hint="groupwise compare one.toml other.toml --seeds 10, or NAME=FILE to name them.")
    return [(name, load_config(path, overrides)) for name, path in files]


def named(word: str) -> tuple[str, Path]:
    name, equals, path = word.partition("=")
    # A file whose own name contains "=" is still a file.
    if equals and not Path(word).exists():
        return name, Path(path)
    return Path(word).stem, Path(word)


def check(entries: Sequence[Entry], foreign: Sequence[Course] = ()) -> None:
    """Let every product check its settings, and refuse algorithms without a common environment, or with one name."""
    from groupwise.control.comparison.campaign import available

    for entry in entries:
        if available(entry.product):
            product_of(entry.cfg).check(entry.cfg)
    both = {entry.algorithm for entry in entries} & {course.algorithm for course in foreign}
    if both:
        raise ConfigError(
            f"{min(both)!r} is both a settings file and a log", hint="Name them: NAME=FILE, --log NAME=PATH."
        )
    every: list[Entry | Course] = [*entries, *foreign]
    places = {name: {e.environment for e in every if e.algorithm == name} for name in (e.algorithm for e in every)}
    if not set.intersection(*places.values()):
        listed = "; ".join(f"{name} in {', '.join(sorted(own))}" for name, own in places.items())
        message, hint = f"the algorithms have no common environment: {listed}", "Name one: --environment CartPole-v1."
        raise ConfigError(message, hint=hint, field="task.environment")


def environment_thresholds(entries: Sequence[Entry | Course]) -> dict[str, float]:
    """The scores at which environments count as solved, where that is known."""
    from groupwise.control.comparison.arms import known_threshold

    found = {entry.environment: known_threshold(entry.environment) for entry in entries}
    return {environment: solved for environment, solved in found.items() if solved is not None}


def thresholds(words: Sequence[str]) -> Mapping[str, float]:
    """`TASK=NUMBER` as a table."""
    found = {}
    for word in words:
        task, _, number = word.rpartition("=")
        try:
            found[task] = float(number)
        except ValueError:
            task = ""
        if not task:
            raise ConfigError(f"--threshold {word!r} must be TASK=NUMBER", hint="For example CartPole-v1=475.")
    return found


def paper(
    name: Annotated[str, Parameter(help=f"One of {', '.join(PAPERS)}.")],
    *,
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="First seed.")] = 0,
    seeds: Annotated[int | None, Parameter(validator=Number(gte=2), help="Number of seeds, at least 2.")] = None,
    common: Common = Common(),
) -> None:
    """Repeat a paper's central experiment on a small scale, with several seeds, and report whether it is reproduced."""
    from groupwise.training.session import use_threads

    if name not in PAPERS:
        raise ConfigError(f"there is no experiment {name!r}", hint=f"Known: {', '.join(PAPERS)}.")
    experiment, usual = experiment_of(name), PAPERS[name][1]
    # These networks are too small to gain from threads, and one thread is reproducible.
    use_threads(1)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = common.json or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(name, total=None)
        numbers = range(seed, seed + (seeds or usual))
        found = experiment(numbers, lambda done, total: progress.update(bar, completed=done, total=total))
    if common.json:
        answer(finding_json(found))
    else:
        show_finding(found)


def finding_json(found: PaperFinding) -> dict[str, object]:
    """The result in the shape of every benchmark, with the claim in words."""
    claims = {"appeared": found.appeared, **{name: effect.value for name, effect in found.effects.items()}}
    intervals = {name: effect.as_list()[1:] for name, effect in found.effects.items()}
    name, command = f"paper_{found.name}", shlex.join(["groupwise", *sys.argv[1:]])
    result = bench_result(name, command, claims, seeds=found.seeds, intervals=intervals, raw=found.raw)
    return {**result, "sentence": found.sentence, "lesson": found.lesson}


def show_finding(found: PaperFinding) -> None:
    """Print the table, the claim, and what it means."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(f"{found.title}\n", "bold"))
    console.print(table)
    console.print(Text(f"\n{found.sentence}"))
    console.print(Text(f"{found.lesson}\nMeans with 95% intervals over {len(found.seeds)} seeds.", "dim"))
