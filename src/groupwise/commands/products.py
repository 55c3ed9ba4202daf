"""The products by name. One is imported only when a run asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.session import Build

PRODUCTS = {
    "control": "groupwise.control.product",
    "ppo": "groupwise.control.ppo",
    "language": "groupwise.agents.product",
    "agent": "groupwise.agents.agent_product",
    "warm-start": "groupwise.agents.warm_start",
    "designer": "groupwise.workflows.designer.product",
    "scheduling": "groupwise.workflows.scheduling.product",
}


def builder(product: str) -> Build:
    """The function that makes a run's parts for `task.product`."""
    build: Build = _module(product).build
    return build


def check_product(cfg: TrainingConfig) -> None:
    """Let the product refuse settings that it cannot make a run of."""
    _module(cfg.task.product).check(cfg)


def _module(product: str) -> Any:
    if product not in PRODUCTS:
        raise ConfigError(
            f"task.product = {product!r} is not a product", hint=f"One of {', '.join(PRODUCTS)}.", field="task.product"
        )
    return import_module(PRODUCTS[product])
