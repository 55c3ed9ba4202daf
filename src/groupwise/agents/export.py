"""Export a run's model as a folder that Transformers loads (or PEFT, for an adapter alone) without Groupwise.

The folder is written under a temporary name, synced and renamed, so it is either complete or absent.
"""

import json
from pathlib import Path

from groupwise import __version__
from groupwise.agents.model_start import KEPT, find_start, language_config, load_run
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, StorageError
from groupwise.files import whole_folder
from groupwise.language.loading import save_model
from groupwise.training.checkpoint import choose_checkpoint

MARK = "groupwise.json"  # marks a folder as an export, which --force may replace


def export_run(
    run: Path, folder: Path, *, adapter: bool = False, step: int | None = None, force: bool = False
) -> dict[str, object]:
    """Write the model of `run` to `folder` and return what was written.

    Args:
      run: the run's folder; nothing in it is changed.
      folder: created with its parents. If it is not empty, it must be an earlier export, and `force` must be given.
      adapter: write only the LoRA adapter, without the base weights.
      step: the checkpoint to export; by default the newest sound one.
      force: replace an earlier export.
    """
    cfg, folder = language_config(run), folder.resolve()
    if adapter:
        refuse_adapter(run, cfg)
    # Before loading the model, which takes a while.
    refuse_place(folder, force)
    step = choose_checkpoint(run, step).step
    facts = {"run": str(run), "step": step, "kind": "adapter" if adapter else "merged", "version": __version__}
    language = load_run(run, step)
    with whole_folder(folder) as temporary:
        save_model(language, temporary, merged=not adapter)
        (temporary / MARK).write_text(json.dumps(facts) + "\n")
        for file in temporary.iterdir():
            file.chmod((temporary / MARK).stat().st_mode)  # safetensors makes files readable by their owner only
    return {**facts, "folder": str(folder), "files": {p.name: p.stat().st_size for p in sorted(folder.iterdir())}}


def refuse_adapter(run: Path, cfg: TrainingConfig) -> None:
    """Refuse to export an adapter that does not exist, or whose base weights nobody else can find."""
    if not cfg.language.lora_rank:
        message = f"run {run.name} has no adapter: it trained all weights (language.lora_rank = 0)"
        raise ConfigError(message, hint="Leave out --adapter to export the weights.")
    name = cfg.policy.model_name or "tiny"
    if (run / KEPT).is_dir() or find_start(name, cfg.run.output_dir) is not None:
        message = f"the adapter of run {run.name} was trained on top of {name}, which is not a model folder"
        raise ConfigError(message, hint="Leave out --adapter to export both as one model.")


def refuse_place(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file, not a folder", hint="Choose another folder.")
    if Path.cwd().is_relative_to(folder):
        message = f"{folder} is the current folder or a parent of it"
        raise StorageError(message, hint="Name a new folder, for example ./model.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MARK).is_file():
        raise StorageError(f"{folder} is not empty, and not an earlier export", hint="Choose an empty or a new folder.")
    if not force:
        raise StorageError(f"{folder} contains an earlier export", hint="Replace it with --force.")
