"""Checks whether an environment keeps its contract, before a model ever meets it."""

import asyncio
import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.agents.conversation.call_formats import read_reply
from groupwise.agents.conversation.chat_format import ROLES, Frame
from groupwise.agents.environments.contract import Environment, Observation, Reply, ToolCall, Transition
from groupwise.errors import ContractError
from groupwise.event_loop import EventLoop
from groupwise.types import End, Failure, Message, Task

MOST_TURNS = 50
STALL = 0.2  # seconds that one call may block all other conversations
SECONDS = 20.0  # limit for one turn
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|end|>", "<|assistant|>", "<|endoftext|>", "</s>")
UNKNOWN = object()
PLAIN = Reply("I do not know.")
# Replies that a model may well produce; an environment must survive each of them.
ODD = {
    "an empty reply": Reply(""),
    "a reply of 1 MB": Reply("x" * 1_000_000),
    "a reply that was cut off": Reply("I do not", cut=True),
    "a call to a tool that does not exist": Reply("", (ToolCall("t0000n000", "no_such_tool", {"x": 1}),)),
    "a call with arguments of the wrong kind": Reply("", (ToolCall("t0000n000", "", {"x": [None]}),)),
    "a malformed call": read_reply("@x {", None, 0),
    "invalid characters": Reply("\x00\ud800�"),
}


@dataclass
class Heard:
    """One conversation from the environment's side: what it said, its rewards, and how it ended."""

    observation: Observation | None = None
    transitions: list[Transition] = field(default_factory=list)
    stall: float = 0.0

    @property
    def end(self) -> End | None:
        return self.transitions[-1].end if self.transitions else None

    def messages(self) -> Iterator[Message]:
        """The messages of the environment."""
        if self.observation is not None:
            yield from self.observation.messages
        for transition in self.transitions:
            yield from transition.messages

    def as_seen(self) -> Any:
        """Everything that must be the same when the conversation is repeated."""
        opened = None if self.observation is None else (_plain(self.observation.messages), repr(self.observation.tools))
        return opened, [(_plain(t.messages), t.reward, t.end, dict(t.parts)) for t in self.transitions]


class BrokenPromise(Exception):
    """A rule of the contract was broken in the middle of a conversation."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.failure = Failure("environment", code, message, hint)


def check_conversation_environment(
    make: Callable[[], Environment], tasks: Sequence[Task], *, frame: Frame | None = None, most_turns: int = MOST_TURNS
) -> list[Failure]:
    """Run a few conversations with scripted replies and report what breaks the contract of `Environment`.

    An empty list means it passed. With a `frame`, texts are checked for the model's own special tokens. The environment
    runs in this process and is called as in training: from an event loop, many conversations at once.
    """
    if not tasks:
        raise ContractError("an environment cannot be checked without a task", hint="Pass at least one Task.")
    loop = EventLoop("environment checker")
    try:
        return loop.run(_check(make, list(tasks), frame, most_turns))
    finally:
        loop.close()


async def _check(
    make: Callable[[], Environment], tasks: list[Task], frame: Frame | None, most_turns: int
) -> list[Failure]:
    before = [_copied(task) for task in tasks]
    try:
        first = [await _talk(make(), task, most_turns) for task in tasks]
        # A second time, to see whether the environment is reproducible.
        again = [await _talk(make(), task, most_turns) for task in tasks]
        found = [
            *_texts(first, frame),
            *_numbers(first),
            *_ends(first, most_turns),
            *_stalls(first, again),
            *_tasks(tasks, before),
            *_reproducible(first, again),
            *await _separate(make, tasks, first, most_turns),
            *await _survives_odd_replies(make, tasks[0]),
        ]
    except BrokenPromise as broken:
        return [broken.failure]
    # The first failure of every code; reversed twice to keep their order.
    return list({failure.code: failure for failure in reversed(found)}.values())[::-1]


async def _talk(environment: Environment, task: Task, most_turns: int) -> Heard:
    """Run a conversation in which the model tries every tool once and otherwise says that it does not know."""
    heard = Heard()
    try:
        observation = await _call(environment.reset(task), "reset", heard)
        if not isinstance(observation, Observation):
            message = f"reset returned {observation!r:.60}, not an Observation"
            raise BrokenPromise("not_an_observation", message, "Return Observation((…)).")
        heard.observation = observation
        for turn in range(most_turns):
            transition = await _call(environment.step(_reply(observation, turn)), "step", heard)
            if not isinstance(transition, Transition):
                hint = "Return Transition((…))."
                raise BrokenPromise("not_a_transition", f"step returned {transition!r:.60}, not a Transition", hint)
            heard.transitions.append(replace(transition, messages=tuple(transition.messages)))
            if transition.end is not None:
                break
    finally:
        if hasattr(environment, "close"):
            await environment.close()
    return heard


def _reply(observation: Observation, turn: int) -> Reply:
    if turn >= len(observation.tools):
        return PLAIN
    function: Mapping[str, Any] = observation.tools[turn].get("function", {})
    named = function.get("parameters", {}).get("properties", {})
    arguments = {
        name: {"integer": 1, "number": 1.0, "boolean": True}.get(_kind(kind), "1") for name, kind in named.items()
    }
    return Reply("", (ToolCall(f"t{turn:04}n000", str(function.get("name")), arguments),))


def _kind(schema: Any) -> str:
    return str(schema.get("type")) if isinstance(schema, Mapping) else ""


async def _call(work: Any, name: str, heard: Heard) -> Any:
    """Await a call of the environment; measure how long it blocked the event loop, and report what it raises."""
    if not hasattr(work, "__await__"):
        message = f"{name} returned {work!r:.60}, which cannot be awaited"
        raise BrokenPromise("not_async", message, f"Write async def {name}(…).")
    watch = asyncio.ensure_future(_watch(heard))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(SECONDS):
            return await work
    except TimeoutError:
        raise BrokenPromise(
            "too_slow", f"{name} took longer than {SECONDS:g} s for one turn", "Make it faster."
        ) from None
    except Exception as error:
        message = f"{name} raised {type(error).__name__}: {error}"
        raise BrokenPromise("raised", message[:500], "Call it by hand to see the traceback.") from error
    finally:
        await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def _watch(heard: Heard) -> None:
    """Record the longest time between two iterations of the event loop."""
    last = time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            heard.stall = max(heard.stall, now - last - 0.005)
            last = now
    except asyncio.CancelledError:
        heard.stall = max(heard.stall, time.perf_counter() - last - 0.005)


def _texts(talks: Sequence[Heard], frame: Frame | None) -> Iterator[Failure]:
    special = tuple(frame.special) if frame is not None else SPECIAL
    said: list[Any] = [message for talk in talks for message in talk.messages()]
    openings = [message for talk in talks if talk.observation is not None for message in talk.observation.messages]
    for message in said:
        if not isinstance(message, Mapping):
            hint = 'Write {"role": …, "content": …}.'
            yield _failure("not_a_message", f"a message is {message!r:.60}, not a mapping", hint)
            continue
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            yield _failure("role", f"a message has the role {role!r}", f"Roles are {', '.join(ROLES)}.")
        elif role == "assistant" and message not in openings:
            hint = "That role belongs to the model."
            yield _failure("role", "a message of the environment has the role 'assistant'", hint)
        if not isinstance(content, str | None):
            kind = type(content).__name__
            yield _failure("not_text", f"a message of {role} has content of type {kind}", "Content is text.")
        token = next((token for token in special if isinstance(content, str) and token in content), None)
        if token is not None:
            yield _failure("special_token", f"a message contains {token!r}, which delimits turns", "Rephrase it.")


def _numbers(talks: Sequence[Heard]) -> Iterator[Failure]:
    for transition in (transition for talk in talks for transition in talk.transitions):
        for name, value in {"reward": transition.reward, **transition.parts}.items():
            try:
                finite = math.isfinite(value)
            except TypeError:
                finite = False
            if not finite:
                yield _failure("not_finite", f"{name} is {value!r:.40}", "Rewards and their parts are finite numbers.")
        end: Any = transition.end
        if not isinstance(end, End | None):
            yield _failure("end", f"end is {end!r:.40}", f"Use one of End ({', '.join(End)}), or None to continue.")


def _ends(talks: Sequence[Heard], most_turns: int) -> Iterator[Failure]:
    for talk in talks:
        if talk.end is None:
            yield _failure(
                "never_ends",
                f"the conversation has not ended after {most_turns} turns of a model that only says {PLAIN.content!r}",
                "Count turns and end with End.TURN_LIMIT, or rely on rollout.max_conversation_turns and ignore this.",
            )
        silent = any(t.end is None and not t.messages for t in talk.transitions)
        if silent:
            message = "a step neither ended the conversation nor returned a message"
            yield _failure("says_nothing", message, "Answer with a message, or end the conversation.")


def _stalls(first: Sequence[Heard], again: Sequence[Heard]) -> Iterator[Failure]:
    """Report only what stalls both times, because the machine itself may stall once."""
    worst = max(min(one.stall, other.stall) for one, other in zip(first, again, strict=True))
    if worst > STALL:
        message = f"one call blocked the event loop, and so all other conversations, for {worst:.2f} s"
        hint = "Await slow work, run it in a thread (asyncio.to_thread), or set rollout.backend = 'processes'."
        yield _failure("blocking", message, hint)


def _reproducible(first: Sequence[Heard], again: Sequence[Heard]) -> Iterator[Failure]:
    for one, other in zip(first, again, strict=True):
        if one.as_seen() != other.as_seen():
            message = f"the same task and replies led to a different conversation: {_difference(one, other)}"
            hint = "Seed all randomness from task.seed in reset, and do not depend on the clock."
            yield _failure("reproducible", message, hint)


async def _separate(
    make: Callable[[], Environment], tasks: Sequence[Task], first: Sequence[Heard], most_turns: int
) -> Iterator[Failure]:
    """Run the same conversations at once: one must not affect another."""
    # Three of each task, as in a group.
    talks = [(task, heard) for task, heard in zip(tasks, first, strict=True) for _ in range(3)]
    together = await asyncio.gather(*(_talk(make(), task, most_turns) for task, _ in talks))
    return (
        _failure(
            "shared_state",
            f"a conversation went differently while others were running: {_difference(alone, other)}",
            "Keep state in the object and set it in reset, not in the class, the module or a shared file.",
        )
        for (_, alone), other in zip(talks, together, strict=True)
        if alone.as_seen() != other.as_seen()
    )


def _tasks(tasks: Sequence[Task], before: Sequence[Any]) -> Iterator[Failure]:
    for task, payload in zip(tasks, before, strict=True):
        if payload is not UNKNOWN and payload != task.payload:
            message = f"a conversation changed its task's payload from {payload!r:.60} to {task.payload!r:.60}"
            hint = "All members of a group get the same payload: copy what you change."
            yield _failure("changes_task", message, hint)


def _copied(task: Task) -> Any:
    try:
        return copy.deepcopy(task.payload)
    except Exception:
        return UNKNOWN


async def _survives_odd_replies(make: Callable[[], Environment], task: Task) -> list[Failure]:
    found: list[Failure] = []
    for words, reply in ODD.items():
        environment, heard, mine = make(), Heard(), copy.deepcopy(task)
        try:
            await _call(environment.reset(mine), "reset", heard)
            transition = await _call(environment.step(reply), "step", heard)
            heard.transitions.append(transition)
            found += _numbers([heard]) if isinstance(transition, Transition) else []
        except BrokenPromise as broken:
            found.append(
                _failure("odd_reply", f"after {words}, {broken.failure.message}", "Models write anything: handle it.")
            )
        finally:
            if hasattr(environment, "close"):
                await environment.close()
    return found


def _difference(one: Heard, other: Heard) -> str:
    (opened, turns), (opened_again, turns_again) = one.as_seen(), other.as_seen()
    if opened != opened_again:
        return f"it opened with {opened!r:.60}, then with {opened_again!r:.60}"
    for number, (a, b) in enumerate(zip(turns, turns_again, strict=False), start=1):
        if a != b:
            return f"turn {number} was {a!r:.80}, then {b!r:.80}"
    return f"it had {len(turns)} turns, then {len(turns_again)}"


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [dict(message) if isinstance(message, Mapping) else {"": message} for message in messages]


def _failure(code: str, message: str, hint: str) -> Failure:
    return Failure("environment", code, message, hint)
