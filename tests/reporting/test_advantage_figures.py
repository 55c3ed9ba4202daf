"""The figures that teach, from plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from groupwise.reporting.advantage_figures import (
    Moment,
    draw_advantages,
    draw_cosines,
    draw_return_to_go_fan,
    draw_shares,
    fan,
    shares_of,
)
from groupwise.reporting.canvas import render
from groupwise.reporting.history import History
from groupwise.types import End, Group, Task, Trajectory


def test_the_fan_is_the_return_to_go_of_those_alive() -> None:
    returns, alive, baseline, count = fan([np.array([1.0, 1.0]), np.array([1.0, 1.0, 2.0, 2.0])], gamma=0.5)
    np.testing.assert_allclose(returns, [[1.5, 1, 0, 0], [2.25, 2.5, 3, 2]])
    np.testing.assert_array_equal(alive.sum(1), [2, 4])
    np.testing.assert_allclose(baseline, [1.875, 1.75, 3, 2])
    np.testing.assert_array_equal(count, [2, 2, 1, 1])


def test_a_group_is_drawn_with_its_baseline_and_who_is_alive() -> None:
    def member(number: int, length: int) -> Trajectory:
        ones = np.ones(length)
        return Trajectory(str(number), "t", "g", ones, ones, ones > 0, ones, ones, ones, End.FINISHED, True)

    group = Group("g", Task("t"), tuple(member(n, length) for n, length in enumerate((3, 9, 5))))
    figure = draw_return_to_go_fan(group, 8.0, 1.0)
    upper, lower = figure.axes
    best, worst = upper.lines[3], upper.lines[4]
    assert (best.get_ydata()[0], worst.get_ydata()[0]) == (9, 3)
    assert list(lower.lines[0].get_ydata()) == [3, 3, 3, 2, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("width", [4.0, 8.4])
def test_the_figures_that_teach_take_plain_arrays(width: float) -> None:
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 50)
    values = rng.normal(label, 1.0)
    names = ["easy", "middling", "hard with a very long name indeed"]
    steps = [1, 2, 3]
    weights = {name: [1.0, 2.0, 3.0] for name in names}
    assert render(lambda w: draw_advantages(values, values - 1, values * 0, label, names, w), width, "svg")
    assert render(lambda w: draw_cosines(np.eye(3) * 2 - 1, names, w), width, "svg")
    figure = draw_shares(steps, weights, {name: [0.0, 0.0, 0.0] for name in names}, width)
    assert len(figure.axes) == 2


def test_weights_of_groups_are_read_from_a_run_that_has_several() -> None:
    history = History()
    for step in (1, 2):
        metrics = {"group/a/share": 0.25, "group/a/advantage_rms": 2.0, "group/b/share": 0.75}
        history.steps[step] = {"metrics": {**metrics, "group/b/advantage_rms": 1.0 if step == 1 else None}}
    shares = shares_of(history)
    assert shares is not None
    assert shares.weights == {"a": [0.25, 0.25], "b": [0.75, 0.75]}
    assert shares.gradients == {"a": [0.5, 0.5], "b": [0.75, 0.0]}
    assert shares_of(History()) is None


def test_a_moment_survives_its_file(tmp_path: Path) -> None:
    alive = np.arange(6) < np.array([2, 6, 3, 4])[:, np.newaxis]
    label, table = np.array([0, 0, 1, 1]), 1.0 * alive
    kept = Moment(5, 0.9, ("pole", "cart"), label, label, table, alive, table, table, table, np.eye(2))
    kept.write(tmp_path / "deep" / "moment.npz")
    again = Moment.read(tmp_path / "deep" / "moment.npz")
    assert (again.step, again.gamma, again.labels) == (5, 0.9, ("pole", "cart"))
    np.testing.assert_array_equal(again.returns, kept.returns)
    assert [len(rewards) for rewards in again.widest_group()] in ([2, 6], [3, 4])
