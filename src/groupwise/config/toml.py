"""Writing TOML. The standard library only reads it, and every value must read back exactly as it was."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.config.sections import Section
from groupwise.config.setting import Options, Setting, settings_of


def toml_text(sections: Mapping[str, Section], comments: bool = False) -> str:
    """One table per section."""
    return "\n".join("".join(_table(name, section, comments)) for name, section in sections.items())


def toml_value(value: Any) -> str:
    """A value as TOML writes it; null, which TOML lacks, as a text that reading understands."""
    if value is None:
        return '"null"'
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants the delete character escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(member) for member in value)}]"
    return repr(value)


def _table(name: str, section: Section, comments: bool) -> Iterator[str]:
    if comments:
        yield f"# {(type(section).__doc__ or '').strip()}\n"
    yield f"[{name}]\n"
    for declared in settings_of(type(section)):
        value = getattr(section, declared.name)
        if isinstance(value, Options):
            continue
        if comments:
            yield f"# {_comment(declared)}\n"
        if value is not None or declared.default is not None:
            yield f"{declared.name} = {toml_value(value)}\n"
        elif comments:
            yield f"# {declared.name} =\n"
    for declared in settings_of(type(section)):
        value = getattr(section, declared.name)
        if isinstance(value, Options) and (value or comments):
            yield f"\n# {_comment(declared)}\n" if comments else "\n"
            yield f"[{name}.{declared.name}]\n"
            yield from (f"{_key(key)} = {toml_value(item)}\n" for key, item in value.items())


def _comment(declared: Setting) -> str:
    limits = ", ".join(filter(None, (declared.noun, declared.bounds)))
    return f"{declared.meaning} ({limits})"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)
