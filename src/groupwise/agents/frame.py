"""The frame of a conversation: from messages to tokens, in the model's own chat format, only ever the new turn.

A model's own turn is never rendered from text: its tokens are carried as they were sampled. What follows it is what the
chat template puts behind such a turn, found by rendering a stand-in for it. Templates that rewrite earlier turns (some
drop a model's thoughts) therefore change nothing that was said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.calls import find_format, read_reply
from groupwise.agents.environment import Reply
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Sampled
from groupwise.types import Message

STAND_IN = "a turn that was said before"
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

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The tokens of a conversation up to the model's first turn."""
        if tools and self.form is None:
            raise ConfigError(
                "the model's chat template has no format for tools that is known here",
                hint="Take a model trained to call tools, or leave the tools out.",
            )
        return self._encode(self._render([self.plain(m) for m in messages], tools=list(tools) or None))

    def following(self, messages: Sequence[Message], ended: bool) -> list[int]:
        """The tokens between two turns of the model; `ended` says that the first ended with its own last token."""
        before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": STAND_IN}]
        whole = self._render([*before, *(self.plain(m) for m in messages)])
        _, found, rest = whole.rpartition(STAND_IN)
        if not found:
            raise ConfigError(
                "the model's chat template leaves out what the model said before",
                hint="It cannot hold a conversation; give it another (tokenizer.chat_template = …).",
            )
        if ended:
            rest = self._after_its_end(rest)
        return self._encode(rest)

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
        """The message with valid text; a special token written out in it is refused, an unknown role too."""
        role, content = message.get("role"), message.get("content") or ""
        if role not in ROLES:
            raise ContractError(f"a message has the role {role!r}; roles are {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise ContractError(f"a message of {role} has content of type {type(content).__name__}, not text")
        token = next((token for token in self.special if token in content), None)
        if token is not None:
            raise NotPlainText(
                f"the text holds {token!r}, which is a special token of the model", hint="Write it otherwise."
            )
        return {**message, "content": content.encode("utf8", "replace").decode()}

    def defused(self, text: str) -> str:
        """The text with special tokens broken up by a space, for what a tool or a stranger wrote."""
        for token in self.special:
            text = text.replace(token, f"{token[:1]} {token[1:]}")
        return text

    def _after_its_end(self, rest: str) -> str:
        """The text behind the token that ends a turn: the first special token in it is that one."""
        places = [(rest.find(token), -len(token), token) for token in self.special if token in rest]
        place, _, token = min(places, default=(0, 0, ""))
        return rest[place + len(token) :]

    def _render(self, messages: Sequence[Message], **options: Any) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **options
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


def special_tokens(tokenizer: Any) -> list[str]:
    """The tokens that frame a text. Written out inside one, they would be encoded as the frame itself."""
    added = (token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special)
    return sorted({*added, *tokenizer.all_special_tokens})
