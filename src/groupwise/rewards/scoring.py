"""From a group to its scores: the one boundary where a reward may fail.

A failure is data about the attempts it touches (`Failed`), excluded and counted by whoever learns from them.
No failure becomes a number, and none reaches past its group.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import GroupwiseError
from groupwise.types import Failed, Failure, Group, Reward, Score, ScoredGroup, Task, Trajectory

Grade: TypeAlias = "float | Score | Failed"


async def score_group(reward: Reward, group: Group) -> ScoredGroup:
    """Score the members of a group, in order.

    A member that failed on the way keeps its own failure, and the reward never sees it. Plain numbers are
    as good as scores.

      - The reward raises: every member it saw has failed ("raised").
      - It answers with anything but one score each: every member it saw has failed ("contract").
      - One answer is neither score nor number, or its total is not finite: that member has failed.
    """
    sound = [member for member in group.members if member.error is None]
    answer = await _guarded(reward, group.task, sound) if sound else []
    scores = iter(_checked(answer, len(sound), _name(reward)))
    return ScoredGroup(
        group,
        tuple(next(scores) if member.error is None else Failed(member.error) for member in group.members),
    )


def score_groups(reward: Reward, groups: Sequence[Group]) -> list[ScoredGroup]:
    """Score groups side by side and wait for all of them.

    Called from inside a running event loop, which it blocks, it works in a thread of its own; there,
    `score_group` is the better choice.
    """
    scored: list[ScoredGroup] = []

    # Not the coroutine's result: `asyncio.run` of Python 3.11 prints that, arrays and all, to throw it away.
    async def score_all() -> None:
        scored.extend(await asyncio.gather(*(score_group(reward, group) for group in groups)))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(score_all())
    else:
        _run_in_thread(score_all)
    return scored


def per_attempt(score: Callable[[Task, Trajectory], Grade]) -> Reward:
    """A reward from a function of one attempt; where it raises, that attempt alone has failed."""

    async def reward(task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        return [await _guarded(score, task, trajectory) for trajectory in group]

    reward.__qualname__ = _name(score)
    return reward


async def _guarded(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        answer = function(*arguments)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        hint = error.hint if isinstance(error, GroupwiseError) else ""
        message = f"{_name(function)} raised {type(error).__name__}: {error}"
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
    total: Any = score.total
    if not isinstance(total, Real):
        return _failed("contract", f"{name} scored an attempt {grade!r:.80}, which is not a number.")
    total = float(total)
    if not math.isfinite(total):
        hint = "Look for a division by 0, the logarithm of 0, or the mean of nothing."
        return _failed("not_finite", f"{name} scored an attempt {total}.", hint)
    return Score(total, score.parts, score.flags)


def _failed(code: str, message: str, hint: str = "") -> Failed:
    return Failed(Failure("reward", code, message, hint or "Return one `Score` or float per attempt, in order."))


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _run_in_thread(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in a loop and a thread of its own; an interrupt of the waiting thread cancels it."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def announced() -> None:
        task = asyncio.current_task()
        assert task is not None
        running.set_result((asyncio.get_running_loop(), task))
        await main()

    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="score_groups") as thread:
        finished = thread.submit(context.run, lambda: asyncio.run(announced()))
        try:
            finished.result()
        except BaseException:
            if not finished.done():
                loop, task = running.result()
                loop.call_soon_threadsafe(task.cancel)
            raise
