"""Settings files: TOML, YAML, JSON and XML."""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.config.fields import Finding, quoted, raise_findings
from groupwise.config.overrides import apply_overrides, parse_value
from groupwise.config.relative_names import beside
from groupwise.config.setting_names import PRODUCT, every_setting, resolve
from groupwise.config.training_config import TrainingConfig, check_settings
from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits, decoded, load_json, load_toml, load_yaml, read_bytes
from groupwise.xml_reader import Element, load_xml

logger = logging.getLogger(__name__)


LIMITS = ReadLimits(size=1_000_000, values=10_000)

# `<learning>` gathers settings of several sections, two of them under other names.
XML_LEARNING = "learning"
XML_RENAMED: Mapping[str, str] = {"clip_range": "clip_ratio", "epochs": "num_episodes"}


def parse_text(text: str, suffix: str) -> Any:
    """What the text says, or a `ConfigError` that names the line."""
    return PARSERS[suffix](text, LIMITS)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ConfigError(f"{name!r} is given twice", hint="keep one", field=name)
        result[name] = value
    return result


def parse_xml(text: str, limits: ReadLimits) -> Any:
    root = load_xml(text, limits)
    if root.tag != "grpo-config":
        raise ConfigError(f"the root element is <{root.tag}> and must be <grpo-config>")
    return _spread_learning(_children(root))


def _children(element: Element) -> dict[str, Any]:
    """Child elements by name, hyphens as underscores; the values stay texts, to be read by their settings."""
    if any(text.strip() for text in (element.text, *(child.tail for child in element.children))):
        raise ConfigError(f"<{element.tag}> must contain elements, not text")
    return _unique((_name(child), _content(child)) for child in element.parts)


def _name(element: Element) -> str:
    if element.attributes:
        raise ConfigError(f"<{element.tag}> has attributes; a value is written between the tags")
    return element.tag.replace("-", "_")


def _content(element: Element) -> Any:
    name = _name(element)
    if name in ("options", "reward_options", "lora_options"):
        # A free table knows no types, so its values are read as overrides are.
        return {key: _option(item) for key, item in _children(element).items()}
    if name in every_setting().sections or name == XML_LEARNING or element.parts:
        return _children(element)
    return element.text.strip()


def _option(value: Any) -> Any:
    return parse_value(value) if isinstance(value, str) else value


def _spread_learning(settings: dict[str, Any]) -> dict[str, Any]:
    """`<learning>` spread over our sections. There, giving a threshold is what switches early stopping on."""
    learning = settings.pop(XML_LEARNING, {})
    known = every_setting().settings
    for name, value in learning.items():
        target = XML_RENAMED.get(name, name)
        section = known[target].section if target in known else XML_LEARNING
        settings[f"{section}.{target}"] = value
    given = {*settings, *(name for section in settings.values() if isinstance(section, dict) for name in section)}
    if "early_stopping_threshold" in learning and not given & {"early_stopping", "training.early_stopping"}:
        settings["training.early_stopping"] = True
    return settings


PARSERS: Mapping[str, Callable[[str, ReadLimits], Any]] = {
    ".toml": load_toml,
    ".yaml": load_yaml,
    ".yml": load_yaml,
    ".json": load_json,
    ".xml": parse_xml,
}


def line_of(text: str, name: str) -> int | None:
    """The line that gives a setting, when exactly one line does."""
    given = re.compile(rf"^\s*[\w.\"']*?<?\b{re.escape(name)}\b[\"']?\s*[=:>]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if given.match(line.replace("-", "_"))]
    return lines[0] if len(lines) == 1 else None


def load_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> TrainingConfig:
    """The configuration in a .toml, .yaml, .json or .xml file, with `name=value` overrides put in."""
    settings, findings = _check(path, tuple(overrides))
    raise_findings(findings, where=os.fspath(path))
    for notice in resolve(settings).notices:
        logger.warning("%s: %s", os.fspath(path), notice)
    return TrainingConfig.from_dict(settings)


def load_given(
    path: str | os.PathLike[str] | None, overrides: Iterable[str], product: str
) -> tuple[TrainingConfig, frozenset[str]]:
    """The configuration of a product, and the flat names of the settings given by the file (if any) and overrides."""
    given = tuple(overrides)
    settings, findings = _check(path, given) if path is not None else (apply_overrides({}, given), [])
    raise_findings(findings, where="" if path is None else os.fspath(path))
    found = resolve(settings)
    if "product" not in found.given:
        settings = {**settings, PRODUCT: product}
    elif found.product != product:
        raise ConfigError(
            f"{PRODUCT} is {found.product!r}, but these settings are for the product {product!r}",
            hint=f"Set {PRODUCT} = {product!r}, or leave it out.",
            field=PRODUCT,
        )
    return TrainingConfig.from_dict(settings), found.given


def check_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> list[Finding]:
    """Everything that is wrong with a file; an empty list when it can be used."""
    return _check(path, tuple(overrides))[1]


def _check(path: str | os.PathLike[str], overrides: Sequence[str]) -> tuple[Any, list[Finding]]:
    try:
        text = read_text(path)
        settings = parse_text(text, suffix_of(path))
        settings = {} if settings is None else settings
        if isinstance(settings, dict):
            settings = apply_overrides(beside(settings, os.path.dirname(path)), overrides)
    except ConfigError as error:
        return {}, [Finding(error.field, error.message, error.hint)]
    overridden = {_last(override.partition("=")[0].strip()) for override in overrides}
    return settings, [_located(finding, text, overridden) for finding in check_settings(settings)]


def _located(finding: Finding, text: str, overridden: Collection[str]) -> Finding:
    """The finding with the line of the file it is about, unless an override is to blame."""
    name = _last(finding.field)
    return finding if name in overridden else replace(finding, line=line_of(text, name))


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def suffix_of(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(path)[1].lower()


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a configuration file of a known kind and a sane size."""
    suffix = suffix_of(path)
    if suffix not in PARSERS:
        raise ConfigError(f"a configuration file ends in {', '.join(PARSERS)}, not {quoted(suffix)}")
    try:
        return decoded(read_bytes(path, LIMITS), LIMITS)
    except ConfigError as error:
        hint = _neighbours(path) if error.message == "no such file" else error.hint
        raise ConfigError(error.message, hint=hint) from None


def _neighbours(path: str | os.PathLike[str]) -> str:
    """Configuration files beside one that does not exist."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no folder {folder} either"
    beside = sorted(name for name in os.listdir(folder) if suffix_of(name) in PARSERS)
    return f"in {folder} there is {', '.join(beside[:5])}" if beside else ""
