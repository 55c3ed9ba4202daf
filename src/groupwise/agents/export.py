"""A run's model as a folder that Transformers (or PEFT, for an adapter alone) loads without us.

It is written beside its place, synced, and renamed into it: whatever happens, there is a whole folder or none.
"""

from __future__ import annotations

import json
from pathlib import Path

from groupwise import __version__
from groupwise.agents.model_start import KEPT, find_start, language_config, load_run
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, StorageError
from groupwise.files import whole_folder
from groupwise.language.loading import save_model
from groupwise.training.checkpoint import choose_checkpoint

MARK = "groupwise.json"  # tells a folder of ours from any other


def export_run(
    run: Path, folder: Path, *, adapter: bool = False, step: int | None = None, force: bool = False
) -> dict[str, object]:
    """Write the model of `run` to `folder`, its adapter alone if asked, and return what was written.

    Args:
      run: the run's folder; nothing in it is changed.
      folder: made, with its parents. If it holds something, that must be an earlier export, and `force` given.
      adapter: the LoRA adapter without the weights below it.
      step: which checkpoint; the newest sound one unless given.
      force: replace an earlier export.
    """
    cfg, folder = language_config(run), folder.resolve()
    if adapter:
        refuse_adapter(run, cfg)
    refuse_place(folder, force)
    step = choose_checkpoint(run, step).step
    facts = {"run": str(run), "step": step, "kind": "adapter" if adapter else "merged", "version": __version__}
    language = load_run(run, step)
    with whole_folder(folder) as temporary:
        save_model(language, temporary, merged=not adapter)
        (temporary / MARK).write_text(json.dumps(facts) + "\n")
        for file in temporary.iterdir():
            file.chmod((temporary / MARK).stat().st_mode)  # safetensors writes for its owner alone
    return {**facts, "folder": str(folder), "files": {p.name: p.stat().st_size for p in sorted(folder.iterdir())}}


def refuse_adapter(run: Path, cfg: TrainingConfig) -> None:
    """An adapter can be had alone only where there is one, on weights that others can find."""
    if not cfg.language.lora_rank:
        raise ConfigError(
            f"run {run.name} has no adapter: it trained all weights (language.lora_rank = 0)",
            hint="Leave --adapter out to write them.",
        )
    name = cfg.policy.model_name or "tiny"
    if (run / KEPT).is_dir() or find_start(name, cfg.run.output_dir) is not None:
        raise ConfigError(
            f"the adapter of run {run.name} belongs on what {name} had learned, which is no model folder",
            hint="Leave --adapter out to write both as one.",
        )


def refuse_place(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file, not a folder", hint="Choose another folder.")
    if Path.cwd().is_relative_to(folder):  # it would be replaced under the feet of whoever stands in it
        raise StorageError(
            f"{folder} is the folder you are in, or above it", hint="Give a name for a new one, for example ./model."
        )
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MARK).is_file():
        raise StorageError(
            f"{folder} is not empty, and no export of ours", hint="Choose an empty folder, or one that is not there."
        )
    if not force:
        raise StorageError(f"{folder} holds an earlier export", hint="Replace it with --force.")
