"""Where a language run's weights come from: a model by name, an adapter's folder, or another run.

    start_of(cfg) → RunStart | ModelLocation → load_start(cfg) → LanguageModel

`policy.model_name` may name another run by its folder or name; the newest sound checkpoint of that run is then the
start. What it (or an adapter) learned is merged into the new run's weights, and so into its reference model too.

A run must be able to find its start again, whatever happens to the source. Merged weights are therefore copied into the
run's folder `start`. Of a model folder, which may be large, `start.json` keeps only a fingerprint, and the run refuses
to continue on other weights.
"""

import difflib
import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise.agents.settings import SAMPLING
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RunError, RunNotFound
from groupwise.files import read_small, whole_folder, write_atomic
from groupwise.language.adapters import wanted_lora
from groupwise.language.loading import LanguageModel, load_model, merged, prepare, save_model
from groupwise.language.model_lookup import Fingerprint, ModelLocation, find_model, fingerprint, is_model
from groupwise.language.policy import LanguagePolicy
from groupwise.products import product_of
from groupwise.training.checkpoint import checkpoint_folders, choose_checkpoint
from groupwise.training.folder import find_run, read_config, run_folders

logger = logging.getLogger(__name__)

KEPT, RECORD, ORIGIN = "start", "start.json", "origin.json"


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run whose weights another run starts from, at a step; None is its newest."""

    run: Path
    step: int | None = None


def start_of(cfg: TrainingConfig) -> RunStart | ModelLocation:
    """Look up the model that the settings start from. Whoever needs it more than once passes the result on."""
    name = _name(cfg)
    return find_start(name, cfg.run.output_dir) or find_model(name, cfg.run.seed)


def find_start(name: str, output_dir: str = "runs") -> RunStart | None:
    """Return the run that `name` means: its folder, one of its checkpoints, or its name in `output_dir`; else None."""
    path, base = Path(name).expanduser(), Path(output_dir)
    if path.parent.name == "checkpoints" and path.name.isdecimal():
        run, step = path.parent.parent, int(path.name)
        return next((RunStart(place, step) for place in (run, base / run.name) if _is_run(place)), None)
    # Always the tiny model, even if a run or a folder has that name.
    if name.partition("@")[0] == "tiny":
        return None
    if "/" in name:
        return RunStart(path) if _is_run(path) else None
    if is_model(path) and _is_run(base / name):
        message = f"{name!r} is a model folder here and a run in {base}"
        raise ConfigError(message, hint=f"Write './{name}' or '{base / name}' to say which.", field="policy.model_name")
    return next((RunStart(place) for place in (path, base / name) if _is_run(place)), None)


def load_start(cfg: TrainingConfig) -> LanguageModel:
    """Load the model that the settings start from, ready to learn."""
    settings, start = cfg.language, start_of(cfg)
    lora = wanted_lora(settings)
    if isinstance(start, ModelLocation) and start.adapter is None:
        return load_model(
            start, dtype=getattr(torch, settings.dtype), device=cfg.policy.device, lora=lora,
            quantization=settings.quantization, gradient_checkpointing=cfg.policy.gradient_checkpointing,
            seed=cfg.run.seed,
        )  # fmt: skip
    if settings.quantization is not None:
        wanted, name = f"language.quantization = {settings.quantization!r}", cfg.policy.model_name
        hint = "Write it as a model folder first, for example with groupwise export."
        message = f"{wanted} needs a plain model, but {name} is a run or an adapter"
        raise ConfigError(message, hint=hint, field="language.quantization")
    return prepare(
        _merged_start(start, cfg), device=cfg.policy.device, lora=lora, seed=cfg.run.seed,
        gradient_checkpointing=cfg.policy.gradient_checkpointing,
    )  # fmt: skip


def _merged_start(start: RunStart | ModelLocation, cfg: TrainingConfig) -> LanguageModel:
    """Load a run or an adapter as plain weights on the CPU, with what it learned merged in."""
    learned = load_run(start.run, start.step) if isinstance(start, RunStart) else load_model(start)
    language = merged(learned)
    language.model.to(getattr(torch, cfg.language.dtype))
    return language


def load_run(path: Path, step: int | None = None) -> LanguageModel:
    """Load the model of the run at `path` on the CPU as its checkpoint has it, with its adapter if it trained one.

    An adapter that was trained on quantised weights is put on the full-precision ones.
    """
    cfg = open_run(path, language_config(path), learning=False)
    checkpoint = choose_checkpoint(path, step)
    beside = str(path.parent)  # a run that was moved has probably moved together with the one it started from
    language = load_start(cfg.replace(device="cpu", quantization=None, gradient_checkpointing=False, output_dir=beside))
    # The checkpoint of a run with a critic only loads into a policy that has one.
    critic = any(name.startswith("value_head.") for name in checkpoint.model)
    LanguagePolicy(language.model, critic=critic).load_state_dict(checkpoint.model)
    return LanguageModel(language.model, language.tokenizer, str(checkpoint.path))


def language_config(path: Path) -> TrainingConfig:
    """Read the settings of the run at `path`, which must have trained a language model."""
    cfg = read_config(path)
    if not product_of(cfg).language_model:
        message = f"run {path.name} did not train a language model: its task.product is {cfg.task.product!r}"
        hint = f"`groupwise eval {path}` evaluates its policy; its weights are in {path}/checkpoints."
        raise RunError(message, hint=hint)
    return cfg


def pin_start(cfg: TrainingConfig) -> TrainingConfig:
    """Name the checkpoint or folder that the settings start from in full, so that it stays the same.

    A model that cannot be found is refused now, before there is a run folder.
    """
    start = start_of(cfg)
    if isinstance(start, RunStart):
        language_config(start.run)
        return cfg.replace(model_name=str(choose_checkpoint(start.run, start.step).path.resolve()))
    # Relative paths are resolved, since a run may be resumed from another folder.
    local = start.tiny_seed is None and (start.adapter is not None or Path(start.source).is_dir())
    return cfg.replace(model_name=str(Path(_name(cfg)).expanduser().resolve())) if local else cfg


def open_run(path: Path, cfg: TrainingConfig, *, learning: bool) -> TrainingConfig:
    """Return the settings to build the run at `path` with, starting from what it kept.

    A run that learns keeps its start the first time it is opened; later the start must still be the same.
    """
    if learning and not (path / KEPT).is_dir() and not (path / RECORD).is_file():
        _keep_start(path, cfg)
    elif (path / RECORD).is_file():
        _insist_on_same_start(path, cfg, learning)
    if not (path / KEPT).is_dir():
        return cfg
    origin = _origin_of(path / KEPT)
    if _name(cfg) != origin:
        raise _another(path, _name(cfg), f"that was {origin}")
    return cfg.replace(model_name=str((path / KEPT).resolve()))


def _keep_start(path: Path, cfg: TrainingConfig) -> None:
    """Store in the run's folder what it needs to find its start again."""
    start = start_of(cfg)
    if isinstance(start, ModelLocation) and start.adapter is None:
        write_atomic(path / RECORD, (json.dumps(fingerprint(start)) + "\n").encode())
        return
    with whole_folder(path / KEPT) as folder:
        save_model(_merged_start(start, cfg), folder)
        (folder / ORIGIN).write_text(json.dumps({"model_name": _name(cfg), "files": _hashes(folder)}) + "\n")


def _origin_of(start: Path) -> str:
    """Where the kept start came from. One that has changed since it was kept would silently train another model."""
    try:
        record = json.loads(read_small(start / ORIGIN))
        name, files = str(record["model_name"]), record.get("files", {})
        # Runs of older versions kept no hashes.
        changed = [file for file, known in files.items() if _hashes(start).get(file) != known] if files else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        name, changed = "its origin", [ORIGIN]
    if changed:
        raise RunError(
            f"{start / changed[0]} is missing or has changed since the run started",
            hint=f"Restore it. If {name} is still the same model, delete {start}: it is then copied again.",
        )
    return name


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != ORIGIN:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _insist_on_same_start(path: Path, cfg: TrainingConfig, learning: bool) -> None:
    """Compare the model with the fingerprint that the run kept."""
    try:
        then: Fingerprint = json.loads(read_small(path / RECORD))
        kept = {kind: dict(then[kind]) for kind in ("weights", "rest")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = f"If {_name(cfg)} is still the model that the run started from, delete the file and try again."
        raise RunError(f"{path / RECORD} is damaged", hint=hint) from error
    now = fingerprint(find_model(_name(cfg), cfg.run.seed))
    # The first weights matter under an adapter. A run that trains all weights only needs them to go on learning, as
    # its reference or because it has no checkpoint yet.
    unsaved = not any(checkpoint_folders(path / "checkpoints"))
    weights = cfg.language.lora_rank > 0 or (learning and (cfg.policy.use_reference_model or unsaved))
    for kind in ("weights", "rest") if weights else ("rest",):
        changed = sorted({file for file, _ in kept[kind].items() ^ now[kind].items()})
        if changed:
            raise _another(path, _name(cfg), f"its {changed[0]} has changed")
    # A new commit may only change the model card, so it is not refused.
    if then.get("commit", now.get("commit")) != now.get("commit"):
        logger.warning("%s has changed on the hub since run %s started", _name(cfg), path.name)


def _another(path: Path, name: str, difference: str) -> ConfigError:
    message = f"{name} is not the model that run {path.name} started from: {difference}"
    return ConfigError(message, hint="Restore that model, or start a new run from this one.", field="policy.model_name")


def _name(cfg: TrainingConfig) -> str:
    return cfg.policy.model_name or "tiny"


def _is_run(path: Path) -> bool:
    return any((path / file).is_file() for file in ("config.toml", "events.jsonl"))


def find_chat_model(name: str, runs_dir: str) -> tuple[LanguageModel, dict[str, Any]]:
    """Load the model to chat with, a run's policy or a plain model, and return it with the run's sampling settings."""
    start = find_start(str(find_run(name, runs_dir)) if name == "latest" else name, runs_dir)
    if start is None:
        # Nearly a run's name: refused, rather than looked for on the hub.
        near = difflib.get_close_matches(name, [path.name for path in run_folders(Path(runs_dir))], n=1, cutoff=0.8)
        if near and not Path(name).exists():
            raise RunNotFound(f"no run {name!r} in {runs_dir}", hint=f"Did you mean {near[0]!r}?")
        return load_model(name, device="cuda" if torch.cuda.is_available() else "cpu"), {"model_name": name}
    cfg = language_config(start.run)
    own: dict[str, Any] = {"model_name": str(start.run), "chat_template_kwargs": cfg.language.chat_template_kwargs}
    own["tool_format"] = cfg.language.tool_format
    own |= {name: getattr(cfg.sampling, name) for name in SAMPLING}
    device = cfg.policy.device if torch.cuda.is_available() else "cpu"
    return prepare(load_run(start.run, start.step), device=device), own
