"""Loading a configuration file. Whatever is wrong with it is one clear sentence, or one list of them."""

import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from groupwise.config.finding import Finding, quoted, raise_findings
from groupwise.config.formats import PARSERS, line_of, parse_text
from groupwise.config.overrides import apply_overrides
from groupwise.config.training_config import TrainingConfig, check_settings
from groupwise.errors import ConfigError

LARGEST_FILE = 1_000_000


def load_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> TrainingConfig:
    """The configuration in a .toml, .yaml, .json or .xml file, with `name=value` overrides put in."""
    settings, findings = _check(path, tuple(overrides))
    raise_findings(findings, where=os.fspath(path))
    return TrainingConfig.from_dict(settings)


def check_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> list[Finding]:
    """Everything that is wrong with a file; an empty list when it can be used."""
    return _check(path, tuple(overrides))[1]


def _check(path: str | os.PathLike[str], overrides: Sequence[str]) -> tuple[Any, list[Finding]]:
    try:
        text = read_text(path)
        settings = parse_text(text, suffix_of(path))
        settings = {} if settings is None else settings
        if isinstance(settings, dict):
            settings = apply_overrides(settings, overrides)
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
    content = _read_bytes(path)
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"the file is larger than {LARGEST_FILE:,} bytes and cannot be a configuration")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError("the file is UTF-16 text", hint="save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the file is not UTF-8 text (at byte {error.start})") from None
    if "\0" in text:
        raise ConfigError(f"the file is not text: it holds a zero byte (at byte {content.index(0)})")
    return text


def _read_bytes(path: str | os.PathLike[str]) -> bytes:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            with open(path, "rb") as file:
                return file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", hint=_neighbours(path)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise ConfigError(f"is {what}, so it cannot be a configuration")


def _neighbours(path: str | os.PathLike[str]) -> str:
    """Configuration files beside one that does not exist."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no folder {folder} either"
    beside = sorted(name for name in os.listdir(folder) if suffix_of(name) in PARSERS)
    return f"in {folder} there is {', '.join(beside[:5])}" if beside else ""
