"""The frame of a conversation: turns messages into tokens in the model's chat format, one new turn at a time.

The model's own turns are never rendered from text; their tokens are kept exactly as sampled. To find the tokens that
follow such a turn, we render a stand-in for it and take what the chat template appends. Templates that rewrite earlier
turns (some drop the model's thoughts) therefore cannot change anything already said.

`Frame` goes from messages to tokens and back; `streaming.py` goes back while the tokens are still being sampled.
"""

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from groupwise.agents.conversation.call_formats import CallFormat, named_format, read_reply
from groupwise.agents.conversation.chat_template import ASKED, SAID, STAND_IN, ChatTemplate
from groupwise.agents.conversation.message_shape import THOUGHTS, call_message
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Sampled
from groupwise.language.thought_formats import split_answer
from groupwise.types import Message

logger = logging.getLogger(__name__)

NO_CALL = "t0000n000"  # the id given to a tool result that does not name its call
ROLES = ("system", "user", "assistant", "tool")


class NotPlainText(ContractError):
    """A message contains a special token, which would change the structure of the conversation."""

    code = "not_plain_text"


class Frame:
    """The chat format of one tokenizer. `options` are variables of its template; `tool_format` names its calls."""

    def __init__(
        self, tokenizer: Any, name: str = "the model", options: Mapping[str, Any] | None = None,
        tool_format: str | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer, self.name = tokenizer, name
        if not tokenizer.chat_template:
            _say_plain(name)
        if tool_format is not None:
            named_format(tool_format)
        self.template = ChatTemplate(tokenizer, options, tool_format)
        self.special = self.template.special

    @property
    def options(self) -> Mapping[str, Any]:
        """The variables given to the chat template."""
        return self.template.options

    @property
    def form(self) -> CallFormat | None:
        """The format in which the model writes calls; None for a model without tools."""
        return self.template.form

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens with which the model ends a turn; sampling stops at them."""
        return self.template.end_ids

    def with_options(self, options: Mapping[str, Any]) -> "Frame":
        """Return the format with these options of the chat template over its own."""
        if not options:
            return self
        changed = copy.copy(self)
        changed.template = self.template.with_options(options)
        return changed

    def call_format(self) -> CallFormat:
        """Return the format in which the model writes calls; refuse a model that has none."""
        return self.template.call_format()

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the tokens of a conversation up to the model's first turn."""
        if tools:
            self.call_format()
        for tool in tools:
            self._insist_on_text(written(tool))
        return self.template.ids(self.template.text([self.plain(message) for message in messages], tools=tools))

    def following(
        self, messages: Sequence[Message], ended: bool, before: Sequence[Message] = (),
        tools: Sequence[Mapping[str, Any]] = (), after: Sequence[int] = (),
    ) -> list[int]:  # fmt: skip
        """Return the tokens between two turns of the model.

        `ended` says that the first turn already ends with the model's own end-of-turn token. `before` are the messages
        before that turn, for templates that write a message differently later on; `after` its tokens.
        """
        said = [self.plain(message) for message in messages]
        ids = self._following(said, ended, before, tools)
        # Where only the beginning of the next turn ends a turn, the model may have written that itself.
        return ids[1:] if after and ids and after[-1] == ids[0] and ids[0] in self.end_ids else ids

    def _following(
        self, said: Sequence[Message], ended: bool, before: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        refusal = None
        for context, known in ((before, tools), ((ASKED,), ())) if before else (((ASKED,), ()),):
            for stand_in in stand_ins(said):
                try:
                    closed = self.template.text([*context, stand_in], ask=False, tools=known)
                    whole = self.template.text([*context, stand_in, *said], tools=known)
                except (ConfigError, ContractError) as error:
                    refusal = error if context is not before else refusal or error
                    continue
                place = self._continuation(closed, whole, ended, bool(stand_in.get("tool_calls")))
                if place is not None:
                    return self.template.ids_behind(whole, place)
        raise refusal or ConfigError(
            "the model's chat template drops what the model said before, so it cannot hold a conversation",
            hint="Set another template (tokenizer.chat_template = …).",
        )

    def _continuation(self, closed: str, whole: str, ended: bool, called: bool) -> int | None:
        """Find where the tokens after a turn begin: behind its end-of-turn token, or at it if the turn has not ended.

        None if the template dropped the turn, so that there is nothing to find.
        """
        spoken = whole.rfind(STAND_IN)
        if spoken < 0:
            return None
        spoken += len(STAND_IN)
        end = self.template.call_end if called else self.template.end
        kept = whole.startswith(closed)
        place = whole.find(end, spoken, len(closed) if kept else None) if end else -1
        if place < 0 and not called:
            # A template may end a turn within a conversation otherwise than the last one.
            end = "" if kept else self.template.first_special(whole[spoken:])
            place = spoken
        if place < 0:
            return len(closed) if kept else None
        return place + len(end) if ended else place

    def demonstration(
        self, messages: Sequence[Message], said: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[list[int], list[bool]]:
        """Return the tokens of a demonstrated conversation as the template writes it, and which are the model's.

        `said` are the messages after the opening. Where the template rewrites earlier turns, each turn stays as it was
        when it was the last one, because that is how the model samples it.
        """
        if tools:
            self.call_format()
        talk = [self.plain(message) for message in messages]
        ids: list[int] = []
        own: list[bool] = []
        last, stop = 0, 0  # where the turn before was: its number in the conversation, and its last token
        for message in map(self.plain, said):
            if message["role"] == "assistant":
                turn = self.template.turn(talk, message, tools)
                if turn.stop <= turn.start:
                    raise ConfigError(
                        "the model's chat template leaves out the model's turn, so it cannot express demonstrations",
                        hint="Set another template (tokenizer.chat_template = …).",
                    )
                if turn.kept and turn.ids[:stop] == ids[:stop]:
                    before = turn.ids[: turn.start]
                else:
                    between = self.following(talk[last + 1 :], True, talk[:last], tools, ids[:stop])
                    before = [*ids[:stop], *between[: len(between) - turn.unshared]] if stop else turn.ids[: turn.start]
                ids = [*before, *turn.ids[turn.start :]]
                own = [*own[:stop], *[False] * (len(before) - stop), *[True] * (turn.stop - turn.start)]
                last, stop = len(talk), len(own)
                own += [False] * (len(ids) - len(own))
            talk.append(message)
        return ids, own

    def reply(
        self, sampled: Sampled, turn: int, prompt: Sequence[int] = (), tools: Sequence[Mapping[str, Any]] = ()
    ) -> Reply:
        """Return what the model thought and said, without its end-of-turn token, and the calls in it.

        `prompt` are the tokens before it, which may have opened a thought; `tools` the schemas it was shown.
        """
        ids = sampled.ids[:-1] if self.ended(sampled) else sampled.ids
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        split = split_answer(self.tokenizer, prompt, text)
        return read_reply(split, self.form, turn, cut=sampled.end != "stop", tools=tools)

    def ended(self, sampled: Sampled) -> bool:
        """Return whether the model ended the turn with a special token of its own, rather than mid-text."""
        if sampled.end != "stop" or not len(sampled.ids):
            return False
        return not self.tokenizer.decode(sampled.ids[-1:], skip_special_tokens=True)

    def plain(self, message: Message) -> Message:
        """Return the message with valid text and a known role.

        Special tokens spelled out in it are refused, except in tool results: those are data, so they are broken up.
        """
        role, content = message.get("role"), message.get("content") or ""
        if role not in ROLES:
            raise ContractError(f"a message has the role {role!r}; roles are {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise ContractError(f"a message of {role} has content of type {type(content).__name__}, not text")
        # Lone surrogates cannot be tokenised.
        content = content.encode("utf8", "replace").decode()
        if role == "tool":
            name = {"name": self.defused(str(message["name"]))} if "name" in message else {}
            return {"tool_call_id": NO_CALL, **message, **name, "content": self.defused(content)}
        for text in (content, written(message.get("tool_calls")), *(str(message.get(key) or "") for key in THOUGHTS)):
            self._insist_on_text(text)
        return {**message, "content": content}

    def defused(self, text: str) -> str:
        """Return the text with special tokens broken up by a space, for text from tools and other outside sources."""
        for token in (*self.special, *(self.form.marks if self.form else ())):
            text = text.replace(token, f"{token[:1]} {token[1:]}" if len(token) > 1 else " ")
        return text

    def _insist_on_text(self, text: str) -> None:
        token = next((token for token in self.special if token in text), None)
        if token is not None:
            message = f"the text contains {token!r}, which is a special token of the model"
            raise NotPlainText(message, hint="Rephrase it without that.")


@lru_cache
def _say_plain(name: str) -> None:
    """Say once that a model has no chat format of its own."""
    logger.warning(
        "the tokenizer of %s has no chat template; messages are written as plain text (User: …, Assistant: …)", name
    )


def stand_ins(said: Sequence[Message]) -> Iterator[Message]:
    """Yield stand-ins for a turn of the model, to see what the template appends to it.

    Plain words show exactly where the turn ends, but some templates show tool results only after their calls.
    """
    results = [message for message in said if message["role"] == "tool"]
    calls = [
        ToolCall(message["tool_call_id"], str(message.get("name") or "tool"), {"said": STAND_IN}) for message in results
    ]
    if calls:
        yield call_message(calls)
    yield SAID


def written(value: Any) -> str:
    """Return all text inside a structure."""
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""
