"""What is remembered, as text: JSON in one canonical form, so that equal things are equal texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from groupwise.errors import ContractError


def to_text(value: Any, what: str) -> str:
    """The canonical JSON of a value: sorted keys, no spaces, no NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"{what} cannot be remembered as JSON: {error}",
            hint="Give mappings with text keys, lists, texts, finite numbers, true, false and None only.",
        ) from error


def _plain(value: Any) -> dict[Any, Any]:
    """Mappings of every kind are written like dictionaries."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.60} is of type {type(value).__name__}")
