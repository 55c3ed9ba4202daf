"""One turn of a conversation: what the model is shown, what it answers, and the tools it calls.

Notes are system messages that the agent writes itself: the strategy's `guidance`, `examples` from the dialogue
database, what is remembered about the user (`memory`) and a `summary` of earlier turns. The kind of a note is its
`name`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.extraction import shorten
from groupwise.agents.conversation.store import ConversationBusy, ConversationContext, ConversationStore
from groupwise.agents.conversation.streaming import ThoughtPiece, Utterance
from groupwise.agents.environments.contract import Reply
from groupwise.agents.settings import AgentConfig
from groupwise.agents.strategies import report, restore
from groupwise.agents.tools.toolbox import Toolbox, ToolOutcome, ToolResult
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import EndOfText
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.thoughts import REASONING
from groupwise.types import Message

GUIDANCE, EXAMPLES, MEMORY = "guidance", "examples", "memory"
NOT_RUN = "error: it was not run"
PROBE = "as the system says"


def note(kind: str, content: str, **more: Any) -> Message:
    return {"role": "system", "name": kind, "content": content, **more}


def is_note(message: Message, kind: str) -> bool:
    return message["role"] == "system" and message.get("name") == kind


def current(messages: Sequence[Message], defused: Callable[[str], str]) -> list[Message]:
    """Return the conversation as it is rendered from the start: plain text, without outdated notes.

    Only the newest guidance counts. Examples and memories are shown with the question they were found for, until it is
    answered.
    """
    # Examples before the model's last turn belong to a question that has been answered.
    spoken = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    newest = max((n for n, message in enumerate(messages) if is_note(message, GUIDANCE)), default=-1)
    stale = {n for n, m in enumerate(messages) if is_note(m, GUIDANCE) and n != newest}
    stale |= {n for n, m in enumerate(messages) if (is_note(m, EXAMPLES) or is_note(m, MEMORY)) and n < spoken}
    return [plain(message, defused) for n, message in enumerate(messages) if n not in stale]


def plain(message: Message, defused: Callable[[str], str]) -> Message:
    """Return the message as a template may render it.

    User messages were checked when they arrived. Text from a model or a tool may contain special tokens, so it is
    defused. The content of a message with calls is left out: the template writes the calls themselves.
    """
    if message["role"] == "user":
        return message
    thought = {REASONING: defused(str(message[REASONING]))} if message.get(REASONING) else {}
    content = "" if message.get("tool_calls") else defused(str(message.get("content") or ""))
    return {**message, **thought, "content": content}


def unanswered_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Make results for calls of the newest turn that never got one, because the process or the answer was stopped."""
    turn = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=len(messages))
    # Chat templates reject a conversation in which a call has no result.
    known = {message.get("tool_call_id") for message in messages[turn:]}
    calls = [call for message in messages[turn:] for call in message.get("tool_calls") or ()]
    return tuple(
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": NOT_RUN}
        for call in calls
        if call["id"] not in known
    )


class TemplateShape:
    """Where a chat template accepts system messages: anywhere, only first, or nowhere. Found out by trying.

    Some templates refuse them, some drop them silently, and some use another template for tools. Where a system message
    is not accepted, its text is put in front of the next user message.
    """

    def __init__(self, frame: Frame, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        said, asked = {"role": "system", "content": PROBE}, {"role": "user", "content": "u"}
        # Three trials: a system message first, one in the middle of an opening, and one between two turns.
        before = [asked, {"role": "assistant", "content": "a"}]
        self.first = _shows(frame, lambda: frame.opening([said, asked], tools))
        begun = _shows(frame, lambda: frame.opening([*before, said, asked], tools))
        self.later = self.first and begun and _shows(frame, lambda: frame.following([said, asked], True))

    def fit(self, messages: Sequence[Message], *, opening: bool) -> list[Message]:
        """Return the messages in that shape, with consecutive system messages merged, and user messages likewise."""
        fitted: list[Message] = []
        waiting: list[str] = []
        for message in messages:
            role, content = message["role"], str(message.get("content") or "")
            starts = opening and all(known["role"] == "system" for known in fitted)
            # Kept until the next user message, which it is put in front of.
            if role == "system" and not (self.first if starts else self.later):
                waiting.append(content)
                continue
            if role == "user" and waiting:
                content, waiting = "\n\n".join([*waiting, content]), []
            if fitted and role in ("system", "user") and fitted[-1]["role"] == role:
                content = f"{fitted.pop()['content']}\n\n{content}"
            fitted.append({**message, "content": content})
        return fitted


def _shows(frame: Frame, render: Callable[[], list[int]]) -> bool:
    try:
        return PROBE in frame.tokenizer.decode(render())
    except ConfigError:
        return False


def as_example(messages: Sequence[Message], limit: int = 2000) -> str:
    """Return a dialogue as lines, to show it to the model as an example."""
    lines = [f"{m['role']}: {m.get('content') or ''}" for m in messages if m["role"] in ("user", "assistant")]
    return shorten("\n".join(lines), limit)


STOPPED = "error: the person stopped it"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens up to the model's turn, whether earlier turns had to be compressed, and the mark of its frame.

    The mark identifies vocabulary, template and tools; tokens of another frame cannot be continued.
    """

    ids: list[int]
    compressed: bool
    mark: str


class TurnTaker(Protocol):
    """What a turn needs from its agent (`multiturn_agent`): settings, a model, a store, and how to build the prompt."""

    config: AgentConfig
    max_rounds: int
    store: ConversationStore

    @property
    def engine(self) -> TokenEngine: ...
    @property
    def frame(self) -> Frame: ...
    def working_on(self, conversation_id: str) -> AbstractContextManager[None]: ...
    async def context(self, conversation_id: str) -> ConversationContext: ...
    async def take(self, context: ConversationContext, text: str, strategy: str | None) -> ConversationContext: ...
    async def prompt(self, context: ConversationContext) -> Prompt: ...
    async def remember(self, context: ConversationContext, text: str) -> None: ...
    def tools(self, context: ConversationContext, mark: str) -> Toolbox | None: ...


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, and the conversation after it.

    `tokens` counts everything the model generated for the message, including thoughts and tool calls; `results` are the
    results of the calls. `reasoning` is what it thought before it said `text`.
    """

    text: str
    context: ConversationContext = field(repr=False)
    tokens: int
    end: EndOfText
    seconds: float
    results: tuple[ToolResult, ...] = ()
    compressed: bool = False
    examples: tuple[int, ...] = ()
    reasoning: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def conversation_id(self) -> str:
        return self.context.conversation_id

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def metadata(self) -> dict[str, Any]:
        """Everything about the answer except its text, ready for JSON."""
        context = self.context
        return {
            "conversation_id": context.conversation_id, "user_id": context.user_id, "turn": context.turns,
            "strategy": context.strategy, "state": dict(context.state), "tokens": self.tokens, "end": self.end,
            "seconds": round(self.seconds, 4), "tokens_per_second": round(self.tokens_per_second, 1),
            "tool_calls": len(self.results), "compressed": self.compressed, "examples": list(self.examples),
        }  # fmt: skip


class Turn:
    """A message being answered: iterate over the text as it is generated, then read `response`.

    Use it in `async with`: leaving the block early stops the answer and keeps what was said so far in the conversation.
    `events` also yields thoughts, tool calls and their results; the text itself never contains any of them.
    """

    def __init__(self, agent: TurnTaker, conversation_id: str, message: str, strategy: str | None) -> None:
        self.agent, self.conversation_id, self.message, self.strategy = agent, conversation_id, message, strategy
        self.text = self.reasoning = ""
        self.end: EndOfText = "cancelled"
        self.tokens = 0
        self.seconds = 0.0
        self.results: list[ToolResult] = []
        self.compressed = self.answered = False
        self.events = self._events()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.events.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while not isinstance(event := await anext(self.events), str):
            pass
        return event

    @property
    def response(self) -> Response:
        """The answer, once the turn has ended."""
        if not self.answered:
            raise ContractError("the message has not been answered yet", hint="Iterate over the turn first.")
        asked = max(n for n, message in enumerate(self._context.messages) if message["role"] == "user")
        shown = [m["dialogues"] for m in self._context.messages[max(0, asked - 1) : asked] if is_note(m, EXAMPLES)]
        return Response(
            self.text, self._context, self.tokens, self.end, self.seconds, tuple(self.results), self.compressed,
            tuple(shown[0]) if shown else (), self.reasoning,
        )  # fmt: skip

    async def _events(self) -> AsyncGenerator[str | ThoughtPiece | Reply | ToolResult]:
        """Yield thoughts and text, then for every reply that calls tools the reply itself and the calls' results."""
        agent = self.agent
        with agent.working_on(self.conversation_id):
            context = await agent.take(await agent.context(self.conversation_id), self.message, self.strategy)
            # Before storing: a message that does not fit is refused without a trace.
            prompt = await agent.prompt(context)
            self._context = await self._save(context)
            await agent.remember(self._context, self.message)
            # One more than max_rounds: in the last round the model may only answer.
            for left in reversed(range(agent.max_rounds + 1)):
                self.compressed |= prompt.compressed
                self._mark, toolbox = prompt.mark, agent.tools(self._context, prompt.mark)
                said = self._utterance(prompt.ids, toolbox)
                pieces = said.pieces()
                try:
                    async for piece in pieces:
                        yield piece
                finally:
                    await pieces.aclose()
                    # Whatever ended the answer, what was said so far is stored.
                    reply = await asyncio.shield(self._keep(said, toolbox))
                if not reply.written:
                    for piece in said.rest:
                        yield piece
                    return
                yield reply
                for result in await self._results(reply, left, toolbox):
                    yield result
                if not left:
                    return
                prompt = await agent.prompt(self._context)

    def _utterance(self, ids: list[int], toolbox: Toolbox | None) -> Utterance:
        agent, context = self.agent, self._context
        held = agent.frame.call_format().begins if toolbox else ()
        return Utterance(
            agent.engine, agent.frame, ids, agent.config.sampling_params(), context.seed + context.draws,
            self.conversation_id, held,
        )  # fmt: skip

    async def _keep(self, said: Utterance, toolbox: Toolbox | None) -> Reply:
        """Store what the model said, and return the reply with its calls."""
        agent, sampled, context = self.agent, said.sampled, self._context
        if sampled is None:  # the engine failed, so the question stays unanswered
            return Reply("")
        # Calls in an answer that was stopped are not run.
        whole = toolbox is not None and sampled.end != "cancelled"
        tools = toolbox.schemas if toolbox else ()
        words = said.said
        told = Reply(words.content, reasoning=words.reasoning)
        reply = agent.frame.reply(sampled, context.draws, said.ids, tools) if whole else told
        spoken = {**reply.as_message(), **told.as_message()}
        state = report(restore(context.strategy, context.state).advance(spoken)) if context.strategy else context.state
        messages = (*context.messages, spoken)
        try:
            self._context = await self._save(replace(
                context, messages=messages, heard=len(messages), ids=(*said.ids, *sampled.ids.tolist()), state=state,
                ended=agent.frame.ended(sampled), frame=self._mark, draws=context.draws + 1,
            ))  # fmt: skip
        except ConversationBusy as error:
            message = f"{error.message}; the user's message was stored, this answer was not"
            raise ConversationBusy(message, hint="Load the conversation again and continue from there.") from None
        # The text of calls is not shown.
        held = "".join(piece for piece in said.rest if isinstance(piece, str))
        self.text = words.content.removesuffix(held) if reply.written else words.content
        self.reasoning = "\n\n".join(filter(None, [self.reasoning, words.reasoning]))
        self.end, self.answered = sampled.end, True
        self.tokens, self.seconds = self.tokens + len(sampled), self.seconds + said.seconds
        return reply

    async def _results(self, reply: Reply, left: int, toolbox: Toolbox | None) -> list[ToolResult]:
        """Run the calls and store their results; if the answer is cancelled meanwhile, store that instead."""
        most = self.agent.max_rounds
        assert toolbox is not None
        if not left:
            problem = f"error: no more than {most} rounds of calls in one answer"
            refused = ToolResult(reply.written[0], ToolOutcome.TOO_MANY, problem)
            await self._hear([refused])
            return [refused]
        try:
            results = await toolbox.run(reply.tool_calls, reply.broken)
        except asyncio.CancelledError:
            await asyncio.shield(self._hear([ToolResult(reply.written[0], ToolOutcome.TIMED_OUT, STOPPED)]))
            raise
        self.results += results
        await self._hear(results)
        return results

    async def _hear(self, results: Sequence[ToolResult]) -> None:
        messages = (*self._context.messages, *(result.as_message() for result in results))
        self._context = await self._save(replace(self._context, messages=(*messages, *unanswered_calls(messages))))

    async def _save(self, context: ConversationContext) -> ConversationContext:
        return await asyncio.shield(asyncio.to_thread(self.agent.store.save, context))
