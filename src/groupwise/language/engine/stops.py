"""Stop strings: found in text, while the engine deals in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARGIN = 16  # characters at the cut of a window that a tokenizer may write differently
UNKNOWN, NO, MAYBE = 0, 1, 2


class StopStrings:
    """Finds any of some strings in a growing list of tokens.

    A string can only be completed by a token that contains its last character (or part of one), so most tokens are
    dismissed by a table, and the tokenizer decodes just the tail, as far back as a string can reach.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Any, vocabulary: int) -> None:
        self.strings = tuple(strings)
        self.tokenizer = tokenizer
        self.longest = max(len(s) for s in strings)
        self.table: NDArray[np.int8] = np.zeros(vocabulary, np.int8)

    def ends(self, ids: NDArray[np.int64]) -> bool:
        """Whether the last token of `ids` completes one of the strings."""
        return self._may_end_with(int(ids[-1])) and self._found_in(ids)

    def _may_end_with(self, token: int) -> bool:
        if self.table[token] == UNKNOWN:
            # Doubled, because some tokenizers drop the space a text begins with.
            text = self._text([token, token])
            whole = bool(text) and "�" not in text
            ends = any(s[-1] in text for s in self.strings)
            self.table[token] = MAYBE if ends or not whole else NO
        return bool(self.table[token] == MAYBE)

    def _found_in(self, ids: NDArray[np.int64]) -> bool:
        width = self.longest + MARGIN
        while True:
            text = self._text(ids[-width:].tolist())
            if width >= len(ids) or len(text) >= self.longest + MARGIN:
                return any(s in text for s in self.strings)
            width *= 2

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
