"""An agent of one's own, written against an OpenAI client, as attempts to learn from.

    async def rollout(client, task):
        messages = [{"role": "user", "content": task["question"]}]
        answer = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        …
        return 1.0 if right else 0.0               # or a Score

The client is an object in this process with the shape of OpenAI's; nothing goes over a wire. What a call adds to an
earlier one goes on behind the very tokens that were sampled then. A call whose messages do not begin with those of an
earlier one (a history that was shortened, a second agent) opens another segment: a row of its own in training, with the
same advantage.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from groupwise.agents.client import Client, message_of, plain_message
from groupwise.agents.conversations import Conversations, as_text, failure_of, is_cancelled
from groupwise.agents.environment import Reply, Scenarios
from groupwise.agents.environments.listed import Listed
from groupwise.agents.transcript import Transcript
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Sampled
from groupwise.language.pieces import pieces
from groupwise.training.estimate import Attempts, padded
from groupwise.training.source import Collate, Rows
from groupwise.training.tokens import rows_of_tokens
from groupwise.types import End, Failure, Message, Score, Task, Trajectory

SPEAK = "Await client.chat.completions.create(messages=…), with messages that fit the model's context."


class RolloutScenarios(Listed[Any]):
    """What an agent of one's own is trained on: the function, and the tasks it is given one by one."""

    def __init__(
        self,
        rollout: Callable[..., Any],
        tasks: Sequence[Any],
        *,
        held_out: Sequence[Any] | None = None,
        name: str = "",
    ) -> None:
        if not inspect.iscoroutinefunction(rollout) or len(inspect.signature(rollout).parameters) != 2:
            raise ContractError(f"{rollout!r:.60} is no rollout", hint="Write async def rollout(client, task).")
        super().__init__(tasks, held_out)
        self.rollout, self.name = rollout, name or rollout.__name__

    def make(self) -> Any:
        raise ContractError("an agent of one's own holds its conversations itself", hint="Use OwnRollouts.")


def who_holds(scenarios: Scenarios, critic: bool = False) -> tuple[type[Conversations], Callable[..., Any], Collate]:
    """How conversations about these scenarios are held, what that needs, and how they are laid out for training."""
    if not isinstance(scenarios, RolloutScenarios):
        return Conversations, scenarios.make, rows_of_tokens
    if critic:
        raise ConfigError(
            "a critic cannot follow an agent of one's own, whose attempts may be several texts",
            hint="Take an estimator without one, as outcome.",
            field="advantage.estimator",
        )
    return OwnRollouts, scenarios.rollout, rows_of_segments


class TurnsUsedUp(ContractError):
    """The agent asked once more than `rollout.max_conversation_turns` allows."""

    code = "turn_limit"


class ContextFull(ContractError):
    """The messages leave no room for an answer in the model's context."""

    code = "context_length_exceeded"


class OwnRollouts(Conversations):
    """Groups of attempts made by a user's own function; `make` is that function."""

    make: Callable[..., Any]

    async def attempt(self, task: Task, number: int) -> Trajectory:
        return await OwnAttempt(self, task, number).hold()


@dataclass
class Segment:
    """Messages that follow one another, and their tokens; `busy` while the model is speaking."""

    number: int
    tools: str
    known: list[Message] = field(default_factory=list)
    transcript: Transcript = field(default_factory=Transcript)
    ended: bool = False
    busy: bool = False

    def goes_on_in(self, messages: Sequence[Message], tools: str) -> bool:
        return (
            not self.busy
            and tools == self.tools
            and len(self.known) < len(messages)
            and list(messages[: len(self.known)]) == self.known
        )


class OwnAttempt:
    """One run of the function, with the client it is given."""

    def __init__(self, setting: OwnRollouts, task: Task, number: int) -> None:
        self.setting, self.task, self.number = setting, task, number
        self.segments: list[Segment] = []
        self.turns = 0
        self.clock: asyncio.Timeout | None = None

    async def hold(self) -> Trajectory:
        end, error, score = await self._ending()
        spoken = [segment for segment in self.segments if any(segment.transcript.mask)]
        if not spoken and error is None:
            end, error = End.ENV_ERROR, Failure("rollout", "contract", f"the model never spoke ({end})", SPEAK)
        return self._trajectory(spoken, end, error, score)

    async def _ending(self) -> tuple[End, Failure | None, Score]:
        nothing = Score(0.0)
        try:
            async with asyncio.timeout(self.setting.limits.seconds) as self.clock:
                outcome = await self.setting.make(Client(self), self.task.payload)
            return End.FINISHED, None, _score(outcome)
        except TurnsUsedUp:
            return End.TURN_LIMIT, None, nothing
        except ContextFull:
            return End.TRUNCATED, None, nothing
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return End.ENV_ERROR, self._failure(error), nothing

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, TimeoutError) and self.clock is not None and self.clock.expired():
            message = f"the rollout took longer than {self.setting.limits.seconds:g} s between two calls of the model"
            return Failure("rollout", "timeout", message, "Raise rollout.turn_timeout.")
        return replace(failure_of(error), where="rollout", hint="Run it by hand to see the traceback.")

    async def complete(self, messages: Sequence[Any], tools: Any, most: int | None) -> tuple[Reply, Sampled, int]:
        """The model's turn after these messages. The clock stands still while it speaks."""
        if self.turns >= self.setting.limits.turns:
            raise TurnsUsedUp(f"the model has spoken {self.turns} times, which is rollout.max_conversation_turns")
        turn, self.turns = self.turns, self.turns + 1
        segment = self._segment([plain_message(message) for message in messages], tools)
        length = len(segment.transcript)
        if length >= self.setting.engine.max_length:
            raise ContextFull(
                f"the messages have {length} tokens; the model's context is {self.setting.engine.max_length}"
            )
        segment.busy = True
        sampled = await self._sampled(segment, turn, most)
        reply = self.setting.frame.reply(sampled, turn)
        segment.transcript.speak(sampled)
        segment.ended, segment.busy = self.setting.frame.ended(sampled), False
        segment.known.append(plain_message(message_of(reply)))
        return reply, sampled, length

    async def _sampled(self, segment: Segment, turn: int, most: int | None) -> Sampled:
        setting, loop = self.setting, asyncio.get_running_loop()
        if self.clock is not None:
            self.clock.reschedule(None)
        changes = {"max_new_tokens": min(most, setting.params.max_new_tokens)} if most is not None else {}
        session = (self.task.id, self.number, segment.number)
        sampled = await setting.say(segment.transcript.ids, self.task, self.number, turn, session=session, **changes)
        if self.clock is not None and setting.limits.seconds is not None:
            self.clock.reschedule(loop.time() + setting.limits.seconds)
        return sampled

    def _segment(self, messages: list[Message], tools: Any) -> Segment:
        """The segment that these messages go on in, with what is new in it read; else another one."""
        frame, written = self.setting.frame, json.dumps(tools or [], sort_keys=True, default=str)
        fitting = [segment for segment in self.segments if segment.goes_on_in(messages, written)]
        if fitting:
            segment = max(fitting, key=lambda segment: len(segment.known))
            segment.transcript.listen(frame.following(messages[len(segment.known) :], segment.ended))
        else:
            segment = Segment(len(self.segments), written)
            segment.transcript.listen(frame.opening([self._heard(message) for message in messages], tools or ()))
            self.segments.append(segment)
        segment.known = messages
        return segment

    def _heard(self, message: Message) -> Message:
        """What the model said elsewhere, as text: special tokens that it wrote are none here."""
        if message["role"] != "assistant":
            return message
        return {**message, "content": self.setting.frame.defused(message["content"])}

    def _trajectory(self, spoken: Sequence[Segment], end: End, error: Failure | None, score: Score) -> Trajectory:
        whole = Transcript()
        for segment in spoken:
            for name in ("ids", "mask", "logp", "versions", "rewards"):
                getattr(whole, name).extend(getattr(segment.transcript, name))
        if spoken:
            whole.earn(score.total)
        said = spoken[-1].known if spoken else []
        first = next((place for place, message in enumerate(said) if message["role"] == "assistant"), len(said))
        meta = {
            "messages": tuple(said), "prompt": as_text(said[:first]), "text": as_text(said[first:]),
            "parts": dict(score.parts), "turns": self.turns, "segments": len(spoken),
            "tokens": pieces(self.setting.frame.tokenizer, whole.ids),
        }  # fmt: skip
        attempt = whole.attempt(self.task, self.number, end, error, meta)
        numbers = [np.full(len(segment.transcript), segment.number, np.int64) for segment in spoken]
        return replace(attempt, obs=np.concatenate(numbers) if numbers else np.zeros(0, np.int64))


def _score(outcome: Any) -> Score:
    score = outcome if isinstance(outcome, Score) else Score(outcome)
    if isinstance(score.total, bool | int | float | np.number) and np.isfinite(score.total):
        return replace(score, total=float(score.total))
    raise ContractError(f"the rollout returned {outcome!r:.60}", hint="Return a finite number or a Score.")


def rows_of_segments(attempts: Attempts) -> Rows:
    """Every segment its own row [R, W], padded behind. `obs` of an attempt says to which segment a token belongs."""
    places = [
        (number, np.flatnonzero(member.obs == segment))
        for number, member in enumerate(attempts.members)
        for segment in np.unique(member.obs)
    ]
    there = padded([np.ones(len(columns), np.bool_) for _, columns in places], np.bool_)
    columns = padded([columns for _, columns in places], np.int64)
    row = torch.tensor([number for number, _ in places])[:, None]

    def pick(table: torch.Tensor) -> torch.Tensor:
        return torch.where(there, table[row, columns], torch.zeros((), dtype=table.dtype))

    ids = pick(padded([member.actions for member in attempts.members], np.int64))
    logp = pick(padded([member.behavior_logp for member in attempts.members], np.float32))
    mask = pick(attempts.mask)
    return Rows({"input_ids": ids, "attention_mask": there.long(), "action_mask": mask}, mask, logp, pick=pick)
