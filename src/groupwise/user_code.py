"""Code that the user names in the settings: a module (also from the current folder) or a file. It is trusted."""

import importlib
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from groupwise.errors import GroupwiseError


def load_module(place: str, refuse: Callable[[str], Exception]) -> ModuleType:
    """Import the module; any error becomes the one that `refuse` makes of a message."""
    try:
        return _file(Path(place)) if place.endswith(".py") else _named(place)
    except GroupwiseError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise refuse(f"cannot be imported: {type(error).__name__}: {said}") from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = spec_from_file_location(f"user_code_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and type hints look modules up there
    spec.loader.exec_module(module)
    return module


def _named(name: str) -> ModuleType:
    # A script's folder is on the path, but that of the `groupwise` command is not the user's.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)
