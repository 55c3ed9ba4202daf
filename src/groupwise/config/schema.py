"""The settings as a JSON Schema, so that an editor completes names and marks wrong values."""

from collections.abc import Mapping
from typing import Any

from groupwise.config.names import PROFILE
from groupwise.config.profiles import TrainingProfile
from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.config.setting import Setting, settings_of
from groupwise.config.training_config import plain

_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Mapping: "object",
}


def config_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a configuration file, nested or flat."""
    properties: dict[str, Any] = {
        PROFILE: {
            "enum": [str(profile) for profile in TrainingProfile],
            "description": "named starting point",
        }
    }
    for name, section in SECTIONS.items():
        properties[name] = {
            "type": "object",
            "description": section.__doc__,
            "properties": {declared.name: setting_schema(declared) for declared in settings_of(section)},
            "additionalProperties": False,
        }
    for name, declared in SETTINGS.items():
        properties[name] = {"$ref": f"#/properties/{declared.section}/properties/{declared.name}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Groupwise configuration",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def setting_schema(declared: Setting) -> dict[str, Any]:
    """One setting: its type and limits, default and meaning."""
    one = _one(declared)
    schema: dict[str, Any] = {"type": "array", "items": one} if declared.many else one
    if declared.nullable:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return {**schema, "default": plain(declared.default), "description": declared.meaning}


def _one(declared: Setting) -> dict[str, Any]:
    limits = declared.limits
    schema: dict[str, Any] = {"type": _TYPES[declared.kind]}
    bounds = {
        "minimum": limits.ge,
        "exclusiveMinimum": limits.gt,
        "maximum": limits.le,
        "exclusiveMaximum": limits.lt,
    }
    schema |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    if declared.choices:
        schema["enum"] = list(declared.choices)
    elif declared.kind is str:
        schema |= {"pattern": f"^(?:{limits.pattern})$"} if limits.pattern else {"minLength": 1}
    elif declared.kind is Mapping:
        plain = {"type": ["string", "number", "boolean"]}
        schema["additionalProperties"] = {"anyOf": [plain, {"type": "array", "items": plain}]}
    return schema
