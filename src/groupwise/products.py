"""The products by name. One is imported only when a run asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.training.folder import read_config
from groupwise.training.session import Build

PRODUCTS = {
    "control": "groupwise.control.product",
    "ppo": "groupwise.control.ppo",
    "language": "groupwise.agents.language_product",
    "agent": "groupwise.agents.agent_product",
    "warm-start": "groupwise.agents.warm_start",
    "designer": "groupwise.designer.product",
    "scheduling": "groupwise.workflows.scheduling.product",
    "code": "groupwise.programs.learning.product",
}


def builder(product: str) -> Build:
    """The function that makes a run's parts for `task.product`."""
    build: Build = _module(product).build
    return build


def check_product(cfg: TrainingConfig) -> None:
    """Let the product refuse settings that it cannot make a run of."""
    _module(cfg.task.product).check(cfg)


def added_to_report(run_dir: Path) -> Sequence[str]:
    """The sections that a run's product adds to its report; none where the run has nothing to show yet."""
    try:
        cfg = read_config(run_dir)
        add = getattr(_module(cfg.task.product), "report_sections", None)
        return add(run_dir, cfg) if add is not None else ()
    except GroupwiseError:
        return ()


def _module(product: str) -> Any:
    if product not in PRODUCTS:
        raise ConfigError(
            f"task.product = {product!r} is not a product", hint=f"One of {', '.join(PRODUCTS)}.", field="task.product"
        )
    return import_module(PRODUCTS[product])
