"""The numbers that matter, how a run ended, and the terminal tables of one run and of all runs."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Group
from rich.table import Table
from rich.text import Text

from groupwise.reporting.history import History
from groupwise.reporting.text import clock, printable
from groupwise.training.folder import RunInfo
from groupwise.training.formatting import finite, number, percent

Form: TypeAlias = Callable[[float], str]
Rows: TypeAlias = tuple[tuple[str, str, Form], ...]

# A KL smaller than this is float32 rounding.
ROUNDING = 1e-6
# So is a mean gap between the ratios of sampler and learner below this.
AGREES = 1e-4
# Label, metric and format of the numbers a terminal shows.
NUMBERS: Rows = (
    ("reward", "reward/mean", number),
    ("evaluation", "eval/reward_mean", number),
    ("correct", "eval/accuracy", percent),
    ("no spread", "groups/zero_spread_share", percent),
    ("failed", "groups/failed_share", percent),
    ("entropy", "policy/entropy", number),
    ("KL", "policy/kl", lambda kl: number(kl) if abs(kl) >= ROUNDING else "0"),
    ("clipped low", "policy/clip_low", percent),
    ("clipped high", "policy/clip_high", percent),
    ("sampler gap", "sampler/ratio_gap", lambda gap: number(gap) if gap >= AGREES else "rounding"),
    ("gradient", "optim/grad_norm", number),
    ("samples/s", "timing/samples_per_second", number),
)
# A supervised run has no groups and no ratio to clip.
SUPERVISED: Rows = (
    ("loss", "loss/supervised", number),
    *(row for row in NUMBERS if row[0] in ("evaluation", "correct", "entropy", "gradient", "samples/s")),
)
ENDINGS = {
    "finished": "finished", "stopped": "stopped by hand", "target_reached": "reached the target",
    "early_stopping": "stopped early: no more improvement", "failed": "failed", "interrupted": "interrupted",
}  # fmt: skip


def numbers_of(history: History) -> Rows:
    return SUPERVISED if history.supervised else NUMBERS


def ending(reason: str) -> str:
    """How a run ended, in words."""
    return ENDINGS.get(reason, reason)


@dataclass(frozen=True, slots=True)
class Summary:
    """How a watched run ended. `error` has the shape of every error here (code, message, hint, field), or is None."""

    run: str
    reason: str
    steps: int
    seconds: float
    reward: float | None
    evaluation: float | None
    hints: int
    error: Mapping[str, Any] | None


def summarise(history: History) -> Summary:
    end = history.end or {}
    return Summary(
        run=history.run,
        reason=str(end.get("reason") or "interrupted"),
        steps=history.step,
        seconds=history.seconds,
        reward=history.last("reward/mean"),
        evaluation=history.last("eval/reward_mean"),
        hints=len(history.hints),
        error=history.errors[-1] if history.errors else None,
    )


STATES = {"running": "green", "failed": "red", "interrupted": "yellow"}


def summary_table(history: History) -> Group:
    """A run in one table for `groupwise show`: the first, lowest, highest and last value of each number."""
    summary = summarise(history)
    title = f"{summary.run}: {ending(summary.reason)}, {summary.steps} steps in {clock(summary.seconds)}"
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("first", "lowest", "highest", "last"):
        table.add_column(heading, justify="right")
    for label, name, form in numbers_of(history):
        values = history.series(name)[1]
        if values:
            table.add_row(label, *(form(v) for v in (values[0], min(values), max(values), values[-1])))
    # A title of the table would be wrapped to the table's width.
    return Group(Text(printable(title), style="bold"), table)


def runs_table(runs: Iterable[RunInfo]) -> Table:
    """One row per run, for `groupwise runs`."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "step", "reward", "evaluation", "updated"):
        table.add_column(heading, justify="right" if heading in ("step", "reward", "evaluation") else "left")
    table.columns[0].overflow = "fold"
    for run in runs:
        scores = [finite(run.metrics.get(name)) for name in ("reward/mean", "eval/reward_mean")]
        table.add_row(
            Text(printable(run.id)),
            Text(printable(run.state), style=STATES.get(run.state, "")),
            # A finished run may have ended before its last planned step; "160/1000, finished" would look unfinished.
            f"{run.step}/{run.total}" if run.total and run.state != "finished" else str(run.step),
            *("–" if score is None else number(score) for score in scores),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.updated)),
        )
    return table
