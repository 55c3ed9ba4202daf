"""One protocol for child processes: whatever happens to a child, every request ends and nothing is left behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ContractError
from groupwise.worker_process import HEAD, Kind, read_frame
from groupwise.workers import (
    RequestFailed,
    WorkerLost,
    Workers,
    WorkersBusy,
    WorkerTimeout,
    _lost,
    _Recipe,
    end_process,
    how_it_ended,
)
from tests.worker_handlers import Handler

ENTRY = "tests.worker_handlers:Handler"


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(ENTRY, args=(str(tmp_path),)) as made:
        yield made


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition; the test's own time limit ends a wait that is in vain."""
    while not (found := condition()):
        time.sleep(0.01)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_nothing_starts_before_the_first_request_and_nothing_is_left_after_closing(tmp_path: Path) -> None:
    with Workers(ENTRY, 2, args=(str(tmp_path),)) as workers:
        assert workers.starts == 0
        pid, value = workers.submit(("echo", {"a": (1, 2)})).result()
        assert value == {"a": (1, 2)}
        assert workers.pids == [pid]
        assert workers.pending == 0
    assert gone(pid)
    assert (tmp_path / "closed").exists()
    with pytest.raises(WorkerLost, match="closed"):
        workers.submit(("echo", 1))


def test_requests_are_shared_among_children_and_large_ones_arrive() -> None:
    with Workers(ENTRY, 2) as workers:
        array = np.arange(3_000_000, dtype=np.float64)
        futures = [workers.submit(("echo", array + n)) for n in range(4)]
        for n, future in enumerate(futures):
            assert np.array_equal(future.result()[1], array + n)
        assert len(workers.pids) == 2


def test_requests_to_one_child_reach_the_same_one_in_order() -> None:
    with Workers(ENTRY, 3) as workers:
        kept = [workers.submit(("keep", n), worker=n % 3) for n in range(9)]
        assert [future.result() for future in kept[-3:]] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_busy_child_does_not_hold_up_requests_that_another_can_take(tmp_path: Path) -> None:
    with Workers(ENTRY, 2, args=(str(tmp_path),)) as workers:
        slow = workers.submit(("waits_for", "mark"))
        quick = [workers.submit(("echo", n)) for n in range(5)]
        assert [future.result()[1] for future in quick] == list(range(5))
        assert not slow.done()
        (tmp_path / "mark").touch()
        assert slow.result() == "mark"


def test_what_a_handler_raises_comes_back_and_the_child_goes_on(workers: Workers) -> None:
    with pytest.raises(RequestFailed) as caught:
        workers.submit(("fails",)).result()
    assert (caught.value.code, caught.value.message) == ("config", "too much")
    assert (caught.value.hint, caught.value.field) == ("less", "amount")
    with pytest.raises(RequestFailed, match="KeyError: 'lost'"):
        workers.submit(("breaks",)).result()
    with pytest.raises(RequestFailed, match="pickle"):
        workers.submit(("unpicklable",)).result()
    workers.submit(("echo", 1)).result()
    assert workers.starts == 1


def test_a_request_that_cannot_be_sent_is_refused_at_once(workers: Workers) -> None:
    with pytest.raises(ContractError, match="cannot be sent"):
        workers.submit(threading.Lock())
    assert workers.pending == 0


@pytest.mark.parametrize(
    ("fate", "words"), [(("exits", 7), "ended with status 7"), (("dies",), "signal 9"), (("leaves",), "status 3")]
)
def test_a_child_that_dies_fails_its_request_and_is_replaced(workers: Workers, fate: Any, words: str) -> None:
    lost, after = workers.submit(fate), workers.submit(("echo", 1))
    with pytest.raises(WorkerLost, match=words):
        lost.result()
    assert after.result()[1] == 1
    assert workers.starts == 2


def test_a_child_killed_while_idle_is_replaced(workers: Workers) -> None:
    pid, _ = workers.submit(("echo", 1)).result()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not workers.pids)
    assert workers.submit(("echo", 2)).result()[0] != pid


def test_a_request_that_takes_too_long_costs_the_child_and_what_it_started(workers: Workers, tmp_path: Path) -> None:
    late, after = workers.submit(("starts_another", "mark"), seconds=0.5), workers.submit(("echo", 1))
    with pytest.raises(WorkerTimeout, match=r"longer than 0\.5 s"):
        late.result()
    assert after.result()[1] == 1
    until(lambda: gone(int(text_of(tmp_path / "mark") or 0)))


def test_waiting_for_a_turn_does_not_count_against_the_time_limit(workers: Workers, tmp_path: Path) -> None:
    first, limit = workers.submit(("waits_for", "mark")), 2.0
    second, over = workers.submit(("echo", 1), seconds=limit), time.monotonic() + limit
    until(lambda: workers.pids and time.monotonic() > over)  # longer than the limit of the one that waits
    (tmp_path / "mark").touch()
    assert first.result() == "mark"
    assert second.result()[1] == 1


def test_a_child_that_cannot_start_says_why() -> None:
    with Workers("tests.worker_handlers:broken") as workers, pytest.raises(WorkerLost, match="no handler today"):
        workers.submit(1).result()
    with Workers("tests.nothing:at_all") as workers, pytest.raises(WorkerLost, match="ModuleNotFoundError"):
        workers.submit(1).result()


def test_a_handler_that_yields_is_heard_item_by_item(workers: Workers) -> None:
    heard: list[int] = []
    assert workers.submit(("counts", 4), on_event=heard.append).result() is None
    assert heard == [0, 1, 2, 3]
    with pytest.raises(RequestFailed, match="cannot count further"):
        workers.submit(("counts", 6), on_event=heard.append).result()
    assert heard[4:] == [0, 1, 2, 3, 4, 5]


def test_cancelling_cancels_a_handler_that_awaits(workers: Workers, tmp_path: Path) -> None:
    future = workers.submit(("waits_until_cancelled", "mark"))
    until((tmp_path / "mark").exists)
    assert future.cancel()
    assert workers.submit(("echo", 1)).result()[1] == 1
    assert (tmp_path / "mark-cancelled").exists()
    assert workers.starts == 1


def test_a_request_cancelled_while_it_waits_never_reaches_a_child(workers: Workers, tmp_path: Path) -> None:
    first = workers.submit(("waits_for", "mark"))
    second, third = workers.submit(("keep", 2)), workers.submit(("keep", 3))
    assert second.cancel()
    (tmp_path / "mark").touch()
    assert first.result() == "mark"
    assert third.result() == [3]


def test_several_requests_at_once_in_one_child_and_no_more_than_the_limit(tmp_path: Path) -> None:
    with Workers(ENTRY, args=(str(tmp_path),), at_once=3, most=3, json=True) as workers:
        marks = ["a", "b", "c"]
        futures = [workers.submit(["waits_until_cancelled", mark]) for mark in marks]
        until(lambda: all((tmp_path / mark).exists() for mark in marks))
        with pytest.raises(WorkersBusy):
            workers.submit(["echo", 1])
        futures[0].cancel()
        assert until(lambda: _accepted(workers)).result() == [workers.pids[0], 1]


def _accepted(workers: Workers) -> Future[Any] | None:
    try:
        return workers.submit(["echo", 1])
    except WorkersBusy:
        return None


def test_json_carries_plain_values_only(tmp_path: Path) -> None:
    with Workers(ENTRY, json=True) as workers:
        assert workers.submit(["echo", {"a": [1, None, "é"]}]).result()[1] == {"a": [1, None, "é"]}
        with pytest.raises(ContractError):
            workers.submit(["echo", {1, 2}])
        with pytest.raises(RequestFailed, match="not JSON serializable"):
            workers.submit(["unpicklable"]).result()


def test_closing_ends_what_hangs_and_fails_what_waits(tmp_path: Path) -> None:
    workers = Workers(ENTRY, args=(str(tmp_path),))
    hanging, waiting = workers.submit(("hangs", "mark")), workers.submit(("echo", 1))
    pid = int(until(lambda: text_of(tmp_path / "mark")))
    workers.close(grace=0)
    assert gone(pid)
    for future in (hanging, waiting):
        with pytest.raises(WorkerLost):
            future.result()


def test_children_go_when_their_workers_are_dropped(tmp_path: Path) -> None:
    workers = Workers(ENTRY)
    pid, _ = workers.submit(("echo", 1)).result()
    del workers
    gc.collect()
    until(lambda: gone(pid))


PARENT = """
import sys, time
from groupwise.workers import Workers
workers = Workers("tests.worker_handlers:Handler", args=(sys.argv[1],))
workers.submit(("hangs", "mark"))
{then}
"""


@pytest.mark.parametrize("forked", [False, True])
def test_no_child_outlives_a_parent_that_is_killed(tmp_path: Path, forked: bool) -> None:
    # A process forked from the parent keeps the parent's end of the socket open: the child must notice all the same.
    fork = "import os\nwhile not workers.pids: time.sleep(0.01)\nif os.fork() == 0: time.sleep(600)\n" if forked else ""
    code = PARENT.format(then=f"{fork}time.sleep(600)")
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], start_new_session=True)
    child = int(until(lambda: text_of(tmp_path / "mark")))
    parent.kill()
    parent.wait()
    until(lambda: gone(child))
    if forked:
        with suppress(ProcessLookupError):  # the parent may have been killed before it forked
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_program_that_just_ends_leaves_no_child(tmp_path: Path) -> None:
    code = PARENT.format(
        then="from pathlib import Path\nwhile not Path(sys.argv[1], 'mark').exists(): time.sleep(0.01)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=600)
    until(lambda: gone(int(text_of(tmp_path / "mark") or 0)))


def test_a_forked_process_has_children_of_its_own_and_spares_its_parents(workers: Workers) -> None:
    mine = workers.submit(("keep", 1)).result()
    (pid,) = workers.pids
    read, write = os.pipe()
    if (forked := os.fork()) == 0:
        try:
            theirs = workers.submit(("echo", 2)).result(60)[0]
            workers.close()
            os.write(write, str(theirs).encode())
        finally:
            os._exit(0)
    os.close(write)
    theirs = int(os.read(read, 100))
    os.close(read)
    os.waitpid(forked, 0)
    assert theirs != pid
    assert gone(theirs)
    assert workers.submit(("keep", 3)).result() == [*mine, 3]


def test_a_forked_process_that_ends_like_any_program_spares_its_parents_children() -> None:
    code = """
import os, sys
from groupwise.workers import Workers
with Workers("tests.worker_handlers:Handler") as workers:
    before, _ = workers.submit(("echo", 1)).result()
    if os.fork() == 0:
        sys.exit()  # which runs finalizers, unlike os._exit
    os.wait()
    print(before == workers.submit(("echo", 1)).result()[0])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout == "True\n"


def test_any_thread_may_submit() -> None:
    with Workers(ENTRY, 2) as workers:
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: found.append(workers.submit(("echo", n)).result()[1])) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(8))
        assert workers.pending == 0


def test_a_running_event_loop_awaits_the_future(workers: Workers) -> None:
    async def ask() -> Any:
        return await asyncio.wrap_future(workers.submit(("echo", 1)))

    assert asyncio.run(ask())[1] == 1


def test_what_children_print_and_where_they_look(workers: Workers, tmp_path: Path, capfd: Any) -> None:
    workers.submit(("prints", "hello")).result()
    assert workers.submit(("path",)).result() == sys.path
    assert workers.submit(("environment", "OMP_NUM_THREADS")).result() == "1"
    until(lambda: "hello" in capfd.readouterr().err)
    with (tmp_path / "log").open("wb") as log, Workers(ENTRY, stderr=log) as others:
        others.submit(("prints", "into the log")).result()
    assert (tmp_path / "log").read_text() == "into the log\n"


def test_callables_are_entries_too_and_workers_can_be_copied(tmp_path: Path) -> None:
    with Workers(Handler, args=(str(tmp_path),)) as workers:
        first, _ = workers.submit(("echo", 1)).result()
        with copy.deepcopy(workers) as copied:
            assert copied.submit(("echo", 1)).result()[0] != first


def test_functions_of_a_script_are_entries_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from groupwise.workers import Workers\n"
        "def double(number):\n    return 2 * number\n"
        "def make():\n    return double\n"
        "if __name__ == '__main__':\n"
        "    with Workers(make) as workers:\n        print(workers.submit(21).result())\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout == "42\n"


def test_end_process_waits_kills_reaps_and_closes_pipes() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.PIPE)
    end_process(process)
    assert process.returncode == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.closed
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"])
    end_process(process, grace=60)
    assert process.returncode == 4


def test_a_cancelled_future_says_so(workers: Workers, tmp_path: Path) -> None:
    future = workers.submit(("waits_until_cancelled", "mark"))
    until((tmp_path / "mark").exists)
    future.cancel()
    with pytest.raises(CancelledError):
        future.result()


def test_a_child_gets_no_more_requests_at_once_than_it_may(tmp_path: Path) -> None:
    with Workers(ENTRY, args=(str(tmp_path),), at_once=2) as workers:
        futures = [workers.submit(("waits_until_cancelled", mark)) for mark in "abc"]
        until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())
        assert workers.pending == 3
        futures[0].cancel()
        until((tmp_path / "c").exists)  # it came as soon as there was room
        assert (tmp_path / "a-cancelled").exists()
        for future in futures[1:]:
            future.cancel()


def test_a_second_child_starts_only_if_the_first_is_busy(tmp_path: Path) -> None:
    with Workers(ENTRY, 3, args=(str(tmp_path),)) as workers:
        first = {workers.submit(("echo", n)).result()[0] for n in range(3)}
        assert (len(first), workers.starts) == (1, 1)
        busy = workers.submit(("waits_for", "mark"))
        until(lambda: workers.pending == 1)
        assert workers.submit(("echo", 1)).result()[0] not in first
        assert workers.starts == 2
        (tmp_path / "mark").touch()
        busy.result()


def test_a_request_to_one_child_waits_for_it_and_others_pass_by(tmp_path: Path) -> None:
    with Workers(ENTRY, 2, args=(str(tmp_path),)) as workers:
        busy = workers.submit(("waits_for", "mark"), worker=0)
        bound, free = workers.submit(("keep", 1), worker=0), workers.submit(("keep", 2))
        assert free.result() == [2]
        assert not bound.done()
        (tmp_path / "mark").touch()
        assert (busy.result(), bound.result()) == ("mark", [1])


def test_the_limit_counts_what_waits_and_a_request_that_failed_makes_room(tmp_path: Path) -> None:
    with Workers(ENTRY, args=(str(tmp_path),), most=2) as workers:
        first, second = workers.submit(("waits_for", "mark")), workers.submit(("fails",))
        with pytest.raises(WorkersBusy, match="2 requests are already in progress"):
            workers.submit(("echo", 1))
        (tmp_path / "mark").touch()
        assert first.result() == "mark"
        with pytest.raises(RequestFailed):
            second.result()
        until(lambda: workers.pending == 0)
        assert workers.submit(("echo", 1)).result()[1] == 1


@pytest.mark.parametrize(("status", "words", "hint"), [
    (None, "did not answer", ""), (0, "ended with status 0", ""), (3, "ended with status 3", ""),
    (-11, "was killed by signal 11", ""), (-9, "was killed by signal 9", "ran out of memory"),
])  # fmt: skip
def test_how_a_child_ended_is_said_in_words(status: int | None, words: str, hint: str) -> None:
    assert how_it_ended(status) == words
    process = subprocess.Popen(["true"])
    process.wait()
    process.returncode = status  # type: ignore[assignment]
    lost = _lost(_Recipe("a:b", (), False, None, None), process)
    assert (lost.message, lost.status) == (f"the worker process a:b {words}", status)
    assert hint in lost.hint
    assert bool(lost.hint) is bool(hint)


def test_variables_of_the_machine_stay_as_they_are_unless_threads_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for threads, found in ((None, "7"), (3, "3")):
        with Workers(ENTRY, threads=threads) as workers:
            assert workers.submit(("environment", "OMP_NUM_THREADS")).result() == found


def frames(content: bytes) -> Any:
    async def read() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(content)
        reader.feed_eof()
        return [await read_frame(reader) for _ in range(2)]

    return asyncio.run(read())


def test_frames_are_read_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.worker_process.LARGEST", 5)
    good = HEAD.pack(7, Kind.EVENT, 5) + b"12345"
    assert frames(good) == [(7, Kind.EVENT, b"12345"), None]
    assert frames(HEAD.pack(1, Kind.DONE, 0) + good) == [(1, Kind.DONE, b""), (7, Kind.EVENT, b"12345")]
    for bad in (b"", good[:-1], good[:3], HEAD.pack(7, 99, 0), HEAD.pack(7, Kind.EVENT, 6) + b"123456"):
        assert frames(bad)[0] is None


def test_a_child_that_is_slow_to_start_costs_its_first_requests_neither_time_nor_their_cancellation(
    tmp_path: Path,
) -> None:
    with Workers("tests.worker_handlers:slow_to_start", args=(str(tmp_path),)) as workers:
        limit = 2.0
        cancelled, over = workers.submit(("keep", 1), seconds=limit), time.monotonic() + limit
        second = workers.submit(("keep", 2), seconds=limit)
        until(lambda: workers.starts)
        assert cancelled.cancel()
        until(lambda: time.monotonic() > over)  # longer than the limit of either
        (tmp_path / "start").touch()
        assert second.result() == [2], "what was cancelled while the child started never reached it"
        assert workers.starts == 1


def test_a_copy_of_workers_has_all_of_their_options() -> None:
    options = {"args": ("x",), "at_once": 3, "most": 5, "json": True, "threads": 2, "stderr": subprocess.DEVNULL}
    with Workers(ENTRY, 4, **options) as workers, copy.deepcopy(workers) as copied:  # type: ignore[arg-type]
        pool = copied._pool
        assert pool.recipe == workers._pool.recipe == _Recipe(ENTRY, ("x",), True, 2, subprocess.DEVNULL)
        assert (len(pool.children), pool.at_once, copied.most) == (4, 3, 5)
        assert pool is not workers._pool
