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
from groupwise.machine_memory import memory_limit
from groupwise.readers import (
    ReadLimits,
    data_limits,
    decoded,
    json_lines,
    load_json,
    load_toml,
    load_yaml,
    open_yaml,
    read_bytes,
)

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


def test_an_error_quotes_only_a_part_of_what_is_endless() -> None:
    error = ConfigError(f"unknown setting '{'x' * 5000}' in a.toml", hint="y" * 5000, field="z" * 5000)
    assert str(error).startswith("unknown setting 'xxx")
    assert "xxx' in a.toml\nyyy" in str(error)
    assert max(map(len, error.as_dict()["error"].values())) <= 1200
    assert ConfigError("short").message == "short"


@pytest.mark.parametrize(
    ("limits", "fits", "too_much", "words"),
    [
        (ReadLimits(depth=3), "[[[1]]]", "[[[[1]]]]", "nested too deeply: more than 3 levels"),
        (ReadLimits(values=4), "[1, 2, 3]", "[1, 2, 3, 4]", "more than 4 values"),
        (ReadLimits(size=9), "[1, 2, 3]", "[1, 2, 34]", "the file is larger than 9 bytes"),
        (ReadLimits(bits=64), f"[{2**64 - 1}, {1 - 2**64}]", f"[{2**64}]", "a number of at most 64 bits"),
    ],
)
def test_what_is_exactly_at_a_limit_is_read(limits: ReadLimits, fits: str, too_much: str, words: str) -> None:
    assert repr(load_json(fits, limits)) == fits
    assert words in refusal(load_json, too_much, limits)


def test_a_file_that_says_it_is_empty_is_still_held_to_its_limit() -> None:
    """Files of /proc are regular and have a size of 0, like a file that grows while it is read."""
    assert os.stat("/proc/self/status").st_size == 0
    assert refusal(read_bytes, "/proc/self/status", ReadLimits(size=10)) == "the file is larger than 10 bytes"
    assert read_bytes("/proc/self/status").startswith(b"Name:")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1 << 20, "1 MiB"),
        (2 << 20, "2 MiB"),
        ((2 << 20) + 1, "2,097,153 bytes"),
        (3 << 19, "1,572,864 bytes"),
        (1000, "1,000 bytes"),
    ],
)
def test_a_limit_is_quoted_exactly(size: int, words: str) -> None:
    assert refusal(decoded, b"x" * (size + 1), ReadLimits(size=size)) == f"the file is larger than {words}"
    assert decoded(b"x" * size, ReadLimits(size=size)) == "x" * size


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named_whichever_way_round_it_is(encoding: str) -> None:
    mark = b"" if encoding == "utf-16" else "\ufeff".encode(encoding)
    assert refusal(decoded, mark + "a = 1".encode(encoding)) == "the file is UTF-16 text"


def test_the_line_of_a_wrong_byte_is_counted_up_to_it() -> None:
    assert refusal(decoded, b"a\nb\xff\nc\nd\n") == "the file is not UTF-8 text (at byte 3, line 2)"
    assert refusal(decoded, b"a\xff") == "the file is not UTF-8 text (at byte 1)"
    zero = refusal(decoded, b"a\n\n\0\n\n")
    assert zero == "the file is not text: it contains a zero byte (at byte 3, line 3)"


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("inside", [False, True])
def test_every_kind_of_file_has_the_same_limits_on_depth_and_numbers(load: Callable[..., Any], inside: bool) -> None:
    """A list of lists, and lists inside tables, down to the limit and one beyond."""
    table = ["a = {b = ", "}"] if load is load_toml else ['{"a": {"b": ', "}}"]
    before, after = table if inside else ("a = " if load is load_toml else "", "")
    # TOML's document is a table of its own, which is one level.
    used = (2 if inside else 0) + (load is load_toml and not inside)
    limits = ReadLimits(depth=6)
    load(f"{before}{'[' * (6 - used)}{']' * (6 - used)}{after}", limits)
    refused = refusal(load, f"{before}{'[' * (7 - used)}{']' * (7 - used)}{after}", limits)
    assert refused.startswith("nested too deeply: more than 6 levels")
    for number in (2**63 - 1, -(2**63) + 1):
        load(f"{before}{number}{after}", ReadLimits(bits=63))
    for number in (2**63, -(2**63)):
        refused = refusal(load, f"{before}{number}{after}", ReadLimits(bits=63))
        assert "must be a number of at most 63 bits" in refused
        assert refused.startswith("a.b = " if inside else "a = " if load is load_toml else "the value = ")


def test_names_of_a_hundred_parts_are_read_and_of_one_more_refused() -> None:
    limits = ReadLimits(depth=300)
    load_toml(".".join(["a"] * 100) + " = 1", limits)
    refused = refusal(load_toml, "\n\n" + ".".join(["a"] * 101) + " = 1\n", limits)
    assert refused == "a name of more than 100 dotted parts (at line 3)"


def test_each_value_counts_once() -> None:
    assert load_json('{"a": {"b": {}}}', ReadLimits(values=3)) == {"a": {"b": {}}}
    assert refusal(load_json, '{"a": {"b": {}}}', ReadLimits(values=2)) == "more than 2 values"
    # YAML counts what the parser sees: the document's begin and end, the list and its three members.
    assert load_yaml("[1, 2, 3]", ReadLimits(values=8)) == [1, 2, 3]
    assert refusal(load_yaml, "[1, 2, 3]", ReadLimits(values=7)).startswith("more than 7 values")
    assert load_toml("a = [1, 2]", ReadLimits(values=4)) == {"a": [1, 2]}
    assert refusal(load_toml, "a = [1, 2]", ReadLimits(values=3)) == "more than 3 values"


def test_aliases_count_as_often_as_they_stand_for_something() -> None:
    # Nodes: the table 1, its keys 2, the list of eight 9, and the list of three copies of it 28.
    text = "a: &x [1, 1, 1, 1, 1, 1, 1, 1]\nb: [*x, *x, *x]"
    assert load_yaml(text, ReadLimits(values=40), aliases=True) == {"a": [1] * 8, "b": [[1] * 8] * 3}
    refused = refusal(load_yaml, text, ReadLimits(values=39), aliases=True)
    assert refused.startswith("aliases that stand for more than 39 values (at line 1")


def test_a_mapping_may_be_merged_into_another_but_no_key_be_given_twice() -> None:
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: *a\n  <<: *b\n  z: 3\n"
    assert load_yaml(text, aliases=True)["c"] == {"x": 1, "y": 2, "z": 3}
    assert refusal(load_yaml, "a:\n- {x: 1, y: 2, x: 3}") == "'x' is given twice (at line 2, column 16)"


def test_the_key_given_twice_is_named_with_its_line_only_where_that_is_certain() -> None:
    assert refusal(load_json, '{"a": 1,\n"b": 2,\n"a": 3,\n"c": 4}') == "'a' is given twice (at line 3)"
    assert refusal(load_json, '{"b": {"a": 1},\n"c": {"a": 1,\n"a": 2}}') == "'a' is given twice"
    with pytest.raises(ConfigError) as caught:
        load_json('{"a": 1, "a": 2, "b": 3}')
    assert (caught.value.field, caught.value.hint) == ("a", "Keep one.")


def test_a_line_of_json_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.readers.LONGEST_LINE", 1 << 20)
    path, text = tmp_path / "a.jsonl", "x" * ((1 << 20) - 3)
    path.write_text(f'1\n"{text}"\n2\n')
    assert list(json_lines(path)) == [(1, 1), (2, text), (3, 2)]
    path.write_text(f'1\n"{text}x"\n2\n')
    with pytest.raises(ConfigError, match="^line 2: longer than 1 MiB") as caught:
        list(json_lines(path))
    assert caught.value.hint == "Write one JSON object per line."
    path.write_text('1\n{"a": 1, "a": 2}\n')
    with pytest.raises(ConfigError) as caught:
        list(json_lines(path))
    assert (caught.value.field, caught.value.hint) == ("a", "Keep one.")


@pytest.mark.parametrize(("member", "each"), [("[],", 107), ("{},", 107), ("1,", 34), ('"a",', 96)])
def test_what_grows_beyond_the_memory_is_refused_whatever_it_is_made_of(member: str, each: int) -> None:
    limits = ReadLimits(size=1 << 30, values=10**9, memory=4 << 20)
    fits = limits.memory // each
    assert refusal(load_json, f"[{member * (fits + 1)}0]", limits) == "its values need more than 4 MiB of memory"
    assert len(load_json(f"[{member * (fits - 2)}0]", limits)) == fits - 1


def test_a_long_text_does_not_grow() -> None:
    assert len(load_json(f'"{"x" * (7 << 20)}"', ReadLimits(size=8 << 20, memory=8 << 20))) == 7 << 20


def test_files_of_data_may_fill_a_share_of_the_memory_and_hold_long_numbers() -> None:
    limits, memory = data_limits(), memory_limit()
    assert (limits.size, limits.values, limits.memory) == (memory // 8, memory // 1024, memory // 4)
    assert limits.seconds == 600.0
    assert load_json(str(2**9_999), limits) == 2**9_999
    assert "at most 10000 bits" in refusal(load_json, str(2**10_000), limits)


def test_a_yaml_document_knows_the_lines_of_numbered_keys_and_the_ends_of_lists() -> None:
    document = open_yaml("1: x\n2:\n  - y\n  - z\n")
    assert [document.line(1), document.line(2, 1), document.line(2, 2), document.line(3)] == [1, 4, 2, 1]
    assert document.line(2, "y") == 2
    assert document.line(1, 0) == 1
