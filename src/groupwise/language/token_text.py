"""The text of single tokens, as a reader sees them."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

# How SentencePiece writes the space before a word, which decoding a single token drops.
WORD = "▁"


def token_texts(tokenizer: Any, ids: Iterable[int]) -> tuple[str, ...]:
    """The text of each token on its own. Part of a character is shown as �, a special token by its name."""
    known = _known(tokenizer)[0]
    return tuple(known[token] if token in known else _learn(tokenizer, known, token) for token in map(int, ids))


@lru_cache(maxsize=4)
def _known(tokenizer: Any) -> tuple[dict[int, str], dict[int, bool]]:
    """The texts of tokens seen so far, and whether they are special."""
    return {}, {}


def _learn(tokenizer: Any, known: dict[int, str], token: int) -> str:
    text = str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    written = tokenizer.convert_ids_to_tokens(token)
    if isinstance(written, str) and written.startswith(WORD) and not text.startswith(" "):
        text = f" {text}"
    known[token] = text
    return text


def is_special(tokenizer: Any, token: int) -> bool:
    """Whether a token has no text."""
    known = _known(tokenizer)[1]
    if token not in known:
        known[token] = not tokenizer.decode([token], skip_special_tokens=True)
    return known[token]
