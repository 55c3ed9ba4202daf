"""The figures that teach, with their words and numbers: one moment of a run, and its weights over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from groupwise.reporting import advantage_figures as lessons
from groupwise.reporting.advantage_figures import Moment
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.history import History
from groupwise.training.formatting import number


@dataclass(frozen=True, slots=True)
class Shares:
    """What each task weighed at each step of a run, and the share of the gradient that came of it."""

    steps: list[int]
    weights: Mapping[str, list[float]]
    gradients: Mapping[str, list[float]]


def shares_of(history: History) -> Shares | None:
    """The weights of a run's groups, where it recorded several: `group/<name>/share` and `.../advantage_rms`.

    A group's gradient is as large as its weight times the size of its advantages, as far as directions agree.
    """
    names = [name.split("/")[1] for name in history.names() if name.startswith("group/") and name.endswith("/share")]
    weights = {name: dict(zip(*history.series(f"group/{name}/share"), strict=True)) for name in names}
    sizes = {name: dict(zip(*history.series(f"group/{name}/advantage_rms"), strict=True)) for name in names}
    steps = sorted(set[int]().union(*weights.values())) if len(names) > 1 else []
    if not steps:
        return None
    shares = {name: [row.get(step, 0.0) for step in steps] for name, row in weights.items()}
    pulls = {n: [weights[n].get(s, 0.0) * sizes[n].get(s, 0.0) for s in steps] for n in names}
    return Shares(steps, shares, pulls)


def lesson_pictures(name: str, moment: Moment, prefix: str) -> list[Picture]:
    """What a policy's groups looked like while it was learning."""
    group = moment.widest_group()
    returns, alive, baseline, count = lessons.fan(group, moment.gamma)
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
            "One group: what each member still earned",
            f"{when}. All members begin in the same state. At each step a member is compared with the mean of the "
            "others still alive: above it what it did is made likelier, below it less likely. Those that have ended "
            "are left out, not counted as 0, and the last one alive learns nothing.",
            f"{len(group)} members, returns from {low} to {high}",
            csv_text(["member", "step", "return_to_go", "mean_of_alive", "alive"], members),
            lambda width: lessons.draw_return_to_go_fan(group, width, moment.gamma),
        ),
        Picture(
            f"{prefix}-advantages",
            "Before and after: one mean for all, or one's own group",
            f"{when}. First, what steps earned from there on. With one mean for all, what began well or pays more "
            "looks good whatever was done; against the own group every one is centred, and only choices count.",
            f"{len(moment.labels)} groups or tasks",
            csv_text(
                ["label", "return_to_go", "global_advantage", "group_advantage"],
                ([moment.labels[int(which)], *map(float, row)] for which, *row in zip(label, *columns, strict=True)),
            ),
            lambda width: lessons.draw_advantages(before, everywhere, within, label, moment.labels, width),
        ),
        Picture(
            f"{prefix}-cosines",
            "Do their gradients agree?",
            f"{when}. The cosine between what each asks of the policy: 1 the same, 0 nothing in common, below 0 the "
            "opposite: what one learns the other unlearns.",
            f"smallest cosine {number(float(moment.cosines.min()))}",
            csv_text(["one", "other", "cosine"], pairs),
            lambda width: lessons.draw_cosines(moment.cosines, moment.labels, width),
        ),
    ]


def shares_picture(name: str, shares: Shares, prefix: str) -> Picture:
    heads = [*(f"weight {n}" for n in shares.weights), *(f"gradient {n}" for n in shares.gradients)]
    columns = [*shares.weights.values(), *shares.gradients.values()]
    return Picture(
        f"{prefix}-shares",
        "Who is listened to",
        f"{name}: the share of each task in the loss over time, and the size of the gradient that comes of it (weight "
        "times the size of its advantages).",
        f"{len(shares.weights)} tasks over {len(shares.steps)} steps",
        csv_text(["step", *heads], zip(shares.steps, *columns, strict=True)),
        lambda width: lessons.draw_shares(shares.steps, shares.weights, shares.gradients, width),
    )
