"""What a model's chat template does, found by letting it render: how it ends a turn, writes calls, and reads thoughts.

Nothing here depends on the name of a template. `ChatTemplate` renders messages and takes the model's own turn out of
what was rendered; `Frame` (chat_format) makes conversations of that.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from groupwise.agents.conversation.call_formats import ADD, FORMATS, CallFormat, derived_formats, named_format
from groupwise.agents.conversation.call_formats.reading import read_reply
from groupwise.agents.conversation.message_shape import THOUGHTS, MessageShape, call_message
from groupwise.agents.environments.contract import ToolCall
from groupwise.errors import ConfigError
from groupwise.foreign_programs import OverLimit
from groupwise.language.chat_templates import chat_text
from groupwise.types import Message

STAND_IN = "a turn that was said before"
ASKED: Message = {"role": "user", "content": "?"}
SAID: Message = {"role": "assistant", "content": STAND_IN}
PROBE = ToolCall("t0000n000", "probe", {"text": "one two", "number": 7, "flag": True})
SECOND = ToolCall("t0000n001", "probe", {"text": "three", "number": 8, "flag": False})
KINDS = {"text": "string", "number": "integer", "flag": "boolean"}
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": PROBE.name,
        "description": "a probe",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": kind, "description": name} for name, kind in KINDS.items()},
            "required": [],
        },
    },
}


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """A conversation up to and including a turn of the model: tokens [start, stop) are what the model would sample.

    `unshared` counts the tokens of the opening that the template does not write when it knows the turn, and `kept` says
    that it left everything before the turn as it was.
    """

    ids: list[int]
    start: int
    stop: int
    unshared: int = 0
    kept: bool = True


class ChatTemplate:
    """The chat template of one tokenizer; `tool_format` names the format of its calls instead of finding it."""

    def __init__(
        self, tokenizer: Any, options: Mapping[str, Any] | None = None, tool_format: str | None = None
    ) -> None:
        self.tokenizer, self.options, self.tool_format = tokenizer, dict(options or {}), tool_format
        self.special = special_tokens(tokenizer)

    def with_options(self, options: Mapping[str, Any]) -> "ChatTemplate":
        """Return the template with these variables over its own."""
        return template_of(self.tokenizer, {**self.options, **options}, self.tool_format)

    # Rendering

    def text(self, messages: Sequence[Message], *, ask: bool = True, tools: Sequence[Any] = ()) -> str:
        """Return the messages as the template writes them; `ask` appends what opens the model's turn."""
        return self._text(self.fitted(messages), ask, tools)

    def fitted(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages in the shape that the template reads."""
        shape = MessageShape()
        if any(message.get("tool_calls") or message["role"] == "tool" for message in messages):
            messages, shape = [self._with_calls(message) for message in messages], self.shape
        if any(message.get(key) for message in messages for key in THOUGHTS):
            shape = replace(shape, thoughts=self._thoughts)
        return replace(shape, parts=self._parts).fit(messages)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def ids_behind(self, text: str, place: int) -> list[int]:
        """Return the tokens of the text from `place` on, as they are when the whole text is encoded."""
        before, whole = self.ids(text[:place]), self.ids(text)
        return whole[len(before) :] if whole[: len(before)] == before else self.ids(text[place:])

    def turn(self, before: Sequence[Message], message: Message, tools: Sequence[Any] = ()) -> WrittenTurn:
        """Return the conversation with this turn of the model, as the template writes it."""
        opened = self.text(before, tools=tools)
        whole = self.text([*before, message], ask=False, tools=tools)
        asked, ids = self.ids(opened), self.ids(whole)
        # A template may open a thought that this turn does not have: then less than the opening is shared.
        start, kept = _shared(asked, ids), True
        if start < len(asked) and not self._keeps(before, opened, whole, tools):
            whole, kept = self._rejoined(before, opened, whole), False
            ids, start = [*asked, *self.ids_behind(whole, len(opened))], len(asked)
        place = self._end_of_turn(whole, _shared(opened, whole), message)
        stop = len(ids) - len(self.ids_behind(whole, place))
        return WrittenTurn(ids, start, stop, len(asked) - start, kept)

    def _end_of_turn(self, whole: str, start: int, message: Message) -> int:
        """Return where the last turn ends: behind its end-of-turn token, or where its words end."""
        calls = message.get("tool_calls")
        end = self.call_end if calls else self.end
        said = calls[-1]["function"]["name"] if calls else str(message.get("content") or "").strip()
        place = whole.find(end, max(start, whole.rfind(said, start))) if end else -1
        if place >= 0:
            return place + len(end)
        return len(whole) - (len(self._closing) if not calls and whole.endswith(self._closing) else 0)

    def _keeps(self, before: Sequence[Message], opened: str, whole: str, tools: Sequence[Any]) -> bool:
        """Return whether everything said before the turn stayed as it was; marks around it may have changed."""
        said = str(before[-1].get("content") or "").strip() if before else ""
        if said and 0 <= opened.rfind(said) + len(said) <= _shared(opened, whole):
            return True
        try:
            return whole.startswith(self.text(before, ask=False, tools=tools))
        except ConfigError:
            return False

    def _rejoined(self, before: Sequence[Message], opened: str, whole: str) -> str:
        """Return the opening and the turn where the template changed what came before the turn."""
        prompt = opened.rpartition(str(before[-1].get("content") or "").strip())[2] if before else opened
        _, found, said = whole.rpartition(prompt) if prompt else ("", "", "")
        if not found:
            raise ConfigError(
                "the model's chat template does not put the model's turn right after the generation prompt, so it "
                "cannot express demonstrations",
                hint="Set another template (tokenizer.chat_template = …).",
            )
        return opened + said

    def _text(self, messages: Sequence[Message], ask: bool, tools: Sequence[Any] = ()) -> str:
        several = isinstance(self.tokenizer.chat_template, dict) and "tool_use" in self.tokenizer.chat_template
        called = any(message.get("tool_calls") or message["role"] == "tool" for message in messages)
        try:
            return chat_text(
                self.tokenizer, messages, tools=list(tools) or None, add_generation_prompt=ask,
                chat_template="tool_use" if several and called else None, options=self.options,
            )  # fmt: skip
        except Exception as error:  # a template is a program and raises what it likes
            raise template_refusal(error, messages, self.options) from error

    # How it ends a turn

    @cached_property
    def end(self) -> str:
        """The special token that ends a turn of words; empty if there is none."""
        return self._end_of(SAID, ASKED)

    @cached_property
    def call_end(self) -> str:
        """The special token that ends a turn with calls."""
        if self.form is None:
            return self.end
        result = {"role": "tool", "tool_call_id": PROBE.id, "name": PROBE.name, "content": "?"}
        said = replace(PROBE, arguments={**PROBE.arguments, "text": STAND_IN})
        one, two = call_message([said]), call_message([replace(said, id=SECOND.id, arguments=SECOND.arguments), said])
        end = self._end_of(one, result)
        try:
            written = self.text([ASKED, two], ask=False)
        except ConfigError:  # only one call at a time
            return end
        # What stands between two calls does not end the turn.
        return self._end_of(two, result) if written.count(end) > self.text([ASKED, one], ask=False).count(end) else end

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens that end a turn of the model. Where a turn has no end, the beginning of the next one ends it."""
        ends = {self.end, self.call_end if self.form else ""}
        if "" in ends:
            ends |= set(self._next_heads())
        ids = {self.tokenizer.convert_tokens_to_ids(token) for token in ends if token}
        return tuple(sorted(number for number in ids if isinstance(number, int)))

    def _next_heads(self) -> Iterator[str]:
        """Yield the special tokens that begin what follows a turn: a user's message, or the result of a call."""
        result = {"role": "tool", "tool_call_id": PROBE.id, "name": PROBE.name, "content": "?"}
        talks = [(SAID, ASKED, self.end)] + ([(call_message([PROBE]), result, self.call_end)] if self.form else [])
        for said, answer, end in talks:
            if not end:
                try:
                    closed, whole = self.text([ASKED, said], ask=False), self.text([ASKED, said, answer])
                except ConfigError:
                    continue
                rest = whole.removeprefix(closed) if whole.startswith(closed) else ""
                found = self._specials(rest)
                if found and not rest[: found[0][0]].strip():
                    yield found[0][1]

    def _end_of(self, said: Message, answer: Message) -> str:
        """Return the token that ends this turn, whether it is the last or an answer follows."""
        try:
            last = self.text([ASKED, said], ask=False).rpartition(STAND_IN)[2]
        except ConfigError as error:
            if isinstance(error.__cause__, OverLimit):  # it would be so every time
                raise
            return ""
        try:
            middle = self.text([ASKED, said, answer], ask=False).rpartition(STAND_IN)[2]
        except ConfigError:
            middle = last
        # gpt-oss ends the last turn with another token than the others; then the last one counts.
        ids = self.ids(last)
        both = str(self.tokenizer.decode(ids[: _shared(ids, self.ids(middle))], clean_up_tokenization_spaces=False))
        closing = both if self._specials(both) else last
        found = self._specials(closing)
        stop = self.tokenizer.eos_token
        if stop and stop in [token for _, token in found]:
            return str(stop)
        return found[-1][1] if found and not closing[found[-1][0] + len(found[-1][1]) :].strip() else ""

    def first_special(self, text: str) -> str:
        """Return the special token with which a text begins, unless it opens the model's turn; else nothing."""
        found = self._specials(text)
        asked, closed = self.text([ASKED]), self.text([ASKED], ask=False)
        opens = self._specials(asked.removeprefix(closed))[:1] if asked.startswith(closed) else []
        return found[0][1] if found and found[0][0] == 0 and found[0][1] not in [token for _, token in opens] else ""

    def _specials(self, text: str) -> list[tuple[int, str]]:
        """Return the special tokens in a text, each with its place; of several at one place the longest."""
        found: dict[int, str] = {}
        for token in self.special:
            place = text.find(token)
            while place >= 0:
                found[place] = max(found.get(place, ""), token, key=len)
                place = text.find(token, place + 1)
        return sorted(found.items())

    # What it writes and reads

    @cached_property
    def shape(self) -> MessageShape:
        """How it wants messages with calls."""
        return self._calls[1]

    @cached_property
    def form(self) -> CallFormat | None:
        """The format in which it writes calls; None for a template without tools."""
        return self._calls[0]

    @cached_property
    def shows_tools(self) -> bool:
        """Whether it tells the model which tools there are."""
        tool = {**PROBE_TOOL, "function": {**PROBE_TOOL["function"], "name": "shown_probe"}}  # type: ignore[dict-item]
        try:
            return "shown_probe" in self._text([ASKED], True, [tool])
        except ConfigError:
            return False

    @cached_property
    def writes_calls(self) -> bool:
        """Whether the template itself writes calls; otherwise they are written into the text of the turn."""
        return self.form is None or self._calls[2]

    def call_format(self) -> CallFormat:
        """Return the format in which the model writes calls; refuse a model that has none."""
        if self.form is None:
            sample = next((text for text in self._samples.values() if PROBE.name in text), "")
            known = f"writes tool calls as {sample.strip()[:80]!r}, which is" if sample else "has"
            message = f"the model's chat template {known} no tool-call format that Groupwise knows"
            raise ConfigError(message, hint=f"{ADD} Or use a model trained to call tools, or leave the tools out.")
        return self.form

    @cached_property
    def _calls(self) -> tuple[CallFormat | None, MessageShape, bool]:
        """The format of calls, the shape of messages with calls, and whether the template writes them."""
        known = [named_format(self.tool_format)] if self.tool_format else FORMATS
        for shape, sample in self._samples.items():
            form = next((form for form in known if self._reads_back(form, shape, sample)), None)
            if form is not None:
                return form, shape, True
        if self.tool_format:
            return known[0], MessageShape(), False
        for shape, sample in self._samples.items():
            form = next((f for f in derived_formats(sample, PROBE) if self._reads_back(f, shape, sample)), None)
            if form is not None:
                return form, shape, True
        return self._by_tokens(), MessageShape(), False

    @cached_property
    def _samples(self) -> dict[MessageShape, str]:
        """A turn with a call as the template writes it, for each shape of messages that it takes."""
        samples = {}
        for shape in MessageShape.for_calls():
            try:
                samples[shape] = self._sample(shape)
            except ConfigError as error:
                if isinstance(error.__cause__, OverLimit):  # once is enough
                    return {}
        return samples

    def _sample(self, shape: MessageShape, calls: Sequence[ToolCall] = (PROBE,)) -> str:
        """Return the text of a turn with these calls, as the model would write it, without its end."""
        opened = self._text([ASKED], True, [PROBE_TOOL])
        whole = self._text(shape.fit([ASKED, call_message(calls)]), False, [PROBE_TOOL])
        asked, ids = self.ids(opened), self.ids(whole)
        said = ids[_shared(asked, ids) :]
        text = str(self.tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        return text.removesuffix(self._closing)

    @cached_property
    def _closing(self) -> str:
        """What it writes behind the words of the last turn."""
        return self._text(self.fitted([ASKED, SAID]), False).rpartition(STAND_IN)[2]

    def _reads_back(self, form: CallFormat, shape: MessageShape, sample: str) -> bool:
        if not _same(form, sample, [PROBE]):
            return False
        try:
            two = self._sample(shape, [PROBE, SECOND])
        except ConfigError:  # one call at a time
            return True
        only_first = str(SECOND.arguments["text"]) not in two
        return _same(form, two, [PROBE] if only_first else [PROBE, SECOND])

    def _by_tokens(self) -> CallFormat | None:
        """Some templates show tools and results but leave the writing of calls to the model: its marks tell which."""
        result = {"role": "tool", "tool_call_id": PROBE.id, "name": PROBE.name, "content": STAND_IN}
        try:
            plain, shown = (self._text(talk, True) for talk in ([ASKED, SAID], [ASKED, SAID, result]))
        except ConfigError:
            return None
        if not self.shows_tools or shown.count(STAND_IN) < 2:
            return None
        known = self.tokenizer.get_vocab()
        forms = [form for form in FORMATS if form.marks]
        # Marks that any turn has, such as <|end|>, tell nothing of calls.
        by_marks = (form for form in forms if any(mark in shown and mark not in plain for mark in form.marks))
        return next((form for form in forms if form.begins[0] in known), next(by_marks, None))

    def _with_calls(self, message: Message) -> Message:
        """Return the message with its calls in the text, where the template cannot write calls."""
        if not message.get("tool_calls") or self.writes_calls or self.form is None:
            return message
        said = dict(MessageShape().fit([message])[0])
        calls = [ToolCall(call["id"], **call["function"]) for call in said.pop("tool_calls")]
        return {**said, "content": f"{said.get('content') or ''}{self.form.write(calls)}"}

    @cached_property
    def _parts(self) -> bool:
        """Whether it reads content only as a list of parts, as templates for pictures do."""
        for parts in (False, True):
            try:
                if STAND_IN in self._text(MessageShape(parts=parts).fit([ASKED, SAID]), False):
                    return parts
            except ConfigError as error:
                if isinstance(error.__cause__, OverLimit):  # it would be so every time
                    raise
        return False

    @cached_property
    def _thoughts(self) -> str | None:
        """The key under which it reads the thought of a turn; None if it reads none."""
        for key in THOUGHTS:
            try:
                said = MessageShape(thoughts=key, parts=self._parts).fit([ASKED, {**SAID, key: "a thought"}])
                if "a thought" in self._text(said, False):
                    return key
            except ConfigError:
                continue
        return None


def template_of(
    tokenizer: Any, options: Mapping[str, Any] | None = None, tool_format: str | None = None
) -> ChatTemplate:
    """Return the tokenizer's chat template; what was found out about it is kept for the next call."""
    written = json.dumps(dict(options or {}), sort_keys=True)
    return _known_template(tokenizer, str(tokenizer.chat_template), written, tool_format)


@lru_cache(maxsize=64)
def _known_template(tokenizer: Any, template: str, options: str, tool_format: str | None) -> ChatTemplate:
    return ChatTemplate(tokenizer, json.loads(options), tool_format)


def _same(form: CallFormat, text: str, calls: Sequence[ToolCall]) -> bool:
    reply = read_reply(text, form, 0, tools=[PROBE_TOOL])
    return not reply.broken and [(c.name, c.arguments) for c in reply.tool_calls] == [
        (c.name, c.arguments) for c in calls
    ]


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many tokens, or characters, two rows have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def special_tokens(tokenizer: Any) -> list[str]:
    """Return the tokens that delimit turns. Spelled out inside a text, they would be encoded as delimiters."""
    added = (token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special)
    return sorted({*added, *tokenizer.all_special_tokens})


def template_refusal(error: Exception, messages: Sequence[Message], options: Mapping[str, Any]) -> ConfigError:
    """Return the error to raise when a chat template refuses some messages."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OverLimit):
        return ConfigError(
            f"the model's chat template cannot be used: {said}",
            hint="Set another template (tokenizer.chat_template = …) and save the tokenizer again.",
        )
    roles = ", ".join(str(message["role"]) for message in messages)
    hint, given = "Use other roles, or put the messages in another order.", ""
    if options:
        hint, given = f"Check chat_template_kwargs. {hint}", f" with {dict(options)!r:.200}"
    return ConfigError(f"the model's chat template rejects the roles {roles}{given}: {said}", hint=hint)
