"""The one reader of text written by others: JSON, YAML, TOML and XML within limits.

A file must be a regular file and not too large; a text must not be nested too deeply, repeat a key or contain a number
that is not finite. Every refusal is a `ConfigError` with the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn

import yaml

from groupwise.errors import ConfigError

LARGEST_YAML = 2 << 20
DEEPEST = 200
MOST_DIGITS = 300
MOST_VALUES = 200_000
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_json(content: bytes) -> Any:
    """The value in a JSON file; a key that is there twice is refused, as is a number that JSON does not have."""
    try:
        return json.loads(
            _decoded(content),
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_finite_int,
        )
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError("no JSON that can be read: it is nested too deeply") from error
    except ValueError as error:  # a number with too many digits
        raise ConfigError(f"no JSON that can be read: {error}") from error


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line}: no UTF-8 text: {error.reason}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ConfigError(f"{name} is no number in JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if isfinite(value) else _no_constant(digits)


def _finite_int(digits: str) -> int:
    return int(digits) if len(digits) < MOST_DIGITS else _no_constant(f"{digits[:9]}…")


@dataclass(frozen=True, slots=True)
class Yaml:
    """A YAML document: its value, and where each part of it stands."""

    value: Any
    root: yaml.Node | None

    def line(self, *path: str | int) -> int:
        """The line of the part that keys and numbers lead to, or of the last that is there."""
        node, line = self.root, 1
        for step in path:
            key, node = _child(node, step)
            if key is None:
                break
            line = key.start_mark.line + 1
        return line

    def refuse(self, message: str, *path: str | int) -> NoReturn:
        raise ConfigError(f"line {self.line(*path)}: {message}")


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(step)), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None, None


def load_yaml(content: bytes) -> Yaml:
    """The YAML document in a file. Aliases that grow beyond measure, or contain themselves, are refused unexpanded."""
    if len(content) > LARGEST_YAML:
        raise ConfigError(f"it has {len(content) / (1 << 20):.1f} MiB, and YAML may have {LARGEST_YAML >> 20}")
    text = _decoded(content)
    loader = LOADER(text)
    try:
        _not_too_deep(text)
        root = loader.get_single_node()
        if root is not None:
            _measure(root)
        return Yaml(None if root is None else loader.construct_document(root), root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"{where}no YAML: {said}") from error
    except ValueError as error:  # a date that is none, a number with too many digits
        raise ConfigError(f"no YAML that can be read: {error}") from error
    finally:
        loader.dispose()


def _not_too_deep(text: str) -> None:
    """Refuse what is nested beyond reason before it is put together: libyaml's own recursion has no limit."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ConfigError(f"line {event.start_mark.line + 1}: nested more than {DEEPEST} deep")


def _measure(root: yaml.Node) -> None:
    """Refuse a document whose aliases stand for too many values, keys that are there twice, and rings."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        line = node.start_mark.line + 1
        if id(node) in open_:
            raise ConfigError(f"line {line}: a value contains itself")
        open_.add(id(node))
        total = 1
        if isinstance(node, yaml.MappingNode):
            _no_key_twice(node)
            total += sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total += sum(size(inner) for inner in node.value)
        if total > MOST_VALUES:
            raise ConfigError(f"line {line}: its aliases stand for more than {MOST_VALUES:,} values")
        open_.discard(id(node))
        sizes[id(node)] = total
        return total

    size(root)


def _no_key_twice(node: yaml.MappingNode) -> None:
    seen: set[Hashable] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in seen:
                raise ConfigError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
            seen.add(key.value)


def dump_yaml(value: Any, comments: tuple[str, ...] = ()) -> bytes:
    """YAML as people write it, in the order given; comments on top, a line each."""
    top = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    return (top + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)).encode()


class _Dumper(yaml.SafeDumper):
    """Writes everything out: no aliases for what happens to be equal."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def safe_names(labels: dict[str, str], allowed: str, first: str, *, longest: int = 60) -> dict[str, str]:
    """For each key a name made of `allowed` characters (a regular expression class) that no other has.

    `first` goes before a name that would begin with anything but a letter.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    fill = "-" if "_" not in allowed else "_"
    for key, label in labels.items():
        base = re.sub(f"[^{allowed}]+", fill, label).strip(fill) or first
        base = (base if base[0].isalpha() and base[0].isascii() else f"{first}{fill}{base}")[:longest].rstrip(fill)
        name, number = base, 2
        while name.lower() in taken:
            name, number = f"{base}{fill}{number}", number + 1
        taken.add(name.lower())
        names[key] = name
    return names
