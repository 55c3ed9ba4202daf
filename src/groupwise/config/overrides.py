"""Settings given on the command line: `--set name=value`, put over those of a file."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groupwise.config.fields import Section
from groupwise.config.setting_names import every_setting
from groupwise.errors import ConfigError
from groupwise.readers import ENDLESS_NAME


def apply_overrides(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The settings with each `name=value` put in, whichever form (flat or nested) the name had before."""
    result = {key: _open(value) for key, value in settings.items()}
    for override in overrides:
        name, equals, text = override.partition("=")
        path = [part.strip() for part in name.split(".")]
        if not equals or not all(path):
            raise ConfigError(f"override {override!r} must have the form name=value", hint="for example loss.beta=0.1")
        _assign(result, path, text.strip())
    return result


def parse_value(text: str) -> Any:
    """Parse the text as a TOML value; `null` is None, and anything that is not TOML is plain text."""
    if text == "null":
        return None
    # tomllib takes quadratic time for names of many dotted parts, which no value has.
    if ENDLESS_NAME.search(text):
        return text
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _open(value: Any) -> Any:
    """Sections and free tables as dictionaries of our own, so that the caller's stay as they are."""
    if isinstance(value, Mapping | Section):
        return {key: _open(item) for key, item in value.items()}
    return value


def _assign(result: dict[str, Any], path: Sequence[str], text: str) -> None:
    known = every_setting()
    if path[0] in known.settings:
        declared = known.settings[path[0]]
        path = [declared.section, declared.name, *path[1:]]
    value = parse_value(text)
    section = path[0]
    if section not in known.sections or (len(path) == 1 and not isinstance(value, Mapping)):
        result[".".join(path)] = value
    elif len(path) == 1:
        for name, item in value.items():
            _set(result, section, name, item)
    elif len(path) == 2:
        _set(result, section, path[1], _unless_text(section, path[1], value, text))
    else:
        _set_option(result, section, path[1], ".".join(path[2:]), value)


def _unless_text(section: str, name: str, value: Any, text: str) -> Any:
    """A setting that is a text keeps what was typed: `run_name=12` is the name "12"."""
    declared = every_setting().find(section, name)
    is_text = declared is not None and declared.kind is str and not declared.many
    return text if is_text and value is not None and not isinstance(value, str) else value


# An override replaces the setting in whatever form the file gave it, so that it is never "given twice".
def _set(result: dict[str, Any], section: str, name: str, value: Any) -> None:
    _take(result, section, name)
    held = result.get(section) or {}
    if isinstance(held, dict):
        result[section] = {**held, name: value}
    else:
        result[f"{section}.{name}"] = value  # what stands in the section's place is reported with the rest


def _set_option(result: dict[str, Any], section: str, name: str, key: str, value: Any) -> None:
    before = _take(result, section, name)
    _set(result, section, name, {**(before if isinstance(before, dict) else {}), key: value})


def _take(result: dict[str, Any], section: str, name: str) -> Any:
    """Remove a setting in whatever form it was given, and return what it was."""
    declared = every_setting().find(section, name)
    held = result.get(section)
    if declared is not None:
        for form in (declared.flat, f"{section}.{declared.flat}", f"{section}.{declared.name}"):
            if form in result:
                return result.pop(form)
        if isinstance(held, dict) and declared.flat in held:
            return held.pop(declared.flat)
    return held.pop(declared.name if declared is not None else name, None) if isinstance(held, dict) else None
