"""The frame of a conversation: turns messages into tokens in the model's chat format, one new turn at a time.

The model's own turns are never rendered from text; their tokens are kept exactly as sampled. To find the tokens that
follow such a turn, we render a stand-in for it and take what the chat template appends. Templates that rewrite earlier
turns (some drop the model's thoughts) therefore cannot change anything already said.

`Frame` goes from messages to tokens; `TextStream` and `Utterance` go back from sampled tokens to text as it arrives.
"""

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
from groupwise.foreign_programs import OverLimit
from groupwise.language.chat_templates import chat_text
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.types import Message

STAND_IN = "a turn that was said before"
NO_CALL = "t0000n000"  # the id given to a tool result that does not name its call
ROLES = ("system", "user", "assistant", "tool")


class NotPlainText(ContractError):
    """A message contains a special token, which would change the structure of the conversation."""

    code = "not_plain_text"


class Frame:
    """The chat format of one tokenizer."""

    def __init__(self, tokenizer: Any, name: str = "the model") -> None:
        if not tokenizer.chat_template:
            message = f"the tokenizer of {name} has no chat template, so the model cannot hold a conversation"
            hint = "Set tokenizer.chat_template and save the tokenizer again, or use a model trained to chat."
            raise ConfigError(message, hint=hint)
        self.tokenizer = tokenizer
        self.special = special_tokens(tokenizer)
        self.form = find_format(tokenizer)
        several = isinstance(tokenizer.chat_template, dict) and "tool_use" in tokenizer.chat_template
        self.for_tools = "tool_use" if several else None

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the tokens of a conversation up to the model's first turn."""
        if tools:
            self.call_format()
        for tool in tools:
            self._insist_on_text(written(tool))
        return self._encode(self._render([self.plain(m) for m in messages], tools=list(tools) or None))

    def following(self, messages: Sequence[Message], ended: bool) -> list[int]:
        """Return the tokens between two turns of the model.

        `ended` says that the first turn already ends with the model's own end-of-turn token.
        """
        said = [self.plain(message) for message in messages]
        named: dict[str, Any] = {"chat_template": self.for_tools} if any(m["role"] == "tool" for m in said) else {}
        refusal = None
        for stand_in in stand_ins(said):
            try:
                whole = self._render([{"role": "user", "content": "?"}, stand_in, *said], **named)
            except ConfigError as error:
                refusal = refusal or error
                continue
            # A template that drops the model's turn leaves no stand-in to find.
            _, found, rest = whole.rpartition(STAND_IN)
            if found:
                start, stop = self._end_of_turn(rest)
                # With calls as stand-in, the rest of their JSON comes before the end of the turn and is skipped.
                return self._encode(rest[stop if ended else start if "tool_calls" in stand_in else 0 :])
        raise refusal or ConfigError(
            "the model's chat template drops what the model said before, so it cannot hold a conversation",
            hint="Set another template (tokenizer.chat_template = …).",
        )

    def call_format(self) -> CallFormat:
        """Return the format in which the model writes calls; refuse a model that has none."""
        if self.form is None:
            message = "the model's chat template has no tool-call format that Groupwise knows"
            raise ConfigError(message, hint="Use a model trained to call tools, or leave the tools out.")
        return self.form

    def own_turn(self, message: Message) -> list[int]:
        """Return a turn's tokens as the model would have sampled them, including the end-of-turn token.

        Only for demonstrations: the tokens of sampled turns are known and never made again.
        """
        before: list[Message] = [{"role": "user", "content": "?"}]
        opened, whole = self._render(before), self._render([*before, self.plain(message)], add_generation_prompt=False)
        if not whole.startswith(opened):
            raise ConfigError(
                "the model's chat template does not put the model's turn right after the generation prompt, so it "
                "cannot express demonstrations",
                hint="Set another template (tokenizer.chat_template = …).",
            )
        said = whole[len(opened) :]
        _, stop = self._end_of_turn(said)
        return self._encode(said[: stop or None])

    def reply(self, sampled: Sampled, turn: int) -> Reply:
        """Return what the model said, without its end-of-turn token, and the calls in it."""
        ids = sampled.ids[:-1] if self.ended(sampled) else sampled.ids
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        return read_reply(text, self.form, turn, cut=sampled.end != "stop")

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
        self._insist_on_text(content)
        self._insist_on_text(written(message.get("tool_calls")))
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

    def _end_of_turn(self, rest: str) -> tuple[int, int]:
        """Find the end-of-turn token in `rest`: the first special token, if the template ends turns with one."""
        # Sorting by (place, -length) takes the longest of several tokens that begin at the same place.
        places = [(rest.find(token), -len(token)) for token in self.special if token in rest]
        start, length = min(places, default=(0, 0))
        return (start, start - length) if rest[start : start - length] in self._ends else (0, 0)

    @cached_property
    def _ends(self) -> set[str]:
        """The special tokens that the template appends to a turn of the model when nothing follows."""
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": STAND_IN}]
        behind = self._render(said, add_generation_prompt=False).rpartition(STAND_IN)[2]
        return {token for token in self.special if token in behind}

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **options: Any) -> str:
        try:
            return chat_text(self.tokenizer, messages, add_generation_prompt=add_generation_prompt, **options)
        except Exception as error:  # a template is a program and raises what it likes
            raise template_refusal(error, messages) from error

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))


def template_refusal(error: Exception, messages: Sequence[Message], about: str = "", field: str = "") -> ConfigError:
    """Return the error to raise when a chat template refuses some messages."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OverLimit):
        return ConfigError(
            f"{about}the model's chat template cannot be used: {said}",
            hint="Set another template (tokenizer.chat_template = …) and save the tokenizer again.",
            field=field,
        )
    roles = ", ".join(str(message["role"]) for message in messages)
    hint = "Use other roles, or put the messages in another order."
    return ConfigError(f"{about}the model's chat template rejects the roles {roles}: {said}", hint=hint, field=field)


def stand_ins(said: Sequence[Message]) -> Iterator[Message]:
    """Yield stand-ins for a turn of the model, to see what the template appends to it.

    Plain words show exactly where the turn ends, but some templates accept tool results only after their calls.
    """
    yield {"role": "assistant", "content": STAND_IN}
    results = [message["tool_call_id"] for message in said if message["role"] == "tool"]
    function = {"name": "tool", "arguments": {"said": STAND_IN}}
    if results:
        calls = [{"id": identity, "type": "function", "function": function} for identity in results]
        yield {"role": "assistant", "content": "", "tool_calls": calls}


def written(value: Any) -> str:
    """Return all text inside a structure."""
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""


def special_tokens(tokenizer: Any) -> list[str]:
    """Return the tokens that delimit turns. Spelled out inside a text, they would be encoded as delimiters."""
    added = (token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special)
    return sorted({*added, *tokenizer.all_special_tokens})


BROKEN = "�"  # what a tokenizer prints for a character whose remaining bytes have not been sampled yet


class TextStream:
    """Turns growing tokens into text and releases it as soon as no later token can change it.

    Text that may be the beginning of a stop string is held back until that is decided. From the first mark in `held`
    onwards (a newline there also matches the start of the text), everything is held back to the end.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), held: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.stop, self.held = tuple(stop), tuple(held)
        self.text = ""
        self._ids: list[int] = []

    @property
    def tokens(self) -> int:
        """How many tokens were fed."""
        return len(self._ids)

    def feed(self, token: int) -> str:
        """Return the text that this token makes final, perhaps none."""
        self._ids.append(token)
        whole, stopped = self._whole()
        return self._give(whole if stopped else whole[: self._certain(whole)])

    def finish(self) -> str:
        """Return what was held back, now that no token follows."""
        return self._give(self._whole()[0])

    def _whole(self) -> tuple[str, bool]:
        """Return all text up to the first stop string, and whether there is one."""
        text: str = self.tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _certain(self, text: str) -> int:
        """Return how much of `text` is final: no later token can change it or make it part of a stop string."""
        end = len(text.rstrip(BROKEN))
        # The newline in front lets a mark such as "\n{" match at the very start; places shift by one for it.
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
    """One answer of the model while it is being sampled. Iterate over `pieces`; afterwards `sampled` is set.

    Text from the first mark in `held` onwards is not streamed but collected in `rest`: it may be a tool call.
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
        """The text so far, without the token or stop string that ended it."""
        return self.stream.text

    async def pieces(self) -> AsyncGenerator[str]:
        """Yield final text. Closing the generator, or cancelling the awaiting task, ends the answer there."""
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
            self.engine.cancel(future)  # does nothing if the answer is finished
            self.sampled = self._heard(await asyncio.shield(asyncio.wrap_future(future)))
            self.seconds = time.perf_counter() - began

    def _heard(self, sampled: Sampled) -> Sampled:
        """Cut the sample to the tokens we consumed: the engine may have been ahead when it was stopped."""
        n = self.stream.tokens
        if n == len(sampled):
            return sampled
        cut = {name: getattr(sampled, name)[:n] for name in ("ids", "logp", "versions")}
        return replace(sampled, end="cancelled", **cut)
