"""Which thoughts a model writes, found from its chat template. `groupwise/thoughts.py` splits its texts."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from groupwise.language.chat_templates import chat_text
from groupwise.thoughts import MARKS, MESSAGE, THINK, Marks, SplitText, ThoughtFormat

PROMPT_END = 16  # tokens of a prompt that show whether it opens a thought
KEYS = ("reasoning_content", "reasoning", "thinking")  # of a message's thought, in one template or another
THOUGHT, ANSWER = "a-thought-to-find", "an-answer-to-find"
TAG = r"<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\]"


def thought_format(tokenizer: Any) -> ThoughtFormat:
    """How the model writes thoughts. One whose template says nothing of them may still write <think>, as R1 does."""
    template = tokenizer.chat_template or ""
    return _format(tokenizer, "\n".join(template.values()) if isinstance(template, Mapping) else str(template))


@lru_cache(maxsize=64)
def _format(tokenizer: Any, template: str) -> ThoughtFormat:
    if MESSAGE in template:
        return ThoughtFormat(messages=True)
    known = tuple(marks for marks in MARKS if marks[1] in template)
    return ThoughtFormat(known or (_written_marks(tokenizer, template) or THINK,))


def _written_marks(tokenizer: Any, template: str) -> Marks | None:
    """The marks between which the template itself writes a thought, for those that nobody told us of."""
    if not any(key in template for key in KEYS):
        return None
    said = {"role": "assistant", "content": ANSWER, **dict.fromkeys(KEYS, THOUGHT)}
    try:
        text = chat_text(tokenizer, [{"role": "user", "content": "?"}, said], add_generation_prompt=False)
    except Exception:  # a template is a program and raises what it likes
        return None
    before, _, rest = text.partition(THOUGHT)
    between, answered, _ = rest.partition(ANSWER)
    opens, closes = re.search(rf"({TAG})\s*$", before), re.match(rf"\s*({TAG})", between)
    return (opens[1], closes[1]) if answered and opens and closes and opens[1] != closes[1] else None


def split_answer(tokenizer: Any, prompt: Sequence[int], text: str) -> SplitText:
    """What a model thought and said after a prompt, whose last tokens may have opened the thought."""
    known = thought_format(tokenizer)
    return known.split(text, known.opened(prompt_end(tokenizer, prompt)))


def hidden_tokens(tokenizer: Any, marks: Sequence[str] = ()) -> frozenset[int]:
    """The special tokens that are not text for a reader; those in `marks`, or that delimit thoughts, are needed."""
    needed = (*thought_format(tokenizer).delimiters, *marks)
    added = getattr(tokenizer, "added_tokens_decoder", {}).items()
    special = {number: token.content for number, token in added if token.special}
    special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return frozenset(number for number, text in special.items() if not any(text in mark for mark in needed))


def prompt_end(tokenizer: Any, prompt: Sequence[int]) -> str:
    return str(tokenizer.decode(list(prompt[-PROMPT_END:]), skip_special_tokens=False)) if len(prompt) else ""
