"""`groupwise demo`: a language model from nothing to two-digit sums, with a report to look at."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.commands.options import RUNS, Common, RunsDir, answer
from groupwise.commands.training import follow_events
from groupwise.config import load_config
from groupwise.products import product_of
from groupwise.reporting.history import History
from groupwise.reporting.report import write_report
from groupwise.reporting.text import course, curve
from groupwise.training.folder import create_run
from groupwise.types import Sample

SETTINGS = Path(str(files("groupwise.agents")))
GRPO_SETTINGS = "column_addition.toml"
SHOWN = 5

OPENING = """A language model of 0.9 million weights, made from scratch, learns two-digit sums on one core.
A sum is asked as 07+95 and answered from the units up, as on paper: 201."""
WARM_START = "1. Warm start: it imitates right answers until it has the form, and about a third of the sums."
SCORES = "2. GRPO: it answers each sum 4 times, and every answer learns from its score relative to its group."

NEXT = """Look at it:    {report}
Try next:      {groupwise} chat {run}          ask it 12+34
               {groupwise} show {run}
               {groupwise} eval {run} --seed 7 --samples 8
               {groupwise} export {run} my-model
               {groupwise} train {settings} --set policy.model_name={warm} --set loss.loss_type=sapo"""


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Any number; a fresh one each time if not given.")] = None,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> int:
    """Teach a tiny language model to add: a warm start, then GRPO, in about two minutes on one core."""
    seed = int(time.time()) % 100_000 if seed is None else seed
    console = Console(quiet=common.json)
    console.print(f"{OPENING}\nSeed {seed}: `groupwise demo --seed {seed}` repeats it.", highlight=False)
    began = time.perf_counter()
    warm, stopped = train("column_addition_sft.toml", seed, runs_dir, console, title=WARM_START)
    warm_seconds = time.perf_counter() - began
    path = warm
    if not stopped:
        path, stopped = train(GRPO_SETTINGS, seed, runs_dir, console, title=SCORES, model=warm)
    seconds = time.perf_counter() - began
    report, history = write_report(path), History.read(path)
    scores, formats = history.series("eval/accuracy")[1], history.series("eval/format")[1]
    if common.json:
        answer(
            {
                "before": scores[0], "after": scores[-1], "format_before": formats[0], "warm_seconds": warm_seconds,
                "seconds": seconds, "seed": seed, "finished": not stopped, "warm_start": str(warm), "run": str(path),
                "report": str(report),
            }
        )  # fmt: skip
    elif stopped:
        words = f"stopped; go on with: groupwise resume {path}"
        if path == warm:
            words += f"\n    and then: groupwise train {SETTINGS / GRPO_SETTINGS} --set policy.model_name={path}"
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    else:
        _tell(console, history, seconds)
        command = "groupwise" if shutil.which("groupwise") else sys.argv[0]
        words = NEXT.format(report=report, run=path, warm=warm, groupwise=command, settings=path / "config.toml")
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    return 130 if stopped else 0


def train(
    settings: str, seed: int, runs_dir: Path, console: Console, *, title: str, model: Path | None = None
) -> tuple[Path, bool]:
    """Make a run of a settings file and follow it: its folder, and whether it was interrupted."""
    start = [f"policy.model_name={model}"] if model else []
    cfg = load_config(SETTINGS / settings, [f"run.seed={seed}", f"run.output_dir={runs_dir}", *start])
    cfg = product_of(cfg).prepare(cfg)
    path = create_run(cfg)
    console.print(f"\n[bold]{title}[/bold]", highlight=False)
    quiet = console.quiet or not console.is_terminal
    last = deque(follow_events(path, cfg, quiet=quiet), maxlen=1).pop()
    if quiet and not console.quiet:
        steps, rewards = History.read(path).series("eval/accuracy")
        console.print("share of held-out sums that are right, by step", style="dim")
        print(curve(course(steps, rewards), min(console.width, 72), 8, steps=(steps[0], steps[-1])), flush=True)
    return path, last.data["reason"] == "stopped"


def _tell(console: Console, history: History, seconds: float) -> None:
    """Before and after, in numbers and in answers."""
    scores = history.series("eval/accuracy")[1]
    asked = int(history.last("eval/attempts") or 0)
    told = history.samples()
    first, last = told[min(told)], told[max(told)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("asked", "right", "before", "after"):
        table.add_column(name)
    for prompt, sample in list(last.items())[:SHOWN]:
        table.add_row(prompt, sample.expected, _said(first.get(prompt)), _said(sample))
    console.print()
    console.print(table)
    console.print(
        f"\nBefore GRPO: {scores[0]:.0%} of {asked} unseen sums right.  After: [bold]{scores[-1]:.0%}[/bold].\n"
        f"Answered greedily; {seconds:.0f} s in all, on one core.\n",
        highlight=False,
    )


def _said(sample: Sample | None) -> Text:
    if sample is None:
        return Text("")
    return Text(f"{sample.text} ✓", "green") if sample.correct else Text(f"{sample.text} ✗", "red")
