"""Damage for `fuzz_files.py`: edits of a file's structure, edits of its bytes, and files that are hostile by design."""

from __future__ import annotations

import copy
import gzip
import io
import json
import math
import os
import random
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

# Values that readers trip over. The long ones are made when they are drawn.
ODD: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1, lambda: 2**31, lambda: 10**12,
    lambda: 10**18, lambda: 10**30, lambda: 1e308, lambda: -1e308, lambda: 5e-324, lambda: math.nan, lambda: math.inf,
    lambda: "", lambda: " ", lambda: "x" * 100_000, lambda: "\ud800", lambda: "../../etc/passwd", lambda: "(a+)+$",
    lambda: "{{ 10**9 }}", lambda: "nan", lambda: "1e400", lambda: "2026-02-31", list, dict, lambda: [[]],
    lambda: [None], lambda: {"": None}, lambda: ["a"] * 3000, lambda: list(range(3000)), lambda: _nest(60),
    lambda: _nest(400), lambda: {str(n): n for n in range(2000)}, lambda: "\u202e<script>", lambda: "/dev/zero",
)  # fmt: skip
TOKENS = (
    b"{", b"}", b"[", b"]", b"(", b")", b"<", b">", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"&lt;", b"&x;", b'"',
    b"'", b",", b":", b": ", b"- ", b"\n", b"\r", b"\t", b"\0", b"\xff", b"\xed\xa0\x80", b"*a", b"&a ", b"<<: *a",
    b"!!python/object:os.system", b"nan", b"-inf", b"1e400", b"9" * 5000, b"1_000", b"0x1p3", b"null", b"~", b"true",
    b"-0", b"'''", b'"""', b"= ", b"[[a]]",
    b"PAR1", b"ARROW1", b"PK\x03\x04", b"\x1f\x8b", b"\x00" * 8, b"\x7f\xff\xff\xff\xff\xff\xff\xff",
)  # fmt: skip


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Structure


def edit_tree(rng: random.Random, value: Any) -> Any:
    """The structure with one to three of its parts replaced, removed, renamed, repeated or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holders = [holder for holder in _holders(value) if len(holder)]
        if not holders:
            return rng.choice(ODD)()
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        _edit(rng, holder, key, rng.choice(holders))
    return value


def _holders(value: Any) -> list[Any]:
    found, stack = [], [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict | list):
            found.append(here)
            stack += here.values() if isinstance(here, dict) else here
    return found


def _edit(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    kind = rng.choice(("odd", "odd", "odd", "remove", "rename", "repeat", "move"))
    if kind == "odd":
        holder[key] = rng.choice(ODD)()
    elif kind == "remove":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[str(rng.choice(ODD)())[:2000]] = holder.pop(key)
    elif kind == "repeat" and isinstance(holder, list):
        holder += [copy.deepcopy(holder[key]) for _ in range(rng.choice((1, 50)))]
    elif kind == "move":
        holder[key] = copy.deepcopy(other) if len(str(other)[:50_000]) < 50_000 else None


def _json(rng: random.Random, content: bytes) -> bytes:
    text = json.dumps(edit_tree(rng, json.loads(content)))
    # JSON may give a key twice, which no Python value can.
    return (text.replace("{", '{"a": 1, "a": 2, ', 1) if rng.random() < 0.05 else text).encode("utf8", "surrogatepass")


def _lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = _json(rng, lines[at])
    return b"\n".join(lines)


def _yaml(rng: random.Random, content: bytes) -> bytes:
    dumped: str = yaml.safe_dump(edit_tree(rng, yaml.safe_load(content)), sort_keys=False, width=10_000)
    return dumped.encode("utf8", "surrogatepass")


def _toml(rng: random.Random, content: bytes) -> bytes:
    """TOML has no writer in the standard library, but JSON's values are nearly TOML's."""
    edited, lines = edit_tree(rng, tomllib.loads(content.decode())), []
    for section, values in (edited if isinstance(edited, dict) else {"value": edited}).items():
        if isinstance(values, dict):
            lines += [f"[{section}]", *(f"{name} = {_toml_value(value)}" for name, value in values.items())]
        else:
            lines.insert(0, f"{section} = {_toml_value(values)}")
    return "\n".join(lines).encode("utf8", "surrogatepass")


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _table(rng: random.Random, content: bytes) -> bytes:
    rows = [line.split(b",") for line in content.splitlines()]
    for _ in range(rng.choice((1, 2, 5))):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = str(rng.choice(ODD)())[:5000].encode("utf8", "surrogatepass")
    return b"\n".join(b",".join(row) for row in rows)


def _xml(rng: random.Random, content: bytes) -> bytes:
    """Replace, repeat or remove a stretch that begins and ends with a tag, or a value between quotation marks."""
    if rng.random() < 0.5:
        parts = content.split(b'"')
        at = rng.randrange(1, len(parts), 2) if len(parts) > 2 else 0
        parts[at] = str(rng.choice(ODD)())[:5000].encode("utf8", "surrogatepass")
        return b'"'.join(parts)
    tags = content.split(b"<")
    first = rng.randrange(len(tags))
    last = min(len(tags), first + rng.choice((1, 2, 4, 8)))
    tags[first:last] = tags[first:last] * rng.choice((0, 2, 200))
    return b"<".join(tags)


def _safetensors(rng: random.Random, content: bytes) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(edit_tree(rng, json.loads(content[8 : 8 + length]))).encode()
    claimed = rng.choice((len(header),) * 6 + (0, 2**40, 2**63, len(header) + 1))
    return claimed.to_bytes(8, "little") + header + content[8 + length :]


def _gzip(rng: random.Random, content: bytes) -> bytes:
    return gzip.compress(edit_bytes(rng, gzip.decompress(content)))


STRUCTURE: Mapping[str, Callable[[random.Random, bytes], bytes]] = {
    ".json": _json, ".jsonl": _lines, ".yaml": _yaml, ".toml": _toml, ".csv": _table, ".xml": _xml, ".xes": _xml,
    ".bpmn": _xml, ".yawl": _xml, ".pnml": _xml, ".safetensors": _safetensors, ".gz": _gzip,
}  # fmt: skip


# Bytes


def edit_bytes(rng: random.Random, content: bytes) -> bytes:
    """The bytes with one to four places flipped, removed, repeated, overwritten or cut."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 4, 16, 256, len(data) // 3))
        kind = rng.choice(("flip", "token", "token", "remove", "repeat", "overwrite", "cut"))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "token":
            data[at:at] = rng.choice(TOKENS)
        elif kind == "remove":
            del data[at : at + length]
        elif kind == "repeat":
            data[at:at] = bytes(data[at : at + length]) * rng.choice((1, 1, 100))
        elif kind == "overwrite":
            data[at : at + length] = rng.randbytes(min(length, 64))
        elif kind == "cut":
            del data[at:]
    return bytes(data[: 8 << 20])


def mutated(rng: random.Random, path: Path) -> bytes:
    """A file's content with one kind of damage."""
    content = path.read_bytes()
    edit = STRUCTURE.get(path.suffix)
    if edit is not None and rng.random() < 0.6:
        try:
            return edit(rng, content)
        except (ValueError, RecursionError, yaml.YAMLError):  # what cannot be written in this format
            pass
    return edit_bytes(rng, content)


# Hostile files


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _itself(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


def _parquet_of_equal_rows(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array(["2+2?"], pa.string()).dictionary_encode().take(pa.array([0] * 2_000_000))
    pq.write_table(pa.table({"prompt": column, "answer": column}), path)


def _gzip_of_zeros(path: Path) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as file:
        for _ in range(600):
            file.write(b"\0" * (1 << 20))
    path.write_bytes(buffer.getvalue())


def _many_activities(path: Path) -> None:
    rows = [f"{case},a{number},{case * 5000 + number}" for case in range(5) for number in range(4000)]
    path.write_text("case,activity,time\n" + "\n".join(rows))


def _many_cases(path: Path) -> None:
    """Two hundred activities in pairs whose orders contradict each other."""
    rng = random.Random(1)
    lines, case = [], 0
    for a in range(60):
        for b in range(a):
            first, second = rng.sample((a, b), 2)
            for _ in range(5):
                case += 1
                lines += [f"{case},a{first},1,r{first}", f"{case},a{second},2,r{second}"]
    path.write_text("case,activity,time,resource\n" + "\n".join(lines))


LAUGHS = b"a: &a [x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(9)
)
ENTITIES = (
    b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "'
    + b"&a;" * 1000
    + b'"><!ENTITY c SYSTEM "file:///etc/passwd">]><a>&b;&c;</a>'
)


def _content(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None  # type: ignore[func-returns-value]


# Any name.
SPECIAL: Mapping[str, Callable[[Path], None]] = {
    "fifo": _fifo, "device": _zero, "link to itself": _itself, "folder": _folder, "empty": _content(b""),
    "zeros": _content(b"\0" * 4096), "byte order mark": _content(b"\xef\xbb\xbf"),
    "UTF-16": _content("a = 1".encode("utf-16")), "deep list": _content(b"[" * 200_000),
    "deep object": _content(b'{"a":' * 100_000), "deep XML": _content(b"<a>" * 100_000),
    "deep flow": _content(b"a: " + b"{b: " * 50_000), "digits": _content(b'{"a": ' + b"9" * 100_000 + b"}"),
    "aliases": _content(LAUGHS), "entities": _content(ENTITIES), "open quote": _content(b'"' + b"a" * 1_000_000),
    "one line": _content(b"x" * 40_000_000), "many lists": _content(b"[" + b"[]," * 15_000_000 + b"[]]"),
    "many lines": _content(b"{}\n" * 5_000_000), "many tags": _content(b"<a>" + b"<b/>" * 8_000_000 + b"</a>"),
    "many items": _content(b"- a\n" * 400_000),
    "many names": _content(b"".join(b"k%d: 1\n" % n for n in range(250_000))),
    "dotted": _content(b"a" + b".a" * 100_000 + b" = 1"), "unit separators": _content(b"\x1f" * 100_000),
}  # fmt: skip
# By suffix.
SPECIAL_OF: Mapping[str, Mapping[str, Callable[[Path], None]]] = {
    ".parquet": {"equal rows": _parquet_of_equal_rows},
    ".gz": {"zeros": _gzip_of_zeros},
    ".csv": {"many activities": _many_activities, "contradictions": _many_cases},
    ".safetensors": {"huge header": _content((2**40).to_bytes(8, "little") + b"{}")},
}
