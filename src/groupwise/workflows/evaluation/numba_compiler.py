"""The one place that asks for Numba, and that decides where compiled code is cached.

The cache is a folder beside the source, or in the user's home where that is not writable. Numba itself only checks
whether the file of a function changed, not what the function calls, nor constants from other files. So the name of the
folder is a hash of all sources that may have gone into it.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from groupwise.errors import MissingExtra
from groupwise.workflows.evaluation.compile_progress import PROGRESS

try:
    from numba import config, njit
    from numba.core import event
except ImportError as error:
    raise MissingExtra(
        f"evaluating workflows needs Numba, which cannot be imported: {error}",
        hint="pip install 'groupwise[workflows]'",
    ) from error


class _CompileListener(event.Listener):
    """Counts what Numba really compiles; what it loads from the cache is not reported to listeners."""

    def on_start(self, event: Any) -> None:
        PROGRESS.begin()

    def on_end(self, event: Any) -> None:
        PROGRESS.end()


event.register("numba:compile", _CompileListener())  # type: ignore[no-untyped-call]

F = TypeVar("F", bound=Callable[..., Any])
EVERYWHERE = (Path(__file__), Path(__file__).with_name("array_format.py"))


def compiled(function: F) -> F:
    """The function as machine code, compiled when it is first called.

    It may call compiled functions of its own folder, and use constants of that folder and of `array_format`; the hash
    covers nothing else.
    """
    return _compiled(function)


def inner(function: F) -> F:
    """The same for a function that only compiled ones call: without wrappers for Python and C it compiles faster."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: F, **options: bool) -> F:
    compile_it: Any = njit
    settings: Any = config
    given = settings.CACHE_DIR
    # Numba reads the setting while it decorates, so it is only changed for that long.
    settings.CACHE_DIR = str(place(Path(function.__code__.co_filename).parent, given))
    try:
        # error_model "numpy": division by zero gives inf or nan instead of a branch that raises.
        return cast(F, compile_it(cache=True, error_model="numpy", **options)(function))
    except RuntimeError:  # no writable place for a cache
        return cast(F, compile_it(error_model="numpy", **options)(function))
    finally:
        settings.CACHE_DIR = given


@cache
def place(folder: Path, given: str = "") -> Path:
    """Where code compiled from a folder's sources is cached: a new place whenever one of them changes."""
    digest = hashlib.blake2b(digest_size=8)
    for source in (*sorted(folder.glob("*.py")), *EVERYWHERE):
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    beside = folder / "__pycache__"
    open_here = os.access(beside if beside.exists() else folder, os.W_OK)
    base = Path(given) if given else beside if open_here else Path.home() / ".cache" / "groupwise"
    return base / f"compiled-{digest.hexdigest()}"
