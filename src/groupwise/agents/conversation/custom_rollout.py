"""Training attempts made by your own agent code, written against an OpenAI client.

    async def rollout(client, task):
        messages = [{"role": "user", "content": task["question"]}]
        answer = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        …
        return 1.0 if right else 0.0               # or a Score

The client is an object in this process with the same shape as OpenAI's; nothing is sent over a network. A call that
continues an earlier one reuses the exact tokens sampled then. A call whose messages do not begin with those of an
earlier call (a shortened history, a second agent) opens another segment: its own row in training, with the same
advantage.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from groupwise.agents.conversation.completion_client import (
    Completed,
    CompletionClient,
    ContextUsedUp,
    RolloutScenarios,
    TurnsUsedUp,
    message_of,
    plain_message,
)
from groupwise.agents.conversation.rollouts import Conversations, TokenTranscript, is_cancelled, spoken_meta
from groupwise.agents.environments.contract import Scenarios, failure_of
from groupwise.agents.environments.worker_environments import RemoteRollout
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Sampled
from groupwise.rollout.backends import AttemptLost, Place
from groupwise.thoughts import REASONING
from groupwise.training.batch_source import BatchRows, Collate
from groupwise.training.estimators import Attempts, padded
from groupwise.training.token_attempts import rows_of_tokens, token_texts
from groupwise.types import End, Failure, Message, Score, Task, Trajectory

SPEAK = "Await client.chat.completions.create(messages=…), with messages that fit the model's context."


def rollout_for(scenarios: Scenarios, critic: bool = False) -> tuple[type[Conversations], Callable[..., Any], Collate]:
    """Choose who runs conversations about these scenarios, what they call, and how attempts become training rows."""
    if not isinstance(scenarios, RolloutScenarios):
        return Conversations, scenarios.make, rows_of_tokens
    if critic:
        message = "a critic cannot be trained on a rollout function, because one attempt may be several separate texts"
        hint = 'Use an estimator without a critic, such as "outcome".'
        raise ConfigError(message, hint=hint, field="advantage.estimator")
    return CustomRollouts, scenarios.rollout, rows_of_segments


class CustomRollouts(Conversations):
    """Groups of attempts made by a user's rollout function, which is `make`."""

    make: Callable[..., Any]

    async def run(self, make: Callable[..., Any], task: Task, number: int) -> Trajectory:
        return await CustomAttempt(self, make, task, number).run()

    def remote(self, place: Place) -> Callable[..., Any]:
        return RemoteRollout(place, self.limits.seconds)


@dataclass
class TokenSegment:
    """A run of consecutive messages and their tokens; `busy` while the model is answering.

    `tools` are those offered, with the options of the chat template; `thoughts` are by the number of their message.
    """

    number: int
    tools: str
    known: list[Message] = field(default_factory=list)
    thoughts: dict[int, str] = field(default_factory=dict)
    transcript: TokenTranscript = field(default_factory=TokenTranscript)
    ended: bool = False
    busy: bool = False

    @property
    def messages(self) -> list[Message]:
        """The messages, those of the model with its thoughts."""
        thoughts = self.thoughts
        return [{**m, REASONING: thoughts[n]} if thoughts.get(n) else m for n, m in enumerate(self.known)]

    def continues_in(self, messages: Sequence[Message], tools: str) -> bool:
        return (
            not self.busy
            and tools == self.tools
            and len(self.known) < len(messages)
            and list(messages[: len(self.known)]) == self.known
        )


class CustomAttempt:
    """One call of the rollout function, and the client it is given."""

    def __init__(self, setting: CustomRollouts, rollout: Callable[..., Any], task: Task, number: int) -> None:
        self.setting, self.rollout, self.task, self.number = setting, rollout, task, number
        self.segments: list[TokenSegment] = []
        self.turns = 0
        self.clock: asyncio.Timeout | None = None

    async def run(self) -> Trajectory:
        end, error, score = await self._ending()
        spoken = [segment for segment in self.segments if any(segment.transcript.mask)]
        # Without a sampled token there is nothing to learn from.
        if not spoken and error is None:
            end, error = End.ENV_ERROR, Failure("rollout", "contract", f"the model was never called ({end})", SPEAK)
        return self._trajectory(spoken, end, error, score)

    async def _ending(self) -> tuple[End, Failure | None, Score]:
        nothing = Score(0.0)
        try:
            async with asyncio.timeout(self.setting.limits.seconds) as self.clock:
                outcome = await self.rollout(CompletionClient(self), self.task.payload)
            return End.FINISHED, None, _score(outcome)
        except TurnsUsedUp:
            return End.TURN_LIMIT, None, nothing
        except ContextUsedUp:
            return End.TRUNCATED, None, nothing
        except AttemptLost:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return End.ENV_ERROR, self._failure(error), nothing

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, TimeoutError) and self.clock is not None and self.clock.expired():
            message = f"the rollout took longer than {self.setting.limits.seconds:g} s between two calls to the model"
            return Failure("rollout", "timeout", message, "Raise rollout.turn_timeout.")
        failure = failure_of(error)
        return replace(failure, where="rollout", message=failure.message.replace("the environment", "the rollout", 1))

    async def complete(
        self, messages: Sequence[Any], tools: Any, most: int | None, options: Mapping[str, Any]
    ) -> Completed:
        """Return the model's turn after these messages. The timeout is paused while the model answers."""
        if self.turns >= self.setting.limits.turns:
            raise TurnsUsedUp(f"the model was called {self.turns} times, the limit of rollout.max_conversation_turns")
        turn, self.turns = self.turns, self.turns + 1
        segment = self._segment([plain_message(message) for message in messages], tools, options)
        length = len(segment.transcript)
        if length >= self.setting.engine.max_length:
            raise ContextUsedUp(
                f"the messages have {length} tokens; the model's context is {self.setting.engine.max_length}"
            )
        segment.busy = True
        sampled = await self._sampled(segment, turn, most)
        reply = self.setting.frame.reply(sampled, turn, segment.transcript.ids, tools or ())
        segment.transcript.speak(sampled)
        segment.ended, segment.busy = self.setting.frame.ended(sampled), False
        segment.thoughts[len(segment.known)] = reply.reasoning
        segment.known.append(plain_message(message_of(reply)))
        return Completed(reply, sampled.end == "stop", length, len(sampled))

    async def _sampled(self, segment: TokenSegment, turn: int, most: int | None) -> Sampled:
        setting, loop = self.setting, asyncio.get_running_loop()
        if self.clock is not None:
            # The time limit is the agent's; sampling may wait for other conversations.
            self.clock.reschedule(None)
        changes = {"max_new_tokens": min(most, setting.params.max_new_tokens)} if most is not None else {}
        session = (self.task.id, self.number, segment.number)
        sampled = await setting.say(segment.transcript.ids, self.task, self.number, turn, session=session, **changes)
        if self.clock is not None and setting.limits.seconds is not None:
            self.clock.reschedule(loop.time() + setting.limits.seconds)
        return sampled

    def _segment(self, messages: list[Message], tools: Any, options: Mapping[str, Any]) -> TokenSegment:
        """Find the segment that these messages continue and append what is new; otherwise open another segment."""
        frame = self.setting.frame.with_options(options)
        written = json.dumps([tools or [], options], sort_keys=True, default=str)
        fitting = [segment for segment in self.segments if segment.continues_in(messages, written)]
        if fitting:
            # The longest match reuses the most tokens.
            segment = max(fitting, key=lambda segment: len(segment.known))
            known, heard = segment.known, segment.transcript
            heard.listen(frame.following(messages[len(known) :], segment.ended, known[:-1], tools or (), heard.ids))
        else:
            segment = TokenSegment(len(self.segments), written)
            segment.transcript.listen(frame.opening([self._heard(message) for message in messages], tools or ()))
            self.segments.append(segment)
        segment.known = messages
        return segment

    def _heard(self, message: Message) -> Message:
        """Break up special tokens in what the model said in another segment: here they are ordinary text."""
        if message["role"] != "assistant":
            return message
        return {**message, "content": self.setting.frame.defused(message["content"])}

    def _trajectory(self, spoken: Sequence[TokenSegment], end: End, error: Failure | None, score: Score) -> Trajectory:
        whole = TokenTranscript()
        for segment in spoken:
            for name in ("ids", "mask", "logp", "versions", "rewards"):
                getattr(whole, name).extend(getattr(segment.transcript, name))
        if spoken:
            # The reward belongs to the last sampled token of the last segment.
            whole.earn(score.total)
        said = spoken[-1].messages if spoken else []
        first = next((place for place, message in enumerate(said) if message["role"] == "assistant"), len(said))
        meta = {
            **spoken_meta(said, first), "parts": dict(score.parts), "turns": self.turns, "segments": len(spoken),
            "tokens": token_texts(self.setting.frame.tokenizer, whole.ids),
        }  # fmt: skip
        attempt = whole.attempt(self.task, self.number, end, error, meta)
        # `obs` marks each token with the number of its segment; `rows_of_segments` splits the attempt by it.
        numbers = [np.full(len(segment.transcript), segment.number, np.int64) for segment in spoken]
        return replace(attempt, obs=np.concatenate(numbers) if numbers else np.zeros(0, np.int64))


def _score(outcome: Any) -> Score:
    score = outcome if isinstance(outcome, Score) else Score(outcome)
    if isinstance(score.total, bool | int | float | np.number) and np.isfinite(score.total):
        return replace(score, total=float(score.total))
    raise ContractError(f"the rollout returned {outcome!r:.60}", hint="Return a finite number or a Score.")


def rows_of_segments(attempts: Attempts) -> BatchRows:
    """Lay out every segment as its own row [R, W], padded on the right."""
    places = [
        (number, np.flatnonzero(member.obs == segment))
        for number, member in enumerate(attempts.members)
        for segment in np.unique(member.obs)
    ]
    # there, columns: [R, W], which cells of a row are tokens, and their columns in the attempt; row: [R, 1].
    there = padded([np.ones(len(columns), np.bool_) for _, columns in places], np.bool_)
    columns = padded([columns for _, columns in places], np.int64)
    row = torch.tensor([number for number, _ in places])[:, None]

    def pick(table: torch.Tensor) -> torch.Tensor:
        return torch.where(there, table[row, columns], torch.zeros((), dtype=table.dtype))

    ids = pick(padded([member.actions for member in attempts.members], np.int64))
    logp = pick(padded([member.behavior_logp for member in attempts.members], np.float32))
    mask = pick(attempts.mask)
    inputs = {"input_ids": ids, "attention_mask": there.long(), "action_mask": mask}
    return BatchRows(inputs, mask, logp, pick=pick, engine=True)
