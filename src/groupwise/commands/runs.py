"""`groupwise runs | show | plot | report`."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from groupwise.commands.options import RUNS, Common, RunName, RunsDir, answer
from groupwise.errors import GroupwiseError, RunError
from groupwise.products import product_of
from groupwise.reporting.figures import plot_runs
from groupwise.reporting.history import History
from groupwise.reporting.report import write_report
from groupwise.reporting.summary import runs_table, summary_table
from groupwise.reporting.text import course, curve, printable
from groupwise.training.events import read_events
from groupwise.training.folder import RunInfo, find_run, inspect_run, inspect_runs, read_config


def runs(*, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """List the runs, oldest first."""
    found = inspect_runs(runs_dir)
    if common.json:
        answer([facts(run) for run in found])
    elif found:
        Console().print(runs_table(found))
    else:
        print(f"no runs in {runs_dir} yet; `groupwise demo` makes one in seconds")


def show(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Show one run: its curve, its numbers and its hints."""
    path = find_run(run, str(runs_dir))
    info = inspect_run(path)
    history = History.read(path)
    if common.json:
        hints = [{"step": step, **hint} for step, hint in history.hints]
        answer({**facts(info), "hints": hints, "errors": history.errors})
        return
    console = Console()
    console.print(summary_table(read_events(path / "events.jsonl")))
    steps, rewards = history.series("reward/mean")
    if rewards:
        console.print("\nmean reward of the attempts, by step", style="dim")
        print(curve(course(steps, rewards), min(console.width, 72), 8, steps=(steps[0], steps[-1])))
    for step, hint in history.hints:
        words = printable(f"step {step}: {hint.get('message')} {hint.get('remedy')}")
        console.print(words, style="yellow", markup=False, highlight=False)
    for error in history.errors:
        words = printable(f"failed: {error.get('message')} {error.get('hint')}")
        console.print(words, style="red", markup=False, highlight=False)
    if info.state in ("stopped", "interrupted", "failed"):
        console.print(f"\ngo on with: groupwise resume {path}", highlight=False, markup=False)


def plot(
    runs: Annotated[tuple[str, ...], Parameter(help="Run names or folders.")] = ("latest",),
    *,
    metric: Annotated[str, Parameter(help="Which number, for example policy/entropy.")] = "reward/mean",
    out: Annotated[Path | None, Parameter(help="A .png, .svg or .pdf file; else the terminal.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Draw one number of one or several runs, in the terminal or into a picture."""
    paths = [find_run(name, str(runs_dir)) for name in runs]
    series = {path.name: series_of(path, metric) for path in paths}
    if out is not None:
        plot_runs(paths, metric, out)
    if common.json:
        values = {name: dict(zip(*found, strict=True)) for name, found in series.items()}
        answer({"metric": metric, "out": str(out) if out else None, "series": values})
    elif out is not None:
        print(out)
    else:
        for name, (steps, found) in series.items():
            print(f"{name}: {metric}")
            print(curve(course(steps, found), min(Console().width, 72), 8, steps=(steps[0], steps[-1])))


def report(run: RunName = "latest", *, runs_dir: RunsDir = Path(RUNS), common: Common = Common()) -> None:
    """Write a run's report.html (again) and say where it is."""
    folder = find_run(run, str(runs_dir))
    path = write_run_report(folder)
    if common.json:
        answer({"report": str(path)})
    else:
        print(path)


def write_run_report(run_dir: Path) -> Path:
    """Write report.html with the sections that the run's product adds, if it has anything to show yet."""
    try:
        cfg = read_config(run_dir)
        added = product_of(cfg).report_sections(run_dir, cfg)
    except GroupwiseError:
        added = ()
    return write_report(run_dir, added)


def series_of(path: Path, metric: str) -> tuple[list[int], list[float]]:
    """A metric's steps and values, or an error that names the ones there are."""
    history = History.read(path)
    steps, values = history.series(metric)
    if not values:
        near = difflib.get_close_matches(metric, history.names(), 1)
        known = ", ".join(sorted(history.names())) or "none yet"
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {known}."
        raise RunError(f"run {path.name} has no values of {metric!r}", hint=hint, field="metric")
    return list(steps), list(values)


def facts(run: RunInfo) -> dict[str, Any]:
    return {**asdict(run), "path": str(run.path)}
