"""Workers of a run: one queue, places, work done again when a worker is lost, and a number that follows the load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError, MissingExtra, ResourceError
from groupwise.rollout.backends import RolloutWorkers, make_workers
from groupwise.rollout.backends.pool import TRIES
from groupwise.rollout.backends.processes import ProcessWorkers
from groupwise.rollout.backends.scaling import Load, LoadSeen, WorkerLimits
from tests.rollout.backend_handlers import Echo, Versioned

ENTRY = "tests.rollout.backend_handlers:Echo"


def workers_of(count: int = 2, entry: Any = ENTRY, args: tuple[Any, ...] = (), per_worker: int = 1, **own: Any) -> Any:
    rollout = TrainingConfig(backend="processes", num_workers=count, **own).rollout
    return make_workers(rollout, entry, args, per_worker=per_worker)


@pytest.fixture(scope="module")
def workers() -> Iterator[RolloutWorkers]:
    made = workers_of(3)
    yield made
    made.close()


def test_without_workers_there_is_nothing_to_make() -> None:
    assert make_workers(TrainingConfig().rollout, ENTRY) is None


def test_answers_come_in_order_whoever_gives_them(workers: RolloutWorkers) -> None:
    waits = [0.05, 0.0, 0.02, 0.0, 0.01, 0.0]
    answers = workers.ask_all([("wait", seconds) for seconds in waits])
    assert [answer[0] for answer in answers] == waits
    assert len({answer[1] for answer in answers}) == 3, "all workers had something to do"


def test_what_a_handler_raises_reaches_the_caller(workers: RolloutWorkers) -> None:
    with pytest.raises(GroupwiseError, match="bad news") as found:
        workers.ask_all([("raise", "bad news")])
    assert found.value.hint == "Do better."


def test_no_more_is_under_way_than_there_are_places(workers: RolloutWorkers) -> None:
    most = 0

    async def look() -> list[Any]:
        nonlocal most
        asked = [asyncio.ensure_future(workers.ask(("wait", 0.02))) for _ in range(12)]
        while not all(task.done() for task in asked):
            most = max(most, workers.backend._workers.pending)  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        return await asyncio.gather(*asked)

    assert len(workers._loop.run(look())) == 12
    assert most == 3


def test_a_value_is_sent_once_for_each_version(workers: RolloutWorkers) -> None:
    made = []

    def value(version: int) -> Callable[[], dict[str, Any]]:
        return lambda: made.append(version) or {"version": version, "weights": np.arange(3)}  # type: ignore[func-returns-value]

    for version in (1, 1, 2):
        answers = workers.ask_all([Versioned(workers.share(version, value(version)))] * 9)
        assert {answer[0]["version"] for answer in answers} == {version}
        by_worker = {(pid, place) for _, place, pid in answers}
        assert len(by_worker) == len({pid for pid, _ in by_worker}), "each worker read it once"
    assert made == [1, 2]
    folder = workers.backend._folder  # type: ignore[attr-defined]
    assert len(list(folder.iterdir())) == 1, "the version before is gone"


def test_work_of_a_lost_worker_is_done_again_and_counts_once(workers: RolloutWorkers, tmp_path: Path) -> None:
    before = workers.redone
    requests = [("wait", n / 1000) for n in range(20)] + [("die once", str(tmp_path / f"{n}")) for n in range(2)]
    answers = workers.ask_all(requests)
    assert Counter(answer[0] for answer in answers) == Counter(given for _, given in requests)
    assert workers.redone >= before + 2


def test_workers_killed_from_outside_are_replaced(workers: RolloutWorkers) -> None:
    workers.ask_all([("wait", 0.01)] * 6)
    for pid in workers.backend.pids:  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
    assert [a[0] for a in workers.ask_all([("wait", n / 1000) for n in range(9)])] == [n / 1000 for n in range(9)]


def test_work_that_ends_every_worker_ends_the_run_with_a_sentence(workers: RolloutWorkers) -> None:
    with pytest.raises(ResourceError, match=f"lost with {TRIES} workers"):
        workers.ask_all([("die", 0)])
    assert workers.ask_all([("wait", 0.0)])[0][0] == 0.0


def test_a_worker_that_cannot_start_says_why_at_once() -> None:
    for entry, args, words in (
        ("tests.rollout.no_such_module:Echo", (), "No module named"),
        (Echo, ("no licence here",), "no licence here"),
    ):
        workers = workers_of(entry=entry, args=args)
        with pytest.raises(GroupwiseError, match=f"cannot start.*{words}"):
            workers.ask_all([("wait", 0.0)] * 3)
        workers.close()


def test_what_cannot_be_sent_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="cannot be sent to a process.*"):
        workers_of(entry=lambda: None)


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match="not installed"):
        make_workers(TrainingConfig(backend="ray").rollout, ENTRY)


def test_orders_change_the_number_of_workers() -> None:
    workers = workers_of(1)
    try:
        for args, size in (
            ({"scale_factor": 2.0}, 2),
            ({"workers": 4}, 4),
            ({"scale_factor": 0.1}, 1),
            ({"workers": 3}, 3),
        ):
            before = workers.size
            assert workers.scale(args) == {"workers": size, "before": before}
            pids = {answer[1] for answer in workers.ask_all([("wait", 0.02)] * 4 * size)}
            assert len(pids) == size
            assert len(workers.backend.pids) <= size
        refused = workers.scale({"workers": 100_000})
        assert "more than there is room for" in refused["refused"]
        assert refused["remedy"] == f"Ask for at most {workers.backend.most}."
        assert workers.size == 3
    finally:
        workers.close()


def test_the_number_of_workers_follows_the_load_within_its_limits() -> None:
    workers = workers_of(1, max_workers=4)
    try:
        sizes = []
        for load in (16, 16, 16, 1, 1):
            # A step after a change only starts the new workers: nothing is concluded from it.
            for _ in range(2):
                workers.ask_all([("wait", 0.05)] * load)
                workers.adjust()
            sizes.append(workers.size)
        assert sizes == [2, 4, 4, 2, 2]
        assert workers.scale({"least": 3, "most": 5}) == {"workers": 3, "before": 2}
        state = workers.state_dict()
        workers.scale({"workers": 1})
        workers.load_state_dict(state)
        assert (workers.size, workers.limits) == (3, WorkerLimits(3, 5))
    finally:
        workers.close()


@pytest.mark.parametrize(("load", "wanted"), [
    (LoadSeen(8.0, 1.0), 8), (LoadSeen(0.2, 1.0), 4), (LoadSeen(0.0, 0.3), 2), (LoadSeen(0.0, 0.59), 3),
    (LoadSeen(0.0, 0.0), 4), (LoadSeen(100.0, 1.0), 8),
])  # fmt: skip
def test_twice_as_many_while_attempts_wait_and_fewer_while_places_are_empty(load: LoadSeen, wanted: int) -> None:
    assert WorkerLimits(1, 16).wanted(4, load, per_worker=1) == wanted


def test_idle_time_is_not_counted_as_load() -> None:
    load = Load(2)
    load.now(1, 2)
    time.sleep(0.02)
    load.now(0, 0)
    time.sleep(0.05)
    seen = load.taken()
    assert (seen.waiting, seen.busy) == (1.0, 1.0)
    assert load.taken() == LoadSeen()


class Gone(ProcessWorkers):
    """Workers that never come back once they are lost."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.begun: set[int] = set()

    def start(self, worker: int) -> Any:
        if worker in self.begun:
            return Future()
        self.begun.add(worker)
        return super().start(worker)


@pytest.mark.parametrize(("when_lost", "ends"), [("stop", True), ("shrink", False)])
def test_without_a_replacement_a_run_shrinks_or_stops_as_it_was_told(
    when_lost: str, ends: bool, tmp_path: Path
) -> None:
    workers = RolloutWorkers(Gone(ENTRY, (), 2, 1), when_lost=when_lost, patience=0.05)
    try:
        requests = [("die once", str(tmp_path / "once")), *[("wait", 0.1)] * 12]
        if ends:
            with pytest.raises(ResourceError, match="1 of 2 workers are lost and did not come back within 0.05 s"):
                workers.ask_all(requests)
        else:
            assert len(workers.ask_all(requests)) == 13
            with pytest.raises(ResourceError, match="2 of 2 workers are lost"):
                workers.ask_all([("die once", str(tmp_path / "last")), ("wait", 0.0)])
    finally:
        workers.close()
