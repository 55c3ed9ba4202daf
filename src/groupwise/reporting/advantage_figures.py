"""Figures that explain advantages: what a group is compared with, what normalising does, whose gradients agree."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.files import write_output
from groupwise.reporting.canvas import BLUE, INK, MANY, MUTED, ORANGE, label_ends, stacked_axes
from groupwise.reporting.comparison_figures import finish_axes
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.history import History
from groupwise.reporting.text import short
from groupwise.training.formatting import number, percent
from groupwise.types import Array, Group

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Moment:
    """A few groups at one step of a run: the rewards of each attempt, and two kinds of advantages.

    All tables are [B, T]: `returns` are returns-to-go, `global_advantages` the same relative to one mean and standard
    deviation for all, `group_advantages` relative to the members alive at that step; `alive` marks steps that were
    played. `label` [B] numbers the task or start of an attempt, and `cosines` [L, L] compare the labels' gradients.
    """

    step: int
    gamma: float
    labels: tuple[str, ...]
    label: NDArray[np.int64]
    group: NDArray[np.int64]
    rewards: Table
    alive: NDArray[np.bool_]
    returns: Table
    global_advantages: Table
    group_advantages: Table
    cosines: Table

    def widest_group(self) -> list[Table]:
        """The rewards of each member of the group whose returns differ most."""
        starts = self.returns[:, 0]
        spreads = {number: float(np.std(starts[self.group == number])) for number in np.unique(self.group)}
        chosen = self.group == max(spreads, key=lambda number: spreads[number])
        return [row[alive] for row, alive in zip(self.rewards[chosen], self.alive[chosen], strict=True)]

    def write(self, path: Path) -> None:
        arrays: dict[str, Any] = {name: np.asarray(getattr(self, name)) for name in self.__dataclass_fields__}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        write_output(path, content.getvalue())

    @classmethod
    def read(cls, path: Path) -> Moment:
        with np.load(path, allow_pickle=False) as kept:
            arrays: dict[str, Any] = {name: kept[name] for name in cls.__dataclass_fields__}
        labels, step, gamma = tuple(map(str, arrays["labels"])), int(arrays["step"]), float(arrays["gamma"])
        return cls(**{**arrays, "labels": labels, "step": step, "gamma": gamma})


def fan(group: Group | Sequence[Array], gamma: float) -> tuple[Table, NDArray[np.bool_], Table, Table]:
    """Returns-to-go [B, T], who is alive [B, T], the mean of those alive [T] and their number [T]."""
    rewards = [member.rewards for member in group.members] if isinstance(group, Group) else list(group)
    length = max(len(row) for row in rewards)
    returns = np.zeros((len(rewards), length + 1))
    alive = np.arange(length) < np.array([len(row) for row in rewards])[:, np.newaxis]
    # Rewards [B, T], zero after an attempt's end.
    padded = np.array([np.pad(np.asarray(row, np.float64), (0, length - len(row))) for row in rewards])
    # R_t = r_t + γ R_{t+1}
    for t in reversed(range(length)):
        returns[:, t] = padded[:, t] + gamma * returns[:, t + 1]
    returns = np.where(alive, returns[:, :length], 0.0)
    count = alive.sum(0)
    return returns, alive, returns.sum(0) / np.maximum(count, 1), count.astype(np.float64)


def draw_return_to_go_fan(group: Group | Sequence[Array], width: float = 8.4, gamma: float = 0.99) -> Any:
    """One group from its common start: each member's return from every step on, and how many were alive.

    `group` is a `Group`, or the rewards of each member. At each step a member is compared with the mean of the others
    still alive: above it, its action becomes more likely, below it less likely.
    """
    returns, alive, baseline, count = fan(group, gamma)
    # Return-to-go from step 0 is the return of the attempt.
    best, worst = int(np.argmax(returns[:, 0])), int(np.argmin(returns[:, 0]))
    shown = [(best, BLUE, "best"), (worst, ORANGE, "worst")]
    ends = [f"{word}: {number(float(returns[row, 0]))}" for row, _, word in shown]
    names = ["one line per member", *ends, "mean of those alive"]
    figure, (upper, lower) = stacked_axes(width, 3.8, 2, names, left=44)
    steps = np.arange(returns.shape[1])
    for row in range(len(returns)):
        upper.plot(steps[alive[row]], returns[row, alive[row]], color=MUTED, linewidth=0.9, alpha=0.55)
    for row, colour, _ in shown:
        upper.plot(steps[alive[row]], returns[row, alive[row]], color=colour, linewidth=1.8)
    upper.plot(steps, baseline, color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
    lower.fill_between(steps, count, step="mid", color=BLUE, alpha=0.25, linewidth=0)
    lower.step(steps, count, where="mid", color=BLUE, linewidth=1.2)
    lower.set_ylim(0, 1.1 * len(returns))
    upper.set_xlim(0, max(len(steps) - 1, 1))
    finish_axes(upper, "return-to-go from each step")
    finish_axes(lower, "members alive", "step of the attempt", steps=True)
    _legend_beside(upper, names, [MUTED, BLUE, ORANGE, INK])
    return figure


def draw_advantages(
    before: Array, everywhere: Array, within: Array, label: Array, labels: Sequence[str], width: float = 8.4
) -> Any:
    """Histograms of returns-to-go by label, and of two ways to make them relative.

    `before`, `everywhere` and `within` [N] are returns-to-go, the same relative to the mean and standard deviation of
    all, and relative to their own group; `label` [N] numbers the task or start.
    """
    from matplotlib.figure import Figure

    panels = (("before: return-to-go", before), ("one mean for all", everywhere), ("relative to the group", within))
    side_by_side = width > 6
    names = [short(name, 20) for name in labels]
    right = 12 + 5.6 * max(len(name) for name in names)
    height = 2.3 if side_by_side else 5.0
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(*((1, 3) if side_by_side else (3, 1)), squeeze=False).ravel()
    wide, high = 72 * width, 72 * height
    figure.subplots_adjust(34 / wide, 26 / high, 1 - right / wide, 1 - 20 / high, wspace=0.22, hspace=0.42)
    for place, (title, values) in zip(axes, panels, strict=True):
        _histograms(place, np.asarray(values), np.asarray(label), len(labels))
        finish_axes(place, title, shares=True)
    _legend_beside(axes[2 if side_by_side else 0], names, _colours(len(names)))
    return figure


def _histograms(axes: Any, values: Table, label: Array, count: int) -> None:
    # A few extreme values must not squeeze the rest; they are counted in the outermost bins.
    low, high = np.quantile(values, [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, 31)
    for which, colour in enumerate(_colours(count)):
        own = values[label == which]
        heights = np.histogram(np.clip(own, low, high), edges)[0] / max(len(own), 1)
        axes.stairs(heights, edges, color=colour, linewidth=1.4)
        axes.stairs(heights, edges, color=colour, alpha=0.10, fill=True)
    if low < 0 < high:
        axes.axvline(0, color=MUTED, linewidth=0.9, dashes=(4, 3))
    axes.set_xlim(edges[0], edges[-1])


def _colours(count: int) -> list[str]:
    return [MANY[which % len(MANY)] for which in range(count)]


def _legend_beside(axes: Any, names: Sequence[str], colours: Sequence[str]) -> None:
    size = 13 / (axes.get_position().height * axes.figure.get_figheight() * 72)
    for row, (name, colour) in enumerate(zip(names, colours, strict=True)):
        axes.annotate(
            name, (1, 0.95 - row * size), (6, 0), "axes fraction", "offset points", color=colour, va="center",
            annotation_clip=False,
        )  # fmt: skip


def draw_shares(
    steps: Sequence[int], weights: Mapping[str, Sequence[float]], gradients: Mapping[str, Sequence[float]], width: float
) -> Any:
    """Each task's share of the loss over time, and its share of the gradient, stacked to 1."""
    panels = [(title, shares) for title, shares in (("share of the weight", weights),
                                                    ("share of the gradient", gradients)) if shares]  # fmt: skip
    stacks = [(title, list(shares), _to_shares(shares)) for title, shares in panels]
    ends = [
        [(float(np.cumsum(table[:, -1])[i] - table[i, -1] / 2), f"{short(n, 20)} {percent(float(table[i, -1]))}", c)
         for i, (n, c) in enumerate(zip(names, _colours(len(names)), strict=True))]
        for _, names, table in stacks
    ]  # fmt: skip
    texts = [text for end in ends for _, text, _ in end]
    figure, axes = stacked_axes(width, 0.9 + 1.4 * len(stacks), len(stacks), texts, left=44)
    for i, (title, names, table) in enumerate(stacks):
        axes[i].stackplot(steps, table, colors=_colours(len(names)), alpha=0.8, linewidth=0)
        axes[i].set_ylim(0, 1)
        axes[i].set_xlim(steps[0], max(steps[-1], steps[0] + 1))
        finish_axes(axes[i], title, "step" if i == len(stacks) - 1 else "", steps=True, shares=True)
        label_ends(axes[i], ends[i])
    return figure


def _to_shares(rows: Mapping[str, Sequence[float]]) -> Table:
    table = np.maximum(np.array(list(rows.values()), np.float64), 0)
    # Where nothing has weight, all tasks share equally.
    total = table.sum(0)
    return np.asarray(np.divide(table, total, out=np.full_like(table, 1 / len(table)), where=total > 0))


def draw_cosines(cosines: Array, labels: Sequence[str], width: float = 4.0) -> Any:
    """The cosine between every two tasks' gradients: 1 they agree, 0 they are unrelated, below 0 they conflict."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    table = np.asarray(cosines, np.float64)
    names = [short(name, 18) for name in labels]
    left = 14 + 5.6 * max(map(len, names))
    # Cells of up to 46 points, smaller if there are many labels.
    cell = min(46.0, (72 * width - left - 16) / len(names))
    wide, high = 72 * width, 40 + cell * len(names) + 14
    figure = Figure(figsize=(width, high / 72))
    axes = figure.add_axes((left / wide, 10 / high, cell * len(names) / wide, cell * len(names) / high))
    for row in range(len(names)):
        for column in range(len(names)):
            value = float(table[row, column])
            colour, alpha = (BLUE, 0.45 * min(value, 1)) if value >= 0 else (ORANGE, 0.45 * min(-value, 1))
            corner = column - 0.48, row - 0.48
            axes.add_patch(Rectangle(corner, 0.96, 0.96, facecolor=colour, alpha=alpha, linewidth=0))
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=INK, fontsize=8)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.tick_top()
    slanted: dict[str, Any] = {"rotation": 30, "ha": "left"} if max(map(len, names)) * 5.6 > cell else {}
    axes.set_xticks(range(len(names)), names, **slanted)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines["bottom"].set_visible(False)
    return figure


@dataclass(frozen=True, slots=True)
class Shares:
    """Each task's weight at each step of a run, and the size of its gradient."""

    steps: list[int]
    weights: Mapping[str, list[float]]
    gradients: Mapping[str, list[float]]


def shares_of(history: History) -> Shares | None:
    """The weights of a run's groups, if it recorded several: `group/<name>/share` and `.../advantage_rms`.

    The size of a group's gradient is taken as its weight times the size of its advantages.
    """
    names = [name.split("/")[1] for name in history.names() if name.startswith("group/") and name.endswith("/share")]
    weights = {name: dict(zip(*history.series(f"group/{name}/share"), strict=True)) for name in names}
    sizes = {name: dict(zip(*history.series(f"group/{name}/advantage_rms"), strict=True)) for name in names}
    # A single group would always have the share 1.
    steps = sorted(set[int]().union(*weights.values())) if len(names) > 1 else []
    if not steps:
        return None
    shares = {name: [row.get(step, 0.0) for step in steps] for name, row in weights.items()}
    pulls = {n: [weights[n].get(s, 0.0) * sizes[n].get(s, 0.0) for s in steps] for n in names}
    return Shares(steps, shares, pulls)


def lesson_pictures(name: str, moment: Moment, prefix: str) -> list[Picture]:
    """The groups of a policy while it was learning."""
    group = moment.widest_group()
    returns, alive, baseline, count = fan(group, moment.gamma)
    members = [
        [row, t, float(returns[row, t]), float(baseline[t]), int(count[t])]
        for row in range(len(returns))
        for t in range(returns.shape[1])
        if alive[row, t]
    ]
    played = moment.alive
    label = np.repeat(moment.label[:, np.newaxis], played.shape[1], 1)[played]
    tables = (moment.returns, moment.global_advantages, moment.group_advantages)
    before, everywhere, within = columns = [table[played] for table in tables]
    labels = list(enumerate(moment.labels))
    pairs = [[one, other, float(moment.cosines[i, j])] for i, one in labels for j, other in labels]
    low, high = (number(float(end)) for end in (returns[:, 0].min(), returns[:, 0].max()))
    when = f"{name} at step {moment.step}"
    return [
        Picture(
            f"{prefix}-fan",
            "One group: the return of each member from every step on",
            f"{when}. All members start in the same state. At each step a member is compared with the mean of the "
            "others still alive: above it, its action becomes more likely, below it less likely. Members that have "
            "ended are left out, not counted as 0, and the last one alive learns nothing.",
            f"{len(group)} members, returns from {low} to {high}",
            csv_text(["member", "step", "return_to_go", "mean_of_alive", "alive"], members),
            lambda width: draw_return_to_go_fan(group, width, moment.gamma),
        ),
        Picture(
            f"{prefix}-advantages",
            "Advantages: one mean for all, or relative to the group",
            f"{when}. First, the returns-to-go. With one mean for all, tasks that start well or pay more look good "
            "whatever the policy does; relative to the group, each is centred, and only choices count.",
            f"{len(moment.labels)} groups or tasks",
            csv_text(
                ["label", "return_to_go", "global_advantage", "group_advantage"],
                ([moment.labels[int(which)], *map(float, row)] for which, *row in zip(label, *columns, strict=True)),
            ),
            lambda width: draw_advantages(before, everywhere, within, label, moment.labels, width),
        ),
        Picture(
            f"{prefix}-cosines",
            "Do the gradients agree?",
            f"{when}. The cosine between the gradients: 1 means the same direction, 0 nothing in common, below 0 a "
            "conflict: what one learns, the other unlearns.",
            f"smallest cosine {number(float(moment.cosines.min()))}",
            csv_text(["one", "other", "cosine"], pairs),
            lambda width: draw_cosines(moment.cosines, moment.labels, width),
        ),
    ]


def shares_picture(name: str, shares: Shares, prefix: str) -> Picture:
    heads = [*(f"weight {n}" for n in shares.weights), *(f"gradient {n}" for n in shares.gradients)]
    columns = [*shares.weights.values(), *shares.gradients.values()]
    return Picture(
        f"{prefix}-shares",
        "Which task counts how much",
        f"{name}: each task's share of the loss over time, and of the gradient (weight times the size of its "
        "advantages).",
        f"{len(shares.weights)} tasks over {len(shares.steps)} steps",
        csv_text(["step", *heads], zip(shares.steps, *columns, strict=True)),
        lambda width: draw_shares(shares.steps, shares.weights, shares.gradients, width),
    )
