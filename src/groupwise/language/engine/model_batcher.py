"""Continuous batching of any model that `AutoModelForCausalLM` loads, through its own forward pass and cache.

Mixtures of experts, hybrids, sliding windows, state-space models: whatever `families` does not describe. Rows of
different lengths share a cache that is padded on the left, as far as the model can do that (`find_abilities`). Where
it cannot, rows of one length run together and others wait; a model without a usable cache reads its rows again for
every token.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.language.engine.model_cache import ModelCache, joined, picked
from groupwise.language.engine.model_forward import Ids, ModelForward, find_abilities
from groupwise.language.engine.prefill import SWEEP_TOKENS
from groupwise.language.engine.request import GenerationRequest, Sampled
from groupwise.language.engine.row_batcher import RowBatcher
from groupwise.language.engine.weights import Fingerprint

log = logging.getLogger(__name__)
# Columns of padding that every row may have before the rows are read again without it.
MOST_PADDING = 64


class ModelBatcher(RowBatcher):
    """Has no sessions: every turn of a conversation reads its prompt again."""

    def __init__(self, model: nn.Module, *, slots: int, eos: frozenset[int]) -> None:
        self.forward = ModelForward(model)
        self.abilities = find_abilities(self.forward)
        kind = getattr(self.forward.config, "model_type", type(model).__name__)
        log.info("the engine runs %s models through their own forward pass: %s", kind, self.abilities)
        device = self.forward.device
        super().__init__(model, slots=slots, eos=eos, vocabulary=int(self.forward.config.vocab_size), device=device)
        # Rows 0 … count − 1, each with its newest token in the last of `width` columns; None without rows.
        self.cache: ModelCache = None
        self.width = 0
        # Prompts that waiting requests share: their cache of one row, and their logits [1, vocabulary].
        self.prompts: dict[bytes, tuple[ModelCache, Tensor]] = {}
        self.fingerprint = Fingerprint(model)
        self._tokens_read = 0

    @property
    def tokens_read(self) -> int:
        return self._tokens_read

    @torch.inference_mode()
    def renew(self, model: nn.Module | None = None) -> None:
        if model is not None and model is not self.model:
            self._change_model(model)
        self.fingerprint = Fingerprint(self.model)
        self.prompts.clear()
        self._read_rows(range(self.rows.count))

    def _change_model(self, model: nn.Module) -> None:
        forward = ModelForward(model)
        if int(forward.config.vocab_size) != self.vocabulary:
            theirs = f"{type(forward.model).__name__} with {forward.config.vocab_size}"
            mine = f"{type(self.forward.model).__name__} with a vocabulary of {self.vocabulary} tokens"
            raise ContractError(f"this engine was built for {mine} and cannot load {theirs}")
        self.model, self.forward, self.abilities = model, forward, find_abilities(forward)

    def _choose_entering(self) -> None:
        room = self.slots - self.rows.count
        able = list(self.waiting)
        if self.abilities.cached and not self.abilities.joins:
            # Rows of one length run from beginning to end.
            able = [] if self.rows.count else [r for r in able if len(r.ids) == len(able[0].ids)]
        self.entering += able[:room]
        for request in self.entering:
            self.waiting.remove(request)

    def _read_entering(self) -> Tensor:
        prompts = {request.key: request.ids for request in self.entering}
        known = {key: self.prompts[key] for key in prompts if key in self.prompts}
        unknown = [key for key in prompts if key not in known]
        parts = list(known.values())
        if unknown:
            parts.append(self._read([prompts[key] for key in unknown]))
            self._tokens_read += sum(len(prompts[key]) for key in unknown)
        place = {key: row for row, key in enumerate([*known, *unknown])}
        cache, logits = self._join([cache for cache, _ in parts]), torch.cat([logits for _, logits in parts])
        self._keep_prompts(cache, logits, place)
        rows = torch.tensor([place[request.key] for request in self.entering], device=self.device)
        self._add_rows(self._pick(cache, rows), max(len(request.ids) for request in self.entering))
        return logits[rows]

    def _keep_prompts(self, cache: ModelCache, logits: Tensor, place: dict[bytes, int]) -> None:
        """Keep what was read of the prompts that more requests are waiting for, and drop the others."""
        if not self.abilities.joins:
            return
        wanted = {request.key for request in self.waiting}
        self.prompts = {key: kept for key, kept in self.prompts.items() if key in wanted}
        for key in (wanted & place.keys()) - self.prompts.keys():
            row = torch.tensor([place[key]], device=self.device)
            self.prompts[key] = picked(cache, row), logits[row]

    def _add_rows(self, cache: ModelCache, width: int) -> None:
        running = self.rows.count > 0
        self.cache = self._join([self.cache, cache]) if running else cache
        self.width = max(self.width, width) if running else width

    def _next_logits(self) -> Tensor:
        rows, count = self.rows, self.rows.count
        if not self.abilities.cached:
            return self.forward.read_all([np.append(rows.cached_ids(row), rows.token[row]) for row in range(count)])
        self.cache, logits = self.forward.decode(self.cache, rows.token[:count], rows.length[:count], self.width)
        self.width += 1
        return logits

    def _leave(self, outcomes: dict[int, Sampled | BaseException], new_place: dict[int, int], kept: int) -> None:
        remaining = [new_place.get(row, row) for row in range(kept)]
        if not remaining:
            self.cache = None
            return
        if self.width > 2 * int(self.rows.length[remaining].max()) + MOST_PADDING:
            self._read_rows(remaining)
        else:
            self.cache = self._pick(self.cache, torch.tensor(remaining, device=self.device))

    def _withdraw(self, request: GenerationRequest) -> None:
        if all(other.key != request.key for other in self.waiting):
            self.prompts.pop(request.key, None)

    def _forget_everything(self) -> None:
        self.cache = None
        self.prompts.clear()

    def _read_rows(self, rows: Sequence[int]) -> None:
        """Compute the cache of these rows from their tokens."""
        self.cache = self._read([self.rows.cached_ids(row) for row in rows])[0] if rows else None
        self.width = int(self.rows.length[list(rows)].max()) if rows else 0

    def _read(self, prompts: Sequence[Ids]) -> tuple[ModelCache, Tensor]:
        """The cache and the logits [prompts, vocabulary] of these prompts, in as few calls as the model allows."""
        if not self.abilities.cached:
            return None, self.forward.read_all(prompts)
        batches = _batches([len(prompt) for prompt in prompts], self.abilities.pads)
        if not self.abilities.joins:
            batches = [list(range(len(prompts)))]
        read = [self.forward.read([prompts[i] for i in batch]) for batch in batches]
        back = torch.from_numpy(np.argsort(np.concatenate(batches))).to(self.device)
        logits = torch.cat([logits for _, logits in read])
        if len(batches) == 1 and batches[0] == list(range(len(prompts))):
            return read[0]
        return self._pick(self._join([cache for cache, _ in read]), back), logits[back]

    def _pick(self, cache: ModelCache, rows: Tensor) -> ModelCache:
        return picked(cache, rows) if self.abilities.cached else None

    def _join(self, caches: Sequence[ModelCache]) -> ModelCache:
        return joined(caches) if self.abilities.cached else None


def _batches(lengths: Sequence[int], pads: bool) -> list[list[int]]:
    """Which prompts to read together: neighbours in length up to SWEEP_TOKENS, or else those of equal length."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        fits = bool(batches) and (len(batches[-1]) + 1) * lengths[i] <= SWEEP_TOKENS
        if fits and (pads or lengths[batches[-1][-1]] == lengths[i]):
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
