"""Continuous batching of the families the engine knows: only running rows cost anything.

A prompt that several requests share is read once, and the next turn of a session reads only its new tokens.
"""

import torch
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.language.engine.cache import Cache, CacheRows
from groupwise.language.engine.families import Architecture, describe
from groupwise.language.engine.network import Network, PromptPiece
from groupwise.language.engine.numpy_decoder import decoder
from groupwise.language.engine.prefill import Prefill
from groupwise.language.engine.request import GenerationRequest, Sampled
from groupwise.language.engine.rotary import RotaryTables
from groupwise.language.engine.row_batcher import RowBatcher
from groupwise.language.engine.shared_prompts import find_shared_prompts
from groupwise.language.engine.weights import Fingerprint


class Batcher(RowBatcher):
    """Runs an `Architecture` through the engine's own network and cache."""

    def __init__(
        self, model: nn.Module, architecture: Architecture, *, slots: int, length: int, eos: frozenset[int], copy: bool
    ) -> None:
        a = architecture
        like = next(a.embedding.parameters())
        super().__init__(model, slots=slots, eos=eos, vocabulary=a.vocabulary, device=like.device)
        self.architecture, self.copy = a, copy
        self.cache = Cache(len(a.layers), a.kv_heads, a.head_dim, rows=slots, length=length, like=like)
        self.sessions = CacheRows(self.cache, slots)
        self.prompts = Prefill(self.cache)
        self.rotary = self._rotary(a)
        # Whether `cache.shared_prompts` matches the requests in the rows.
        self.settled = False
        self.index = torch.arange(slots, device=self.device)
        self._take_weights()

    @property
    def tokens_read(self) -> int:
        return self.prompts.tokens_read

    def add(self, request: GenerationRequest) -> None:
        super().add(request)
        self.prompts.arrived(request)

    @torch.inference_mode()
    def renew(self, model: nn.Module | None = None) -> None:
        if model is not None and model is not self.model:
            self._change_model(model)
        self._take_weights()
        self.cache.shared_prompts, self.settled = None, False
        self.sessions.forget()
        self.prompts.forget()
        running = [PromptPiece(row, 0, self.rows.cached_ids(row)) for row in range(self.rows.count)]
        self.prompts.sweep(running, self.network)

    def _change_model(self, model: nn.Module) -> None:
        found, mine = describe(model), self.architecture
        if found is None or found.shape != mine.shape:
            theirs = "an unknown model family" if found is None else f"{found.name} {found.shape}"
            raise ContractError(f"this engine was built for {mine.name} {mine.shape} and cannot load {theirs}")
        self.model, self.architecture = model, found
        self.rotary = self._rotary(found)

    def _rotary(self, architecture: Architecture) -> RotaryTables | None:
        if architecture.rotary is None:
            return None
        dtype = next(architecture.embedding.parameters()).dtype
        return RotaryTables(architecture, paired=self.copy and dtype == torch.float32)

    def _take_weights(self) -> None:
        self.fingerprint = Fingerprint(self.model)
        self.network = Network(self.architecture, self.rotary, copy=self.copy)
        self.decoder = decoder(self.network)

    def _choose_entering(self) -> None:
        while self.waiting and self.rows.count + len(self.entering) < self.slots:
            self.entering.append(self.waiting.popleft())
            self.prompts.left(self.entering[-1])

    def _read_entering(self) -> Tensor:
        turns = [(request, self.sessions.take(request.session)) for request in self.entering]
        # Sessions with a cache first: make_room puts them into the first of the new rows.
        turns.sort(key=lambda turn: turn[1] is None)
        first = self.rows.count
        self.sessions.make_room(first, len(turns), [parked for _, parked in turns if parked is not None])
        running = {request.key: row for row, request in enumerate(self.rows.requests)}
        logits = self.prompts.read(turns, first, running, self.network)
        self.entering[:] = [request for request, _ in turns]
        return logits

    def _next_logits(self) -> Tensor:
        rows, count = self.rows, self.rows.count
        positions = rows.length[:count]
        span = int(positions.max()) + 1
        self.cache.ensure(count, span)
        if not self.settled:
            self._settle()
        # All rows at one position need no mask, which is usual right after a group has begun.
        even = bool(positions.min() == span - 1)
        tokens, at = self._tensor(rows.token[:count]), self._tensor(positions)
        return self.decoder.decode(tokens, at, self.index[:count], span, even, self.cache)

    def _unsettle(self) -> None:
        super()._unsettle()
        self.settled = False

    def _settle(self) -> None:
        if self.decoder.reads_shared_prompts:
            prompts = [request.key for request in self.rows.requests]
            self.cache.shared_prompts = find_shared_prompts(prompts, self.cache.store, self.cache.shared_prompts)
        self.settled = True

    def _withdraw(self, request: GenerationRequest) -> None:
        self.prompts.left(request)
        self.prompts.prune()

    def _not_finite(self, row: int) -> ContractError:
        self.cache.wipe(row)
        return super()._not_finite(row)

    def _forget_everything(self) -> None:
        self.prompts.waiting.clear()
        self.prompts.forget()
        self.sessions.forget()
        self.cache.wipe()
        self.cache.shared_prompts = None

    def _leave(self, outcomes: dict[int, Sampled | BaseException], new_place: dict[int, int], kept: int) -> None:
        """Sessions keep their cache above the running rows."""
        for row in sorted(outcomes):
            session = self.rows.requests[row].session
            if session is not None and isinstance(outcomes[row], Sampled):
                self.sessions.park(session, new_place.get(row, row), self.rows.cached_ids(row))
        if not new_place:
            return
        # The row of a session is swapped, since its cache is still wanted.
        length = int(self.rows.length[: self.rows.count].max())
        kept_caches = [hole for hole in new_place if self.rows.requests[hole].session is not None]
        plain = [hole for hole in new_place if self.rows.requests[hole].session is None]
        if kept_caches:
            self.cache.exchange(kept_caches, [new_place[hole] for hole in kept_caches], length)
        if plain:
            self.cache.copy([new_place[hole] for hole in plain], plain, length)
