"""From a group to its scores: the one boundary where a reward may fail.

A failure is data about the attempts it touches (`Failed`), excluded and counted by whoever learns from them.
No failure becomes a number, and none reaches past its group.

Code that is not `async` runs in a thread, so that a limit on time holds for it too. A thread cannot be stopped: one
that is given up goes on in the background, and ends with the program at the latest. Code that never lets go of the
interpreter (a regular expression without end) cannot be limited.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from numbers import Real
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import numpy as np

from groupwise.errors import GroupwiseError
from groupwise.event_loop import EventLoop, contained
from groupwise.types import Failed, Failure, Group, Reward, Score, ScoredGroup, Task, Trajectory

Grade: TypeAlias = "float | Score | Failed"

LONGEST = 2000
T = TypeVar("T")


async def score_group(reward: Reward, group: Group, timeout: float | None = None) -> ScoredGroup:
    """Score the members of a group, in order.

    A member that failed on the way keeps its own failure, and the reward never sees it. Plain numbers are
    as good as scores.

      - The reward raises: every member it saw has failed ("raised").
      - It answers with anything but one score each: every member it saw has failed ("contract").
      - One answer is neither score nor number, or its total is not finite: that member has failed.
      - It takes longer than `timeout` seconds: every member it saw has failed ("timeout").
    """
    sound = [member for member in group.members if member.error is None]
    answer = await _in_time(reward, group.task, sound, timeout) if sound else []
    scores = iter(_checked(answer, len(sound), _name(reward)))
    return ScoredGroup(
        group,
        tuple(next(scores) if member.error is None else Failed(member.error) for member in group.members),
    )


def score_groups(reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
    """Score groups side by side and wait for all of them, once; who scores often keeps a `RewardScorer`."""
    with RewardScorer() as scorer:
        return scorer.score(reward, groups)


class RewardScorer:
    """Scores from ordinary code, in one event loop of its own that lives as long as it does.

    A judge may therefore keep a client, a semaphore or a cache from one step to the next. It works inside a
    running event loop too, which it blocks; there, `score_group` is the better choice.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = timeout
        self._loop = EventLoop("scorer")

    def score(self, reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
        """The scores of every group; an interrupt of the waiting thread cancels those still at work."""
        return self._loop.run(self._score_all(reward, groups))

    async def _score_all(self, reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
        """Side by side; code that is not async is not asked for two groups at once."""
        if isinstance(reward, PerAttempt) or not is_async(reward):
            return [await contained(score_group(reward, group, self.timeout)) for group in groups]
        return await asyncio.gather(*(contained(score_group(reward, group, self.timeout)) for group in groups))

    def close(self) -> None:
        """End the loop and its thread; what is still being scored is cancelled."""
        self._loop.close()

    def __enter__(self) -> RewardScorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def per_attempt(score: Callable[[Task, Trajectory], Grade | Awaitable[Grade]]) -> Reward:
    """A reward from a function of one attempt; where it raises, that attempt alone has failed.

    What it answers may have to be awaited: the attempts of a group are then scored side by side.
    """
    return PerAttempt(score)


class PerAttempt:
    def __init__(self, score: Callable[[Task, Trajectory], Grade | Awaitable[Grade]]) -> None:
        self.score = score
        self.__qualname__ = _name(score)

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        answers: list[Any] = await _in_thread(lambda: [_called(self.score, task, attempt) for attempt in group])
        if any(map(inspect.isawaitable, answers)):
            answers = await asyncio.gather(*(contained(_settled(self.score, answer)) for answer in answers))
        return answers


async def _in_time(reward: Reward, task: Task, members: Sequence[Trajectory], timeout: float | None) -> Any:
    try:
        async with asyncio.timeout(timeout):
            if is_async(reward):
                return await _settled(reward, _called(reward, task, members))
            return await _settled(reward, await _in_thread(lambda: _called(reward, task, members)))
    except TimeoutError:
        message = f"{_name(reward)} took longer than {timeout:g} s over {_counted(members)}"
        return _failed("timeout", message, "Raise rollout.reward_timeout, or make the reward faster.")


def _called(function: Callable[..., Any], *arguments: object) -> Any:
    """What the function answers, perhaps something to await; its failure where it raises."""
    try:
        return function(*arguments)
    except (Exception, asyncio.CancelledError) as error:
        return _raised(function, error)


async def _settled(function: Callable[..., Any], answer: Any) -> Any:
    """The answer, awaited where it must be; the function's failure where that raises."""
    try:
        return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _raised(function, error)
    except Exception as error:
        return _raised(function, error)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run it in a thread that nobody else uses meanwhile, and that the end of the program does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    try:
        orders = _idle.pop()
    except IndexError:
        orders = _new_thread()

    def settle(act: Callable[[Any], None], outcome: object) -> None:
        if not done.done():
            act(outcome)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except BaseException as error:  # a wish to stop the program
            outcome = (done.set_exception, error)
        _idle.append(orders)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    orders.put(partial(contextvars.copy_context().run, run))
    return await done


Orders: TypeAlias = "SimpleQueue[Callable[[], None]]"
_idle: list[Orders] = []
"""Threads without work: starting one takes longer than most rewards do."""
os.register_at_fork(after_in_child=_idle.clear)


def _new_thread() -> Orders:
    orders: Orders = SimpleQueue()

    def serve() -> None:
        while True:
            orders.get()()

    threading.Thread(target=serve, name="reward", daemon=True).start()
    return orders


def is_async(reward: object) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(getattr(reward, "__call__", None))  # noqa: B004


def _counted(members: Sequence[object]) -> str:
    return f"{len(members)} attempts" if len(members) > 1 else "1 attempt"


def _raised(function: Callable[..., Any], error: BaseException) -> Failed:
    hint = error.hint if isinstance(error, GroupwiseError) else ""
    try:
        words = str(error)
    except Exception:
        words = "(its message cannot be shown)"
    message = f"{_name(function)} raised {type(error).__name__}: {words}"
    return _failed("raised", message, hint or "Run it on this attempt alone to see the traceback.")


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
    return Score(total, parts, flags, rewards)


def _number(value: Any) -> float:
    """A float from a number of any library; a text is not one. What no float can hold is infinite."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, Real):
        raise TypeError(f"{value!r:.40} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _text(value: Any) -> str:
    """Text that can be stored anywhere: valid Unicode, and not endless."""
    return str(value)[:LONGEST].encode("utf8", "replace").decode()


def _failed(code: str, message: str, hint: str = "") -> Failed:
    remedy = hint or "Return one `Score` or float per attempt, in order."
    return Failed(Failure("reward", code, _text(message), _text(remedy)))


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
