"""Text from tokens as they come: never half a letter, never a special token, never part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
