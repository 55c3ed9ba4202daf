"""The group of attempts that a report shows, and its figure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.errors import RunError
from groupwise.reporting.figures import Picture, csv_text, draw_group
from groupwise.training.formatting import finite, number
from groupwise.training.group_files import kept_steps, read_step
from groupwise.types import SEARCHED

# Attempts in the figure, and group files searched, at most.
SHOWN_ROWS = 24
LOOK_BACK = 200
KEYS = ("trajectory_id", "total", "advantage", "length", "end", "failure")

Row: TypeAlias = Mapping[str, Any]


def last_group(run_dir: Path) -> list[Row]:
    """The group to show, best attempt first: the one with the widest spread in the newest step that has any.

    A run that has solved its tasks ends with groups without spread, which show nothing, so up to `LOOK_BACK` files are
    searched, newest first. Failed attempts are worth showing and end the search too.
    """
    newest: list[Row] = []
    for step in kept_steps(run_dir / "groups")[: -LOOK_BACK - 1 : -1]:
        group = _most_informative(run_dir / "groups", step)
        if any(_informative(group)):
            return group
        newest = newest or group
    return newest


def _most_informative(folder: Path, step: int) -> list[Row]:
    """The group with the widest spread in a step; nothing if its file cannot be read."""
    try:
        rows = read_step(folder, step) or []
    except (OSError, RunError, ValueError):
        return []
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("version") == SEARCHED:
            continue  # programs of a search, not attempts of the policy
        groups.setdefault(str(row.get("group_id")), []).append(row)
    # Groups compare by spread first, then by failures.
    widest = max(groups.values(), key=_informative, default=None)
    return sorted(widest or (), key=_rank)


def _informative(group: Sequence[Row]) -> tuple[float, int]:
    """The spread of the scores, then the number of attempts without a score."""
    scores = _scores(group)
    return statistics.pstdev(scores) if scores else 0.0, len(group) - len(scores)


def _scores(group: Iterable[Row]) -> list[float]:
    return [score for row in group if (score := finite(row.get("total"))) is not None]


def _rank(row: Row) -> float:
    score = finite(row.get("total"))
    return math.inf if score is None else -score


def group_picture(group: Sequence[Row]) -> Picture:
    """The scores and advantages of a group, best attempt first."""
    shown, scores = evenly(group), _scores(group)
    ends = f" from {number(min(scores))} to {number(max(scores))}" if scores else ""
    more = f" {len(shown)} of its {len(group)} attempts are shown." if len(shown) < len(group) else ""
    return Picture(
        "group",
        "Scores and advantages of one group",
        f"Task {group[0].get('task_id')} at step {group[0].get('step')}{_why(group)}{more}",
        f"{len(scores)} scored attempts{ends}; {len(group) - len(scores)} failed",
        csv_text(KEYS, ([row.get(key) for key in KEYS] for row in group)),
        lambda width: draw_group(shown, width),
    )


def _why(group: Sequence[Row]) -> str:
    """Why this group is shown, and how to read it."""
    spread, failed = _informative(group)
    if spread:
        return (
            ", the last logged step with a group whose attempts differ, and the group of that step where they differ "
            "most. Attempts above the group's mean become more likely, those below it less likely."
        )
    if failed:
        return ": scores do not differ in any group of that step, and this group has the most failed attempts."
    return ": every attempt scored the same, so there was nothing to learn."


def evenly(rows: Sequence[Row], count: int = SHOWN_ROWS) -> list[Row]:
    """At most `count` of the rows, evenly spaced from the first to the last."""
    if len(rows) <= count:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]
