"""Groups of conversations: each is an asyncio task, and all share one continuous batch of the engine.

A conversation that waits for its environment, a tool or a user does not hold up the others. Each turn is sampled with
its own seed, so what an attempt says depends only on the weights, its seed and what it is told.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from groupwise.agents.conversation.chat_format import ROLES, Frame
from groupwise.agents.conversation.turn import TemplateShape
from groupwise.agents.environments.contract import Environment, Observation, Scenarios, Transition, failure_of
from groupwise.agents.environments.worker_environments import RemoteEnvironment
from groupwise.agents.memory.run_memory import RunMemory
from groupwise.errors import ContractError, GroupwiseError
from groupwise.event_loop import EventLoop, contained
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.rollout.backends import AttemptLost, Place, RolloutWorkers
from groupwise.thoughts import REASONING
from groupwise.training.token_attempts import token_texts
from groupwise.types import End, Failure, Group, Message, Task, Trajectory


class TokenTranscript:
    """The tokens of a growing conversation, and which of them the model sampled. None is ever re-encoded from text.

    `listen` appends what others said, `speak` what the model sampled. All lists have one entry per token.
    """

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
        # The environment has answered after it, so the last sampled token is not the last token.
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
        """Return the conversation as arrays [T].

        Its limits belong to the task, so a conversation that reaches one has terminated: nothing is bootstrapped.
        """
        group, ids = f"g{task.seed}", np.array(self.ids, np.int64)
        return Trajectory(
            f"{group}/m{number}", task.id, group, obs=ids, actions=ids, mask=np.array(self.mask, bool),
            behavior_logp=np.array(self.logp, np.float32), versions=np.array(self.versions, np.int64),
            rewards=np.array(self.rewards, np.float64), end=end, terminated=True, error=error, meta=meta or {},
        )  # fmt: skip


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """Turns per conversation, conversations at once, and seconds an environment may take per turn."""

    turns: int = 20
    in_flight: int = 64
    seconds: float | None = 60.0


USUAL = ConversationLimits()
A_MESSAGE = f'Give a list of messages like {{"role": "user", "content": "…"}}; roles are {", ".join(ROLES)}.'


class TurnTooSlow(ContractError):
    """The environment exceeded its time limit for one turn."""

    code = "timeout"


class Conversations:
    """Runs a group of conversations for every task, with the engine in its own thread.

    With `workers`, environments are made there and not by `make`.
    """

    independent = True

    def __init__(
        self, engine: TokenEngine, frame: Frame, make: Callable[[], Environment], params: SamplingParams, *,
        group_size: int, seed: int, limits: ConversationLimits = USUAL, loop: EventLoop | None = None,
        memory: RunMemory | None = None, workers: RolloutWorkers | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.frame, self.make, self.params = engine, frame, make, params
        self.group_size, self.seed, self.limits = group_size, seed, limits
        self.loop = loop or EventLoop("conversations")
        self.memory, self.workers = memory, workers

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.engine.start()
        return self.loop.run(self.gather(tasks))

    async def gather(self, tasks: Sequence[Task]) -> list[Group]:
        """Collect the groups from inside a running event loop."""
        # With workers their places are the limit: those who wait for one are the queue that the number follows.
        places = asyncio.Semaphore(self.limits.in_flight) if self.workers is None else nullcontext()

        async def one_attempt(task: Task, number: int) -> Trajectory:
            async with places:
                return await self.attempt(task, number)

        # In the order of tasks and numbers, whatever finishes first.
        attempts = await asyncio.gather(
            *(contained(one_attempt(task, number)) for task in tasks for number in range(self.group_size))
        )
        rest = iter(attempts)
        return [Group(f"g{task.seed}", task, tuple(next(rest) for _ in range(self.group_size))) for task in tasks]

    async def attempt(self, task: Task, number: int) -> Trajectory:
        if self.workers is None:
            return await self.run(self.make, task, number)
        # Again from its beginning, on another worker, if the one that it had is lost.
        return await self.workers.redo(lambda place: self.run(self.remote(place), task, number))

    async def run(self, make: Callable[[], Environment], task: Task, number: int) -> Trajectory:
        return await Conversation(self, make, task, number).run()

    def remote(self, place: Place) -> Callable[..., Any]:
        return lambda: RemoteEnvironment(place, self.limits.seconds)

    async def say(self, ids: Sequence[int], task: Task, number: int, turn: int, **changes: Any) -> Sampled:
        """Sample the model's next turn after these tokens, with a seed of its own."""
        seeds = [self.seed, task.seed, number, turn]
        # The engine takes 63-bit seeds.
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
        """Nothing to restore: a rollout is a function of weights, seed and task numbers."""


class Conversation:
    """One attempt, from its first message to its `End`."""

    def __init__(self, setting: Conversations, make: Callable[[], Environment], task: Task, number: int) -> None:
        self.setting, self.make, self.task, self.number = setting, make, task, number
        self.transcript = TokenTranscript()
        self.messages: list[Message] = []
        self.opening = 0  # how many messages came before the model's first turn
        self.parts: dict[str, float] = {}
        self.kept: dict[str, Any] = {}

    async def run(self) -> Trajectory:
        end, error = await self._ending()
        meta = {
            **self.kept,
            **spoken_meta(self.messages, self.opening),
            "parts": self.parts,
            "tokens": token_texts(self.setting.frame.tokenizer, self.transcript.ids),
            "turns": sum(message["role"] == "assistant" for message in self.messages[self.opening :]),
        }
        return self.transcript.attempt(self.task, self.number, end, error, meta)

    async def _ending(self) -> tuple[End, Failure | None]:
        """Run the conversation and return how it ended. A fault of the environment becomes data of this attempt."""
        try:
            environment = self.make()
            try:
                return await self._turns(environment), None
            finally:
                if hasattr(environment, "for_reward"):
                    self.kept["environment"] = environment.for_reward
                if hasattr(environment, "close"):
                    await environment.close()
        except AttemptLost:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return End.ENV_ERROR, failure_of(error)

    async def _turns(self, environment: Environment) -> End:
        setting, transcript = self.setting, self.transcript
        observation = await self._in_time(environment.reset(self.task))
        if not isinstance(observation, Observation):
            raise ContractError(f"reset returned {observation!r:.80}, not an Observation")
        frame = setting.frame.with_options(observation.chat_template_kwargs)
        self.messages += self._with_memory(checked_messages(observation.messages), frame, observation.tools)
        self.opening = len(self.messages)
        transcript.listen(self._fitting(frame.opening(self.messages, observation.tools)))
        for turn in range(setting.limits.turns):
            sampled = await setting.say(transcript.ids, self.task, self.number, turn)
            reply = frame.reply(sampled, turn, transcript.ids, observation.tools)
            # The sampled ids themselves: decoding and encoding again could change them.
            transcript.speak(sampled)
            before = tuple(self.messages)
            self.messages.append(reply.as_message())
            transition = await self._in_time(environment.step(reply))
            self._take(transition)
            if transition.end is not None:
                return End(transition.end)
            # Without its own end-of-turn token, the template's closing of the turn is part of what follows.
            new = frame.following(transition.messages, frame.ended(sampled), before, observation.tools, transcript.ids)
            if sampled.end == "context" or len(transcript) + len(new) >= setting.engine.max_length:
                return End.TRUNCATED
            if turn + 1 < setting.limits.turns:  # after the last turn nobody answers what was said
                transcript.listen(new)
        return End.TURN_LIMIT

    def _with_memory(
        self, messages: Sequence[Message], frame: Frame, tools: Sequence[Mapping[str, Any]]
    ) -> Sequence[Message]:
        """Add what is remembered about the user in front of their question, where the template allows it."""
        memory = self.setting.memory
        known = memory.note(self.task, messages) if memory is not None else ""
        if not known:
            return messages
        place = next((n for n, m in enumerate(messages) if m["role"] != "system"), len(messages))
        told: Message = {"role": "system", "content": frame.defused(known)}
        return TemplateShape(frame, tools).fit([*messages[:place], told, *messages[place:]], opening=True)

    async def _in_time(self, work: Awaitable[T]) -> T:
        clock = asyncio.timeout(self.setting.limits.seconds)
        try:
            async with clock:
                return await work
        except TimeoutError:
            if not clock.expired():  # the environment's own TimeoutError, not ours
                raise
            message = f"the environment took longer than {self.setting.limits.seconds:g} s for one turn"
            raise TurnTooSlow(message, hint="Raise rollout.turn_timeout, or make the environment faster.") from None

    def _take(self, transition: Transition) -> None:
        if not isinstance(transition, Transition):
            raise ContractError(f"step returned {transition!r:.80}, not a Transition")
        end: Any
        reward: Any
        end, reward = transition.end, transition.reward
        if end is not None and end not in list(End):
            message = f"step ended with {end!r:.40}"
            raise ContractError(message, hint=f"Use one of End ({', '.join(End)}), or None to continue.")
        if isinstance(reward, str):
            raise ContractError(f"step returned the text {reward!r:.40} as reward", hint="A reward is a number.")
        self.messages += checked_messages(transition.messages)
        self.transcript.earn(float(reward))
        for name, value in transition.parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + float(value)

    def _fitting(self, ids: Sequence[int]) -> Sequence[int]:
        limit = self.setting.engine.max_length
        if len(ids) >= limit:
            message = f"the conversation opens with {len(ids)} tokens, but the model's context is {limit}"
            raise ContractError(message, hint="Shorten the scenario, or choose a model with a longer context.")
        return ids


def checked_messages(messages: Any) -> Sequence[Message]:
    """Return the messages of an environment if they are a list of mappings with a known role."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ContractError(f"the environment's messages are {messages!r:.60}", hint=A_MESSAGE)
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise ContractError(f"a message of the environment is {message!r:.60}", hint=A_MESSAGE)
    return messages


def as_text(messages: Sequence[Message]) -> str:
    """Return messages as text for a reader: a single one as its content, several with their roles."""
    if len(messages) == 1:
        return str(messages[0].get("content") or "")
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in messages)


def spoken_meta(messages: Sequence[Message], opening: int) -> dict[str, Any]:
    """Return what a trajectory knows of its words: the messages, and the prompt, thoughts and text for a reader."""
    said = messages[opening:]
    text = as_text(said)
    thoughts = "\n\n".join(thought for message in said if (thought := message.get(REASONING)))
    return {
        "messages": tuple(messages), "prompt": as_text(messages[:opening]),
        "reasoning": thoughts, "content": text, "text": text,
    }  # fmt: skip


def is_cancelled(error: BaseException) -> bool:
    """Return whether the current task is being cancelled. Code that raises CancelledError itself has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def conversation_tasks(scenarios: Scenarios, seed: int) -> Callable[[int], Task]:
    """Return a function from a number to a training task; none of them is held out."""

    def make(number: int) -> Task:
        try:
            return Task(f"{scenarios.name}/{number}", scenarios.training(seed, number), number)
        except GroupwiseError:
            raise
        except Exception as error:
            message = f"training({seed}, {number}) of {scenarios.name!r} raised {type(error).__name__}: {error}"
            raise ContractError(message, hint="It must return a scenario for every number.") from error

    return make
