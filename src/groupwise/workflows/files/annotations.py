"""What other formats have no place for (handling, requirements, servers), as plain values kept in annotations."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits, load_json
from groupwise.workflows.blocks import PLAIN, Handling, Retry
from groupwise.workflows.requirements import Requirements, parse_requirements

# As large as the XML file that contains it.
LIMITS = ReadLimits(size=16 << 20, values=2_000_000)
# How each field of handling is read from an attribute; pool and scheduling stay texts.
_FLOATS = ("pause", "growth", "timeout", "delay", "due")
_NUMBERS: dict[str, Any] = {"priority": int, "retries": int, **dict.fromkeys(_FLOATS, float)}
# ISO 8601 without years and months.
_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def handling_values(handling: Handling) -> dict[str, Any]:
    """The fields that differ from plain handling, by name."""
    retry, plain = handling.retry, PLAIN.retry
    pairs = {name: (getattr(handling, name), getattr(PLAIN, name)) for name in ("pool", "priority", "scheduling")}
    pairs |= {"retries": (retry.most, plain.most), "pause": (retry.pause, plain.pause)}
    pairs |= {"growth": (retry.growth, plain.growth)}
    pairs |= {name: (getattr(handling, name), getattr(PLAIN, name)) for name in ("timeout", "delay", "due")}
    return {name: value for name, (value, usual) in pairs.items() if value != usual}


def handling_of(values: Mapping[str, Any]) -> Handling:
    """The handling with those values, which may be numbers written as text."""
    unknown = sorted(set(values) - {*_NUMBERS, "pool", "scheduling"})
    if unknown:
        raise ConfigError(f"handling has no field {unknown[0]!r}")
    try:
        known = {name: _NUMBERS[name](value) if name in _NUMBERS else value for name, value in values.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"handling has a value that is not a number: {error}") from error
    retry = Retry(known.pop("retries", 0), known.pop("pause", 0.0), known.pop("growth", PLAIN.retry.growth))
    return Handling(retry=retry, **known)


def document_values(requirements: Requirements | None, servers: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if requirements is not None:
        values["requirements"] = requirements.model_dump(mode="json", exclude_defaults=True)
    if servers:
        values["servers"] = [list(pair) for pair in servers]
    return values


def document_parts(values: Mapping[str, Any]) -> tuple[Requirements | None, tuple[tuple[str, int], ...]]:
    try:
        servers = tuple((str(pool), int(count)) for pool, count in values.get("servers", ()))
    except (TypeError, ValueError) as error:
        raise ConfigError("servers must be pairs of a pool's name and a number") from error
    known = values.get("requirements")
    return None if known is None else parse_requirements(known), servers


def to_text(values: Mapping[str, Any]) -> str:
    """JSON, with the characters that are special in XML escaped."""
    # In the order given: simulations draw their random numbers in the order of activities and pools.
    text = json.dumps(values)
    # JSON escapes are valid inside its strings, the only place where these characters can occur.
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def from_text(text: str) -> dict[str, Any]:
    try:
        values = load_json(text, LIMITS)
    except ConfigError as error:
        raise ConfigError(f"Groupwise's annotation in this file is broken: {error.message}") from error
    if not isinstance(values, dict):
        raise ConfigError("Groupwise's annotation in this file must be a JSON object")
    return values


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a YAWL net, after checking their types."""
    tables: dict[str, type | tuple[type, ...]] = {"ids": str, "handling": dict, "probabilities": (int, float)}
    tables |= {"endings": dict, "exits": bool} | dict.fromkeys(("named", "answers", "flows", "pools"), str)
    for name, kind in tables.items():
        table = values.get(name, {})
        if not isinstance(table, dict) or not all(isinstance(value, kind) for value in table.values()):
            raise ConfigError(f"Groupwise's annotation {name!r} in this file is broken")
    return values


def seconds_of(duration: str) -> float | None:
    """The seconds of an ISO 8601 duration; None if it is not one, or has years or months, whose length varies."""
    found = _DURATION.fullmatch(duration.strip())
    if found is None or not any(found.groups()):
        return None
    weeks, days, hours, minutes, seconds = (float(group or 0) for group in found.groups())
    return ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + seconds


def duration_of(seconds: float) -> str:
    # Decimal of the shortest representation: no exponent, and no digits that were not there.
    return f"PT{Decimal(repr(float(seconds))):f}S".replace(".0S", "S")
