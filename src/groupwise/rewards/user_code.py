"""Code that a user names in the settings: a module by name, also from the present folder, or a file by its path."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def load_module(place: str, refuse: Callable[[str], Exception]) -> Any:
    """The module; whatever it raises on the way becomes what `refuse` makes of the words."""
    try:
        if place.endswith(".py"):
            return SimpleNamespace(**runpy.run_path(place))
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        finally:
            sys.path.pop(0)
    except (Exception, SystemExit) as error:
        raise refuse(f"cannot be imported: {type(error).__name__}: {error}") from error
