"""Conversations as text in a model's own chat format. Templates come with models, so strangers wrote them."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.foreign_programs import render
from groupwise.language.tiny import CHAT_TEMPLATE

# For tokenizers that come without a chat template, such as GPT-2's: roles in words, and the end-of-text token behind
# every turn of the model, so that it can learn to stop.
PLAIN_TEMPLATE = """\
{%- for message in messages -%}
{{ message['role'] | capitalize + ':' + (' ' + message['content'] | trim if message['content'] else '') }}
{{- (eos_token if message['role'] == 'assistant' else '') + '\n\n' }}
{%- endfor -%}
{{ 'Assistant:' if add_generation_prompt }}"""


def chat_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    chat_template: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """The messages as the tokenizer's chat template writes them; `chat_template` names one of several.

    `options` are variables of the template, such as `enable_thinking`. Templates of models run within limits. They
    raise what they like: callers expect any exception.
    """
    template = tokenizer.get_chat_template(chat_template, tools) if tokenizer.chat_template else PLAIN_TEMPLATE
    given = {**(options or {}), "tools": tools, "add_generation_prompt": add_generation_prompt}
    # Our own need no second process.
    if template in (CHAT_TEMPLATE, PLAIN_TEMPLATE):
        return str(tokenizer.apply_chat_template(messages, tokenize=False, chat_template=template, **given))
    return render(template, {**tokenizer.special_tokens_map, **given, "messages": messages})


def chat_ids(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
) -> list[int]:
    """The tokens of the messages up to the model's turn."""
    text = chat_text(tokenizer, messages, options=options)
    return list(tokenizer.encode(text, add_special_tokens=False, verbose=False))
