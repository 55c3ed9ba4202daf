"""Whom to talk to: the policy of a run, or a model."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import torch

from groupwise.agents.settings import SAMPLING
from groupwise.agents.starting import find_start, language_config, load_run
from groupwise.errors import RunNotFound
from groupwise.language.loading import LanguageModel, load_model, prepare
from groupwise.training.folder import find_run, run_folders


def find_partner(name: str, runs_dir: str) -> tuple[LanguageModel, dict[str, Any]]:
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
