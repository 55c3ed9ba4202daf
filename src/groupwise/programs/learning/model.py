"""The model that writes programs: small and made from scratch, or any language model."""

from __future__ import annotations

from pathlib import Path

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import RunError
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model
from groupwise.programs.learning.prompts import code_tokenizer
from groupwise.programs.learning.settings import code_options
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.folder import find_run, read_config

LAYERS, WIDTH = 2, 128
TINY = "tiny"


def load_writer(cfg: TrainingConfig) -> LanguageModel:
    """The model that the settings name. `tiny` is half a million weights with a token for every operator."""
    name, settings = cfg.policy.model_name or TINY, cfg.language
    if name == TINY:
        made, tokenizer = tiny_model(cfg.run.seed, layers=LAYERS, width=WIDTH, tokenizer=code_tokenizer())
        return LanguageModel(made.to(cfg.policy.device), tokenizer, TINY)
    lora = Lora(settings.lora_rank, settings.lora_alpha or 2.0 * settings.lora_rank) if settings.lora_rank else None
    return load_model(
        name, dtype=getattr(torch, settings.dtype), device=cfg.policy.device, lora=lora,
        quantization=settings.quantization, gradient_checkpointing=cfg.policy.gradient_checkpointing,
        seed=cfg.run.seed,
    )  # fmt: skip


def first_policy(cfg: TrainingConfig) -> tuple[LanguagePolicy, LanguageModel]:
    """The policy before the first step: as made or loaded, or with the weights of the run that `start` names."""
    language = load_writer(cfg)
    policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, seed=cfg.run.seed)
    if start := code_options(cfg).start:
        run = find_run(start, cfg.run.output_dir)
        insist_on_code(run, read_config(run))
        policy.load_state_dict(choose_checkpoint(run, None).model)
    if cfg.policy.use_reference_model:
        policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, reference=True, seed=cfg.run.seed)
    return policy, language


def load_policy(run: Path, step: int | None = None) -> tuple[LanguagePolicy, LanguageModel]:
    """The policy of a run as its checkpoint has it."""
    cfg = read_config(run)
    insist_on_code(run, cfg)
    language = load_writer(cfg)
    policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, seed=cfg.run.seed)
    policy.load_state_dict(choose_checkpoint(run, step).model)
    return policy, language


def insist_on_code(run: Path, cfg: TrainingConfig) -> None:
    if cfg.task.product != "code":
        raise RunError(
            f"run {run.name} writes no programs: its task.product is {cfg.task.product!r}",
            hint="Name a run of `groupwise train examples/code.toml`.",
        )
