"""Tables for `groupwise show` and `groupwise runs`."""

import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from groupwise.reporting.history import History
from groupwise.reporting.summary import NUMBERS, ending, numbers_of, runs_table, summarise, summary_table
from groupwise.types import Event

RunEvents = Callable[..., Iterator[Event]]


def shown(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(table)
    return out.getvalue()


def test_summary_table_shows_first_extremes_and_last(run_events: RunEvents) -> None:
    text = shown(summary_table(History.of(run_events(last_evaluation=480.0))))
    rows = {line.split("  ")[0].strip(): line.split()[-4:] for line in text.splitlines()}
    assert rows["reward"] == ["20", "20", "400", "400"]
    assert rows["evaluation"] == ["21", "21", "480", "480"]
    assert "pole: finished, 20 steps" in text


def test_runs_table_has_a_row_for_each_run() -> None:
    run = SimpleNamespace(
        id="pole-\x1b[2J", state="running", step=3, total=20, updated=0.0, metrics={"reward/mean": 12.5}
    )
    heading, row = shown(runs_table([run])).splitlines()  # type: ignore[list-item]
    assert heading.split() == ["run", "state", "step", "reward", "evaluation", "updated"]
    assert row.split()[:5] == ["pole-�[2J", "running", "3/20", "12.5", "–"]


def test_the_lowest_and_the_highest_value_need_not_be_the_first_and_the_last(run_events: RunEvents) -> None:
    rewards = (5.0, 1.0, 9.0, 7.0)
    events = [Event("r", n, 1, 0.0, n, "step", {"metrics": {"reward/mean": r}}) for n, r in enumerate(rewards, 1)]
    row = next(line for line in shown(summary_table(History.of(events))).splitlines() if line.startswith("reward"))
    assert row.split() == ["reward", "5", "1", "9", "7"]
    assert "r: interrupted, 4 steps in 0:00" in shown(summary_table(History.of(events)))


@pytest.mark.parametrize(
    ("label", "value", "text"),
    [("KL", 1e-6, "1e-06"), ("KL", -1e-6, "-1e-06"), ("KL", 9e-7, "0"), ("KL", -9e-7, "0"), ("KL", 0.02, "0.02"),
     ("sampler gap", 1e-4, "0.0001"), ("sampler gap", 9e-5, "rounding"), ("correct", 0.256, "26%"),
     ("no spread", 1.0, "100%"), ("failed", 0.5, "50%"), ("clipped low", 0.1, "10%"), ("clipped high", 0.2, "20%"),
     ("gradient", 0.41, "0.41"), ("entropy", 0.69, "0.69"), ("reward", 1234.5, "1,234")],
)  # fmt: skip
def test_a_number_is_shown_as_its_kind_needs(label: str, value: float, text: str) -> None:
    assert next(form for name, _, form in NUMBERS if name == label)(value) == text


def test_each_label_shows_the_metric_of_its_name() -> None:
    history = History(steps={1: {"metrics": {"loss/supervised": 1.0}}})
    assert {label: name for label, name, _ in NUMBERS} == {
        "reward": "reward/mean", "evaluation": "eval/reward_mean", "correct": "eval/accuracy",
        "no spread": "groups/zero_spread_share", "failed": "groups/failed_share", "entropy": "policy/entropy",
        "KL": "policy/kl", "clipped low": "policy/clip_low", "clipped high": "policy/clip_high",
        "sampler gap": "sampler/ratio_gap", "gradient": "optim/grad_norm", "samples/s": "timing/samples_per_second",
    }  # fmt: skip
    labels = ["loss", "evaluation", "correct", "entropy", "gradient", "samples/s"]
    assert [label for label, _, _ in numbers_of(history)] == labels
    assert numbers_of(History()) == NUMBERS


def test_a_summary_says_how_the_run_ended() -> None:
    history = History(run="r", steps={3: {"metrics": {"reward/mean": 0.0}}}, hints=[(1, {}), (2, {})])
    assert summarise(history).reason == "interrupted"
    history.errors = [{"message": "first"}, {"message": "last"}]
    history.end = {"reason": "target_reached"}
    found = summarise(history)
    assert (found.reason, found.steps, found.reward, found.evaluation, found.hints) == (
        "target_reached",
        3,
        0.0,
        None,
        2,
    )
    assert found.error == {"message": "last"}
    assert (ending("target_reached"), ending("odd")) == ("reached the target", "odd")


@pytest.mark.parametrize(
    ("state", "total", "step"),
    [("running", 20, "3/20"), ("finished", 20, "3"), ("failed", 20, "3/20"), ("running", 0, "3")],
)
def test_a_finished_run_shows_its_steps_and_another_how_far_it_is(state: str, total: int, step: str) -> None:
    metrics: dict[str, Any] = {"reward/mean": float("nan"), "eval/reward_mean": 0.0}
    run = SimpleNamespace(id="pole", state=state, step=3, total=total, updated=0.0, metrics=metrics)
    _, row = shown(runs_table([run])).splitlines()  # type: ignore[list-item]
    assert row.split()[:5] == ["pole", state, step, "–", "0"]
