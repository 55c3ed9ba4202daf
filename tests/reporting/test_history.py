"""A run's events as series."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RunNotFound
from groupwise.metrics import COMMON
from groupwise.reporting.history import History
from groupwise.training.events import encode
from groupwise.types import Event, Sample

RunEvents = Callable[..., Iterator[Event]]


def test_a_rewind_forgets_the_steps_that_are_made_again(run_events: RunEvents) -> None:
    events = list(run_events(20))
    again = Event("pole", 12, 2, 2000.0, 8, "start", {"config": {}, "resumed_from": 8, "total_steps": 20})
    history = History.of([*events, again])
    assert history.series("reward/mean")[0] == list(range(1, 9))
    assert history.end is None
    assert history.hints == []


def test_a_series_grows_with_its_run(run_events: RunEvents) -> None:
    history = History()
    lengths = []
    for event in run_events(3):
        history.add(event)
        lengths.append(len(history.series("reward/mean")[0]))
    assert lengths == [0, 0, 1, 2, 3, 3, 3]


def event(kind: str, step: int, data: dict[str, Any], time: float = 0.0, attempt: int = 1) -> Event:
    return Event("pole", 0, attempt, time, step, kind, data)


def started(resumed: Any = None, **data: Any) -> Event:
    return event("start", 0, {"resumed_from": resumed, **data})


@pytest.mark.parametrize(("resumed", "left"), [(None, [0]), (0, [0]), (1, [0, 1]), (2, [0, 1, 2]), (9, [0, 1, 2, 3])])
def test_a_resumed_run_keeps_what_happened_up_to_its_checkpoint(resumed: int | None, left: list[int]) -> None:
    history = History.of([started(config={"a": 1}, env={"b": 2}, total_steps=7)])
    for step in range(4):
        history.add(event("step", step, {"metrics": {"reward/mean": 1.0}}))
        history.add(event("eval", step, {"metrics": {"eval/reward_mean": 1.0}}))
        history.add(event("hint", step, {"message": f"{step}"}))
    history.add(event("error", 3, {"error": {"message": "broke"}}))
    history.add(event("end", 3, {"reason": "failed"}))
    assert (history.config, history.env, history.total_steps, history.step) == ({"a": 1}, {"b": 2}, 7, 3)
    assert (history.errors, history.end) == ([{"message": "broke"}], {"reason": "failed"})
    history.add(started(resumed, config={"a": 3}, total_steps=9))
    assert (list(history.steps), list(history.evals), [step for step, _ in history.hints]) == (left, left, left)
    assert (history.errors, history.end, history.step) == ([], None, left[-1])
    assert (history.config, history.total_steps) == ({"a": 3}, 9)
    assert history.series("reward/mean")[0] == history.series("eval/reward_mean")[0] == left


def test_time_is_counted_in_each_attempt_and_not_between_them() -> None:
    times = [(1, 100.0), (1, 103.0), (1, 110.0), (2, 500.0), (2, 504.0), (3, 900.0)]
    history = History.of(event("step", place, {}, time, attempt) for place, (attempt, time) in enumerate(times))
    assert history.seconds == 14.0


def test_a_series_is_found_by_its_name_in_order_of_the_steps_without_odd_values() -> None:
    history = History()
    for step, value in ((3, 30.0), (1, 10.0), (2, None), (4, float("nan")), (5, True), (6, "6"), (7, 0.0)):
        data = {"metrics": {"loss": value}, "timing": {"total": value}, "totals": {"samples": value}}
        history.add(event("step", step, data))
        history.add(event("eval", 10 * step, {"metrics": {"eval/x": value, "loss": 99.0}}))
    for name in ("loss", "timing/total", "totals/samples"):
        assert history.series(name) == ([1, 3, 7], [10.0, 30.0, 0.0])
        assert history.last(name) == 0.0
    assert history.series("eval/x") == ([10, 30, 70], [10.0, 30.0, 0.0])
    assert history.series("nothing") == ([], [])
    assert history.last("nothing") is None
    assert history.names() == ["eval/x", "loss", "timing/total", "totals/samples"]
    history.add(event("step", 8, {"metrics": 3, "timing": None}))
    assert history.series("loss")[0] == [1, 3, 7]


@pytest.mark.parametrize(("later", "found"), [(0, 5.0), (99, 5.0), (100, None)])
def test_a_metric_missing_from_the_last_hundred_rows_counts_as_gone(later: int, found: float | None) -> None:
    history = History(steps={0: {"metrics": {"x": 4.0}}, 1: {"metrics": {"x": 5.0}}})
    history.steps.update({step: {"metrics": {}} for step in range(2, 2 + later)})
    assert history.last("x") == found


def test_sample_answers_are_kept_by_step_and_prompt() -> None:
    right = {"prompt": "1+1", "text": "2", "expected": "2", "total": 1.0, "correct": True, "reasoning": "hm"}
    history = History()
    history.add(event("eval", 0, {"samples": [right, {"prompt": "b", "correct": None}, {"prompt": "c", "correct": 1}]}))
    history.add(event("eval", 5, {"samples": [{"prompt": "d", "total": float("nan")}]}))
    history.add(event("eval", 6, {"samples": []}))
    history.add(event("eval", 7, {"samples": "none"}))
    assert history.samples() == {
        0: {
            "1+1": Sample("1+1", "2", "2", 1.0, True, "hm"),
            "b": Sample("b", "", "", 0.0, None, ""),
            "c": Sample("c", "", "", 0.0, False, ""),
        },
        5: {"d": Sample("d", "", "", 0.0, False, "")},
    }


def test_a_setting_is_found_by_its_dotted_name() -> None:
    history = History(config={"a": {"b": {"c": 3}, "d": 0}})
    wanted = {"a.b.c": 3, "a.d": 0, "a.b": {"c": 3}, "a.x": None, "x.y.z": None, "a.d.e": None}
    assert {name: history.setting(name) for name in wanted} == wanted
    assert History(config={"task": {"product": "no such product"}}).metrics == COMMON
    assert History(config={"task": {"product": "control"}}).metrics[0].name == "eval/reward_mean"


def test_a_folder_is_read_from_its_log_and_named_by_it(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        History.read(tmp_path / "nowhere")
    assert History.read(tmp_path).run == tmp_path.name
    (tmp_path / "events.jsonl").write_bytes(encode(started(total_steps=4)))
    assert (History.read(tmp_path).run, History.read(tmp_path).total_steps) == ("pole", 4)


def test_a_very_long_run_is_remembered_more_coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.reporting.history.MOST_ROWS", 100)
    history = History()
    for step in range(1, 1001):
        history.add(event("step", step, {"metrics": {"reward/mean": float(step)}}))
    steps = history.series("reward/mean")[0]
    assert len(steps) <= 100
    assert (steps[0], steps[-20:]) == (1, list(range(981, 1001)))
    assert steps == sorted(steps)
