"""Who generates for a run: the engine of this process, or vLLM servers."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.engine.engine import MOST_SLOTS
from groupwise.language.loading import LanguageModel
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.language.samplers.vllm_engine import VllmEngine


def engine_for(
    cfg: TrainingConfig, language: LanguageModel, *, slots: int, params: SamplingParams, ends: Sequence[int] = ()
) -> TokenEngine:
    """Make the engine that `rollout.sampler` names; `slots` are requests at once in this process."""
    if cfg.rollout.sampler == "own":
        return Engine(language.model, language.tokenizer, slots=slots, paged_slots=max(slots, MOST_SLOTS), ends=ends)
    settings = cfg.vllm
    return VllmEngine(
        language, settings.servers, params=params, ends=ends, in_flight=settings.in_flight, weights=settings.weights,
        folder=settings.folder, on_lost=settings.on_lost, patience=settings.patience, timeout=settings.timeout,
    )  # fmt: skip
