"""Trained policies as files: safetensors with the hash of the features they were trained on, and other facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError


def save_weights(state: Mapping[str, Any], path: Path, schema: str, facts: Mapping[str, str] | None = None) -> None:
    """Write the weights with what is to be known of them."""
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in state.items()}, path, {**(facts or {}), "schema": schema})


def load_weights(path: Path, schema: str, script: str) -> dict[str, Any]:
    """The weights in a file; those of other features are refused, and `script` is what trains them anew."""
    from safetensors.torch import load_file

    known = read_facts(path).get("schema", "none")
    if known != schema:
        raise ConfigError(
            f"{path} was trained on features of schema {known}, and this version has {schema}",
            hint=f"Train it again with {script}, or use the version that it came with.",
        )
    found: dict[str, Any] = load_file(path)
    return found


def read_facts(path: Path) -> dict[str, str]:
    """What was written down with the weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as opened:
            return dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} holds no policy: {error}") from error
