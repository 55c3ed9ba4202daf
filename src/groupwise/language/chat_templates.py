"""Conversations as text in a model's own chat format. Templates come with models, so strangers wrote them."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.foreign_programs import render
from groupwise.language.tiny import CHAT_TEMPLATE


def chat_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    chat_template: str | None = None,
) -> str:
    """The messages as the tokenizer's chat template writes them; `chat_template` names one of several.

    Templates of models run within limits. A template raises what it likes: callers expect any exception.
    """
    template = tokenizer.get_chat_template(chat_template, tools)
    given = {"tools": tools, "add_generation_prompt": add_generation_prompt}
    # Our own needs no second process.
    if template == CHAT_TEMPLATE:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **given))
    return render(template, {**tokenizer.special_tokens_map, **given, "messages": messages})


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The tokens of the messages up to the model's turn."""
    return list(tokenizer.encode(chat_text(tokenizer, messages), add_special_tokens=False, verbose=False))
