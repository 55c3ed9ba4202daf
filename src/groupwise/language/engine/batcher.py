"""Continuous batching: requests join and leave between any two steps, and only running rows cost anything.

A step first admits waiting requests (a prompt that several share is read once, and the next turn of a session reads
only its new tokens) and then makes one token for every running row.
"""

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.language.engine.cache import Cache, CacheRows
from groupwise.language.engine.families import Architecture, describe
from groupwise.language.engine.network import Network, PromptPiece
from groupwise.language.engine.numpy_decoder import decoder
from groupwise.language.engine.prefill import Prefill
from groupwise.language.engine.request import EndOfText, GenerationRequest, Outcome, Sampled
from groupwise.language.engine.rotary import RotaryTables
from groupwise.language.engine.running_rows import RunningRows
from groupwise.language.engine.sampling import SamplingRules, rules_of, sample, uniforms
from groupwise.language.engine.shared_prompts import find_shared_prompts
from groupwise.language.engine.weights import Fingerprint


class Batcher:
    """The engine without threads and futures. `step` returns the requests that ended."""

    def __init__(
        self, model: nn.Module, architecture: Architecture, *, slots: int, length: int, eos: frozenset[int], copy: bool
    ) -> None:
        a = architecture
        like = next(a.embedding.parameters())
        self.model, self.architecture, self.copy = model, a, copy
        self.slots, self.eos, self.device = slots, eos, like.device
        self.version = 0
        self.waiting: deque[GenerationRequest] = deque()
        # Requests that no longer wait but are not in a row yet.
        self.entering: list[GenerationRequest] = []
        self.cache = Cache(len(a.layers), a.kv_heads, a.head_dim, rows=slots, length=length, like=like)
        self.rows = RunningRows(slots, a.vocabulary)
        self.sessions = CacheRows(self.cache, slots)
        self.prompts = Prefill(self.cache)
        self.rotary = self._rotary(a)
        # [slots, vocabulary], for the repetition penalty.
        self.seen: Tensor | None = None
        self.rules: dict[tuple[int, int], SamplingRules] = {}
        # Whether `cache.shared_prompts` matches the requests in the rows.
        self.settled = False
        self.index = torch.arange(slots, device=self.device)
        self.ended: list[Outcome] = []
        self._take_weights()

    @property
    def idle(self) -> bool:
        return not self.waiting and self.rows.count == 0

    @property
    def tokens_read(self) -> int:
        """The number of prompt tokens that went through the network so far."""
        return self.prompts.tokens_read

    def add(self, request: GenerationRequest) -> None:
        self.waiting.append(request)
        self.prompts.arrived(request)

    @torch.inference_mode()
    def step(self) -> list[Outcome]:
        """Admit requests, make one token per row, and return the requests that ended."""
        # The cheap look in every step; the thorough one only when new prompts come, so that it costs nothing while
        # decoding.
        if not self.fingerprint.looks_current() or (self.waiting and not self.fingerprint.is_current()):
            self.renew()
        self._admit()
        if self.rows.count:
            self._decode()
        ended, self.ended = self.ended, []
        return ended

    @torch.inference_mode()
    def renew(self, model: nn.Module | None = None) -> None:
        """Take changed weights, or another model: everything computed with the old ones is recomputed or dropped."""
        if model is not None and model is not self.model:
            self._change_model(model)
        self._take_weights()
        self.cache.shared_prompts, self.settled = None, False
        self.sessions.forget()
        self.prompts.forget()
        running = [PromptPiece(row, 0, self.rows.cached_ids(row)) for row in range(self.rows.count)]
        self.prompts.sweep(running, self.network)

    @torch.inference_mode()
    def cancel_marked(self) -> list[Outcome]:
        """End requests that are no longer wanted, with the tokens they have."""
        for request in [r for r in self.waiting if r.cancelled]:
            self.waiting.remove(request)
            self.prompts.left(request)
            self.ended.append((request, Sampled.cancelled_unread(self.version)))
        self.prompts.prune()
        rows = [row for row, request in enumerate(self.rows.requests) if request.cancelled]
        self._remove({row: self.rows.result(row, "cancelled") for row in rows})
        ended, self.ended = self.ended, []
        return ended

    @torch.inference_mode()
    def fail(self, error: Exception) -> list[Outcome]:
        """A step raised an exception: every request fails with it, and everything starts over."""
        lost = [*self.rows.requests, *self.entering, *self.waiting]
        self.rows.close_gaps([], [], 0)
        self.entering.clear()
        self.waiting.clear()
        self.prompts.waiting.clear()
        self.prompts.forget()
        self.sessions.forget()
        self.cache.wipe()
        self.cache.shared_prompts = None
        self._unsettle()
        ended, self.ended = self.ended, []
        gone = {id(request) for request, _ in ended}
        return [*ended, *((request, error) for request in lost if id(request) not in gone)]

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

    def _admit(self) -> None:
        while self.waiting and self.rows.count + len(self.entering) < self.slots:
            self.entering.append(self.waiting.popleft())
            self.prompts.left(self.entering[-1])
        if not self.entering:
            return
        turns = [(request, self.sessions.take(request.session)) for request in self.entering]
        # Sessions with a cache first: make_room puts them into the first of the new rows.
        turns.sort(key=lambda turn: turn[1] is None)
        first = self.rows.count
        self.sessions.make_room(first, len(turns), [parked for _, parked in turns if parked is not None])
        running = {request.key: row for row, request in enumerate(self.rows.requests)}
        logits = self.prompts.read(turns, first, running, self.network)
        for request, _ in turns:
            self.rows.add(request, self.eos | frozenset(request.params.stop_token_ids))
        self.entering.clear()
        self._unsettle()
        self._mark_prompts(first)
        self._choose(logits, slice(first, self.rows.count))

    def _decode(self) -> None:
        rows, count = self.rows, self.rows.count
        positions = rows.length[:count]
        span = int(positions.max()) + 1
        self.cache.ensure(count, span)
        if not self.settled:
            self._settle()
        # All rows at one position need no mask, which is usual right after a group has begun.
        even = bool(positions.min() == span - 1)
        tokens, at = self._tensor(rows.token[:count]), self._tensor(positions)
        logits = self.decoder.decode(tokens, at, self.index[:count], span, even, self.cache)
        rows.length[:count] += 1
        self._choose(logits, slice(0, count))

    def _choose(self, logits: Tensor, part: slice) -> None:
        """Sample a token for each of these rows, and remove those that are done."""
        rules = self._rules(part)
        uniform = self._tensor(uniforms(self.rows.stream[part], self.rows.made[part])).unsqueeze(1)
        seen = None if self.seen is None or rules.penalty is None else self.seen[part]
        tokens, logp = sample(logits, rules, uniform, seen)
        if seen is not None:
            seen.scatter_(1, tokens.unsqueeze(1), True)
        self.rows.accept(part, tokens.cpu().numpy(), logp.cpu().numpy(), self.version)
        self._remove(self._finished(part))

    def _rules(self, part: slice) -> SamplingRules:
        key = part.start, part.stop
        if key not in self.rules:
            params = [request.params for request in self.rows.requests[part]]
            self.rules[key] = rules_of(params, self.architecture.vocabulary, self.device)
        return self.rules[key]

    def _unsettle(self) -> None:
        """Forget what was derived from which requests are in which rows."""
        self.rules.clear()
        self.settled = False

    def _settle(self) -> None:
        if self.decoder.reads_shared_prompts:
            prompts = [request.key for request in self.rows.requests]
            self.cache.shared_prompts = find_shared_prompts(prompts, self.cache.store, self.cache.shared_prompts)
        self.settled = True

    def _mark_prompts(self, first: int) -> None:
        """Mark the prompts' tokens for requests with a repetition penalty."""
        for row, request in enumerate(self.rows.requests[first:], start=first):
            if request.params.repetition_penalty != 1:
                if self.seen is None:
                    shape = self.slots, self.architecture.vocabulary
                    self.seen = torch.zeros(shape, dtype=torch.bool, device=self.device)
                self.seen[row] = False
                self.seen[row, self._tensor(request.ids)] = True

    def _finished(self, part: slice) -> dict[int, Sampled | BaseException]:
        """The rows that ended with their newest token, and their results."""
        rows, outcomes = self.rows, dict[int, Sampled | BaseException]()
        stopped, full = rows.stopped(part), rows.full(part)
        failed = rows.not_finite(part)
        for row in (np.flatnonzero(stopped | full | failed) + part.start).tolist():
            at = row - part.start
            end: EndOfText = "stop" if stopped[at] else rows.requests[row].full_end
            outcomes[row] = self._not_finite(row) if failed[at] else rows.result(row, end)
        for row in rows.watched(part):
            if not isinstance(outcomes.get(row), BaseException) and (outcome := self._look(row)) is not None:
                outcomes[row] = outcome
        return outcomes

    def _look(self, row: int) -> Sampled | BaseException | None:
        """Pass on the newest token of a watched row and look for stop strings."""
        rows, request = self.rows, self.rows.requests[row]
        token, logp = rows.newest(row)
        if request.on_token is not None:
            try:
                request.on_token(token, logp)
            except Exception as error:
                return error
        if request.stops is not None and request.stops.ends(rows.sampled(row)):
            return rows.result(row, "stop")
        return None

    def _not_finite(self, row: int) -> ContractError:
        self.cache.wipe(row)
        message = f"the model's logits are not finite (weights of version {self.version})"
        return ContractError(message, hint="Its weights have probably diverged; lower the learning rate.")

    def _remove(self, outcomes: dict[int, Sampled | BaseException]) -> None:
        """Remove ended rows: the last rows move into the gaps, and sessions keep their cache above."""
        if not outcomes:
            return
        rows, kept = self.rows, self.rows.count - len(outcomes)
        holes = [row for row in sorted(outcomes) if row < kept]
        movers = [row for row in range(kept, rows.count) if row not in outcomes]
        new_place = dict(zip(holes, movers, strict=True))
        for row in sorted(outcomes):
            request, outcome = rows.requests[row], outcomes[row]
            self.ended.append((request, outcome))
            if request.session is not None and isinstance(outcome, Sampled):
                self.sessions.park(request.session, new_place.get(row, row), rows.cached_ids(row))
        self._move_cache(new_place)
        rows.close_gaps(holes, movers, kept)
        self._unsettle()

    def _move_cache(self, new_place: dict[int, int]) -> None:
        """Move surviving rows into the gaps; the row of a session is swapped, since its cache is still wanted."""
        if not new_place:
            return
        length = int(self.rows.length[: self.rows.count].max())
        session = [hole for hole in new_place if self.rows.requests[hole].session is not None]
        plain = [hole for hole in new_place if self.rows.requests[hole].session is None]
        if session:
            self.cache.exchange(session, [new_place[hole] for hole in session], length)
        if plain:
            self.cache.copy([new_place[hole] for hole in plain], plain, length)
        if self.seen is not None:
            self.seen[list(new_place)] = self.seen[list(new_place.values())]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)
