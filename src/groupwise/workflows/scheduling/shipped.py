"""The scheduler's weights: those that ship, and others in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from groupwise.designer.weights import load_weights, read_facts, save_weights
from groupwise.workflows.scheduling.features import SCHEMA
from groupwise.workflows.scheduling.policy import RankPolicy

PRETRAINED = "pretrained"


def save_policy(policy: RankPolicy, path: str | Path, facts: Mapping[str, str] | None = None) -> None:
    """Write the weights with what is to be known of them."""
    save_weights(policy.state_dict(), Path(path), SCHEMA, facts)


def load_policy(path: str | Path = PRETRAINED) -> RankPolicy:
    """The policy in a file, or the one that ships."""
    policy = RankPolicy()
    policy.load_state_dict(load_weights(_place(path), SCHEMA, "benchmarks/train_scheduler.py"))
    return policy


def facts_of(path: str | Path = PRETRAINED) -> dict[str, str]:
    """What was written down with the weights."""
    return read_facts(_place(path))


def _place(path: str | Path) -> Path:
    return Path(__file__).with_name("pretrained.safetensors") if str(path) == PRETRAINED else Path(path)
