"""Optional libraries, imported when they are used, with one message when they are not there."""

from __future__ import annotations

import importlib
from typing import Any

from groupwise.errors import MissingExtra


def extra(module: str, install: str = "pip install 'groupwise[language]'") -> Any:
    """The module of that name, or `MissingExtra` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"language models need {package}, which cannot be imported: {error}", hint=install
        ) from error
