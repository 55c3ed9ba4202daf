"""Where a language run's weights come from: a model by name, an adapter's folder, or another run.

`policy.model_name` may be a run's folder or name: its newest sound checkpoint is then the start. What that run (or an
adapter) learned is part of the new model's weights, merged in, and so of its reference too.

A run must find again what it began with, whatever becomes of it: such merged weights are kept in its folder `start`. Of
a model folder, which may be large, it keeps a fingerprint in `start.json` and refuses another.
"""

from __future__ import annotations

import difflib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise.agents.settings import SAMPLING
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RunError, RunNotFound
from groupwise.files import whole_folder, write_atomic
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model, merged, prepare, save_model
from groupwise.language.model_lookup import find_model, fingerprint, is_model
from groupwise.language.policy import LanguagePolicy
from groupwise.training.checkpoint import checkpoint_folders, choose_checkpoint
from groupwise.training.folder import find_run, read_config, run_folders
from groupwise.training.session import Build, Parts

logger = logging.getLogger(__name__)

LANGUAGE_PRODUCTS = ("language", "agent", "warm-start")
KEPT, RECORD, ORIGIN = "start", "start.json", "origin.json"


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run whose weights another begins with: at a step, or (None) the newest."""

    run: Path
    step: int | None = None


def load_start(cfg: TrainingConfig) -> LanguageModel:
    """The model that the settings ask for, ready to learn."""
    settings = cfg.language
    lora = Lora(settings.lora_rank, settings.lora_alpha or 2.0 * settings.lora_rank) if settings.lora_rank else None
    language = load_learned(cfg)
    if language is None:
        return load_model(
            cfg.policy.model_name or "tiny", dtype=getattr(torch, settings.dtype), device=cfg.policy.device, lora=lora,
            quantization=settings.quantization, gradient_checkpointing=cfg.policy.gradient_checkpointing,
            seed=cfg.run.seed,
        )  # fmt: skip
    if settings.quantization is not None:
        raise ConfigError(
            f"language.quantization = {settings.quantization!r} needs a plain model, and {cfg.policy.model_name} is a "
            "run or an adapter",
            hint="Write it as a model folder first, for example with groupwise export.",
            field="language.quantization",
        )
    return prepare(
        language, device=cfg.policy.device, lora=lora, seed=cfg.run.seed,
        gradient_checkpointing=cfg.policy.gradient_checkpointing,
    )  # fmt: skip


def load_learned(cfg: TrainingConfig) -> LanguageModel | None:
    """The run or the adapter that the settings start from, merged into whole weights on the CPU; None for a model."""
    name = cfg.policy.model_name or "tiny"
    start = find_start(name, cfg.run.output_dir)
    if start is not None:
        language = merged(load_run(start.run, start.step))
    elif find_model(name).adapter is not None:
        language = merged(load_model(name))
    else:
        return None
    language.model.to(getattr(torch, cfg.language.dtype))
    return language


def load_run(path: Path, step: int | None = None) -> LanguageModel:
    """The model of the run at `path` on the CPU, in its adapter if it trained one, as its checkpoint has it.

    An adapter that learned on quantised weights is put on the whole ones.
    """
    cfg = own_start(path, language_config(path))
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
    """The settings with the checkpoint or folder they start from named in full, whatever there will be later.

    A model that is nowhere to be found is refused now, before there is a run.
    """
    name = cfg.policy.model_name or "tiny"
    start = find_start(name, cfg.run.output_dir)
    if start is not None:
        language_config(start.run)
        return cfg.replace(model_name=str(choose_checkpoint(start.run, start.step).path.resolve()))
    place = find_model(name)
    local = place.tiny_seed is None and (place.adapter is not None or Path(place.source).is_dir())
    return cfg.replace(model_name=str(Path(name).expanduser().resolve())) if local else cfg


def find_start(name: str, output_dir: str = "runs") -> RunStart | None:
    """The run that `name` means: its folder, one of its checkpoints, or its name in `output_dir`; else None."""
    path, base = Path(name).expanduser(), Path(output_dir)
    if path.parent.name == "checkpoints" and path.name.isdecimal():
        run, step = path.parent.parent, int(path.name)
        return next((RunStart(place, step) for place in (run, base / run.name) if _is_run(place)), None)
    if name.partition("@")[0] == "tiny":
        return None
    if "/" in name:
        return RunStart(path) if _is_run(path) else None
    if is_model(path) and _is_run(base / name):
        raise ConfigError(
            f"{name!r} is a model folder here and a run in {base}",
            hint=f"Say which: './{name}' or '{base / name}'.",
            field="policy.model_name",
        )
    return next((RunStart(place) for place in (path, base / name) if _is_run(place)), None)


def open_run(path: Path, cfg: TrainingConfig, *, learning: bool) -> TrainingConfig:
    """The settings to build the run at `path` with. A run that learns keeps what it starts from in its folder."""
    if learning:
        keep_start(path, cfg)
    return own_start(path, cfg, learning=learning)


def keeping_start(path: Path, build: Build) -> Build:
    """`build` for the run at `path`, which keeps what it begins with when it is built for the first time."""

    def build_and_keep(cfg: TrainingConfig) -> Parts:
        if cfg.task.product in LANGUAGE_PRODUCTS:
            keep_start(path, cfg)
        return build(own_start(path, cfg, learning=True))

    return build_and_keep


def keep_start(path: Path, cfg: TrainingConfig) -> None:
    """Keep in the folder of a run what it needs to find its start again, unless it is there already."""
    if (path / KEPT).is_dir() or (path / RECORD).is_file():
        return
    name = cfg.policy.model_name or "tiny"
    language = load_learned(cfg)
    if language is None:
        write_atomic(path / RECORD, (json.dumps(fingerprint(find_model(name, cfg.run.seed))) + "\n").encode())
        return
    with whole_folder(path / KEPT) as folder:
        save_model(language, folder)
        (folder / ORIGIN).write_text(json.dumps({"model_name": name}) + "\n")


def own_start(path: Path, cfg: TrainingConfig, *, learning: bool = False) -> TrainingConfig:
    """The settings of the run at `path`, to be loaded from what it kept of its start, or from what is still the same.

    The first weights matter to an adapter; to a run that trains all only when it goes on `learning`, and then as its
    reference or where there is no checkpoint yet.
    """
    if cfg.task.product not in LANGUAGE_PRODUCTS:
        return cfg
    name = cfg.policy.model_name or "tiny"
    if (path / KEPT).is_dir():
        origin = json.loads((path / KEPT / ORIGIN).read_text())["model_name"]
        if name != origin:
            raise _another(path, name, f"that was {origin}")
        return cfg.replace(model_name=str((path / KEPT).resolve()))
    if not (path / RECORD).is_file():
        return cfg
    then, now = json.loads((path / RECORD).read_text()), fingerprint(find_model(name, cfg.run.seed))
    unborn = not any(checkpoint_folders(path / "checkpoints"))
    weights = cfg.language.lora_rank > 0 or (learning and (cfg.policy.use_reference_model or unborn))
    for kind in ("weights", "rest") if weights else ("rest",):
        changed = sorted({file for file, _ in then[kind].items() ^ now[kind].items()})
        if changed:
            raise _another(path, name, f"its {changed[0]} has changed")
    if then.get("commit", now.get("commit")) != now.get("commit"):  # perhaps only its description
        logger.warning("%s has changed on the hub since run %s began", name, path.name)
    return cfg


def _another(path: Path, name: str, difference: str) -> ConfigError:
    return ConfigError(
        f"{name} is not the model that run {path.name} began with: {difference}",
        hint="Put that one back, or begin a new run from this one.",
        field="policy.model_name",
    )


def _is_run(path: Path) -> bool:
    return any((path / file).is_file() for file in ("config.toml", "events.jsonl"))


def find_chat_model(name: str, runs_dir: str) -> tuple[LanguageModel, dict[str, Any]]:
    """The model to talk to, and how the run it comes from samples."""
    start = find_start(str(find_run(name, runs_dir)) if name == "latest" else name, runs_dir)
    if start is None:
        refuse_misspelt(name, runs_dir)
        return load_model(name, device="cuda" if torch.cuda.is_available() else "cpu"), {"model_name": name}
    cfg = language_config(start.run)
    own = {"model_name": str(start.run), **{name: getattr(cfg.sampling, name) for name in SAMPLING}}
    device = cfg.policy.device if torch.cuda.is_available() else "cpu"
    return prepare(load_run(start.run, start.step), device=device), own


def refuse_misspelt(name: str, runs_dir: str) -> None:
    """A name that is nearly a run's is not looked for on the hub."""
    near = difflib.get_close_matches(name, [path.name for path in run_folders(Path(runs_dir))], n=1, cutoff=0.8)
    if near and not Path(name).exists():
        raise RunNotFound(f"no run {name!r} in {runs_dir}", hint=f"Did you mean {near[0]!r}?")
