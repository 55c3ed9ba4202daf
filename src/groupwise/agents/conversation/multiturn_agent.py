"""Agents: a language model that answers one prompt, or holds many conversations at once over one engine.

    agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
    await agent.initialize()
    context = await agent.start_conversation(user_id="user123")
    response = await agent.generate_multiturn_response(context.conversation_id, "Hello!", strategy="customer_service")

Every turn is written to a store before and after it is answered (`agents.store`), led by a strategy
(`agents.strategies`), and compressed when the model's context is nearly full (`agents.compression`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from groupwise.agents.agent import Agent
from groupwise.agents.conversation.compression import ContextFull, Summarise, compress, shorten
from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.agents.conversation.store import ConversationBusy, ConversationContext, ConversationStore
from groupwise.agents.conversation.turn import (
    EXAMPLES,
    GUIDANCE,
    Response,
    TemplateShape,
    Turn,
    as_example,
    current,
    is_note,
    note,
    plain,
    unanswered_calls,
)
from groupwise.agents.settings import AgentConfig
from groupwise.agents.strategies import find_strategy, report, restore
from groupwise.agents.tools.toolbox import Toolbox
from groupwise.errors import ContractError
from groupwise.language.loading import LanguageModel
from groupwise.types import Message

LARGEST_MESSAGE = 256 * 1024  # bytes of a user's message
LARGEST_SEED = 2**62  # what a store can keep, and room to count on
EXAMPLES_SHOWN = 2
SUM_UP = "Sum up the conversation below in a few plain sentences. Keep names, numbers, wishes and what was promised."


class BadMessage(ContractError):
    """A message that is empty or too large. Nothing of it is kept."""

    code = "bad_message"


class ConversationOver(ContractError):
    """The conversation has had all its turns."""

    code = "conversation_over"


class MultiTurnAgent(Agent):
    """Holds conversations, many at once: each waits for its own answer, all of them share the engine's batch.

    Args:
      model_config: an `AgentConfig`, its fields in a mapping, or the name of a model.
      max_conversation_turns: how often a user may speak in one conversation; None for no limit.
      dialogue_database: dialogues of which the nearest are shown to the model as examples.
      tools: functions, `Tool`s or a `Toolbox` that the model may call.
      store: where conversations are kept: a `ConversationStore`, the path of its file, or None for this process only.
      strategy: how conversations are led unless they say otherwise.
      language: a model that is loaded already.
      slots: answers that are made at once; more wait.
      summarise: how earlier turns are told when the context is nearly full: "extract" picks sentences, "model" asks the
        model itself, or an async function of messages and a number of tokens.
      max_rounds: how often in a row the model may call tools before it answers.
    """

    def __init__(
        self,
        model_config: AgentConfig | Mapping[str, Any] | str,
        max_conversation_turns: int | None = 20,
        dialogue_database: DialogueDatabase | str | Path | None = None,
        tools: Toolbox | Iterable[Any] = (),
        store: ConversationStore | str | Path | None = None,
        strategy: str | None = None,
        *,
        language: LanguageModel | None = None,
        slots: int = 32,
        summarise: Summarise | Literal["extract", "model"] = "extract",
        max_rounds: int = 8,
    ) -> None:
        super().__init__(model_config, language=language, slots=slots)
        if max_conversation_turns is not None and max_conversation_turns < 1:
            raise ContractError(f"max_conversation_turns = {max_conversation_turns} must be at least 1, or None")
        if max_rounds < 1:
            raise ContractError(f"max_rounds = {max_rounds} must be at least 1")
        if strategy is not None:
            find_strategy(strategy)
        self.max_conversation_turns, self.max_rounds, self.strategy = max_conversation_turns, max_rounds, strategy
        if isinstance(dialogue_database, str | Path):
            dialogue_database = DialogueDatabase(dialogue_database)
        self.dialogues = dialogue_database
        self.toolbox = as_toolbox(tools)
        self.store = store if isinstance(store, ConversationStore) else ConversationStore(store or ":memory:")
        self._summarise = self._summariser(summarise)
        self._at_work: set[str] = set()

    def use(self, language: LanguageModel) -> None:
        super().use(language)
        if self.toolbox is not None:
            self.frame.call_format()
        self._shape = TemplateShape(self.frame, self._schemas)
        known = [sorted(self.tokenizer.get_vocab().items()), str(self.tokenizer.chat_template), list(self._schemas)]
        self.frame_mark = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:16]

    async def start_conversation(
        self, user_id: str, *, strategy: str | None = None, conversation_id: str | None = None, seed: int | None = None
    ) -> ConversationContext:
        """Begin a conversation. Without a `seed` it is sampled by one of its own, from its id."""
        chosen = strategy or self.strategy
        name = uuid.uuid4().hex if conversation_id is None else conversation_id
        for what, value in (("user_id", user_id), ("conversation_id", name)):
            if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
                raise ContractError(f"{what} is {value!r:.60}: it must be a line of 1 to 200 characters")
        if seed is not None and (not isinstance(seed, int) or abs(seed) >= LARGEST_SEED):
            raise ContractError(f"seed is {seed!r:.60}: it must be a whole number below {LARGEST_SEED:,} in size")
        system = self.config.system_prompt
        own = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]) if seed is None else seed
        context = ConversationContext(
            name,
            user_id,
            strategy=chosen,
            state=report(find_strategy(chosen)()) if chosen else {},
            messages=(self.frame.plain({"role": "system", "content": system}),) if system else (),
            seed=own,
        )
        return await asyncio.to_thread(self.store.create, context)

    async def context(self, conversation_id: str) -> ConversationContext:
        """The conversation as it stands."""
        return await asyncio.to_thread(self.store.load, conversation_id)

    async def generate_multiturn_response(
        self, conversation_id: str, user_message: str, strategy: str | None = None
    ) -> Response:
        """The answer to what a user says. A `strategy` other than the conversation's leads it from here on.

        Cancelling whoever waits ends the answer where it is; that much of it stays in the conversation.
        """
        async with self.stream_multiturn_response(conversation_id, user_message, strategy) as turn:
            async for _ in turn:
                pass
        return turn.response

    def stream_multiturn_response(self, conversation_id: str, user_message: str, strategy: str | None = None) -> Turn:
        """The answer as it is made:

        async with agent.stream_multiturn_response(conversation_id, "Hello!") as turn:
            async for piece in turn:
                print(piece, end="")
        print(turn.response.metadata)
        """
        return Turn(self, conversation_id, user_message, strategy)

    async def summarise(self, messages: Sequence[Message], room: int) -> str:
        """The model's own summary of some messages, in at most `room` tokens."""
        params = replace(
            self.config.sampling_params(), temperature=0.0, max_new_tokens=max(1, min(room, self._reserve))
        )
        text = "\n".join(f"{m['role']}: {m.get('content') or ''}" for m in messages)

        def asked(limit: int) -> list[int]:
            shown = [{"role": "system", "content": SUM_UP}, {"role": "user", "content": shorten(text, limit)}]
            return self.frame.opening(self._shape.fit(shown, opening=True))

        limit = len(text)
        while len(ids := asked(limit)) > self._limit and limit > 1:
            limit = limit * min(self._limit, len(ids) - 1) // len(ids)
        return self.frame.defused(await self._say(ids, params, 0))

    def _summariser(self, wanted: Summarise | str) -> Summarise | None:
        if not isinstance(wanted, str):
            return wanted
        if wanted not in ("extract", "model"):
            raise ContractError(f"summarise = {wanted!r} must be 'extract', 'model' or an async function")
        return self.summarise if wanted == "model" else None

    @property
    def _schemas(self) -> Sequence[Mapping[str, Any]]:
        return self.toolbox.schemas if self.toolbox else ()

    @property
    def _reserve(self) -> int:
        """Tokens kept free for an answer: as many as it may have, or a quarter of the context."""
        return min(self.config.max_new_tokens, self.engine.max_length // 4)

    @property
    def _limit(self) -> int:
        return self.engine.max_length - self._reserve

    @contextmanager
    def working_on(self, conversation_id: str) -> Iterator[None]:
        if conversation_id in self._at_work:
            raise ConversationBusy(
                f"conversation {conversation_id!r} is being answered at this moment",
                hint="Wait for that answer, or close it; this message was not taken.",
            )
        self._at_work.add(conversation_id)
        try:
            yield
        finally:
            self._at_work.discard(conversation_id)

    async def take(self, context: ConversationContext, text: str, strategy: str | None) -> ConversationContext:
        """The conversation with what the user says now, and what the model is told about it."""
        message = self._checked(text)
        if context.unanswered[-1:] == (message,):  # sent again after the process ended in the midst of the answer
            return context
        self._insist_on_a_turn_left(context)
        chosen = strategy or context.strategy
        state, notes = context.state, list(unanswered_calls(context.messages))
        if chosen:
            kind = find_strategy(chosen)
            before = restore(chosen, context.state) if chosen == context.strategy else kind()
            moved = before.advance(message)
            state = report(moved)
            notes += self._guidance(context, self.frame.defused(moved.guidance()))
        notes += await self._examples(context, text)
        return replace(context, strategy=chosen, state=state, messages=(*context.messages, *notes, message))

    def _checked(self, text: str) -> Message:
        if not isinstance(text, str) or not text.strip():
            raise BadMessage(
                f"the message is {'empty' if isinstance(text, str) else f'a {type(text).__name__}, not text'}",
                hint=f"Send between 1 character and {LARGEST_MESSAGE:,} bytes.",
            )
        size = len(text.encode("utf8", "replace"))
        if size > LARGEST_MESSAGE:
            raise BadMessage(
                f"the message has {size:,} bytes, and {LARGEST_MESSAGE:,} are taken",
                hint="Send a shorter one, or give the text to a tool that reads it.",
            )
        return self.frame.plain({"role": "user", "content": text})

    def _insist_on_a_turn_left(self, context: ConversationContext) -> None:
        most = self.max_conversation_turns
        if most is not None and context.turns >= most:
            raise ConversationOver(
                f"conversation {context.conversation_id!r} has had its {most} turns",
                hint="Start another, or raise max_conversation_turns.",
            )

    def _guidance(self, context: ConversationContext, guidance: str) -> list[Message]:
        """What the strategy asks of the model, unless that was the last it asked."""
        known = next((m["content"] for m in reversed(context.messages) if is_note(m, GUIDANCE)), "")
        return [note(GUIDANCE, guidance)] if guidance and guidance != known else []

    async def _examples(self, context: ConversationContext, text: str) -> list[Message]:
        """Dialogues near to what was said, those not shown yet, as far as they take up no more than an eighth."""
        if self.dialogues is None:
            return []
        shown = {number for m in context.messages if is_note(m, EXAMPLES) for number in m["dialogues"]}
        found = await asyncio.to_thread(self.dialogues.search, text, EXAMPLES_SHOWN + len(shown))
        texts: dict[int, str] = {}
        for dialogue in [d for d in found if d.id not in shown][:EXAMPLES_SHOWN]:
            more = {**texts, dialogue.id: self.frame.defused(as_example(dialogue.messages))}
            if self._count([_example_note(more)]) <= self._limit // 8:
                texts = more
        return [_example_note(texts)] if texts else []

    async def prompt(self, context: ConversationContext) -> tuple[list[int], bool]:
        """The tokens up to the model's turn, and whether earlier turns had to be compressed."""
        carried = context.ids if context.frame == self.frame_mark else ()
        if carried:
            unheard = [plain(message, self.frame.defused) for message in context.unanswered]
            new = self._shape.fit(unheard, opening=False)
            ids = [*carried, *self.frame.following(new, context.ended)]
        else:
            ids = self._opening_ids(self._current(context))
        if len(ids) <= self._limit:
            return ids, False
        return self._opening_ids(await self._compressed(context)), True

    async def _compressed(self, context: ConversationContext) -> tuple[Message, ...]:
        """The conversation in three fifths of the room, so that it is not done again every turn; in all of it where
        the newest question alone needs that."""
        messages = self._current(context)
        newest = max(n for n, message in enumerate(messages) if message["role"] == "user")
        least = self._count(
            [m for m in messages[:newest] if m["role"] == "system" and "name" not in m] + [messages[newest]]
        )
        if least > self._limit:
            raise ContextFull(
                f"the conversation would have {least} tokens with this message alone, and the model takes "
                f"{self.engine.max_length} with its answer",
                hint="Send a shorter message.",
            )
        budget = self._limit * 3 // 5
        return await compress(
            messages, self._limit if least > budget else budget, self._count, summarise=self._summarise
        )  # fmt: skip

    def _current(self, context: ConversationContext) -> list[Message]:
        return current(context.messages, self.frame.defused)

    def _count(self, messages: Sequence[Message]) -> int:
        return len(self._opening_ids(messages))

    def _opening_ids(self, messages: Sequence[Message]) -> list[int]:
        return self.frame.opening(self._shape.fit(messages, opening=True), self._schemas)


def _example_note(texts: Mapping[int, str]) -> Message:
    body = "\n\n".join(f"Example:\n{text}" for text in texts.values())
    return note(EXAMPLES, f"Dialogues like this one, to learn from:\n\n{body}", dialogues=list(texts))


def as_toolbox(tools: Toolbox | Iterable[Any]) -> Toolbox | None:
    """Tools as an agent runs them; None where there are none."""
    if isinstance(tools, Toolbox):
        return tools
    given = list(tools)
    return Toolbox(given) if given else None
