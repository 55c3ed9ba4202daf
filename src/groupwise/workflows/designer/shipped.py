"""Trained policies as files: safetensors with the hash of the features they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.workflows.designer.features import SCHEMA_HASH
from groupwise.workflows.designer.policy import GraphPolicy

PRETRAINED = "pretrained"


def save_policy(policy: GraphPolicy, path: str | Path, facts: Mapping[str, str] | None = None) -> None:
    """Write the weights with what is to be known of them."""
    from safetensors.torch import save_file

    state = {name: value.contiguous() for name, value in policy.state_dict().items()}
    save_file(state, str(path), {**(facts or {}), "schema": SCHEMA_HASH})


def load_policy(path: str | Path = PRETRAINED) -> GraphPolicy:
    """The policy in a file, or the one that ships."""
    from safetensors.torch import load_file

    path = _place(path)
    schema = facts_of(path).get("schema", "none")
    if schema != SCHEMA_HASH:
        raise ConfigError(
            f"{path} was trained on features of schema {schema}, and this version has {SCHEMA_HASH}",
            hint="Train it again with benchmarks/train_designer.py, or use the version that it came with.",
        )
    policy = GraphPolicy()
    policy.load_state_dict(load_file(str(path)))
    return policy.eval()


def facts_of(path: str | Path = PRETRAINED) -> dict[str, str]:
    """What was written down with the weights."""
    from safetensors import SafetensorError, safe_open

    path = _place(path)
    try:
        with safe_open(str(path), "pt") as opened:
            return dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} holds no policy: {error}") from error


def _place(path: str | Path) -> Path:
    if str(path) == PRETRAINED:
        return Path(str(resources.files("groupwise.workflows.designer") / "pretrained.safetensors"))
    return Path(path)
