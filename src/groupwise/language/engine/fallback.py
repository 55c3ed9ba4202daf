"""Models that `families` does not describe: `model.generate` runs them, and the engine's sampler chooses the tokens.

Slower, and without shared prompts or sessions, but with the same promises: seeds per request, log-probabilities from
the very logits, stop strings, streaming, cancellation.
"""

import logging
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from groupwise.errors import ContractError
from groupwise.language.engine.families import unwrap
from groupwise.language.engine.request import GenerationRequest, Outcome, Sampled
from groupwise.language.engine.sampling import rules_of, sample, stream_key, uniforms
from groupwise.language.engine.weights import at_rest

log = logging.getLogger(__name__)
_noticed: set[str] = set()


def notice(kind: str) -> None:
    """Warn once per family that generation will be slow."""
    if kind not in _noticed:
        _noticed.add(kind)
        log.warning("the engine has no fast path for %s models; using model.generate, which is slower", kind)


class Fallback:
    """Has the interface of `Batcher`; a step serves one request from beginning to end."""

    def __init__(self, model: nn.Module, *, eos: frozenset[int], vocabulary: int) -> None:
        self.model, self.eos, self.vocabulary = model, eos, vocabulary
        self.version = 0
        self.tokens_read = 0
        self.waiting: deque[GenerationRequest] = deque()
        notice(str(getattr(getattr(model, "config", None), "model_type", type(model).__name__)))

    @property
    def idle(self) -> bool:
        return not self.waiting

    def add(self, request: GenerationRequest) -> None:
        self.waiting.append(request)

    def step(self) -> list[Outcome]:
        # Removed only afterwards: if it raises, `fail` finds the request at the front.
        outcome = self._generate(self.waiting[0])
        return [(self.waiting.popleft(), outcome)]

    def renew(self, model: nn.Module | None = None) -> None:
        self.model = model or self.model

    def cancel_marked(self) -> list[Outcome]:
        gone = [request for request in self.waiting if request.cancelled]
        for request in gone:
            self.waiting.remove(request)
        return [(request, Sampled.cancelled_unread(self.version)) for request in gone]

    def fail(self, error: Exception) -> list[Outcome]:
        """The current request fails; waiting ones are not affected."""
        return [(self.waiting.popleft(), error)]

    def _generate(self, request: GenerationRequest) -> Sampled | BaseException:
        model: Any = unwrap(self.model)
        choose = _Choose(request, self.eos | frozenset(request.params.stop_token_ids), self.vocabulary)
        device = next(self.model.parameters()).device
        ids = torch.from_numpy(request.ids).to(device)[None]
        self.tokens_read += len(request.ids)
        with at_rest([self.model]):
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(max_new_tokens=request.limit, do_sample=False, pad_token_id=0),
                logits_processor=LogitsProcessorList([choose]),
                stopping_criteria=StoppingCriteriaList([_Stop(choose)]),
            )
        return choose.outcome(self.version)


class _Choose(LogitsProcessor):  # type: ignore[misc]
    """Samples by the engine's rules, then gives every other token a score of −inf, so that `generate` must take it."""

    def __init__(self, request: GenerationRequest, stop_ids: frozenset[int], vocabulary: int) -> None:
        self.request, self.stop_ids, self.vocabulary = request, stop_ids, vocabulary
        self.key = np.array([stream_key(request.seed)])
        self.ids: list[int] = []
        self.logp: list[float] = []
        self.stopped = False
        self.error: BaseException | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logits = scores.float()
        rules = rules_of([self.request.params], self.vocabulary, scores.device)
        uniform = torch.from_numpy(uniforms(self.key, np.array([len(self.ids)])))[:, None].to(scores.device)
        # For the repetition penalty: prompt and answer so far, which `generate` passes along.
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, input_ids, True)
        tokens, logp = sample(logits, rules, uniform, seen)
        self._accept(int(tokens[0]), float(logp[0]))
        return torch.full_like(scores, float("-inf")).index_fill_(1, tokens, 0.0)

    def _accept(self, token: int, logp: float) -> None:
        if np.isnan(logp):
            self.error = ContractError("the model's logits are not finite")
            return
        self.ids.append(token)
        self.logp.append(logp)
        try:
            if self.request.on_token is not None:
                self.request.on_token(token, logp)
        except Exception as error:
            self.error = error
        stops = self.request.stops
        self.stopped = token in self.stop_ids or (stops is not None and stops.ends(np.array(self.ids)))

    @property
    def done(self) -> bool:
        return self.stopped or self.error is not None or self.request.cancelled

    def outcome(self, version: int) -> Sampled | BaseException:
        if self.error is not None:
            return self.error
        end = "stop" if self.stopped else self.request.full_end
        # Neither stopped nor complete: `done` ended it because it was cancelled.
        if not self.stopped and len(self.ids) < self.request.limit:
            end = "cancelled"
        ids = np.array(self.ids, np.int64)
        return Sampled(ids, np.array(self.logp, np.float32), np.full(len(ids), version), version, end)


class _Stop(StoppingCriteria):  # type: ignore[misc]
    def __init__(self, choose: _Choose) -> None:
        self.choose = choose

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), self.choose.done, device=input_ids.device)
