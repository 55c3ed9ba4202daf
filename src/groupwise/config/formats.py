"""Text of a configuration file to plain settings: TOML, YAML, JSON, and the XML of `<grpo-config>`.

PyYAML and defusedxml are imported only when such a file is read, so that a machine without them can train.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from groupwise.config.names import collect
from groupwise.config.overrides import parse_value
from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.errors import ConfigError, MissingExtra

# Such a name takes the TOML parser quadratic time and memory.
ENDLESS_NAME = re.compile(r"(?:\.[^.\n=]{1,20}){100}")
MOST_YAML_VALUES = 10_000

# `<learning>` gathers settings of several sections, two of them under other names.
XML_LEARNING = "learning"
XML_RENAMED: Mapping[str, str] = {"clip_range": "clip_ratio", "epochs": "num_episodes"}


def parse_text(text: str, suffix: str) -> Any:
    """What the text says, or a `ConfigError` that names the line."""
    try:
        return PARSERS[suffix](text)
    except RecursionError:
        raise ConfigError("values are nested too deeply to be a configuration") from None


def parse_toml(text: str) -> Any:
    endless = ENDLESS_NAME.search(text)
    if endless:
        line = text.count("\n", 0, endless.start()) + 1
        raise ConfigError(f"a name of more than 100 dotted parts (at line {line})")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"not valid TOML: {error}") from None


def parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg} (at line {error.lineno}, column {error.colno})"
        raise ConfigError(message) from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"not valid JSON: {error}") from None


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ConfigError(f"{name!r} is given twice", hint="keep one", field=name)
        result[name] = value
    return result


def parse_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading YAML needs PyYAML", hint="pip install pyyaml, or use a TOML file") from None

    class Loader(yaml.SafeLoader):
        """Safe values only, each name once, no aliases: a few lines of them can stand for gigabytes."""

        values = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            parser: Any = self
            event = parser.peek_event()
            if getattr(event, "anchor", None):
                refuse("anchors and aliases (& and *) are not allowed", event.start_mark, "write the values out")
            self.values += 1
            if self.values > MOST_YAML_VALUES:
                refuse(f"more than {MOST_YAML_VALUES} values", event.start_mark, "is this a configuration?")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            seen: set[str] = set()
            for key in names:
                if key.value in seen:
                    refuse(f"{key.value!r} is given twice", key.start_mark, "keep one")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    def refuse(what: str, mark: Any, hint: str = "") -> None:
        raise ConfigError(f"{what} (at line {mark.line + 1}, column {mark.column + 1})", hint=hint)

    try:
        return yaml.load(text, Loader)  # a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigError(f"not valid YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None


def parse_xml(text: str) -> Any:
    try:
        from defusedxml.common import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring
    except ImportError:
        raise MissingExtra("reading XML needs defusedxml", hint="pip install defusedxml, or use a TOML file") from None
    try:
        root = fromstring(text, forbid_dtd=True, forbid_entities=True, forbid_external=True)
    except DefusedXmlException:
        raise ConfigError(
            "a DTD, entity or external reference is not allowed in a configuration",
            hint="remove the <!DOCTYPE …> and write the values out",
        ) from None
    except ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise ConfigError(f"not valid XML: {reason} (at line {line}, column {column + 1})") from None
    if root.tag != "grpo-config":
        raise ConfigError(f"the root element is <{root.tag}> and must be <grpo-config>")
    return _spread_learning(_children(root))


def _children(element: Any) -> dict[str, Any]:
    """Child elements by name, hyphens as underscores; the values stay texts, to be read by their settings."""
    if any(text and text.strip() for text in (element.text, *(child.tail for child in element))):
        raise ConfigError(f"<{element.tag}> must hold elements, not text")
    return _unique((_name(child), _content(child)) for child in element)


def _name(element: Any) -> str:
    if element.attrib:
        raise ConfigError(f"<{element.tag}> has attributes; a value is written between the tags")
    return str(element.tag).replace("-", "_")


def _content(element: Any) -> Any:
    name = _name(element)
    if name in ("options", "reward_options"):
        # A free table knows no types, so its values are read as overrides are.
        return {key: _option(item) for key, item in _children(element).items()}
    if name in SECTIONS or name == XML_LEARNING or len(element):
        return _children(element)
    return (element.text or "").strip()


def _option(value: Any) -> Any:
    return parse_value(value) if isinstance(value, str) else value


def _spread_learning(settings: dict[str, Any]) -> dict[str, Any]:
    """`<learning>` spread over our sections. There, giving a threshold is what switches early stopping on."""
    learning = settings.pop(XML_LEARNING, {})
    for name, value in learning.items():
        target = XML_RENAMED.get(name, name)
        section = SETTINGS[target].section if target in SETTINGS else XML_LEARNING
        settings[f"{section}.{target}"] = value
    if "early_stopping_threshold" in learning and "early_stopping" not in collect(settings)[0]:
        settings["training.early_stopping"] = True
    return settings


PARSERS: Mapping[str, Callable[[str], Any]] = {
    ".toml": parse_toml,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
    ".xml": parse_xml,
}


def line_of(text: str, name: str) -> int | None:
    """The line that gives a setting, when exactly one line does."""
    given = re.compile(rf"^\s*[\w.\"']*?<?\b{re.escape(name)}\b[\"']?\s*[=:>]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if given.match(line.replace("-", "_"))]
    return lines[0] if len(lines) == 1 else None
