"""From a group to its scores: the one boundary where a reward may fail.

    RewardScorer.score ─► score_group ─► the reward ─► checked scores, one per attempt

A failure is data about the attempts it affects (`Failed`): the learner excludes and counts them. No failure becomes a
number, and none spreads beyond its group.

Code that is not `async` runs in a thread, so that a time limit applies to it too. A thread cannot be stopped: when time
is up, it goes on in the background until the program ends. Code that never releases the interpreter, such as a
catastrophically slow regular expression, cannot be limited at all.
"""

import asyncio
import contextvars
import inspect
import math
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from numbers import Real
from queue import SimpleQueue
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from groupwise.errors import GroupwiseError
from groupwise.event_loop import EventLoop, Stopped, contained
from groupwise.types import LARGEST_REWARD, Failed, Failure, Group, Hint, Reward, Score, ScoredGroup, Task, Trajectory
from groupwise.user_code import traceback_of

Grade: TypeAlias = float | Score | Failed

LONGEST = 2000  # characters of a flag, message or hint
MOST_SHOWN = 20  # tracebacks of one run
MEND = "Correct it, then resume the run. Attempts it fails on are left out, not scored 0."
T = TypeVar("T")


async def score_group(reward: Reward, group: Group, timeout: float | None = None) -> ScoredGroup:
    """Score the members of a group, in order. Plain numbers count as scores.

    A member that failed earlier keeps its own failure, and the reward never sees it.

      - The reward raises: every member it saw has failed ("raised").
      - It does not return one score per member: every member it saw has failed ("contract").
      - One answer is neither a score nor a number, or its total is not finite or too large: that member has failed.
      - It takes longer than `timeout` seconds: every member it saw has failed ("timeout").
    """
    sound = [member for member in group.members if member.error is None]
    name, answer = _name(reward), None
    call = partial(_called, name, reward, group.task, sound)
    try:
        async with asyncio.timeout(timeout):
            if sound:
                answer = await _settled(name, call() if is_async(reward) else await _in_thread(call))
    except TimeoutError:
        attempts = "1 attempt" if len(sound) == 1 else f"{len(sound)} attempts"
        hint = "Raise rollout.reward_timeout, or make the reward faster."
        answer = _failed("timeout", f"{name} took longer than {timeout:g} s over {attempts}", hint)
    # Only sound members were scored: deal the scores out to them, in order.
    scores = iter(_checked(answer, len(sound), name))
    return ScoredGroup(
        group, tuple(next(scores) if member.error is None else Failed(member.error) for member in group.members)
    )


def score_groups(reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
    """Score groups once, from ordinary code. To score often, keep a `RewardScorer`."""
    with RewardScorer() as scorer:
        return scorer.score(reward, groups)


class RewardScorer:
    """Scores groups from ordinary code, in an event loop that lives as long as this object.

    A judge can therefore keep a client, a semaphore or a cache from one step to the next. It works inside a running
    event loop too, which it blocks; there, `await score_group(…)` is the better choice.

    User code that raises is shown to its author: `take_hints` returns its traceback, once for every place that raised.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = timeout
        self._loop: EventLoop | None = None
        self._raised: dict[str, Failure] = {}
        self._shown: set[str] = set()

    def score(self, reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
        """Score every group; interrupting the waiting thread cancels what is under way."""
        self._loop = self._loop or EventLoop("scorer")
        scored = self._loop.run(self._score_all(reward, groups))
        self.note(scored)
        return scored

    def score_arriving(self, reward: Reward, groups: Iterable[Group]) -> list[ScoredGroup]:
        """Like `score`, but each group as soon as it comes, while the iterator is still making the next ones."""
        loop = self._loop = self._loop or EventLoop("scorer")
        # As in `_score_all`: other code may not be thread-safe. The lock lets groups through in their order.
        gate = asyncio.Lock() if _one_group_at_a_time(reward) else nullcontext()
        started = []
        try:
            for group in groups:
                started.append(loop.submit(self._score_next(reward, group, gate)))
            scored = [future.result() for future in started]
        except Stopped as stopped:
            raise stopped.error from None
        finally:
            for future in started:
                future.cancel()
        self.note(scored)
        return scored

    async def _score_next(self, reward: Reward, group: Group, gate: AbstractAsyncContextManager[object]) -> ScoredGroup:
        async with gate:
            return await contained(score_group(reward, group, self.timeout))

    def note(self, scored: Sequence[ScoredGroup]) -> None:
        """Keep the failures of user code in groups that were scored here or elsewhere, for `take_hints`."""
        for failure in (s.failure for group in scored for s in group.scores if isinstance(s, Failed)):
            if failure.traceback:
                self._raised.setdefault(_place(failure), failure)

    def take_hints(self) -> list[Hint]:
        """The failures of user code since the last call, as hints; the same place is shown only once."""
        new = [failure for place, failure in self._raised.items() if place not in self._shown]
        new = new[: max(0, MOST_SHOWN - len(self._shown))]
        self._shown.update(map(_place, new))
        self._raised.clear()
        return [Hint(f"{f.where}_raised", f"{f.message}.", f.hint, f.traceback) for f in new]

    async def _score_all(self, reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
        # Only async rewards see several groups at once: other code may not be thread-safe.
        if _one_group_at_a_time(reward):
            return [await contained(score_group(reward, group, self.timeout)) for group in groups]
        return await asyncio.gather(*(contained(score_group(reward, group, self.timeout)) for group in groups))

    def close(self) -> None:
        """End the loop and its thread; scoring that is under way is cancelled."""
        if self._loop is not None:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _one_group_at_a_time(reward: Reward) -> bool:
    return isinstance(reward, PerAttempt) or not is_async(reward)


def per_attempt(score: Callable[[Task, Trajectory], Grade | Awaitable[Grade]], name: str | None = None) -> Reward:
    """Make a reward from a function of one attempt. If it raises, only that attempt has failed.

    The function may return something to await; the attempts of a group are then scored concurrently.
    """
    return PerAttempt(score, name or _name(score))


class PerAttempt:
    """See `per_attempt`."""

    def __init__(self, score: Callable[[Task, Trajectory], Grade | Awaitable[Grade]], name: str) -> None:
        self.score = score
        self.__qualname__ = name

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        score, name = self.score, self.__qualname__
        # One thread for the whole group: changing threads costs more than most rewards do.
        answers: list[Any] = await _in_thread(lambda: [_called(name, score, task, attempt) for attempt in group])
        if any(map(inspect.isawaitable, answers)):
            answers = await asyncio.gather(*(contained(_settled(name, answer)) for answer in answers))
        return answers


def _called(name: str, function: Callable[..., Any], *arguments: object) -> Any:
    """What the function returns, perhaps something to await; a failure if it raises."""
    try:
        return function(*arguments)
    except (Exception, asyncio.CancelledError) as error:
        return raised(name, error)


async def _settled(name: str, answer: Any) -> Any:
    """The answer, awaited if necessary; a failure if that raises."""
    try:
        return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # we are being cancelled, not something inside the reward
            raise
        return raised(name, error)
    except Exception as error:
        return raised(name, error)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread of its own. Unlike an executor's, the program does not wait for it when it ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    try:
        # `pop` of a list is atomic, so no two callers get the same thread.
        orders = _idle.pop()
    except IndexError:
        orders = _new_thread()

    def settle(act: Callable[[Any], None], outcome: object) -> None:
        if not done.done():
            act(outcome)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except BaseException as error:  # KeyboardInterrupt, SystemExit: they go to whoever awaits
            outcome = (done.set_exception, error)
        _idle.append(orders)
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    orders.put(partial(contextvars.copy_context().run, run))
    return await done


Orders: TypeAlias = "SimpleQueue[Callable[[], None]]"
_idle: list[Orders] = []  # threads without work, kept because starting one takes longer than most rewards do
# Threads do not survive a fork; orders put into their queues would wait for ever.
os.register_at_fork(after_in_child=_idle.clear)


def _new_thread() -> Orders:
    orders: Orders = SimpleQueue()

    def serve() -> None:
        while True:
            orders.get()()

    threading.Thread(target=serve, name="reward", daemon=True).start()
    return orders


def is_async(reward: object) -> bool:
    """Whether calling the reward returns something to await."""
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(getattr(reward, "__call__", None))  # noqa: B004


def raised(name: str, error: BaseException) -> Failed:
    hint = error.hint if isinstance(error, GroupwiseError) else ""
    try:
        words = str(error)
    except Exception:  # an exception of a user may fail even at this
        words = "(its message cannot be shown)"
    message = f"{name} raised {type(error).__name__}: {words}"
    return _failed("raised", message, hint or MEND, traceback_of(error))


def _checked(answer: Any, count: int, name: str) -> list[Score | Failed]:
    if isinstance(answer, Failed):
        return [answer] * count
    if not isinstance(answer, (Sequence, np.ndarray)) or isinstance(answer, (str, bytes)):
        return [_failed("contract", f"{name} returned {answer!r:.80}, not a sequence of scores.")] * count
    if len(answer) != count:
        return [_failed("contract", f"{name} returned {len(answer)} scores for {count} attempts.")] * count
    return [_score(grade, name) for grade in answer]


def _score(grade: Any, name: str) -> Score | Failed:
    if isinstance(grade, Failed):
        return grade
    # Rebuilt below from checked values, because a user's Score may contain anything.
    score = grade if isinstance(grade, Score) else Score(grade)
    try:
        total = _number(score.total)
        parts = {str(part): _number(value) for part, value in score.parts.items()}
        flags = tuple(_text(flag) for flag in score.flags)
        rewards = None if score.rewards is None else np.asarray(score.rewards, np.float64)
    except (TypeError, ValueError, AttributeError) as error:
        return _failed("contract", f"{name} scored an attempt {grade!r:.80}: {error}")
    if not math.isfinite(total) or (rewards is not None and not np.isfinite(rewards).all()):
        hint = "Look for a division by 0, the logarithm of 0, or the mean of nothing."
        return _failed("not_finite", f"{name} scored an attempt {total}.", hint)
    largest = max(abs(total), 0.0 if rewards is None else float(np.abs(rewards).max(initial=0.0)))
    if largest > LARGEST_REWARD:
        hint = "Divide the reward by a constant: only how attempts of a group compare matters."
        return _failed("too_large", f"{name} gave a reward of {largest:g}; the limit is {LARGEST_REWARD:g}.", hint)
    return Score(total, parts, flags, rewards)


def _number(value: Any) -> float:
    """A number of any library as a float, infinite if it is too large for one; text is refused."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, Real):
        raise TypeError(f"{value!r:.40} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _text(value: Any) -> str:
    """Text that can be stored anywhere: valid Unicode of limited length."""
    return str(value)[:LONGEST].encode("utf8", "replace").decode()


def _failed(code: str, message: str, hint: str = "", trace: str = "") -> Failed:
    remedy = hint or "Return one `Score` or float per attempt, in order."
    return Failed(Failure("reward", code, _text(message), _text(remedy), trace.encode("utf8", "replace").decode()))


def _place(failure: Failure) -> str:
    """Where it raised: the frames of its traceback, without the message, which may differ from attempt to attempt."""
    return "\n".join(line for line in failure.traceback.splitlines() if line.startswith("  "))


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
