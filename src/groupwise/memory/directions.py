"""Feature vectors as directions: checked, and scaled to length 1 so that a product of two is their cosine."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError

Direction: TypeAlias = NDArray[np.float32]


def direction(features: Any, width: int) -> Direction:
    """The direction of a feature vector, read-only, rounded to float32 as it will be stored."""
    vector = np.asarray(features, np.float64)
    if vector.shape != (width,):
        raise ContractError(
            f"features have shape {vector.shape}, and this memory was opened for vectors of {width} numbers",
            hint="Open it with the width of the features that are used now; vectors of another width stay in the file.",
        )
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ContractError(
            f"feature {place} is {vector[place]}, and features must be finite",
            hint="Leave the situation out, or repair the function that makes its features.",
        )
    largest = np.abs(vector).max(initial=0.0)
    if largest == 0:
        raise ContractError(
            f"all {width} features are 0, and such a vector has no direction to compare",
            hint="Add a feature that is always 1.",
        )
    vector = vector / largest  # before squaring, so that neither 1e300 nor 1e-300 is lost
    made: Direction = (vector / np.linalg.norm(vector)).astype("<f4")
    made.setflags(write=False)
    return made


def from_bytes(stored: bytes) -> Direction:
    """A direction as `tobytes` wrote it; read-only, as bytes are."""
    return np.frombuffer(stored, "<f4")


def similarities(matrix: NDArray[np.float64], wanted: Direction) -> NDArray[np.float64]:
    """Cosines of the rows of `matrix` with `wanted`, those below 0 as 0."""
    cosines: NDArray[np.float64] = np.clip(matrix @ wanted.astype(np.float64), 0.0, 1.0)
    return cosines
