"""A rough score from the words alone, for when no judge is to be had; it is always flagged where it stands in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from groupwise.rewards.function import RewardFunction
from groupwise.types import Message, Score

WORD = re.compile(r"\w+")
ENOUGH = 40


class HeuristicReward(RewardFunction):
    """The mean of three parts, each from 0 to 1; 0 for an attempt that said nothing.

    - relevance: the share of the user's words of four letters and more that the replies take up (1 if there are none);
    - substance: words in the replies by `enough`, at most 1;
    - variety: different words by words, which falls with repetition.
    """

    def __init__(self, weight: float = 1.0, name: str | None = None, enough: int = ENOUGH) -> None:
        super().__init__(weight, name)
        self.enough = enough

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        said, asked = _words(turns, "assistant"), {word for word in _words(turns, "user") if len(word) > 3}
        if not said:
            return Score(0.0, {"relevance": 0.0, "substance": 0.0, "variety": 0.0})
        parts = {
            "relevance": len(asked & {*said}) / len(asked) if asked else 1.0,
            "substance": min(1.0, len(said) / self.enough),
            "variety": len({*said}) / len(said),
        }
        return Score(sum(parts.values()) / len(parts), parts)


def _words(turns: Sequence[Message], role: str) -> list[str]:
    texts = [turn.get("content") for turn in turns if turn.get("role") == role]
    return [word for text in texts if isinstance(text, str) for word in WORD.findall(text.lower())]
