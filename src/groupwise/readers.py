"""The one reader of text written by others: JSON, YAML and TOML here, XML in `xml_reader`, all within limits.

    settings = load_toml(read_bytes(path, LIMITS), LIMITS)

`read_bytes` reads regular files only, up to a size: a pipe cannot make it wait, and a device cannot make it read for
ever. The loaders refuse what is nested too deeply, has too many values, repeats a key, contains a number that is not
finite, or takes too long.

Whatever is wrong is a `ConfigError` in one sentence, with the line where the parser knows it. Messages do not name the
file: callers put its path in front.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import tomllib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from groupwise.errors import ConfigError, MissingExtra, StorageError
from groupwise.files import open_regular
from groupwise.machine_memory import in_words, memory_limit

# tomllib takes quadratic time and memory for names of many dotted parts.
ENDLESS_NAME = re.compile(r"(?:\.[^.\n=]{1,20}){100}")
# Events or values between two looks at the clock.
TICKS = 1000
LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bytes of a file, levels of nesting, values (or XML elements), seconds of processor time, bits of an integer, and
    bytes of memory that a JSON text may grow to.
    """

    size: int = 2 << 20
    depth: int = 200
    values: int = 200_000
    seconds: float = 30.0
    bits: int = 64
    memory: int = 512 << 20


USUAL = ReadLimits()


def data_limits() -> ReadLimits:
    """For files of data, which are kept in memory: an eighth of it as bytes, and one value for every KiB of it."""
    memory = memory_limit()
    return ReadLimits(size=memory // 8, values=memory // 1024, seconds=600.0, bits=10_000, memory=memory // 4)


class Clock:
    """Counts the values of a text and the time they take: processor time, so that a busy machine refuses nothing."""

    def __init__(self, limits: ReadLimits) -> None:
        self.limits, self.count = limits, 0
        self.deadline = time.thread_time() + limits.seconds

    def tick(self, where: str = "") -> None:
        self.count += 1
        if self.count > self.limits.values:
            raise ConfigError(f"more than {self.limits.values} values{where}", hint="Is this the right file?")
        if self.count % TICKS == 0 and time.thread_time() > self.deadline:
            raise ConfigError(f"it takes longer than {self.limits.seconds:g} seconds to parse")


# Files and their encoding


def read_bytes(path: str | os.PathLike[str], limits: ReadLimits = USUAL) -> bytes:
    """The content of a regular file that is not too large."""
    try:
        with opened(path, limits) as file:
            # One byte more than allowed shows that it has grown.
            content = file.read(limits.size + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > limits.size:
        raise ConfigError(too_large(limits))
    return content


def opened(path: str | os.PathLike[str], limits: ReadLimits = USUAL) -> BufferedReader:
    """A regular file that is not too large, open for reading."""
    try:
        file = open_regular(Path(path))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if os.fstat(file.fileno()).st_size > limits.size:
        file.close()
        raise ConfigError(too_large(limits))
    return file


def _unreadable(path: str | os.PathLike[str], error: OSError | ValueError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError("no such file")
    if os.path.isdir(path):
        return ConfigError("is a directory, not a file")
    if getattr(error, "errno", None) == errno.EINVAL:
        return ConfigError("is not a regular file")
    return ConfigError(f"cannot be read: {getattr(error, 'strerror', None) or error}")


def too_large(limits: ReadLimits) -> str:
    whole = limits.size % (1 << 20) == 0
    return f"the file is larger than {f'{limits.size >> 20} MiB' if whole else f'{limits.size:,} bytes'}"


def decoded(content: bytes | str, limits: ReadLimits = USUAL, what: str = "the file") -> str:
    """UTF-8 text, with or without a byte order mark."""
    if len(content) > limits.size:
        raise ConfigError(too_large(limits))
    if isinstance(content, str):
        return content
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{what} is UTF-16 text", hint="Save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} is not UTF-8 text ({_byte(content, error.start)})") from None
    if "\0" in text:
        raise ConfigError(f"{what} is not text: it contains a zero byte ({_byte(content, content.index(0))})")
    return text


def _byte(content: bytes, at: int) -> str:
    lines = f", line {content.count(10, 0, at) + 1}" if 10 in content else ""
    return f"at byte {at}{lines}"


def _check_values(value: Any, clock: Clock) -> None:
    """Refuse nesting beyond the limit and numbers that are not finite or larger than 64 bits."""
    # A container with how it was reached, as a chain of (how its parent was reached, key), and its depth.
    stack: list[tuple[Any, Any, int]] = [([value], None, 0)]
    while stack:
        here, link, depth = stack.pop()
        if depth > clock.limits.depth:
            raise ConfigError(f"nested too deeply: more than {clock.limits.depth} levels")
        for key, inner in here.items() if isinstance(here, dict) else enumerate(here):
            clock.tick()
            if isinstance(inner, dict | list):
                stack.append((inner, (link, key), depth + 1))
            elif isinstance(inner, float) and not isfinite(inner):
                raise ConfigError(f"{_path(link, key)} = {inner} must be a finite number")
            elif type(inner) is int and inner.bit_length() > clock.limits.bits:
                most = f"a number of at most {clock.limits.bits} bits"
                raise ConfigError(f"{_path(link, key)} = {str(inner)[:9]}… must be {most}")


def _path(link: Any, key: Any) -> str:
    names = [str(key)]
    while link is not None:
        link, name = link
        names.append(str(name))
    return ".".join(reversed(names[:-1])) or "the value"


# JSON and TOML


def load_json(content: bytes | str, limits: ReadLimits = USUAL) -> Any:
    return _parsed_json(decoded(content, limits), Clock(limits))


def read_record(path: str | os.PathLike[str], hint: str) -> dict[str, Any]:
    """A JSON object that we wrote ourselves, and that something may have damaged since."""
    try:
        found = load_json(read_bytes(path))
    except ConfigError as error:
        raise StorageError(f"{path} is damaged: {error.message}", hint=hint) from None
    if not isinstance(found, dict):
        raise StorageError(f"{path} is damaged: it is not an object", hint=hint)
    return found


def json_lines(path: str | os.PathLike[str], limits: ReadLimits = USUAL) -> Iterator[tuple[int, Any]]:
    """The values of a file with one JSON value per line, and the numbers of their lines; empty lines are skipped.

    The limits are the file's, except that a line may not be longer than 16 MiB. Errors name the line.
    """
    clock = Clock(limits)
    try:
        with opened(path, limits) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
                try:
                    if len(line) > LONGEST_LINE:
                        raise ConfigError(
                            f"longer than {LONGEST_LINE >> 20} MiB", hint="Write one JSON object per line."
                        )
                    if line.strip():
                        yield number, _parsed_json(decoded(line.rstrip(), limits, "it"), clock, one_line=True)
                except ConfigError as error:
                    raise ConfigError(f"line {number}: {error.message}", hint=error.hint, field=error.field) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _parsed_json(text: str, clock: Clock, *, one_line: bool = False) -> Any:
    before = clock.count

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            where = "" if one_line else _line_of_second(text, twice)
            raise ConfigError(f"{twice!r} is given twice{where}", hint="Keep one.", field=twice)
        clock.tick()
        return found

    if _grown(text) > clock.limits.memory:
        most = in_words(clock.limits.memory)
        raise ConfigError(f"its values need more than {most} of memory", hint="Is this the right file?")
    try:
        value = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        where = f"column {error.colno}" if one_line else f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"not valid JSON: {error.msg} (at {where})") from None
    except RecursionError:
        raise ConfigError("not valid JSON: nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(f"not valid JSON: {error}") from None
    # Objects were counted while parsing; now every value counts once.
    clock.count = before
    _check_values(value, clock)
    return value


def _grown(text: str) -> int:
    """About how many bytes a JSON text becomes, found without making any: "[]," alone becomes a hundred."""
    containers, values, strings = text.count("[") + text.count("{"), text.count(","), text.count('"') // 2
    return len(text) + 72 * containers + 32 * values + 60 * strings


def _line_of_second(text: str, name: str) -> str:
    """Where a key is given the second time, if the text has it twice and no more."""
    # The parser does not say where a key stands; two occurrences in the text leave no doubt.
    found = [match.start() for match in re.finditer(rf"{re.escape(json.dumps(name))}\s*:", text)]
    return f" (at line {text.count(chr(10), 0, found[1]) + 1})" if len(found) == 2 else ""


def load_toml(content: bytes | str, limits: ReadLimits = USUAL) -> dict[str, Any]:
    text = decoded(content, limits)
    endless = ENDLESS_NAME.search(text)
    if endless:
        line = text.count("\n", 0, endless.start()) + 1
        raise ConfigError(f"a name of more than 100 dotted parts (at line {line})")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ConfigError("not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    _check_values(value, Clock(limits))
    return value


# YAML


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A YAML document: its value, and the line of each part of it."""

    value: Any
    root: Any  # the yaml.Node, which knows where it stands

    def line(self, *path: str | int) -> int:
        """The line of the part that keys and numbers lead to, or of the last one on the way that exists."""
        node, line = self.root, 1
        for step in path:
            key, node = _child(node, step)
            if key is None:
                break
            line = key.start_mark.line + 1
        return line

    def refuse(self, message: str, *path: str | int) -> NoReturn:
        raise ConfigError(f"line {self.line(*path)}: {message}")


def _child(node: Any, step: str | int) -> tuple[Any, Any]:
    """The node of a key and of its value; of a list, the node of the item twice."""
    kind = getattr(node, "id", "")
    if kind == "mapping":
        return next(((key, value) for key, value in node.value if key.value == str(step)), (None, None))
    if kind == "sequence" and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None, None


def load_yaml(content: bytes | str, limits: ReadLimits = USUAL, *, aliases: bool = False) -> Any:
    """The value in a YAML text, which may use anchors and aliases only where `aliases` says so."""
    return open_yaml(content, limits, aliases=aliases).value


def open_yaml(content: bytes | str, limits: ReadLimits = USUAL, *, aliases: bool = False) -> YamlDocument:
    """The document in a YAML text. Aliases that multiply or contain themselves are refused before they are expanded."""
    try:
        import yaml  # here, because most runs never read YAML
    except ImportError:
        raise MissingExtra("reading YAML needs PyYAML", hint="pip install pyyaml, or use a TOML or JSON file") from None
    text = decoded(content, limits)
    kind: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    clock = Clock(limits)
    loader = None
    try:
        # libyaml's own recursion has no limit, so the nesting is measured before the nodes are put together.
        _check_events(yaml.parse(text, Loader=kind), clock, aliases)
        loader = kind(text)
        root = loader.get_single_node()
        if root is not None:
            _check_nodes(root, limits)
        value = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"not valid YAML: {said}{_at(mark)}") from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:  # the 31st of February, a number of thousands of digits
        raise ConfigError(f"not valid YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()
    clock.count = 0
    _check_values(value, clock)
    return YamlDocument(value, root)


def _at(mark: Any) -> str:
    return f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""


def _check_events(events: Iterable[Any], clock: Clock, aliases: bool) -> None:
    depth = 0
    for event in events:
        kind = type(event).__name__
        if not aliases and getattr(event, "anchor", None):
            message = f"anchors and aliases (& and *) are not allowed{_at(event.start_mark)}"
            raise ConfigError(message, hint="Write the values out.")
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            depth += 1
            if depth > clock.limits.depth:
                raise ConfigError(f"nested too deeply: more than {clock.limits.depth} levels{_at(event.start_mark)}")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1
            continue
        clock.tick(_at(event.start_mark))


def _check_nodes(root: Any, limits: ReadLimits) -> None:
    """Refuse keys given twice, values that contain themselves, and aliases that stand for too many values."""
    sizes: dict[int, int] = {}
    unfinished: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in unfinished:
            raise ConfigError(f"a value contains itself{_at(node.start_mark)}")
        unfinished.add(id(node))
        total = 1
        if node.id == "mapping":
            _check_keys(node)
            total += sum(size(key) + size(value) for key, value in node.value)
        elif node.id == "sequence":
            total += sum(size(inner) for inner in node.value)
        if total > limits.values:
            raise ConfigError(f"aliases that stand for more than {limits.values:,} values{_at(node.start_mark)}")
        unfinished.discard(id(node))
        sizes[id(node)] = total
        return total

    size(root)


def _check_keys(node: Any) -> None:
    seen: set[Hashable] = set()
    for key, _ in node.value:
        # "<<" merges another mapping and may occur more than once.
        if key.id == "scalar" and key.value != "<<":
            if key.value in seen:
                raise ConfigError(f"{key.value!r} is given twice{_at(key.start_mark)}", hint="Keep one.")
            seen.add(key.value)
