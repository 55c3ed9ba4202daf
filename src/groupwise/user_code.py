"""Code that the user names in the settings, as FILE.py:NAME or MODULE:NAME. It is trusted.

A module may be in the current folder. Older settings say `python:` first, which changes nothing.

When it raises, `traceback_of` says where in it.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from groupwise.errors import GroupwiseError

PREFIX = "python:"
OBJECT = re.compile(r"(?P<place>.+\.py|\w+(?:\.\w+)*):(?P<attribute>\w+(?:\.\w+)*)")
PACKAGE = Path(__file__).parent
LONGEST_TRACEBACK = 4000  # characters


def traceback_of(error: BaseException) -> str:
    """The error's traceback from the user's own code on; frames of this package that only called it are left out."""
    while isinstance(error, GroupwiseError) and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    ours = [Path(frame.filename).is_relative_to(PACKAGE) for frame in frames]
    begin = ours.index(False) if False in ours else 0
    # Formatted as a summary, which says "repeated 990 more times" of a recursion.
    shown = traceback.StackSummary.from_list(frames[begin:]).format()
    text = "".join([*shown, *traceback.format_exception_only(error)]).rstrip()
    return text if len(text) <= LONGEST_TRACEBACK else f"…{text[-LONGEST_TRACEBACK:]}"


def names_code(name: str) -> bool:
    """Whether a text names an object of the user's own: FILE.py:NAME or MODULE:NAME."""
    return name.startswith(PREFIX) or OBJECT.fullmatch(name) is not None


def place_and_name(name: str) -> tuple[str, str]:
    """The file or module, and the object in it; both empty if the name is incomplete."""
    found = OBJECT.fullmatch(name.removeprefix(PREFIX))
    return (found["place"], found["attribute"]) if found else ("", "")


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
