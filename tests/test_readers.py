"""Text written by others: what is not a readable file or not sensible text is one sentence, soon."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits, json_lines, load_json, load_toml, load_yaml, open_yaml, read_bytes

SMALL = ReadLimits(size=1000, depth=10, values=50, seconds=30)
LOADERS: dict[str, Callable[..., Any]] = {"json": load_json, "toml": load_toml, "yaml": load_yaml}


def refusal(load: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * 1000)
    assert read_bytes(path, SMALL) == b"x" * 1000
    path.write_bytes(b"x" * 1001)
    assert refusal(read_bytes, path, SMALL) == "the file is larger than 1,000 bytes"
    assert refusal(read_bytes, tmp_path / "none") == "no such file"
    assert refusal(read_bytes, tmp_path) == "is a directory, not a file"


def test_a_pipe_that_nobody_writes_to_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(read_bytes, tmp_path / "pipe") == "is not a regular file"


def test_a_link_to_an_endless_device_ends(tmp_path: Path) -> None:
    (tmp_path / "zeros").symlink_to("/dev/zero")
    assert refusal(read_bytes, tmp_path / "zeros") == "is not a regular file"


def test_a_sparse_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    assert refusal(read_bytes, path) == "the file is larger than 2 MiB"


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfea", "the file is UTF-16 text"),
        (b"a\n\xff", "the file is not UTF-8 text (at byte 2, line 2)"),
        (b"a\n\0", "the file is not text: it contains a zero byte (at byte 2, line 2)"),
        (b" " * 1001, "the file is larger than 1,000 bytes"),
    ],
)
def test_what_is_not_text_is_refused(load: Callable[..., Any], content: bytes, message: str) -> None:
    assert refusal(load, content, SMALL) == message


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json", '{"a":\n }', "not valid JSON: Expecting value (at line 2, column 2)"),
        ("json", '{"a": 1,\n"a": 2}', "'a' is given twice (at line 2)"),
        ("json", '{"b": {"a": 1}, "c": {"a": 1, "a": 2}}', "'a' is given twice"),
        ("json", '{"a": [1, {"b": NaN}]}', "a.1.b = nan must be a finite number"),
        ("json", "1e999", "the value = inf must be a finite number"),
        ("json", f'{{"a": {10**40}}}', "a = 100000000… must be a number of at most 64 bits"),
        ("json", "9" * 900 + "e", "not valid JSON: Extra data (at line 1, column 901)"),
        ("json", "[" * 11 + "]" * 11, "nested too deeply: more than 10 levels"),
        ("json", str(list(range(51))), "more than 50 values"),
        ("toml", "a = 1\na = 2\n", "not valid TOML: Cannot overwrite a value (at line 2, column 6)"),
        ("toml", "a = \n", "not valid TOML: Invalid value (at line 1, column 5)"),
        ("toml", "a = inf", "a = inf must be a finite number"),
        ("toml", "a" + ".a" * 200 + " = 1", "a name of more than 100 dotted parts (at line 1)"),
        ("toml", "a = " + "[" * 11 + "]" * 11, "nested too deeply: more than 10 levels"),
        ("yaml", "a: 1\na: 2", "'a' is given twice (at line 2, column 1)"),
        ("yaml", "a: }", "not valid YAML: did not find expected node content (at line 1, column 4)"),
        ("yaml", "a: &b 1", "anchors and aliases (& and *) are not allowed (at line 1, column 4)"),
        ("yaml", "a: .nan", "a = nan must be a finite number"),
        ("yaml", "a: 2023-99-99", "not valid YAML: month must be in 1..12"),
        ("yaml", "a: !!python/name:os.system x", "not valid YAML: could not determine a constructor"),
        ("yaml", "[" * 11, "nested too deeply: more than 10 levels (at line 1, column 11)"),
        ("yaml", f"{list(range(60))}", "more than 50 values (at line 1"),
    ],
)
def test_what_is_refused_says_where(kind: str, text: str, message: str) -> None:
    assert refusal(LOADERS[kind], text, SMALL).startswith(message)


@pytest.mark.parametrize("depth", [5_000, 500_000])
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_depth_is_no_crash(load: Callable[..., Any], depth: int) -> None:
    text = ("a = " if load is load_toml else "") + "[" * depth
    # Newer versions of Python read deeper before they give up, and then miss the closing brackets.
    assert re.search("nested too deeply|not valid", refusal(load, text))


def test_aliases_are_counted_before_they_are_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    message = refusal(load_yaml, "\n".join(lines), aliases=True)
    assert message.startswith("aliases that stand for more than 200,000 values (at line")
    assert refusal(load_yaml, "a: &a [*a]", aliases=True).startswith("a value contains itself (at line 1")
    assert load_yaml("a: &x {b: 1}\nc: *x", aliases=True) == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("load", [load_json, load_yaml])
def test_a_text_that_takes_too_long_is_given_up(load: Callable[..., Any]) -> None:
    assert refusal(load, str([{}] * 5000), ReadLimits(seconds=0)) == "it takes longer than 0 seconds to parse"


def test_values_come_back_as_they_were() -> None:
    assert load_json(b'\xef\xbb\xbf{"a": [1, -2.5, "\xc3\xa9", null, true]}') == {"a": [1, -2.5, "é", None, True]}
    assert load_toml("a = 1\n[b]\nc = 'x'") == {"a": 1, "b": {"c": "x"}}
    assert load_yaml("a: [1, 2.5]\nb: {c: null}") == {"a": [1, 2.5], "b": {"c": None}}
    assert load_yaml("") is None
    assert math.isclose(load_json("0.1"), 0.1)


def test_a_yaml_document_knows_its_lines() -> None:
    document = open_yaml("a: 1\nb:\n  - x\n  - c: 2\n")
    assert [document.line(), document.line("b"), document.line("b", 1, "c"), document.line("b", 7)] == [1, 2, 4, 2]
    assert refusal(document.refuse, "wrong", "b", 1) == "line 4: wrong"


def test_a_key_given_twice_among_many_is_found_at_once() -> None:
    names = ", ".join(f'"k{n}": 1' for n in range(60_000))
    with pytest.raises(ConfigError, match="'k59999' is given twice"):
        load_json(f'{{{names}, "k59999": 2}}')


def test_lines_of_json_come_with_their_numbers_and_errors_with_theirs(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n[2]\n')
    assert list(json_lines(path)) == [(1, {"a": 1}), (3, [2])]
    path.write_text('{"a": 1}\n{"a": 1, "a": 2}\n')
    with pytest.raises(ConfigError, match="line 2: 'a' is given twice"):
        list(json_lines(path))
    path.write_text('1\n2\n{"a" 1}\n')
    with pytest.raises(ConfigError, match=r"line 3: not valid JSON: .* \(at column 6\)"):
        list(json_lines(path))
    path.write_text("[1, 2, 3]\n" * 5)
    with pytest.raises(ConfigError, match="line 3: more than 10 values"):
        list(json_lines(path, ReadLimits(values=10)))


def test_values_that_would_fill_the_memory_are_refused_before_they_are_made() -> None:
    limits = ReadLimits(size=1 << 30, values=10**9, memory=10 << 20)
    with pytest.raises(ConfigError, match="its values need more than 10 MiB of memory"):
        load_json("[" + "[]," * 150_000 + "[]]", limits)
