"""What is wrong with requirements, in the words of whoever writes them: places in the file, and names that are near.

error_of(error, model)      the first mistake that Pydantic found, as a `ConfigError`
near(name, known)           " (did you mean 'x'?)", or nothing if no known name is near
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from groupwise.errors import ConfigError

# What Pydantic calls a bound, in words.
BOUNDS = {
    "greater_than_equal": "at least", "greater_than": "above", "less_than_equal": "at most", "less_than": "below",
}  # fmt: skip


def error_of(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """The first mistake; what is missing comes last, because an unknown key may be meant for it."""
    first, *others = sorted(error.errors(include_url=False), key=lambda one: one["type"] == "missing")
    # Pydantic adds the name of a validator to the place; readers of a file do not know it.
    place = ".".join(str(part) for part in first["loc"] if part != "function-after")
    more = f" (and {len(others)} more)" if others else ""
    said, hint = str(first["msg"]).removeprefix("Value error, "), ""
    if first["type"] == "extra_forbidden":
        known = list(_keys(first["loc"][:-1], model))
        close = get_close_matches(str(first["loc"][-1]), known, 1)
        said, hint = "unknown key", f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}."
    elif first["type"] == "missing":
        said = "is missing"
    elif bound := next((words for kind, words in BOUNDS.items() if first["type"] == kind), ""):
        said = f"is {first['input']!r} but must be {bound} {next(iter(first['ctx'].values())):g}"
    return ConfigError(f"{place + ': ' if place else ''}{said}{more}", hint=hint, field=place)


def near(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _keys(place: Sequence[int | str], model: type[BaseModel]) -> Iterable[str]:
    """The keys that a part of the requirements may have."""
    parts = iter(place)
    for part in parts:
        field = model.model_fields.get(str(part))
        # Anything else is the name of a variant, which Pydantic adds.
        if field is not None:
            model = next(_models(field.annotation), model)
            if get_origin(field.annotation) in (dict, tuple):
                next(parts, None)  # the name or number of an entry
    return model.model_fields


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models(inner)
