"""The network of the learned reward: text in, one opinion per head out.

A word is the mean of learned vectors for itself and its pieces of 3 to 5 letters (hashed into a table), so that
`leaking` resembles `leaks`. A bidirectional GRU reads the words. Every word of the policy is then compared with what it
answers (their product, a bilinear form), and the mean and maximum over the policy's words go to the heads. The heads
share the encoder but differ in their initial weights and in the preferences they learn from: where they disagree, the
reward is uncertain.
"""

import math
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from groupwise.rewards.learned.preferences import RewardTranscript

BUCKETS = 8192  # rows of the table that words and pieces are hashed into
PIECES = (3, 4, 5)  # letters
WORD = re.compile(r"\w{1,24}|[^\w\s]")
MOST_WORDS = 384
SILENCE = ""


@lru_cache(maxsize=50_000)
def pieces(word: str) -> tuple[int, ...]:
    """The rows of the table for a word: its own, and those of its pieces."""
    # The brackets mark beginning and end, as in fastText: the piece `<un` can only be a prefix.
    framed = f"<{word}>"
    parts = [framed]
    if len(word) > 2:
        parts += [framed[i : i + size] for size in PIECES for i in range(len(framed) - size + 1)]
    return tuple(zlib.crc32(part.encode("utf8", "backslashreplace")) % BUCKETS for part in parts)


@lru_cache(maxsize=8192)
def words_of(transcript: RewardTranscript) -> list[tuple[bool, str]]:
    """Every word and whether the policy said it; only the first and last words of very long conversations.

    An empty word for each side ensures that no mean is over nothing.
    """
    said = [(own, word) for own, text in transcript.turns for word in WORD.findall(text.lower())]
    if len(said) > MOST_WORDS:
        said = said[: MOST_WORDS // 2] + said[-MOST_WORDS // 2 :]
    return [(False, SILENCE), *said, (True, SILENCE)]


class WordVectors(nn.Module):
    """Vectors of words [B, T, E]; each distinct word of a batch is looked up once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, width, mode="mean")
        self.speaker = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, batch: Sequence[RewardTranscript]) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors [B, T, E], which positions contain a word [B, T], and which of those the policy said [B, T]."""
        said = [words_of(transcript) for transcript in batch]
        longest = max(map(len, said))
        # The distinct words of the batch, in order of appearance → their row in `known`.
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(word, len(numbers)) for _, word in words] for words in said]
        # Padding is -1 here, and row 0 in the lookup, where the mask discards it.
        place = torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
        own = torch.tensor([[own for own, _ in words] + [False] * (longest - len(words)) for words in said])
        parts = [pieces(word) for word in numbers]
        # EmbeddingBag wants all pieces in one row, and where each word's pieces start.
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
        # [B, T, E]: E/2 from each direction, added to the word itself.
        read = words + self.reader(words)[0]
        # [B, 1, E]: the mean of what others said.
        question = torch.tanh(self.question(_mean(read, there & ~own)))[:, None]
        pairs = torch.cat([read, question.expand_as(read), self.answer(read) * question], -1)
        compared = nn.functional.gelu(self.compare(pairs))
        # Over the policy's own words only; the empty word at the end ensures that there is one.
        return torch.cat([_mean(compared, own), compared.masked_fill(~own[..., None], -math.inf).amax(1)], -1)


class Opinions(nn.Module):
    """The complete network: [heads, B], each head with its own layer of `hidden` units."""

    def __init__(self, width: int, hidden: int, heads: int, seed: int) -> None:
        super().__init__()
        # The initial weights depend on the seed alone, and leave the run's generator as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(width)
            self.first = nn.Parameter(torch.randn(heads, 2 * width, hidden) / math.sqrt(2 * width))
            self.bias = nn.Parameter(torch.zeros(heads, 1, hidden))
            self.last = nn.Parameter(torch.randn(heads, hidden, 1) / math.sqrt(hidden))

    def forward(self, batch: Sequence[RewardTranscript], keep: Tensor | None = None) -> Tensor:
        """`keep` [B, 2E] is the dropout mask on the encoder's output during training."""
        encoded = self.encoder(batch)
        encoded = encoded if keep is None else encoded * keep
        # [B, 2E] @ [heads, 2E, hidden] @ [heads, hidden, 1] → [heads, B].
        return (nn.functional.gelu(encoded @ self.first + self.bias) @ self.last).squeeze(-1)


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    weights = chosen[..., None].to(values.dtype)
    return (values * weights).sum(1) / weights.sum(1).clamp(min=1)
