"""The one place that asks for Numba. What it compiles is kept beside the source, or for the user where that is shut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from groupwise.errors import MissingExtra

try:
    from numba import njit
except ImportError as error:
    raise MissingExtra(
        f"evaluating workflows needs Numba, which cannot be imported: {error}",
        hint="pip install 'groupwise[workflows]'",
    ) from error

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, compiled when it is first called.

    Numba looks only at the file of a cached function to see whether it changed, so a compiled function may call only
    compiled functions of its own file.
    """
    return _compiled(function)


def inner(function: F) -> F:
    """The same for a function that only compiled ones call, which compiles faster."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: F, **options: bool) -> F:
    compile_it: Any = njit
    try:
        return cast(F, compile_it(cache=True, error_model="numpy", **options)(function))
    except RuntimeError:  # nowhere to keep it
        return cast(F, compile_it(error_model="numpy", **options)(function))
