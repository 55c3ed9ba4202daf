"""The products by name. One is imported only when a run asks for it."""

from __future__ import annotations

from importlib import import_module

from groupwise.errors import ConfigError
from groupwise.training.session import Build

PRODUCTS = {"control": "groupwise.control.product"}


def builder(product: str) -> Build:
    """The function that makes a run's parts for `task.product`."""
    if product not in PRODUCTS:
        raise ConfigError(
            f"task.product = {product!r} is not a product", hint=f"One of {', '.join(PRODUCTS)}.",
            field="task.product",
        )  # fmt: skip
    build: Build = import_module(PRODUCTS[product]).build
    return build
