"""Where a language run's weights come from: a model by name, or another run.

`policy.model_name` may be a run's folder or name: its newest sound checkpoint is then the start. What that run learned
is part of the new model's weights, an adapter of its own merged in, and so of its reference too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RunError
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model, merged, prepare
from groupwise.language.places import find_place
from groupwise.language.policy import LanguagePolicy
from groupwise.training.choosing import choose_checkpoint
from groupwise.training.folder import read_config

LANGUAGE_PRODUCTS = ("language", "warm-start")


@dataclass(frozen=True, slots=True)
class Start:
    """A run whose weights another begins with: at a step, or (None) the newest."""

    run: Path
    step: int | None = None


def load_start(cfg: TrainingConfig) -> LanguageModel:
    """The model that the settings ask for, ready to learn."""
    settings, name = cfg.language, cfg.policy.model_name or "tiny"
    lora = Lora(settings.lora_rank, settings.lora_alpha or 2.0 * settings.lora_rank) if settings.lora_rank else None
    dtype = getattr(torch, settings.dtype)
    start = find_start(name, cfg.run.output_dir)
    if start is None:
        return load_model(
            name, dtype=dtype, device=cfg.policy.device, lora=lora, quantization=settings.quantization,
            gradient_checkpointing=cfg.policy.gradient_checkpointing, seed=cfg.run.seed,
        )  # fmt: skip
    if settings.quantization is not None:
        raise ConfigError(
            f"language.quantization = {settings.quantization!r} needs a model folder, and {name} is a run",
            hint=f"Export it first: groupwise export {start.run} FOLDER.",
            field="language.quantization",
        )
    language = merged(load_run(start.run, start.step))
    language.model.to(dtype)
    return prepare(
        language, device=cfg.policy.device, lora=lora, seed=cfg.run.seed,
        gradient_checkpointing=cfg.policy.gradient_checkpointing,
    )  # fmt: skip


def load_run(path: Path, step: int | None = None) -> LanguageModel:
    """The model of the run at `path` on the CPU, in its adapter if it trained one, as its checkpoint has it.

    An adapter that learned on quantised weights is put on the whole ones.
    """
    cfg = language_config(path)
    checkpoint = choose_checkpoint(path, step)
    beside = str(path.parent)  # a run that has moved has probably moved with the one it started from
    language = load_start(cfg.replace(device="cpu", quantization=None, gradient_checkpointing=False, output_dir=beside))
    critic = any(name.startswith("value_head.") for name in checkpoint.model)
    LanguagePolicy(language.model, critic=critic).load_state_dict(checkpoint.model)
    return LanguageModel(language.model, language.tokenizer, str(checkpoint.path))


def language_config(path: Path) -> TrainingConfig:
    """The settings of the run at `path`, if it is one that trains a language model."""
    cfg = read_config(path)
    if cfg.task.product not in LANGUAGE_PRODUCTS:
        raise RunError(
            f"run {path.name} trains no language model: its task.product is {cfg.task.product!r}",
            hint=f"`groupwise eval {path}` judges its policy; its weights are in {path}/checkpoints.",
        )
    return cfg


def pinned(cfg: TrainingConfig) -> TrainingConfig:
    """The settings with the checkpoint they start from named, so that a resumed run starts from the same one.

    A model that is nowhere to be found is refused now, before there is a run.
    """
    name = cfg.policy.model_name or "tiny"
    start = find_start(name, cfg.run.output_dir)
    if start is None:
        find_place(name)
        return cfg
    language_config(start.run)
    return cfg.replace(model_name=str(choose_checkpoint(start.run, start.step).path.resolve()))


def find_start(name: str, output_dir: str = "runs") -> Start | None:
    """The run that `name` means: its folder, one of its checkpoints, or its name in `output_dir`; else None."""
    path, base = Path(name).expanduser(), Path(output_dir)
    if path.parent.name == "checkpoints" and path.name.isdecimal():
        run, step = path.parent.parent, int(path.name)
        return next((Start(place, step) for place in (run, base / run.name) if _is_run(place)), None)
    if name.partition("@")[0] == "tiny":
        return None
    places = [path] if len(path.parts) > 1 else [path, base / name]
    return next((Start(place) for place in places if _is_run(place)), None)


def _is_run(path: Path) -> bool:
    return any((path / file).is_file() for file in ("config.toml", "events.jsonl"))
