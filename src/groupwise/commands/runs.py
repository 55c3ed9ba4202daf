"""`groupwise runs | show | plot | groups | report`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from groupwise.errors import RunError
from groupwise.reporting.command_options import RUNS, Common, RunName, RunsDir, answer
from groupwise.reporting.text import course, curve, printable, traceback_lines

if TYPE_CHECKING:
    from groupwise.training.folder import RunInfo


def runs(*, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """List the runs, oldest first."""
    from groupwise.reporting.summary import runs_table
    from groupwise.training.folder import inspect_runs

    found = inspect_runs(runs_dir)
    if common.json:
        answer([facts(run) for run in found])
    elif found:
        Console().print(runs_table(found))
    else:
        print(f"no runs in {runs_dir} yet; `groupwise demo` creates one")


def show(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Show a run: its curve, its metrics and its hints."""
    from groupwise.reporting.history import History
    from groupwise.reporting.summary import summary_table
    from groupwise.training.events import is_long
    from groupwise.training.folder import find_run, inspect_run

    path = find_run(run, str(runs_dir))
    info = inspect_run(path)
    history = History.read(path)
    if common.json:
        hints = [{"step": step, **hint} for step, hint in history.hints]
        answer({**facts(info), "hints": hints, "errors": history.errors})
        return
    console = Console()
    console.print(summary_table(history))
    if is_long(path / "events.jsonl"):
        read = f"{len(history.steps):,} of {history.step:,} steps were read, evenly spaced"
        console.print(f"a long run: {read}", style="dim", highlight=False)
    steps, rewards = history.series("reward/mean")
    if rewards:
        console.print("\nmean reward of the attempts, by step", style="dim")
        print_curve(console, steps, rewards)
    for step, hint in history.hints:
        words = printable(f"step {step}: {hint.get('message')} {hint.get('remedy')}")
        console.print(words, style="yellow", markup=False, highlight=False)
        for line in traceback_lines(hint):
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    for error in history.errors:
        words = printable(f"failed: {error.get('message')} {error.get('hint')}")
        console.print(words, style="red", markup=False, highlight=False)
    if info.state in ("stopped", "interrupted", "failed"):
        console.print(f"\ncontinue with: groupwise resume {path}", highlight=False, markup=False)


def plot(
    runs: Annotated[
        tuple[str, ...],
        Parameter(help="Names or folders of runs; the latest by default."),
    ] = ("latest",),
    *,
    metric: Annotated[str, Parameter(help="Which metric, for example policy/entropy.")] = "reward/mean",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="A .png, .svg or .pdf file.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Plot a metric of one or several runs, in the terminal or into a file."""
    from groupwise.training.folder import find_run

    paths = [find_run(name, str(runs_dir)) for name in runs]
    series = {path.name: series_of(path, metric) for path in paths}
    if out is not None:
        from groupwise.reporting.figures import plot_runs  # needs Matplotlib

        plot_runs(paths, metric, out)
    if common.json:
        values = {name: dict(zip(*found, strict=True)) for name, found in series.items()}
        answer({"metric": metric, "out": str(out) if out else None, "series": values})
    elif out is not None:
        print(out)
    else:
        for name, (steps, found) in series.items():
            print(f"{name}: {metric}")
            print_curve(Console(), steps, found)


def print_curve(console: Console, steps: Sequence[int], values: Sequence[float]) -> None:
    width = min(console.width, 72)
    ascii_only = console.options.ascii_only
    print(curve(course(steps, values), width, 8, steps=(steps[0], steps[-1]), ascii_only=ascii_only))


def groups(
    run: RunName = "latest",
    *,
    step: Annotated[int | None, Parameter(help="Which step; the newest with saved groups by default.")] = None,
    strategy: Annotated[str, Parameter(help="How to divide its attempts: task, difficulty, length, auto …")] = "task",
    n_groups: Annotated[int | None, Parameter(help="How many groups; automatic by default.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Divide the attempts of a recorded step by any grouping strategy, and show what its groups are like."""
    from groupwise.reporting.recorded_step import groups_table, newest_step, read_step, regroup  # needs torch
    from groupwise.training.folder import find_run

    path = find_run(run, str(runs_dir))
    chosen = newest_step(path) if step is None else step
    recorded, found = read_step(path, chosen), regroup(path, chosen, strategy, n_groups)
    if common.json:
        answer({"run": path.name, "attempts": recorded.as_dict(), "grouping": found.as_dict()})
    else:
        Console().print(groups_table(recorded, found))


def report(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Write a run's report.html again, and print where it is."""
    from groupwise.reporting.live_run import write_run_report  # needs Matplotlib and torch
    from groupwise.training.folder import find_run

    folder = find_run(run, str(runs_dir))
    path = write_run_report(folder)
    if common.json:
        answer({"report": str(path)})
    else:
        print(path)


def series_of(path: Path, metric: str) -> tuple[list[int], list[float]]:
    """A metric's steps and values, or an error that lists the metrics of the run."""
    from groupwise.reporting.history import History

    history = History.read(path)
    steps, values = history.series(metric)
    if not values:
        near = difflib.get_close_matches(metric, history.names(), 1)
        known = ", ".join(sorted(history.names())) or "none yet"
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {known}."
        raise RunError(f"run {path.name} has no metric {metric!r}", hint=hint, field="metric")
    return list(steps), list(values)


# asdict leaves the Path, which JSON cannot write.
def facts(run: RunInfo) -> dict[str, Any]:
    return {**asdict(run), "path": str(run.path)}
