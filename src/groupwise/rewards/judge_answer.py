"""What the judge answered, believed only if it is whole: every attempt once, every criterion a number from 0 to 1."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from groupwise.rewards.endpoint import EndpointError, Reply
from groupwise.rewards.rubrics import Rubric

Marks: TypeAlias = "dict[str, float]"
"""A score per criterion."""

THOUGHTS = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def marks_of(reply: Reply, names: Sequence[str], rubric: Rubric) -> list[Marks]:
    """The marks of each attempt in the order of `names`; nothing is filled in, cut to size or guessed."""
    if reply.cut:
        raise _unusable("it was cut off", "Raise max_tokens, or make groups smaller.")
    rows = _rows(reply.text)
    given = [row.get("id") if isinstance(row, dict) else None for row in rows]
    if len(given) != len(names):
        raise _unusable(f"it scores {len(given)} attempts of {len(names)}")
    if sorted(map(repr, given)) != sorted(map(repr, names)):
        raise _unusable(f"it scores {given!r:.120}, not every attempt once")
    by_name = dict(zip(given, rows, strict=True))
    return [checked_marks(by_name[name], rubric) for name in names]


def checked_marks(row: Any, rubric: Rubric) -> Marks:
    return {name: _mark(row, name) for name in rubric.names}


def _rows(text: str) -> list[Any]:
    text = THOUGHTS.sub("", text, count=1)
    fenced = FENCE.fullmatch(text)
    try:
        answer = json.loads(fenced[1] if fenced else text, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _unusable(f"it is no JSON: {text[:80]!r} ({error})") from None
    rows = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise _unusable(f"it has no list of scores: {text[:80]!r}")
    return rows


def _mark(row: Any, name: str) -> float:
    value = row.get(name) if isinstance(row, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unusable(f"{name} is {value!r:.40}, not a number")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise _unusable(f"{name} is {value!r:.40}, not between 0 and 1")
    return float(value)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _unusable(why: str, hint: str = "") -> EndpointError:
    return EndpointError("malformed", f"the judge's answer cannot be used: {why}", hint=hint, again=True)
