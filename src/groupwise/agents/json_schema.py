"""From a JSON schema to the annotation that holds arguments to it: as much of it as parameters need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired

import pydantic

from groupwise.agents.tools import CLOSED, make_typed_dict
from groupwise.errors import ConfigError

NOTES = {"title", "description", "default", "examples", "format", "$schema", "additionalProperties"}
NUMBER = {
    "minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
}  # fmt: skip
LIMITS: dict[Any, dict[str, str]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"},
    "integer": NUMBER,
    "number": NUMBER,
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
KNOWN = {*NOTES, "type", "enum", "const", "items", "properties", "required", "anyOf", "oneOf"}


def annotation(schema: Mapping[str, Any], place: str = "the schema") -> Any:
    """What Python writes for a schema. Keywords that would not be held to are refused."""
    if not isinstance(schema, Mapping):
        raise _wrong(place, f"is {schema!r:.60}, not an object")
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    limits = {keyword for kind in types for keyword in LIMITS.get(kind, ())}
    unknown = sorted(set(schema) - KNOWN - limits)
    if unknown:
        raise _wrong(place, f"has {unknown[0]!r}, which means nothing here")
    return reduce(or_, [_limited({**schema, "type": kind}, place) for kind in types])


def _limited(schema: Mapping[str, Any], place: str) -> Any:
    names = LIMITS.get(schema["type"], {})
    limits: dict[str, Any] = {names[key]: value for key, value in schema.items() if key in names}
    kind = _kind(schema, place)
    return Annotated[kind, pydantic.Field(**limits)] if limits else kind


def fields(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The properties of an object, each required or not."""
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _wrong(place, f"has the properties {properties!r:.60}, not an object")
    strange = [name for name in required if name not in properties]
    if strange:
        raise _wrong(place, f"requires {strange[0]!r}, which is none of its properties")
    found = {name: annotation(inner, f"{place}.{name}") for name, inner in properties.items()}
    return {name: kind if name in required else NotRequired[kind] for name, kind in found.items()}


def _kind(schema: Mapping[str, Any], place: str) -> Any:
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        if not values or not all(isinstance(value, str | int | None) for value in values):
            raise _wrong(
                place, f"has the values {values!r:.60}; they can be texts, whole numbers, true, false and null"
            )
        return Literal[tuple(values)]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return reduce(or_, [annotation(inner, place) for inner in schema[choice]])
    kind = schema["type"]
    if kind == "array":
        return list[annotation(schema.get("items", {}), f"{place}[]")]  # type: ignore[misc]
    if kind == "object" and "properties" in schema:
        return pydantic.with_config(CLOSED)(make_typed_dict("Object", fields(schema, place)))
    if kind == "object":
        return dict[str, Any]
    if kind is None:
        return Any
    if kind not in SCALARS:
        raise _wrong(place, f"has the type {kind!r}; types are {', '.join([*SCALARS, 'array', 'object'])}")
    return SCALARS[kind]


def _wrong(place: str, problem: str) -> ConfigError:
    return ConfigError(f"{place} {problem}", hint="Describe parameters with type, enum, items, properties and limits.")
