"""`MultiTurnAgent`: a language model that holds many conversations at once over one engine.

    agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
    await agent.initialize()
    context = await agent.start_conversation(user_id="user123")
    response = await agent.generate_multiturn_response(context.conversation_id, "Hello!", strategy="customer_service")

Every turn is stored before and after it is answered (`store`), guided by a strategy (`agents/strategies`), and
compressed when the model's context is nearly full (`compression`). With a memory, the agent keeps what users tell it
about themselves (`agents/memory`). `turn` runs one turn.
"""

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from groupwise.agents.agent import Agent
from groupwise.agents.conversation import turn as turns
from groupwise.agents.conversation.compression import ContextFull, Summarise, compress
from groupwise.agents.conversation.dialogues import DialogueDatabase, sentence_embedder
from groupwise.agents.conversation.extraction import shorten
from groupwise.agents.conversation.recall_tool import recall_tool
from groupwise.agents.conversation.store import ConversationBusy, ConversationContext, ConversationStore
from groupwise.agents.conversation.turn import (
    EXAMPLES,
    GUIDANCE,
    MEMORY,
    Prompt,
    Response,
    TemplateShape,
    Turn,
    is_note,
    note,
)
from groupwise.agents.memory.facts import Fact, facts_in_lines, forget_request, read_facts
from groupwise.agents.memory.redaction import redacted, without
from groupwise.agents.memory.run_memory import as_note
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.agents.settings import AgentConfig
from groupwise.agents.strategies import find_strategy, report, restore
from groupwise.agents.tools.toolbox import Toolbox
from groupwise.errors import ConfigError, ContractError
from groupwise.language.loading import LanguageModel
from groupwise.types import Message

logger = logging.getLogger(__name__)

ExtractFacts: TypeAlias = Callable[[str], Awaitable[Sequence[Fact]]]
"""A user's message → the facts in it."""

LARGEST_MESSAGE = 256 * 1024  # bytes of a user's message
LARGEST_SEED = 2**62  # SQLite's integers have 63 bits; answer n is sampled with seed + n
EXAMPLES_SHOWN = 2
FRESH = 10  # messages back within which a fact need not be shown again
LIST_FACTS = (
    "List what the user says about themselves in the message below, one fact per line as `subject: value`. "
    "Write `none` if there is nothing."
)
SUM_UP = "Sum up the conversation below in a few plain sentences. Keep names, numbers, wishes and what was promised."


class BadMessage(ContractError):
    """A message is empty or too large; nothing of it is stored."""

    code = "bad_message"


class ConversationOver(ContractError):
    """The conversation has used up its turns."""

    code = "conversation_over"


class MultiTurnAgent(Agent):
    """Holds many conversations at once: each awaits its own answer, and all share the engine's batch.

    Args:
      model_config: an `AgentConfig`, its fields in a mapping, or the name of a model.
      max_conversation_turns: how often a user may speak in one conversation; None for no limit.
      dialogue_database: dialogues; those nearest to a question are shown to the model as examples.
      tools: functions, `Tool`s or a `Toolbox` that the model may call.
      store: where conversations are kept: a `ConversationStore`, the path of its file, or None to keep them in memory.
      strategy: how conversations are conducted unless they name another strategy.
      language: a model that is already loaded.
      slots: answers generated at once; more have to wait.
      summarise: how earlier turns are shortened when the context is nearly full: "extract" picks sentences, "model"
        asks the model itself, or pass an async function of messages and a number of tokens.
      max_rounds: how often in a row the model may call tools before it answers.
      memory: what users tell about themselves: a `UserMemory` or the path of its file; None takes the
        settings'.
      extract: how facts are found in what users say: "rules", "model" for the model's own list beside the rules, or an
        async function of a text that returns facts.
      recall: whether the model may look up what compression left out, if its chat template knows tools.
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
        memory: UserMemory | str | Path | None = None,
        extract: ExtractFacts | Literal["rules", "model"] = "rules",
        recall: bool = True,
    ) -> None:
        super().__init__(model_config, language=language, slots=slots)
        if max_conversation_turns is not None and max_conversation_turns < 1:
            raise ContractError(f"max_conversation_turns = {max_conversation_turns} must be at least 1, or None")
        if max_rounds < 1:
            raise ContractError(f"max_rounds = {max_rounds} must be at least 1")
        if strategy is not None:
            find_strategy(strategy)
        self.max_conversation_turns, self.max_rounds, self.strategy = max_conversation_turns, max_rounds, strategy
        embed = sentence_embedder(self.config.embedding) if self.config.embedding else None
        if isinstance(dialogue_database, str | Path):
            dialogue_database = DialogueDatabase(dialogue_database, embed=embed)
        self.dialogues = dialogue_database
        self.toolbox = as_toolbox(tools)
        self.store = store if isinstance(store, ConversationStore) else ConversationStore(store or ":memory:")
        self._summarise = self._summariser(summarise)
        if isinstance(extract, str) and extract not in ("rules", "model"):
            raise ContractError(f"extract = {extract!r} must be 'rules', 'model' or an async function")
        self._extract = extract if not isinstance(extract, str) else self.list_facts if extract == "model" else None
        memory = self.config.memory if memory is None else memory
        self.memory = UserMemory(memory, embed=embed) if isinstance(memory, str | Path) else memory
        self.recall = recall
        self._at_work: set[str] = set()

    def use(self, language: LanguageModel) -> None:
        super().use(language)
        if self.toolbox is not None:
            self.frame.call_format()
        self._shape = TemplateShape(self.frame, self._schemas)
        # Stored tokens are valid only for this vocabulary, template with its options, and set of tools.
        words, template = sorted(self.tokenizer.get_vocab().items()), str(self.tokenizer.chat_template)
        known: list[Any] = [words, template]
        known += [self.frame.template.options] if self.frame.template.options else []

        def mark(schemas: Sequence[Mapping[str, Any]]) -> str:
            return hashlib.sha256(
                json.dumps([*known[:2], list(schemas), *known[2:]], default=str).encode()
            ).hexdigest()[:16]

        # Compressed conversations have one more tool, so their tokens are told apart.
        self.frame_mark, self.recall_mark = mark(self._schemas), ""
        if self._can_recall():
            self.recall_mark = mark(self._recall_schemas)

    async def start_conversation(
        self, user_id: str, *, strategy: str | None = None, conversation_id: str | None = None, seed: int | None = None
    ) -> ConversationContext:
        """Begin a conversation. Without a `seed`, one is derived from the conversation's id."""
        await self.initialize()
        chosen = strategy or self.strategy
        name = uuid.uuid4().hex if conversation_id is None else conversation_id
        for what, value in (("user_id", user_id), ("conversation_id", name)):
            if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
                raise ContractError(f"{what} is {value!r:.60}: it must be 1 to 200 printable characters on one line")
        if seed is not None and (not isinstance(seed, int) or abs(seed) >= LARGEST_SEED):
            raise ContractError(f"seed is {seed!r:.60}: it must be a whole number between ±{LARGEST_SEED:,}")
        system = self.config.system_prompt
        # 56 bits, well below LARGEST_SEED.
        own = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]) if seed is None else seed
        state = report(find_strategy(chosen)()) if chosen else {}
        opening = (self.frame.plain({"role": "system", "content": system}),) if system else ()
        context = ConversationContext(name, user_id, chosen, state, opening, own)
        return await asyncio.to_thread(self.store.create, context)

    async def context(self, conversation_id: str) -> ConversationContext:
        """Return the conversation in its current state."""
        return await asyncio.to_thread(self.store.load, conversation_id)

    async def generate_multiturn_response(
        self, conversation_id: str, user_message: str, strategy: str | None = None
    ) -> Response:
        """Return the answer to a user's message. A `strategy` replaces the conversation's from here on.

        Cancelling the awaiting task stops the answer; what was said so far stays in the conversation.
        """
        async with self.stream_multiturn_response(conversation_id, user_message, strategy) as turn:
            async for _ in turn:
                pass
        return turn.response

    def stream_multiturn_response(self, conversation_id: str, user_message: str, strategy: str | None = None) -> Turn:
        """Return a turn that yields the answer while it is generated:

        async with agent.stream_multiturn_response(conversation_id, "Hello!") as turn:
            async for piece in turn:
                print(piece, end="")
        print(turn.response.metadata)
        """
        return Turn(self, conversation_id, user_message, strategy)

    async def forget(self, user_id: str) -> int:
        """Erase everything about a user: what is remembered, their conversations and their dialogues.

        Returns how many facts, conversations and dialogues there were. An answer under way ends with an error.
        """
        gone = len(await asyncio.to_thread(self.memory.forget, user_id)) if self.memory is not None else 0
        for conversation in await asyncio.to_thread(self.store.of_user, user_id):
            gone += await asyncio.to_thread(self.store.delete, conversation)
        return gone + (await asyncio.to_thread(self.dialogues.forget, user_id) if self.dialogues is not None else 0)

    async def list_facts(self, text: str) -> list[Fact]:
        """Return the facts that the model finds in a user's message; only what the message itself says counts."""
        params = replace(self.config.sampling_params(), temperature=0.0, max_new_tokens=max(1, self._reserve))
        shown = [{"role": "system", "content": LIST_FACTS}, {"role": "user", "content": shorten(text, 4000)}]
        ids = self.frame.opening(self._shape.fit(shown, opening=True))
        return facts_in_lines(await self._say(ids, params, 0), text) if len(ids) < self.engine.max_length else []

    async def summarise(self, messages: Sequence[Message], room: int) -> str:
        """Return the model's own summary of some messages, in at most `room` tokens."""
        most = max(1, min(room, self._reserve))
        params = replace(self.config.sampling_params(), temperature=0.0, max_new_tokens=most)
        text = "\n".join(f"{m['role']}: {m.get('content') or ''}" for m in messages)

        def asked(limit: int) -> list[int]:
            shown = [{"role": "system", "content": SUM_UP}, {"role": "user", "content": shorten(text, limit)}]
            return self.frame.opening(self._shape.fit(shown, opening=True))

        limit = len(text)
        # Shrink in proportion to the excess, at least by one token each time.
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
    def _recall_schemas(self) -> Sequence[Mapping[str, Any]]:
        return (*self._schemas, recall_tool().schema)

    def _can_recall(self) -> bool:
        """Whether the model can be offered the tool: its template writes calls, and the tool leaves enough room."""
        if not self.recall or (self.toolbox is not None and "recall" in self.toolbox.tools):
            return False
        asked = [{"role": "user", "content": "u"}]
        try:
            self.frame.call_format()
            cost = len(self.frame.opening(asked, self._recall_schemas)) - len(self.frame.opening(asked, self._schemas))
        except ConfigError:
            return False
        return cost <= self._limit // 8

    def tools(self, context: ConversationContext, mark: str) -> Toolbox | None:
        """Return the tools for a conversation: the agent's, and `recall` if its prompt offers that."""
        if not self.recall_mark or mark != self.recall_mark:
            return self.toolbox
        memory, user = self.memory, context.user_id

        def known(query: str) -> list[str]:
            return [one.text for one in memory.recall(user, query)] if memory is not None else []

        looking_up = recall_tool(context.messages, known)
        return self.toolbox.with_tool(looking_up) if self.toolbox else Toolbox([looking_up])

    @property
    def _reserve(self) -> int:
        """Tokens kept free for an answer: its maximum length, but at most a quarter of the context."""
        return min(self.config.max_new_tokens, self.engine.max_length // 4)

    @property
    def _limit(self) -> int:
        return self.engine.max_length - self._reserve

    @contextmanager
    def working_on(self, conversation_id: str) -> Iterator[None]:
        if conversation_id in self._at_work:
            message = f"conversation {conversation_id!r} is already being answered, so this message was not stored"
            raise ConversationBusy(message, hint="Wait for that answer or stop it, then send the message again.")
        self._at_work.add(conversation_id)
        try:
            yield
        finally:
            self._at_work.discard(conversation_id)

    async def take(self, context: ConversationContext, text: str, strategy: str | None) -> ConversationContext:
        """Add the user's message to the conversation, and the notes the model gets with it."""
        await self.initialize()
        message = self._checked(text)
        if context.unanswered[-1:] == (message,):  # sent again after the process died while answering
            return context
        most = self.max_conversation_turns
        if most is not None and context.turns >= most:
            used = f"conversation {context.conversation_id!r} has used up its {most} turns"
            raise ConversationOver(used, hint="Start another conversation, or raise max_conversation_turns.")
        context, message, forgotten = await self._forget_as_asked(context, message)
        chosen = strategy or context.strategy
        state, notes = context.state, list(turns.unanswered_calls(context.messages))
        if chosen:
            kind = find_strategy(chosen)
            # A new strategy starts from its initial state.
            before = restore(chosen, context.state) if chosen == context.strategy else kind()
            moved = before.advance(message)
            state, guidance = report(moved), self.frame.defused(moved.guidance())
            # Not again if they are the same as last time.
            known = next((m["content"] for m in reversed(context.messages) if is_note(m, GUIDANCE)), "")
            notes += [note(GUIDANCE, guidance)] if guidance and guidance != known else []
        notes += forgotten or await self._remembered(context, text)
        notes += await self._examples(context, text)
        return replace(context, strategy=chosen, state=state, messages=(*context.messages, *notes, message))

    def _checked(self, text: str) -> Message:
        if not isinstance(text, str) or not text.strip():
            message = f"the message is {'empty' if isinstance(text, str) else f'a {type(text).__name__}, not text'}"
            raise BadMessage(message, hint=f"Send between 1 character and {LARGEST_MESSAGE:,} bytes.")
        size = len(text.encode("utf8", "replace"))
        if size > LARGEST_MESSAGE:
            message = f"the message has {size:,} bytes; the limit is {LARGEST_MESSAGE:,}"
            raise BadMessage(message, hint="Send a shorter message, or let a tool read the text.")
        return self.frame.plain({"role": "user", "content": text})

    async def remember(self, context: ConversationContext, text: str) -> None:
        # Sentences that ask to forget something are no facts.
        if self.memory is None:
            return
        facts = read_facts(text, await asyncio.to_thread(self.memory.facts, context.user_id))
        if self._extract is not None and forget_request(text) is None:
            try:
                facts += await self._extract(text)
            except Exception as error:  # a failing model must not end the conversation
                logger.warning("no facts could be extracted (%s: %s)", type(error).__name__, error)
        await asyncio.to_thread(self.memory.learn, context.user_id, facts)

    async def _forget_as_asked(
        self, context: ConversationContext, message: Message
    ) -> tuple[ConversationContext, Message, list[Message]]:
        """Erase what a message asks to forget from the memory and from this conversation.

        Returns the conversation and the message without it, and a note that tells the model.
        """
        request = forget_request(str(message["content"])) if self.memory is not None else None
        if self.memory is None or request is None:
            return context, message, []
        gone = await asyncio.to_thread(self.memory.forget_as_asked, context.user_id, request)
        if not gone and not request.everything:
            return context, message, []
        kept = [redacted(m, gone) for m in context.messages if not is_note(m, MEMORY)]
        state = without(context.state, gone)
        if request.everything:
            kept = [m for m in kept if m["role"] == "system" and "name" not in m]
            state = report(find_strategy(context.strategy)()) if context.strategy else {}
        heard = max((n + 1 for n, m in enumerate(kept) if m["role"] == "assistant"), default=0)
        # Without ids, the model reads the conversation again as it is now.
        changed = replace(context, messages=tuple(kept), state=state, ids=(), heard=heard)
        context = await asyncio.to_thread(self.store.rewrite, changed)
        what = (
            "everything about them" if request.everything else ", ".join(dict.fromkeys(fact.subject for fact in gone))
        )
        told = f"The user asked you to forget this, and it has been erased: {what}. Confirm it in one sentence."
        return context, redacted(message, gone), [note(MEMORY, self.frame.defused(told))]

    async def _remembered(self, context: ConversationContext, text: str) -> list[Message]:
        """Return what the user said before that bears on the message, in at most an eighth of the context."""
        if self.memory is None:
            return []
        found = await asyncio.to_thread(self.memory.recall, context.user_id, text)
        recent = "\n".join(str(message.get("content") or "") for message in context.messages[-FRESH:])
        lines = [self.frame.defused(one.text) for one in found if one.text not in recent]
        while lines and self._count([memory_note(lines)]) > self._limit // 8:
            lines.pop()
        return [memory_note(lines)] if lines else []

    async def _examples(self, context: ConversationContext, text: str) -> list[Message]:
        """Return dialogues near to the message that were not shown yet, in at most an eighth of the context."""
        if self.dialogues is None:
            return []
        shown = {number for m in context.messages if is_note(m, EXAMPLES) for number in m["dialogues"]}
        # Enough results that EXAMPLES_SHOWN remain when those already shown are skipped.
        wanted = EXAMPLES_SHOWN + len(shown)
        found = await asyncio.to_thread(self.dialogues.search, text, wanted, context.user_id)
        texts: dict[int, str] = {}
        for dialogue in [d for d in found if d.id not in shown][:EXAMPLES_SHOWN]:
            more = {**texts, dialogue.id: self.frame.defused(turns.as_example(dialogue.messages))}
            # A long dialogue is skipped, and a shorter one may still fit.
            if self._count([_example_note(more)]) <= self._limit // 8:
                texts = more
        return [_example_note(texts)] if texts else []

    async def prompt(self, context: ConversationContext) -> Prompt:
        """Return the tokens up to the model's turn; if they are too many, those of the compressed conversation."""
        # Tokens are only reused if tokenizer, template and tools are still the same.
        carried = context.ids if context.frame in (self.frame_mark, self.recall_mark) else ()
        if carried:
            unheard = [turns.plain(message, self.frame.defused) for message in context.unanswered]
            new = self._shape.fit(unheard, opening=False)
            ids = [*carried, *self.frame.following(new, context.ended, after=carried)]
        else:
            ids = self._opening_ids(turns.current(context.messages, self.frame.defused))
        if len(ids) <= self._limit:
            return Prompt(ids, False, context.frame if carried else self.frame_mark)
        messages = turns.current(context.messages, self.frame.defused)
        # The tool must not push out what is said: where there is little room, it is not offered.
        looking_up = bool(self.recall_mark) and self._least(messages, looking_up=True) <= self._limit * 3 // 5
        shown = await self._compressed(messages, looking_up)
        mark = self.recall_mark if looking_up else self.frame_mark
        return Prompt(self._opening_ids(shown, looking_up=looking_up), True, mark)

    async def _compressed(self, messages: Sequence[Message], looking_up: bool) -> tuple[Message, ...]:
        """Compress the conversation to 3/5 of the room, so that it need not be done again at once every turn.

        Where the newest question would be cut for that, all of the room is used.
        """
        least, most = self._least(messages, looking_up=looking_up), self.engine.max_length
        if least > self._limit:
            room = f"the model's context is {most} tokens including the answer"
            raise ContextFull(f"this message alone needs {least} tokens, but {room}", hint="Send a shorter message.")
        newest = _newest(messages)

        def count(some: Sequence[Message]) -> int:
            return self._count(some, looking_up=looking_up)

        for budget in (self._limit * 3 // 5, self._limit):
            with suppress(ContextFull):
                made = await compress(messages, budget, count, summarise=self._summarise)
                if messages[newest] in made:
                    return made
        # There is no room even for a note that says how much is left out.
        return *_standing(messages[:newest]), messages[newest]

    def _least(self, messages: Sequence[Message], *, looking_up: bool) -> int:
        """The tokens of what is never shortened: system prompt and newest question."""
        newest = _newest(messages)
        return self._count([*_standing(messages[:newest]), messages[newest]], looking_up=looking_up)

    def _count(self, messages: Sequence[Message], *, looking_up: bool = False) -> int:
        return len(self._opening_ids(messages, looking_up=looking_up))

    def _opening_ids(self, messages: Sequence[Message], *, looking_up: bool = False) -> list[int]:
        schemas = self._recall_schemas if looking_up else self._schemas
        return self.frame.opening(self._shape.fit(messages, opening=True), schemas)


def _newest(messages: Sequence[Message]) -> int:
    return max(n for n, message in enumerate(messages) if message["role"] == "user")


def _standing(messages: Sequence[Message]) -> list[Message]:
    """The system prompt, which is never shortened."""
    return [m for m in messages if m["role"] == "system" and "name" not in m]


def memory_note(lines: Sequence[str]) -> Message:
    return note(MEMORY, as_note(lines))


def _example_note(texts: Mapping[int, str]) -> Message:
    body = "\n\n".join(f"Example:\n{text}" for text in texts.values())
    return note(EXAMPLES, f"Dialogues like this one, to learn from:\n\n{body}", dialogues=list(texts))


def as_toolbox(tools: Toolbox | Iterable[Any]) -> Toolbox | None:
    """Return the tools as a `Toolbox`; None if there are none."""
    if isinstance(tools, Toolbox):
        return tools
    given = list(tools)
    return Toolbox(given) if given else None
