"""A plain score for any reply, where nothing better is known: the learned reward stands on it until it is believed.

score = mean of
  said        1 if there is a word at all
  enough      words / 20, at most 1
  unrepeated  different words / words
  finished    1 if it ends with a full stop or the like
  on topic    share of the question's longer words that it takes up (1 if there are none)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from groupwise.rewards.function import RewardFunction
from groupwise.rewards.transcripts import Transcript
from groupwise.types import Message, Score

WORD = re.compile(r"\w+")
ENOUGH, LONGER = 20, 5


class PlainReward(RewardFunction):
    """The mean of five signs that a reply is one; deterministic, in 0 to 1."""

    def __init__(self, weight: float = 1.0, name: str = "plain") -> None:
        super().__init__(weight, name)

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        said = Transcript.of(turns)
        reply = " ".join(text for own, text in said.turns if own).lower()
        asked = {w for own, text in said.turns if not own for w in WORD.findall(text.lower()) if len(w) >= LONGER}
        words = WORD.findall(reply)
        parts = {
            "said": float(bool(words)),
            "enough": min(1.0, len(words) / ENOUGH),
            "unrepeated": len(set(words)) / len(words) if words else 0.0,
            "finished": float(reply.rstrip().endswith((".", "!", "?", "。"))),
            "on_topic": len(asked & set(words)) / len(asked) if asked else 1.0,
        }
        return Score(sum(parts.values()) / len(parts) if words else 0.0, parts)
