"""Trained policies as files: safetensors with the hash of the features they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from groupwise.errors import ConfigError
from groupwise.workflows.scheduling.features import SCHEMA
from groupwise.workflows.scheduling.policy import RankPolicy

PRETRAINED = "pretrained"


def save_policy(policy: RankPolicy, path: str | Path, facts: Mapping[str, str] | None = None) -> None:
    """Write the weights with what is to be known of them."""
    state = {name: value.contiguous() for name, value in policy.state_dict().items()}
    save_file(state, str(path), {**(facts or {}), "schema": SCHEMA})


def load_policy(path: str | Path = PRETRAINED) -> RankPolicy:
    """The policy in a file, or the one that comes with Groupwise."""
    path = _place(path)
    schema = facts_of(path).get("schema", "none")
    if schema != SCHEMA:
        raise ConfigError(
            f"{path} was trained on features of schema {schema}, and this version has {SCHEMA}",
            hint="Train it again with benchmarks/train_scheduler.py, or use the version that it came with.",
        )
    policy = RankPolicy()
    policy.load_state_dict(load_file(str(path)))
    return policy


def facts_of(path: str | Path = PRETRAINED) -> dict[str, str]:
    """What was written down with the weights."""
    path = _place(path)
    try:
        with safe_open(str(path), "pt") as opened:
            return dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} holds no policy: {error}") from error


def _place(path: str | Path) -> Path:
    if str(path) == PRETRAINED:
        return Path(str(resources.files("groupwise.workflows.scheduling") / "pretrained.safetensors"))
    return Path(path)
