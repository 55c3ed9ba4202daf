"""Who generates for a run: the engine of this process, or vLLM servers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.engine.engine import MOST_SLOTS
from groupwise.language.loading import LanguageModel
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.language.samplers.vllm_engine import VllmEngine
from groupwise.language.samplers.vllm_server import checked_servers


def check_sampler(cfg: TrainingConfig) -> None:
    """Refuse settings that no servers could be used with."""
    if cfg.rollout.sampler == "own":
        return
    checked_servers(cfg.vllm.servers)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        message = f"rollout.sampler = 'vllm' does not go with several ranks: each of {ranks} ranks would replace the "
        hint = "Train in one process, or let every rank sample by itself: rollout.sampler = 'own'."
        raise ConfigError(message + "servers' weights", hint=hint, field="rollout.sampler")
    if cfg.vllm.weights == "adapter" and not cfg.language.lora_rank:
        message = "vllm.weights = 'adapter' needs an adapter, but language.lora_rank = 0 trains all weights"
        raise ConfigError(message, hint="Set language.lora_rank, or vllm.weights = 'folder'.", field="vllm.weights")


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
