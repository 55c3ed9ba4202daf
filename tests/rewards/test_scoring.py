from __future__ import annotations

import asyncio
import contextvars
import math
import signal
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise import user_code
from groupwise.errors import ConfigError
from groupwise.rewards.function import RewardFunction, attempt_of
from groupwise.rewards.scoring import RewardScorer, per_attempt, score_group, score_groups
from groupwise.rewards.signatures import as_reward
from groupwise.types import End, Failed, Failure, Group, Score, Task, Trajectory

BROKEN = Failure("environment", "raised", "the simulator is gone")


def attempt(number, error=None):
    steps = np.arange(number + 1)
    return Trajectory(
        f"m{number}", "task", "group", steps, steps, steps >= 0, steps * 0.0, steps * 0, steps * 1.0,
        End.ENV_ERROR if error else End.FINISHED, not error, error=error,
    )  # fmt: skip


def group_of(*errors, name="group"):
    return Group(name, Task("task"), tuple(attempt(n, error) for n, error in enumerate(errors)))


def scores_of(reward, *errors):
    return score_groups(reward, [group_of(*errors)])[0].scores


def answering(answer):
    async def reward(task, group):
        return answer

    return reward


def failures(scores):
    assert all(isinstance(score, Failed) for score in scores)
    return [score.failure for score in scores]


def test_fault_9_a_reward_that_raises_is_an_error_on_that_trajectory_never_a_silent_zero():
    def fragile(task, trajectory):
        if trajectory.id == "m1":
            raise ZeroDivisionError("no steps to divide by")
        return float(len(trajectory))

    (scored,) = score_groups(per_attempt(fragile), [group_of(None, None, None)])
    first, lost, last = scored.scores
    assert (first, last) == (Score(1.0), Score(3.0))
    assert isinstance(lost, Failed)
    assert (lost.failure.where, lost.failure.code) == ("reward", "raised")
    assert "fragile" in lost.failure.message
    assert "ZeroDivisionError: no steps to divide by" in lost.failure.message
    np.testing.assert_array_equal(scored.totals(), [1.0, math.nan, 3.0])


def test_a_reward_that_raises_on_a_group_fails_that_group_and_no_other():
    async def reward(task, group):
        if len(group) == 2:
            raise TimeoutError("the judge did not answer")
        return [Score(1.0)] * len(group)

    one, two, three = score_groups(
        reward, [group_of(None, name="a"), group_of(None, None, name="b"), group_of(None, name="c")]
    )
    assert one.scores == three.scores == (Score(1.0),)
    for failure in failures(two.scores):
        assert (failure.where, failure.code) == ("reward", "raised")
        assert "TimeoutError: the judge did not answer" in failure.message
        assert failure.hint


def test_the_hint_of_our_own_errors_is_kept():
    def misconfigured(task, trajectory):
        raise ConfigError("no such judge", hint="Set rewards.judge.")

    (failure,) = failures(scores_of(per_attempt(misconfigured), None))
    assert failure.hint == "Set rewards.judge."


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_total_that_is_not_finite_fails_that_attempt_alone(total):
    first, lost, last = scores_of(answering([1.0, Score(total, {"part": 1.0}), 2.0]), None, None, None)
    assert (first, last) == (Score(1.0), Score(2.0))
    assert (lost.failure.where, lost.failure.code) == ("reward", "not_finite")
    assert str(float(total)) in lost.failure.message


@pytest.mark.parametrize("score", [Score(1e300), Score(-1.1e15), Score(0.0, rewards=np.array([1e16, -1e16]))])
def test_a_reward_that_is_too_large_fails_that_attempt_by_name(score):
    first, lost, last = scores_of(answering([1e15, score, -1e15]), None, None, None)
    assert (first, last) == (Score(1e15), Score(-1e15))
    assert (lost.failure.where, lost.failure.code) == ("reward", "too_large")
    assert "the limit is 1e+15" in lost.failure.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([1.0], "1 scores for 2 attempts"),
        ([1.0, 2.0, 3.0], "3 scores for 2 attempts"),
        ([], "0 scores for 2 attempts"),
        (None, "None"),
        (1.0, "1.0"),
        ("ab", "'ab'"),
        ({0: 1.0, 1: 2.0}, "{0: 1.0, 1: 2.0}"),
    ],
)
def test_anything_but_one_score_each_fails_the_group_and_is_never_padded(answer, says):
    for failure in failures(scores_of(answering(answer), None, None)):
        assert (failure.where, failure.code) == ("reward", "contract")
        assert says in failure.message


@pytest.mark.parametrize("wrong", ["good", None, [1.0], Score("good"), Score(None), 1j])
def test_an_answer_that_is_no_number_fails_that_attempt_alone(wrong):
    first, lost = scores_of(answering([0.5, wrong]), None, None)
    assert first == Score(0.5)
    assert lost.failure.code == "contract"
    assert repr(wrong) in lost.failure.message


@given(totals=st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_plain_numbers_are_as_good_as_scores(totals):
    expected = tuple(Score(total) for total in totals)
    errors = [None] * len(totals)
    for answer in (
        totals,
        tuple(totals),
        np.array(totals),
        [Score(t) for t in totals],
        [*map(np.float64, totals)],
    ):
        scores = scores_of(answering(answer), *errors)
        assert scores == expected
        assert all(type(score.total) is float for score in scores)


def test_parts_and_flags_of_a_score_are_kept():
    score = Score(2.0, {"speed": 1.5, "style": 0.5}, ("hacked",))
    assert scores_of(answering([score]), None) == (score,)


def test_a_reward_may_decline_one_attempt_or_all():
    declined = Failed(Failure("reward", "judge", "no opinion"))
    assert scores_of(answering([1.0, declined]), None, None) == (Score(1.0), declined)
    assert scores_of(answering(declined), None, None) == (declined, declined)


@given(errors=st.lists(st.sampled_from([None, BROKEN]), max_size=6))
@settings(max_examples=25, deadline=None)
def test_attempts_that_failed_on_the_way_keep_their_failure_unseen_by_the_reward(errors):
    seen = []

    async def reward(task, group):
        seen.append(group)
        return [float(len(member)) for member in group]

    scores = scores_of(reward, *errors)
    expected = [Score(n + 1.0) if error is None else Failed(error) for n, error in enumerate(errors)]
    assert list(scores) == expected
    assert all(member.error is None for group in seen for member in group)
    assert len(seen) == (None in errors)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_stopping_is_not_a_failure_of_the_reward(stop, inside_a_loop):
    def stopped(task, trajectory):
        raise stop

    async def main():
        return scores_of(per_attempt(stopped), None)

    with pytest.raises(stop):
        asyncio.run(main()) if inside_a_loop else scores_of(per_attempt(stopped), None)


def test_a_reward_that_cancels_itself_has_failed():
    async def gone(task, group):
        raise asyncio.CancelledError("the client gave up")

    (scored,) = score_groups(gone, [group_of(None)])
    assert scored.scores[0].failure.code == "raised"


def test_a_reward_that_takes_too_long_fails_its_group_alone():
    async def slow(task, group):
        await asyncio.sleep(60 if len(group) == 2 else 0)
        return [1.0] * len(group)

    with RewardScorer(timeout=0.1) as scorer:
        late, fine = scorer.score(slow, [group_of(None, None, name="a"), group_of(None, name="b")])
    assert [s.failure.code for s in late.scores] == ["timeout", "timeout"]
    assert fine.scores == (Score(1.0),)


@pytest.mark.parametrize("wrap", [per_attempt, lambda hang: lambda task, group: [hang(task, m) for m in group]])
def test_a_reward_that_hangs_without_awaiting_fails_its_group_alone(wrap):
    over, went_on = threading.Event(), threading.Event()

    def hangs(task, attempt):
        if task.id == "endless":
            over.wait()
            went_on.set()
        return 1.0

    groups = [Group(name, Task(name), (attempt(0), attempt(1))) for name in ("endless", "task")]
    with RewardScorer(timeout=0.1) as scorer:
        late, fine = scorer.score(wrap(hangs), groups)
    assert not went_on.is_set()  # it still hangs, and nobody waited for it
    over.set()
    assert [s.failure.code for s in late.scores] == ["timeout", "timeout"]
    assert "hangs" in late.scores[0].failure.message or "lambda" in late.scores[0].failure.message
    assert fine.scores == (Score(1.0), Score(1.0))


def test_groups_of_a_reward_that_is_not_async_are_scored_in_order_and_never_two_at_once():
    seen, at_work = [], threading.Lock()

    def score(task, attempt):
        assert at_work.acquire(blocking=False)
        time.sleep(0)  # lets another thread run, if there is one
        seen.append(task.id)
        at_work.release()
        return 1.0

    names = [str(n) for n in range(5)]
    scored = score_groups(per_attempt(score), [Group(n, Task(n), (attempt(0),)) for n in names])
    assert seen == names
    assert all(s.scores == (Score(1.0),) for s in scored)


def test_a_group_is_scored_while_the_next_one_is_still_made():
    first_is_scored = threading.Event()
    seen = []

    def score(task, attempt):
        seen.append(task.id)
        first_is_scored.set()
        return 1.0

    def arriving():
        yield Group("0", Task("0"), (attempt(0),))
        assert first_is_scored.wait(10)  # it would never be, if scores waited for all groups
        yield from (Group(n, Task(n), (attempt(0),)) for n in "12")

    with RewardScorer() as scorer:
        scored = scorer.score_arriving(per_attempt(score), arriving())
    assert seen == ["0", "1", "2"]
    assert [s.group.id for s in scored] == seen
    assert all(s.scores == (Score(1.0),) for s in scored)


def test_a_rollout_that_breaks_ends_the_scoring_of_what_it_gave():
    cancelled = threading.Event()

    async def judge(task, attempt):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def arriving():
        yield Group("0", Task("0"), (attempt(0),))
        time.sleep(0.1)
        raise RuntimeError("the GPU is lost")

    with RewardScorer() as scorer, pytest.raises(RuntimeError, match="the GPU is lost"):
        scorer.score_arriving(per_attempt(judge), arriving())
    assert cancelled.wait(10)


def test_attempts_that_are_awaited_are_scored_side_by_side():
    all_there = asyncio.Barrier(20)  # one after another, they would wait for ever

    async def judge(task, attempt):
        await all_there.wait()
        if attempt.id == "m1":
            raise ValueError("no opinion")
        return float(len(attempt))

    first, lost, *_ = scores_of(per_attempt(judge), *[None] * 20)
    assert first == Score(1.0)
    assert "no opinion" in lost.failure.message


def test_a_reward_may_keep_its_client_from_one_step_to_the_next():
    class Judge:
        def __init__(self):
            self.places = asyncio.Semaphore(1)

        async def __call__(self, task, group):
            async with self.places:
                await asyncio.sleep(0.001)
                return [1.0] * len(group)

    with RewardScorer() as scorer:
        judge = Judge()
        for _ in range(3):
            scored = scorer.score(judge, [group_of(None, name=str(n)) for n in range(3)])
            assert all(s.scores == (Score(1.0),) for s in scored)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "grade",
    [
        Score(1.0, {"style": "good"}),
        Score(1.0, None),
        Score(10**400),
        Score(1.0, rewards=np.array([np.nan])),
        "five",
        None,
        {"total": 1},
    ],
)
def test_an_odd_answer_fails_that_attempt_and_nothing_else(grade):
    first, second = scores_of(answering([grade, 2.0]), None, None)
    assert isinstance(first, Failed)
    assert second == Score(2.0)


def test_numbers_of_other_libraries_are_numbers():
    torch = pytest.importorskip("torch")
    grades = [torch.tensor(0.5), np.float32(0.25), np.int64(3), Score(torch.tensor(2.0), {"a": torch.tensor(1)}, (1,))]
    scores = scores_of(answering(grades), *[None] * 4)
    assert [s.total for s in scores] == [0.5, 0.25, 3.0, 2.0]
    assert (dict(scores[3].parts), scores[3].flags) == ({"a": 1.0}, ("1",))


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("broken \ud800 text"), ValueError("x" * 10_000)])
def test_a_message_that_cannot_be_stored_is_made_storable(error):
    async def reward(task, group):
        raise error

    (lost,) = scores_of(reward, None)
    assert len(lost.failure.message.encode()) < 10_000


def test_the_synchronous_face_works_inside_a_running_loop_and_keeps_its_context():
    seen = contextvars.ContextVar("seen", default=0)

    async def reward(task, group):
        await asyncio.sleep(0.001)
        return [float(seen.get())] * len(group)

    async def main():
        seen.set(7)
        outside = threading.active_count()
        scores = scores_of(reward, None, None)
        assert threading.active_count() == outside
        return scores

    assert asyncio.run(main()) == (Score(7.0), Score(7.0))


def test_groups_are_scored_side_by_side():
    all_there = asyncio.Barrier(20)  # one after another, they would wait for ever

    async def together(task, group):
        await all_there.wait()
        return [1.0] * len(group)

    scored = score_groups(together, [group_of(None, name=str(n)) for n in range(20)])
    assert [s.group.id for s in scored] == [str(n) for n in range(20)]


def test_the_asynchronous_face_scores_one_group():
    async def main():
        return await score_group(answering([0.25]), group_of(None))

    assert asyncio.run(main()).scores == (Score(0.25),)


def test_an_interrupt_cancels_the_scoring_that_a_running_loop_waits_for():
    cancelled = threading.Event()

    async def endless(task, group):
        main_thread = threading.main_thread().ident
        while sys._current_frames()[main_thread].f_code.co_name != "run":  # for the result
            await asyncio.sleep(0.001)
        signal.pthread_kill(main_thread, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def main():
        return scores_of(endless, None)

    # Unlike asyncio.run, which handles the first interrupt itself, this loop is a notebook's.
    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    loop.close()
    assert cancelled.is_set()


def test_scoring_does_not_touch_the_arrays_of_attempts_however_long_they_are():
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(f"{name} of an array was used")

    closed = Trajectory("m", "task", "group", *[Untouchable()] * 6, End.FINISHED, True)
    (scored,) = score_groups(answering([1.0] * 8), [Group("group", Task("task"), (closed,) * 8)])
    assert scored.scores == (Score(1.0),) * 8


async def words(turns):
    return float(len(turns[-1]["content"].split()))


class Strict(RewardFunction):
    def compute_reward(self, turns):
        raise ValueError("no")


def strict(turns):
    raise ValueError("no")


def conversation():
    return Group("g", Task("t"), (attempt_of([{"role": "assistant", "content": "two words"}]),))


def test_a_function_of_turns_may_be_async():
    (graded,) = score_groups(as_reward(words), [conversation()])
    assert [score.total for score in graded.scores] == [2.0]


@pytest.mark.parametrize(("reward", "name"), [(Strict(), "Strict"), (strict, "strict")])
def test_a_failure_tells_whose_it_is(reward, name):
    (graded,) = score_groups(as_reward(reward), [conversation()])
    assert graded.scores[0].failure.message == f"{name} raised ValueError: no"


@pytest.mark.parametrize(("reward", "words"), [(Strict, r"Create one: Strict\(…\)"), (0.5, "a function of turns")])
def test_what_cannot_score_is_refused_at_once(reward, words):
    with pytest.raises(ConfigError, match=words):
        as_reward(reward)


def test_a_failing_reward_shows_its_authors_frames_once_for_every_place_that_raised():
    def inner(number):
        return 1 / (number % 2)

    def fragile(task, trajectory):
        if trajectory.id == "m3":
            raise KeyError(trajectory.id)
        return inner(len(trajectory))

    with RewardScorer() as scorer:
        scorer.score(per_attempt(fragile), [group_of(None, None, None, None), group_of(None, None, None, None)])
        hints = scorer.take_hints()
        assert [hint.traceback.splitlines()[-1] for hint in hints] == [
            "ZeroDivisionError: division by zero",
            "KeyError: 'm3'",
        ]
        assert [hint.code for hint in hints] == ["reward_raised"] * 2
        divided, missing = (hint.traceback for hint in hints)
        # The frames of the author's file from the outermost in, and none of the package that called it.
        assert divided.index("in fragile") < divided.index("in inner") < divided.index("return 1 / (number % 2)")
        assert "in inner" not in missing
        assert all(str(user_code.PACKAGE) not in hint.traceback for hint in hints)
        scorer.score(per_attempt(fragile), [group_of(None, None)])
        assert scorer.take_hints() == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_traceback_of_an_async_reward_and_of_a_wrapped_error_begins_in_the_authors_code(wrapped):
    def mine():
        raise LookupError("not in the table")

    async def reward(task, group):
        if not wrapped:
            mine()
        try:
            mine()
        except LookupError as error:
            raise ConfigError("row 3 cannot be checked") from error

    (failure,) = failures(scores_of(reward, None))
    lines = failure.traceback.splitlines()
    assert lines[0].endswith("in reward")
    assert lines[-1] == "LookupError: not in the table"


def test_a_traceback_without_end_is_cut_at_its_beginning():
    def endless(turns):
        raise ValueError("x" * 10_000)

    (failure,) = failures(scores_of(as_reward(endless), None))
    assert len(failure.traceback) == user_code.LONGEST_TRACEBACK + 1
