"""Continuous batching, whatever computes the logits: requests join and leave between any two steps.

A step first admits waiting requests and then makes one token for every running row. A subclass reads prompts, decodes,
and keeps the cache: `Batcher` for the families the engine knows, `ModelBatcher` for every other model.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.language.engine.request import EndOfText, GenerationRequest, Outcome, Sampled
from groupwise.language.engine.running_rows import RunningRows
from groupwise.language.engine.sampling import SamplingRules, rules_of, sample, uniforms
from groupwise.language.engine.weights import Fingerprint


class RowBatcher(ABC):
    """The engine without threads and futures. `step` returns the requests that ended."""

    fingerprint: Fingerprint

    def __init__(
        self, model: nn.Module, *, slots: int, eos: frozenset[int], vocabulary: int, device: torch.device
    ) -> None:
        self.model, self.slots, self.eos, self.device = model, slots, eos, device
        self.vocabulary = vocabulary
        self.version = 0
        self.waiting: deque[GenerationRequest] = deque()
        # Requests that no longer wait but are not in a row yet.
        self.entering: list[GenerationRequest] = []
        self.rows = RunningRows(slots, vocabulary)
        # [slots, vocabulary], for the repetition penalty.
        self.seen: Tensor | None = None
        self.rules: dict[tuple[int, int], SamplingRules] = {}
        self.ended: list[Outcome] = []

    @property
    @abstractmethod
    def tokens_read(self) -> int:
        """The number of prompt tokens that went through the network so far."""

    @abstractmethod
    def renew(self, model: nn.Module | None = None) -> None:
        """Take changed weights, or another model: everything computed with the old ones is recomputed or dropped."""

    @abstractmethod
    def _choose_entering(self) -> None:
        """Move the waiting requests that can start now to `entering`."""

    @abstractmethod
    def _read_entering(self) -> Tensor:
        """Read the prompts of `entering` into the rows after the running ones: logits [entering, vocabulary].

        It may change the order of `entering`.
        """

    @abstractmethod
    def _next_logits(self) -> Tensor:
        """Read the newest token of every row: logits [rows, vocabulary]."""

    @abstractmethod
    def _leave(self, outcomes: dict[int, Sampled | BaseException], new_place: dict[int, int], kept: int) -> None:
        """Rows with an outcome end; each row of `new_place.values()` moves to its key; the first `kept` remain."""

    @abstractmethod
    def _withdraw(self, request: GenerationRequest) -> None:
        """A waiting request was cancelled."""

    @abstractmethod
    def _forget_everything(self) -> None:
        """Empty all caches, after a step that failed."""

    @property
    def idle(self) -> bool:
        return not self.waiting and self.rows.count == 0

    def add(self, request: GenerationRequest) -> None:
        self.waiting.append(request)

    @torch.inference_mode()
    def step(self) -> list[Outcome]:
        """Admit requests, make one token per row, and return the requests that ended."""
        # The cheap look in every step; the thorough one only when new prompts come, so that it costs nothing while
        # decoding.
        if not self.fingerprint.looks_current() or (self.waiting and not self.fingerprint.is_current()):
            self.renew()
        self._admit()
        if self.rows.count:
            logits = self._next_logits()
            self.rows.length[: self.rows.count] += 1
            self._choose(logits, slice(0, self.rows.count))
        return self._take_ended()

    @torch.inference_mode()
    def cancel_marked(self) -> list[Outcome]:
        """End requests that are no longer wanted, with the tokens they have."""
        for request in [r for r in self.waiting if r.cancelled]:
            self.waiting.remove(request)
            self._withdraw(request)
            self.ended.append((request, Sampled.cancelled_unread(self.version)))
        rows = [row for row, request in enumerate(self.rows.requests) if request.cancelled]
        self._remove({row: self.rows.result(row, "cancelled") for row in rows})
        return self._take_ended()

    @torch.inference_mode()
    def fail(self, error: Exception) -> list[Outcome]:
        """A step raised an exception: every request fails with it, and everything starts over."""
        lost = [*self.rows.requests, *self.entering, *self.waiting]
        self.rows.close_gaps([], [], 0)
        self.entering.clear()
        self.waiting.clear()
        self._forget_everything()
        self._unsettle()
        ended = self._take_ended()
        gone = {id(request) for request, _ in ended}
        return [*ended, *((request, error) for request in lost if id(request) not in gone)]

    def _admit(self) -> None:
        self._choose_entering()
        if not self.entering:
            return
        first, logits = self.rows.count, self._read_entering()
        for request in self.entering:
            self.rows.add(request, self.eos | frozenset(request.params.stop_token_ids))
        self.entering.clear()
        self._unsettle()
        self._mark_prompts(first)
        self._choose(logits, slice(first, self.rows.count))

    def _choose(self, logits: Tensor, part: slice) -> None:
        """Sample a token for each of these rows, and remove those that are done."""
        rules = self._rules(part)
        uniform = self._tensor(uniforms(self.rows.stream[part], self.rows.made[part])).unsqueeze(1)
        seen = None if self.seen is None or rules.penalty is None else self.seen[part]
        tokens, logp = sample(logits, rules, uniform, seen, self._steered(logits, part))
        if seen is not None:
            seen.scatter_(1, tokens.unsqueeze(1), True)
        self.rows.accept(part, tokens.cpu().numpy(), logp.cpu().numpy(), self.version)
        for row, request in self._steering(part):
            at = row - part.start
            temperature = request.params.temperature or 1.0
            request.steering.see((logits[at] / temperature).log_softmax(-1), int(tokens[at]))
        self._remove(self._finished(part))

    def _steering(self, part: slice) -> list[tuple[int, Any]]:
        """The rows whose request steers, with the request; one that has failed no longer does."""
        rows = self.rows.watched(part)
        found = [(row, self.rows.requests[row]) for row in rows]
        return [(row, one) for row, one in found if one.steering is not None and one.fault is None]

    def _steered(self, logits: Tensor, part: slice) -> Tensor | None:
        """The logits to choose from, if a request steers."""
        steering = self._steering(part)
        if not steering:
            return None
        shaped = logits.clone()
        for row, request in steering:
            try:
                shaped[row - part.start] = request.steering.shape(logits[row - part.start], self.rows.sampled(row))
            except Exception as error:  # ends this request and no other
                request.fault = error
        return shaped

    def _rules(self, part: slice) -> SamplingRules:
        key = part.start, part.stop
        if key not in self.rules:
            params = [request.params for request in self.rows.requests[part]]
            self.rules[key] = rules_of(params, self.vocabulary, self.device)
        return self.rules[key]

    def _unsettle(self) -> None:
        """Forget what was derived from which requests are in which rows."""
        self.rules.clear()

    def _mark_prompts(self, first: int) -> None:
        """Mark the prompts' tokens for requests with a repetition penalty."""
        for row, request in enumerate(self.rows.requests[first:], start=first):
            if request.params.repetition_penalty != 1:
                if self.seen is None:
                    shape = self.slots, self.vocabulary
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
        if request.fault is not None:
            return request.fault
        if request.on_token is not None:
            try:
                request.on_token(token, logp)
            except Exception as error:
                return error
        if request.stops is not None and request.stops.ends(rows.sampled(row)):
            return rows.result(row, "stop")
        return None

    def _not_finite(self, row: int) -> ContractError:
        message = f"the model's logits are not finite (weights of version {self.version})"
        return ContractError(message, hint="Its weights have probably diverged; lower the learning rate.")

    def _remove(self, outcomes: dict[int, Sampled | BaseException]) -> None:
        """Remove ended rows: the last rows move into the gaps."""
        if not outcomes:
            return
        rows, kept = self.rows, self.rows.count - len(outcomes)
        holes = [row for row in sorted(outcomes) if row < kept]
        movers = [row for row in range(kept, rows.count) if row not in outcomes]
        new_place = dict(zip(holes, movers, strict=True))
        self.ended += [(rows.requests[row], outcomes[row]) for row in sorted(outcomes)]
        self._leave(outcomes, new_place, kept)
        if self.seen is not None and new_place:
            self.seen[list(new_place)] = self.seen[list(new_place.values())]
        rows.close_gaps(holes, movers, kept)
        self._unsettle()

    def _take_ended(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)
