"""The frame of a conversation: from messages to tokens, in the model's own chat format, only ever the new turn.

A model's own turn is never rendered from text: its tokens are carried as they were sampled. What follows it is what the
chat template puts behind such a turn, found by rendering a stand-in for it. Templates that rewrite earlier turns (some
drop a model's thoughts) therefore change nothing that was said.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from groupwise.agents.conversation.call_formats import CallFormat, find_format, read_reply
from groupwise.agents.environments.contract import Reply
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.types import Message

STAND_IN = "a turn that was said before"
NO_CALL = "t0000n000"  # for a result that does not say which call it is of
ROLES = ("system", "user", "assistant", "tool")


class NotPlainText(ContractError):
    """A message that would change the frame of the conversation."""

    code = "not_plain_text"


class Frame:
    """The chat format of one tokenizer."""

    def __init__(self, tokenizer: Any, name: str = "the model") -> None:
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer of {name} has no chat template, so the model cannot hold a conversation",
                hint="Give it one (tokenizer.chat_template = …) and save it again, or take a model trained to chat.",
            )
        self.tokenizer = tokenizer
        self.special = special_tokens(tokenizer)
        self.form = find_format(tokenizer)
        several = isinstance(tokenizer.chat_template, dict) and "tool_use" in tokenizer.chat_template
        self.for_tools = "tool_use" if several else None

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The tokens of a conversation up to the model's first turn."""
        if tools:
            self.call_format()
        for tool in tools:
            self._insist_on_text(written(tool))
        return self._encode(self._render([self.plain(m) for m in messages], tools=list(tools) or None))

    def following(self, messages: Sequence[Message], ended: bool) -> list[int]:
        """The tokens between two turns of the model; `ended` says that the first ended with its own last token."""
        said = [self.plain(message) for message in messages]
        named: dict[str, Any] = {"chat_template": self.for_tools} if any(m["role"] == "tool" for m in said) else {}
        refusal = None
        for stand_in in stand_ins(said):
            try:
                whole = self._render([{"role": "user", "content": "?"}, stand_in, *said], **named)
            except ConfigError as error:
                refusal = refusal or error
                continue
            _, found, rest = whole.rpartition(STAND_IN)
            if found:
                start, stop = self._end_of_turn(rest)
                return self._encode(rest[stop if ended else start if "tool_calls" in stand_in else 0 :])
        raise refusal or ConfigError(
            "the model's chat template leaves out what the model said before",
            hint="It cannot hold a conversation; give it another (tokenizer.chat_template = …).",
        )

    def call_format(self) -> CallFormat:
        """How the model writes calls; one that has no way to is refused."""
        if self.form is None:
            raise ConfigError(
                "the model's chat template has no format for tools that is known here",
                hint="Take a model trained to call tools, or leave the tools out.",
            )
        return self.form

    def own_turn(self, message: Message) -> list[int]:
        """The tokens of a turn as the model itself would have sampled them, the one that ends it included.

        For demonstrations: of what a model has sampled, the tokens are known and are not made again.
        """
        before: list[Message] = [{"role": "user", "content": "?"}]
        opened, whole = self._render(before), self._render([*before, self.plain(message)], add_generation_prompt=False)
        if not whole.startswith(opened):
            raise ConfigError(
                "the model's chat template does not put a model's turn behind the place where it is asked for",
                hint="Demonstrations cannot be written in it; give it another (tokenizer.chat_template = …).",
            )
        said = whole[len(opened) :]
        _, stop = self._end_of_turn(said)
        return self._encode(said[: stop or None])

    def reply(self, sampled: Sampled, turn: int) -> Reply:
        """What the model said, without the token that ended it, and the calls in it."""
        ids = sampled.ids[:-1] if self.ended(sampled) else sampled.ids
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        return read_reply(text, self.form, turn, cut=sampled.end != "stop")

    def ended(self, sampled: Sampled) -> bool:
        """Whether the turn ends with a special token of the model's own, and not in the midst of its text."""
        if sampled.end != "stop" or not len(sampled.ids):
            return False
        return not self.tokenizer.decode(sampled.ids[-1:], skip_special_tokens=True)

    def plain(self, message: Message) -> Message:
        """The message with valid text and a known role.

        A special token written out in it is refused, but in what a tool wrote it is broken up: that is data.
        """
        role, content = message.get("role"), message.get("content") or ""
        if role not in ROLES:
            raise ContractError(f"a message has the role {role!r}; roles are {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise ContractError(f"a message of {role} has content of type {type(content).__name__}, not text")
        content = content.encode("utf8", "replace").decode()
        if role == "tool":
            name = {"name": self.defused(str(message["name"]))} if "name" in message else {}
            return {"tool_call_id": NO_CALL, **message, **name, "content": self.defused(content)}
        self._insist_on_text(content)
        self._insist_on_text(written(message.get("tool_calls")))
        return {**message, "content": content}

    def defused(self, text: str) -> str:
        """The text with special tokens broken up by a space, for what a tool or a stranger wrote."""
        for token in (*self.special, *(self.form.marks if self.form else ())):
            text = text.replace(token, f"{token[:1]} {token[1:]}" if len(token) > 1 else " ")
        return text

    def _insist_on_text(self, text: str) -> None:
        token = next((token for token in self.special if token in text), None)
        if token is not None:
            raise NotPlainText(
                f"the text holds {token!r}, which is a special token of the model", hint="Write it otherwise."
            )

    def _end_of_turn(self, rest: str) -> tuple[int, int]:
        """Where the token that ends a turn begins and ends: the first special token, if turns end with one at all."""
        places = [(rest.find(token), -len(token)) for token in self.special if token in rest]
        start, length = min(places, default=(0, 0))
        return (start, start - length) if rest[start : start - length] in self._ends else (0, 0)

    @cached_property
    def _ends(self) -> set[str]:
        """The special tokens that the template puts behind a turn of the model when nothing follows."""
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": STAND_IN}]
        behind = self._render(said, add_generation_prompt=False).rpartition(STAND_IN)[2]
        return {token for token in self.special if token in behind}

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **options: Any) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt, **options
            )
        except Exception as error:  # a template is a program and raises what it likes
            said = " ".join(str(error).split()) or type(error).__name__
            roles = ", ".join(str(message["role"]) for message in messages)
            raise ConfigError(
                f"the model's chat template refuses messages of {roles}: {said}",
                hint="Give the messages other roles or another order.",
            ) from error
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))


def stand_ins(said: Sequence[Message]) -> Iterator[Message]:
    """A turn of the model, to see what the template puts behind it: words or, where results follow, calls of tools.

    Words show the turn's end exactly, but some templates take results only behind the calls they are of.
    """
    yield {"role": "assistant", "content": STAND_IN}
    results = [message["tool_call_id"] for message in said if message["role"] == "tool"]
    function = {"name": "tool", "arguments": {"said": STAND_IN}}
    if results:
        calls = [{"id": identity, "type": "function", "function": function} for identity in results]
        yield {"role": "assistant", "content": "", "tool_calls": calls}


def written(value: Any) -> str:
    """All the words in a structure."""
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""


def special_tokens(tokenizer: Any) -> list[str]:
    """The tokens that frame a text. Written out inside one, they would be encoded as the frame itself."""
    added = (token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special)
    return sorted({*added, *tokenizer.all_special_tokens})


BROKEN = "�"  # what a tokenizer writes for a letter of which tokens are still missing


class TextStream:
    """Gives out the text of growing tokens as soon as it is certain.

    What might be the beginning of a stop string is held back until it is one, and then dropped, or is none. From a mark
    in `held` on (a newline in it may be the text's own beginning), everything is held back to the end.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), held: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.stop, self.held = tuple(stop), tuple(held)
        self.text = ""
        self._ids: list[int] = []

    @property
    def tokens(self) -> int:
        """How many tokens it was fed."""
        return len(self._ids)

    def feed(self, token: int) -> str:
        """The text that this token makes certain, perhaps none."""
        self._ids.append(token)
        whole, stopped = self._whole()
        return self._give(whole if stopped else whole[: self._certain(whole)])

    def finish(self) -> str:
        """What was held back, now that no token follows."""
        return self._give(self._whole()[0])

    def _whole(self) -> tuple[str, bool]:
        """All text up to the first stop string, and whether there is one."""
        text: str = self.tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _certain(self, text: str) -> int:
        """How much of `text` no later token can change or make part of a stop string."""
        end = len(text.rstrip(BROKEN))
        marks = [place for mark in self.held if (place := f"\n{text}".find(mark)) >= 0]
        end = min([end, *(max(0, place - 1) for place in marks)])
        longest = max((len(text) for text in (*self.stop, *self.held)), default=1)
        for start in range(max(0, end - longest + 1), end):
            if any(some.startswith(text[start:end]) for some in (*self.stop, *self.held)):
                return start
        return end

    def _give(self, text: str) -> str:
        new = text[len(self.text) :]
        self.text += new
        return new


class Utterance:
    """What the model says to some tokens. `pieces` makes it; when they end, however they do, `sampled` is there.

    From a mark in `held` on, text is held back; it is `rest` then, and whoever listens knows whether it is words.
    """

    def __init__(
        self, engine: Engine, frame: Frame, ids: Sequence[int], params: SamplingParams, seed: int,
        session: Hashable | None = None, held: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.engine, self.ids, self.params, self.seed, self.session = engine, ids, params, seed, session
        self.stream = TextStream(frame.tokenizer, params.stop, held)
        self.rest = ""
        self.sampled: Sampled | None = None
        self.seconds = 0.0

    @property
    def text(self) -> str:
        """What has been said so far, without the token or the text that ended it."""
        return self.stream.text

    async def pieces(self) -> AsyncGenerator[str]:
        """The text, as soon as it is certain. Closing it, or cancelling whoever waits, ends the answer where it is."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def tell(token: int | None) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        began = time.perf_counter()
        future = self.engine.submit(self.ids, self.params, self.seed, self.session, lambda token, _: tell(token))
        future.add_done_callback(lambda _: tell(None))
        try:
            while (token := await tokens.get()) is not None:
                if piece := self.stream.feed(token):
                    yield piece
        finally:
            self.rest = self.stream.finish()
            self.engine.cancel(future)  # nothing happens to one that is done
            self.sampled = self._heard(await asyncio.shield(asyncio.wrap_future(future)))
            self.seconds = time.perf_counter() - began

    def _heard(self, sampled: Sampled) -> Sampled:
        """What was sampled, as far as somebody listened: the engine may have been ahead when it was stopped."""
        n = self.stream.tokens
        if n == len(sampled):
            return sampled
        cut = {name: getattr(sampled, name)[:n] for name in ("ids", "logp", "versions")}
        return replace(sampled, end="cancelled", **cut)
