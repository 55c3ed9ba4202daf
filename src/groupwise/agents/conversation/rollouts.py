"""Groups of conversations: every one is an asyncio task, and all of them share one continuous batch of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from groupwise.agents.conversation.frame import ROLES, Frame
from groupwise.agents.environments.contract import Environment, Observation, Scenarios, Transition
from groupwise.errors import ContractError, GroupwiseError
from groupwise.event_loop import EventLoop, contained
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.token_text import token_texts
from groupwise.types import End, Failure, Group, Message, Task, Trajectory


class TokenTranscript:
    """Grows turn by turn: `listen` takes what others said, `speak` what the model sampled."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.mask: list[bool] = []
        self.logp: list[float] = []
        self.versions: list[int] = []
        self.rewards: list[float] = []

    def __len__(self) -> int:
        return len(self.ids)

    def listen(self, ids: Sequence[int]) -> None:
        self._extend(ids, False, [0.0] * len(ids), [0] * len(ids))

    def speak(self, sampled: Sampled) -> None:
        self._extend(sampled.ids.tolist(), True, sampled.logp.tolist(), sampled.versions.tolist())

    def earn(self, reward: float) -> None:
        """Credit a reward to the last token the model sampled."""
        last = len(self.mask) - 1 - self.mask[::-1].index(True)
        self.rewards[last] += reward

    def _extend(self, ids: Sequence[int], own: bool, logp: Sequence[float], versions: Sequence[int]) -> None:
        self.ids += ids
        self.mask += [own] * len(ids)
        self.logp += logp
        self.versions += versions
        self.rewards += [0.0] * len(ids)

    def attempt(
        self, task: Task, number: int, end: End, error: Failure | None = None, meta: Mapping[str, Any] | None = None
    ) -> Trajectory:
        """The conversation as arrays. Its limits are part of the task: one that hits them has ended too."""
        ids = np.array(self.ids, np.int64)
        return Trajectory(
            id=f"g{task.seed}/m{number}",
            task_id=task.id,
            group_id=f"g{task.seed}",
            obs=ids,
            actions=ids,
            mask=np.array(self.mask, bool),
            behavior_logp=np.array(self.logp, np.float32),
            versions=np.array(self.versions, np.int64),
            rewards=np.array(self.rewards, np.float64),
            end=end,
            terminated=True,
            error=error,
            meta=meta or {},
        )


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """How long a conversation may be, how many are held at once, and how long an environment may take over a turn."""

    turns: int = 20
    in_flight: int = 64
    seconds: float | None = 60.0


USUAL = ConversationLimits()
A_MESSAGE = f'Give a list of messages like {{"role": "user", "content": "…"}}; roles are {", ".join(ROLES)}.'


class TurnTooSlow(ContractError):
    """The environment took longer over a turn than it may."""

    code = "timeout"


class Conversations:
    """Holds a group of conversations about every task. The engine runs in its thread while it does."""

    def __init__(
        self, engine: Engine, frame: Frame, make: Callable[[], Environment], params: SamplingParams, *,
        group_size: int, seed: int, limits: ConversationLimits = USUAL, loop: EventLoop | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.frame, self.make, self.params = engine, frame, make, params
        self.group_size, self.seed, self.limits = group_size, seed, limits
        self.loop = loop or EventLoop("conversations")

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.engine.start()
        return self.loop.run(self.hold(tasks))

    async def hold(self, tasks: Sequence[Task]) -> list[Group]:
        """The groups, from inside a running event loop."""
        places = asyncio.Semaphore(self.limits.in_flight)

        async def in_its_place(task: Task, number: int) -> Trajectory:
            async with places:
                return await self.attempt(task, number)

        attempts = await asyncio.gather(
            *(contained(in_its_place(task, number)) for task in tasks for number in range(self.group_size))
        )
        rest = iter(attempts)
        return [Group(f"g{task.seed}", task, tuple(next(rest) for _ in range(self.group_size))) for task in tasks]

    async def attempt(self, task: Task, number: int) -> Trajectory:
        return await Conversation(self, task, number).hold()

    async def say(self, ids: Sequence[int], task: Task, number: int, turn: int, **changes: Any) -> Sampled:
        """The model's next turn after these tokens, sampled with a seed of its own."""
        seeds = [self.seed, task.seed, number, turn]
        seed = int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1))
        session = changes.pop("session", (task.id, number))
        future = self.engine.submit(ids, replace(self.params, **changes), seed, session)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.engine.cancel(future)
            raise

    def close(self) -> None:
        self.loop.close()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A rollout is a function of weights, seed and task numbers: there is nothing to restore."""


class Conversation:
    """One attempt, from its first message to its named end."""

    def __init__(self, setting: Conversations, task: Task, number: int) -> None:
        self.setting, self.task, self.number = setting, task, number
        self.transcript = TokenTranscript()
        self.messages: list[Message] = []
        self.opening = 0
        self.parts: dict[str, float] = {}

    async def hold(self) -> Trajectory:
        end, error = await self._ending()
        meta = {
            "messages": tuple(self.messages),
            "prompt": as_text(self.messages[: self.opening]),
            "text": as_text(self.messages[self.opening :]),
            "parts": self.parts,
            "tokens": token_texts(self.setting.frame.tokenizer, self.transcript.ids),
            "turns": sum(message["role"] == "assistant" for message in self.messages[self.opening :]),
        }
        return self.transcript.attempt(self.task, self.number, end, error, meta)

    async def _ending(self) -> tuple[End, Failure | None]:
        """Hold it, and say how it ended. A fault of the environment is data about this attempt."""
        try:
            environment = self.setting.make()
            try:
                return await self._turns(environment), None
            finally:
                if hasattr(environment, "close"):
                    await environment.close()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return End.ENV_ERROR, failure_of(error)

    async def _turns(self, environment: Environment) -> End:
        setting, transcript = self.setting, self.transcript
        observation = await self._in_time(environment.reset(self.task))
        if not isinstance(observation, Observation):
            raise ContractError(f"reset returned {observation!r:.80}, not an Observation")
        self.messages += checked_messages(observation.messages)
        self.opening = len(self.messages)
        transcript.listen(self._fitting(setting.frame.opening(observation.messages, observation.tools)))
        for turn in range(setting.limits.turns):
            sampled = await setting.say(transcript.ids, self.task, self.number, turn)
            transcript.speak(sampled)
            reply = setting.frame.reply(sampled, turn)
            self.messages.append(reply.as_message())
            transition = await self._in_time(environment.step(reply))
            self._take(transition)
            if transition.end is not None:
                return End(transition.end)
            new = setting.frame.following(transition.messages, setting.frame.ended(sampled))
            if sampled.end == "context" or len(transcript) + len(new) >= setting.engine.max_length:
                return End.TRUNCATED
            if turn + 1 < setting.limits.turns:
                transcript.listen(new)
        return End.TURN_LIMIT

    async def _in_time(self, work: Awaitable[T]) -> T:
        clock = asyncio.timeout(self.setting.limits.seconds)
        try:
            async with clock:
                return await work
        except TimeoutError:
            if not clock.expired():  # it is the environment's own
                raise
            raise TurnTooSlow(
                f"the environment took longer than {self.setting.limits.seconds:g} s over one turn",
                hint="Raise rollout.turn_timeout, or make the environment faster.",
            ) from None

    def _take(self, transition: Transition) -> None:
        if not isinstance(transition, Transition):
            raise ContractError(f"step returned {transition!r:.80}, not a Transition")
        end: Any
        reward: Any
        end, reward = transition.end, transition.reward
        if end is not None and end not in list(End):
            raise ContractError(f"step ended with {end!r:.40}", hint=f"One of End: {', '.join(End)}; None to go on.")
        if isinstance(reward, str):
            raise ContractError(f"step paid the text {reward!r:.40}", hint="A reward is a number.")
        self.messages += checked_messages(transition.messages)
        self.transcript.earn(float(reward))
        for name, value in transition.parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + float(value)

    def _fitting(self, ids: Sequence[int]) -> Sequence[int]:
        limit = self.setting.engine.max_length
        if len(ids) >= limit:
            raise ContractError(
                f"the conversation opens with {len(ids)} tokens, and the model's context is {limit}",
                hint="Shorten the scenario, or choose a model with a longer context.",
            )
        return ids


def checked_messages(messages: Any) -> Sequence[Message]:
    """The messages of an environment, if they are any: a list of tables with a role each."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ContractError(f"the environment's messages are {messages!r:.60}", hint=A_MESSAGE)
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise ContractError(f"a message of the environment is {message!r:.60}", hint=A_MESSAGE)
    return messages


def as_text(messages: Sequence[Message]) -> str:
    """Messages for a reader: one alone is its words, several say who speaks."""
    if len(messages) == 1:
        return str(messages[0].get("content") or "")
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in messages)


def is_cancelled(error: BaseException) -> bool:
    """Whether somebody ends the present task; code that raises the same of its own accord has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def failure_of(error: BaseException) -> Failure:
    if isinstance(error, GroupwiseError):
        return Failure("environment", error.code, error.message, error.hint)
    message = f"it raised {type(error).__name__}: {error}"
    return Failure("environment", "raised", message[:2000], "Call reset and step by hand to see the traceback.")


def conversation_tasks(scenarios: Scenarios, seed: int) -> Callable[[int], Task]:
    """Tasks by number, none of them held out."""

    def make(number: int) -> Task:
        try:
            return Task(f"{scenarios.name}/{number}", scenarios.training(seed, number), number)
        except GroupwiseError:
            raise
        except Exception as error:
            raise ContractError(
                f"training({seed}, {number}) of {scenarios.name!r} raised {type(error).__name__}: {error}",
                hint="It must give a scenario for every number.",
            ) from error

    return make
