"""A run's events as series."""

from collections.abc import Callable, Iterator

from groupwise.reporting.history import History
from groupwise.types import Event

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
