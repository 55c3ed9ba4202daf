"""The network of the learned reward: text in, one opinion per head out.

A word is the mean of learned vectors of itself and of its pieces of 3 to 5 letters (hashed into a table), so that
`leaking` is known from `leaks`; a GRU in both directions reads the words in their order; every word of the policy is
then held against what it answers (their product, as a bilinear form); mean and maximum over the policy's words go to
the heads. The heads share the encoder and differ in their first weights and in the preferences they learn from: where
they disagree, the reward does not know.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from groupwise.rewards.learned.preferences import RewardTranscript

BUCKETS = 8192
PIECES = (3, 4, 5)
WORD = re.compile(r"\w{1,24}|[^\w\s]")
MOST_WORDS = 384
SILENCE = ""


@lru_cache(maxsize=50_000)
def pieces(word: str) -> tuple[int, ...]:
    """The rows of the table that make up a word: its own, and those of its pieces."""
    framed = f"<{word}>"
    parts = [framed]
    if len(word) > 2:
        parts += [framed[i : i + size] for size in PIECES for i in range(len(framed) - size + 1)]
    return tuple(zlib.crc32(part.encode("utf8", "backslashreplace")) % BUCKETS for part in parts)


@lru_cache(maxsize=8192)
def words_of(transcript: RewardTranscript) -> list[tuple[bool, str]]:
    """Every word and who said it; of very long conversations the first and the last. Nobody is without a word."""
    said = [(own, word) for own, text in transcript.turns for word in WORD.findall(text.lower())]
    if len(said) > MOST_WORDS:
        said = said[: MOST_WORDS // 2] + said[-MOST_WORDS // 2 :]
    return [(False, SILENCE), *said, (True, SILENCE)]


class WordVectors(nn.Module):
    """Vectors of words [B, T, E]; each different word of a batch is looked up once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, width, mode="mean")
        self.speaker = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, batch: Sequence[RewardTranscript]) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, which places hold a word, and which of these the policy said."""
        said = [words_of(transcript) for transcript in batch]
        longest = max(map(len, said))
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(word, len(numbers)) for _, word in words] for words in said]
        place = torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
        own = torch.tensor([[own for own, _ in words] + [False] * (longest - len(words)) for words in said])
        parts = [pieces(word) for word in numbers]
        starts = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0)[:-1]
        known = self.table(torch.tensor([row for part in parts for row in part]), starts)
        return self.norm(known[place.clamp(min=0)]) + self.speaker(own.long()), place >= 0, own


class Encoder(nn.Module):
    """A conversation as one vector [B, 2E]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = WordVectors(width)
        self.reader = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.question, self.answer = nn.Linear(width, width), nn.Linear(width, width)
        self.compare = nn.Linear(3 * width, width)

    def forward(self, batch: Sequence[RewardTranscript]) -> Tensor:
        words, there, own = self.words(batch)
        read = words + self.reader(words)[0]
        question = torch.tanh(self.question(_mean(read, there & ~own)))[:, None]
        told = torch.cat([read, question.expand_as(read), self.answer(read) * question], -1)
        compared = nn.functional.gelu(self.compare(told))
        return torch.cat([_mean(compared, own), compared.masked_fill(~own[..., None], -math.inf).amax(1)], -1)


class Opinions(nn.Module):
    """The whole network: [heads, B], each head a layer of `hidden` units of its own."""

    def __init__(self, width: int, hidden: int, heads: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(width)
            self.first = nn.Parameter(torch.randn(heads, 2 * width, hidden) / math.sqrt(2 * width))
            self.bias = nn.Parameter(torch.zeros(heads, 1, hidden))
            self.last = nn.Parameter(torch.randn(heads, hidden, 1) / math.sqrt(hidden))

    def forward(self, batch: Sequence[RewardTranscript], keep: Tensor | None = None) -> Tensor:
        """`keep` [B, 2E] drops some of what the encoder says, while it learns."""
        encoded = self.encoder(batch)
        encoded = encoded if keep is None else encoded * keep
        return (nn.functional.gelu(encoded @ self.first + self.bias) @ self.last).squeeze(-1)


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    weights = chosen[..., None].to(values.dtype)
    return (values * weights).sum(1) / weights.sum(1).clamp(min=1)
