"""Reading prompts into the cache: each distinct one once, however many requests share it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from groupwise.language.engine.cache import Cache, ParkedSession, PromptSnapshot
from groupwise.language.engine.network import Network, PromptPiece
from groupwise.language.engine.request import GenerationRequest

Turn: TypeAlias = tuple[GenerationRequest, ParkedSession | None]
# Bytes of a token in a request's key.
BYTES = 8
# Tokens read at once: limits the memory of a sweep, not the length of a prompt.
SWEEP_TOKENS = 8192


class Prefill:
    """Reads prompts, and keeps those that waiting requests share.

    A group may have more members than there are free rows. While some of them wait, their prompt stays in `snapshots`,
    so that it is still read only once.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.waiting: Counter[bytes] = Counter()
        self.snapshots: dict[bytes, PromptSnapshot] = {}
        self.tokens_read = 0

    def forget(self) -> None:
        self.snapshots.clear()

    def arrived(self, request: GenerationRequest) -> None:
        self.waiting[request.key] += 1

    def left(self, request: GenerationRequest) -> None:
        self.waiting[request.key] -= 1
        if self.waiting[request.key] <= 0:
            del self.waiting[request.key]

    def prune(self) -> None:
        """Drop prompts that no request waits for."""
        for key in self.snapshots.keys() - self.waiting.keys():
            del self.snapshots[key]

    def read(self, turns: Sequence[Turn], first: int, running: Mapping[bytes, int], network: Network) -> Tensor:
        """Fill rows from `first` on with the turns' prompts and return the logits after each, [turns, vocabulary].

        `running` maps prompts to rows that already run with them: of such a prompt, only the last token is read again.
        """
        self.cache.ensure(first + len(turns), max(len(request.ids) for request, _ in turns) + 1)
        kept = {
            first + i: self.snapshots[r.key] for i, (r, p) in enumerate(turns) if p is None and r.key in self.snapshots
        }
        pieces: list[PromptPiece] = []
        # Prompt → the piece that reads it.
        leaders: dict[bytes, int] = {}
        # For each turn without a snapshot, the piece whose logits it gets.
        sources: list[int] = []
        # Piece → other rows that get a copy of its keys and values.
        followers: dict[int, list[int]] = {}
        for row, (request, parked) in enumerate(turns, start=first):
            if row in kept:
                self.cache.restore(kept[row], row)
                continue
            if parked is None and request.key in leaders:
                followers.setdefault(leaders[request.key], []).append(row)
                sources.append(leaders[request.key])
                continue
            start = self._start(row, request, parked, running)
            leaders.setdefault(request.key, len(pieces))
            sources.append(len(pieces))
            pieces.append(PromptPiece(row, start, request.ids[start:]))
        logits = self.sweep(pieces, network)
        for leader, rows in followers.items():
            piece = pieces[leader]
            self.cache.copy([piece.row] * len(rows), rows, piece.start + len(piece.tokens))
        for key, i in leaders.items():
            if key in self.waiting:
                self.snapshots[key] = self.cache.snapshot(pieces[i].row, len(key) // BYTES, logits[i])
        self.prune()
        read = logits[torch.tensor(sources, device=logits.device, dtype=torch.int64)]
        return _merge(read, kept, first) if kept else read

    def sweep(self, pieces: Sequence[PromptPiece], network: Network) -> Tensor:
        """Run pieces through the network, at most SWEEP_TOKENS at a time: logits [pieces, vocabulary]."""
        logits = [network.no_logits()]
        batch: list[PromptPiece] = []
        for place, piece in enumerate(pieces):
            batch.append(piece)
            size = sum(len(p.tokens) for p in batch)
            last = place + 1 == len(pieces)
            if last or size + len(pieces[place + 1].tokens) > SWEEP_TOKENS:
                logits.append(network.prefill(batch, self.cache))
                self.tokens_read += size
                batch = []
        return torch.cat(logits) if len(logits) > 2 else logits[-1]

    def _start(
        self, row: int, request: GenerationRequest, parked: ParkedSession | None, running: Mapping[bytes, int]
    ) -> int:
        """How many tokens of a prompt are in its row already, from its session or copied from a row with the same."""
        if parked is not None:
            return parked.shared_with(request.ids)
        if request.key not in running:
            return 0
        self.cache.copy([running[request.key]], [row], len(request.ids) - 1)
        return len(request.ids) - 1


def _merge(read: Tensor, kept: dict[int, PromptSnapshot], first: int) -> Tensor:
    """The logits of all turns in order: those just read, and those of snapshots."""
    rows = iter(read)
    total = len(read) + len(kept)
    return torch.stack([kept[row].logits if row in kept else next(rows) for row in range(first, first + total)])
