"""Problems from data files: every format, every column to the reward, and one sentence for whatever is wrong."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.agents.data.dataset import DataProblems, find_data, find_problems, split
from groupwise.agents.data.problems import Problem
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError, ContractError
from groupwise.readers import LONGEST_LINE
from groupwise.rewards.rules.correctness import last_number
from groupwise.types import Score

ROWS = [{"prompt": f"{n}+{n}", "answer": str(2 * n), "level": n % 3} for n in range(60)]
LATIN = pa.StringArray.from_buffers(3, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"ab\xff"))
GSM8K = next((p for parent in Path(__file__).parents if (p := parent / "shared/data/gsm8k").is_dir()), None)


def json_lines(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes | Sequence[Any], name: str = "sums.jsonl") -> Path:
        path = tmp_path / name
        text = content if isinstance(content, str | bytes) else json_lines(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def as_lines(folder: Path) -> Path:
    (folder / "sums.jsonl").write_text(json_lines(ROWS))
    return folder / "sums.jsonl"


def as_list(folder: Path) -> Path:
    (folder / "sums.json").write_text(json.dumps(ROWS))
    return folder / "sums.json"


def as_parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "sums.parquet")
    return folder / "sums.parquet"


def as_saved_dataset(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets", reason="writing a saved dataset needs the datasets library")
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).save_to_disk(str(folder / "sums"), num_shards=2)
    return folder / "sums"


@pytest.mark.parametrize("write", [as_lines, as_list, as_parquet, as_saved_dataset])
def test_every_format_gives_the_same_problems(write: Callable[[Path], Path], tmp_path: Path) -> None:
    data = find_data(write(tmp_path), {})
    assert data.name == "sums"
    problems = [*data.train, *data.test]
    assert sorted((p.text, p.answer, p.columns["level"]) for p in problems) == sorted(
        (row["prompt"], row["answer"], row["level"]) for row in ROWS
    )


def folder_of_lines(folder: Path) -> None:
    (folder / "train.jsonl").write_text(json_lines(ROWS[:50]))
    (folder / "test.jsonl").write_text(json_lines(ROWS[50:]))


def folder_of_parts(folder: Path) -> None:
    for number, part in enumerate((ROWS[:20], ROWS[20:50])):
        pq.write_table(pa.Table.from_pylist(part), folder / f"train-0000{number}-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS[50:]), folder / "validation.parquet")


def folder_of_splits(folder: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="writing a saved dataset needs the datasets library")
    datasets.disable_progress_bars()
    splits = {"train": ROWS[:50], "test": ROWS[50:]}
    datasets.DatasetDict({k: datasets.Dataset.from_list(v) for k, v in splits.items()}).save_to_disk(str(folder))


@pytest.mark.parametrize("write", [folder_of_lines, folder_of_parts, folder_of_splits])
def test_a_folder_may_bring_its_own_split(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    data = find_data(tmp_path, {})
    assert [p.text for p in data.train] == [row["prompt"] for row in ROWS[:50]]
    assert [p.text for p in data.held_out(0, 100)] == [row["prompt"] for row in ROWS[50:]]
    assert len({p.text for p in data.held_out(0, 5)}) == 5
    assert data.held_out(0, 5) != data.held_out(1, 5)


def test_a_prompt_to_judge_on_is_left_out_of_training(written: Callable[..., Path]) -> None:
    judged = written(ROWS[:10], "judged.jsonl")
    data = find_data(written(ROWS), {"eval_file": str(judged)})
    assert [p.text for p in data.train] == [row["prompt"] for row in ROWS[10:]]
    with pytest.raises(ConfigError, match="every training prompt is also held out"):
        find_data(judged, {"eval_file": str(judged)})


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=2), st.floats(0.01, 0.99))
def test_a_split_has_two_sides_that_share_no_prompt(prompts: list[str], share: float) -> None:
    problems = [Problem(prompt, "x") for prompt in prompts]
    if len(set(prompts)) == 1:
        with pytest.raises(ConfigError, match="only one prompt"):
            split(problems, share, "file")
        return
    train, test = split(problems, share, "file")
    assert train
    assert test
    assert len(train) + len(test) == len(problems)
    assert not {p.text for p in train} & {p.text for p in test}


def test_rows_that_are_added_move_no_other_row_to_the_other_side() -> None:
    problems = [Problem(str(n), "x") for n in range(2000)]
    few, many = (split(problems[:count], 0.1, "file")[1] for count in (1000, 2000))
    assert many[: len(few)] == few
    assert 150 < len(many) < 250


def test_every_epoch_shows_every_row_once_in_another_order(written: Callable[..., Path]) -> None:
    data = find_data(written(ROWS), {})
    size = len(data.train)
    first, second = ([data.training(7, n).text for n in range(e * size, (e + 1) * size)] for e in (0, 1))
    assert sorted(first) == sorted(second) == sorted(p.text for p in data.train)
    assert first != second
    assert [data.training(8, n).text for n in range(size)] != first
    again = find_data(written(ROWS), {})
    assert again.training(7, size + 3).text == second[3]  # asked for out of order, by another process


def test_a_prompt_is_a_column_a_template_or_a_chat(written: Callable[..., Path]) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2"}]
    rows = [{"q": "1+1", "hint": n, "chat": chat, "answer": "2"} for n in range(2)]
    asked = find_data(written([{**row, "q": f"{n}+1"} for n, row in enumerate(rows)]), {"prompt": "q"})
    assert {p.prompt for p in (*asked.train, *asked.test)} == {"0+1", "1+1"}
    filled = find_data(written(rows), {"prompt": "Q: {q} {not a column} ({hint})"})
    assert {p.prompt for p in (*filled.train, *filled.test)} == {f"Q: 1+1 {{not a column}} ({n})" for n in range(2)}
    talked = find_data(written(rows, "a.jsonl"), {"prompt": "chat", "eval_file": str(written(ROWS_OF_CHAT, "b.jsonl"))})
    assert talked.train[0].messages == chat
    assert talked.test[0].messages == chat[1:]
    assert talked.demonstration(talked.test[0]) == "4"


ROWS_OF_CHAT = [
    {"chat": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}], "answer": "4"},
]


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ("exact", ["72", " 72\n"], ["72.", "172", ""]),
        ("number", ["72", "is 72.0.", "$72", "1 or 72", "7.2e1"], ["1,072", "72 or 1", "none", "-72", ""]),
        ("contains", ["72", "the answer is 72, I think"], ["7 2", ""]),
    ],
)
def test_checks(written: Callable[..., Path], check: str, right: list[str], wrong: list[str]) -> None:
    data = find_data(written([{**row, "answer": "72"} for row in ROWS]), {"check": check})
    problem = data.training(0, 0)
    assert [data.grade(problem, text, True).total for text in right] == [1.0] * len(right)
    assert [data.grade(problem, text, True).total for text in wrong] == [0.0] * len(wrong)
    assert data.grade(problem, right[0], False).total == 0.0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,000", 1000),
        ("-3.50", -3.5),
        (".5", 0.5),
        ("x1e2y", 100),
        ("--", None),
        ("3-4", 4),
        ("8/2=8-4", 4),
        ("2024-05", 5),
        ("x-3", 3),
        ("x=-3", -3),
        ("3 -4", -4),
        ("\u22125", -5),
        ("1.2.3", 3),
        ("1,2", 2),
        ("1,2345", 2345),
        ("12,345,678", 12345678),
        ("1,234,56", 56),
        ("1234,567.5", 567.5),
        ("3.", 3),
    ],
)
def test_the_last_number_of_a_text(text: str, number: float | None) -> None:
    assert last_number(text) == number


REWARD = """
def by_level(text, level, prompt="", missing="default"):
    return len(text) + 10 * level if missing == "default" and prompt else 0

def everything(text, **columns):
    from groupwise.types import Score
    return Score(1.0, {"columns": float(len(columns))})

async def awaited(text, level):
    return len(text)

async def leaves_later(text):
    raise SystemExit(3)

def leaves(text):
    raise SystemExit(3)

def breaks(text, **columns):
    return 1 / 0

def says_nothing(text, **columns):
    return None

def needs(text, unheard_of):
    return 1.0
"""


def test_all_columns_reach_a_reward_of_ones_own(written: Callable[..., Path]) -> None:
    source, path = written(REWARD, "mine.py"), written(ROWS)
    data = find_data(path, {"check": f"{source}:by_level"})
    problem = data.training(0, 0)
    assert data.grade(problem, "abc", True) == Score(3.0 + 10 * problem.columns["level"])
    assert find_data(path, {"check": f"{source}:everything"}).grade(problem, "", True).parts == {"columns": 3.0}


def test_a_reward_of_ones_own_is_found_in_the_present_folder(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(REWARD, "a_reward_of_mine.py").parent)
    assert find_data(written(ROWS), {"check": "a_reward_of_mine:everything"}).check.needs_answer is False


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("leaves", "raised SystemExit on .*line \\d+: 3"),
        ("breaks", "raised ZeroDivisionError on .*line"),
        ("says_nothing", "returned None on .*line"),
    ],
)
def test_a_reward_that_breaks_names_the_row(written: Callable[..., Path], function: str, fault: str) -> None:
    data = find_data(written(ROWS), {"check": f"{written(REWARD, 'mine.py')}:{function}"})
    with pytest.raises(ContractError, match=fault):
        data.grade(data.training(0, 0), "x", True)


def test_a_reward_of_ones_own_may_be_async(written: Callable[..., Path]) -> None:
    source, path = written(REWARD, "mine.py"), written(ROWS)
    for function, expected in [("awaited", Score(3.0)), ("leaves_later", "raised SystemExit on .*line")]:
        data = find_data(path, {"check": f"{source}:{function}"})
        graded = data.grade(data.training(0, 0), "abc", True)
        assert inspect.iscoroutine(graded)
        if isinstance(expected, Score):
            assert asyncio.run(graded) == expected
        else:
            with pytest.raises(ContractError, match=expected):
                asyncio.run(graded)


def test_a_module_that_ends_the_program_is_refused(written: Callable[..., Path]) -> None:
    mine = written("import sys; sys.exit(2)", "mine.py")
    with pytest.raises(ConfigError, match="cannot be imported: SystemExit: 2"):
        find_data(written(ROWS), {"check": f"{mine}:f"})


GOOD = json_lines(ROWS[:3])

BROKEN: dict[str, tuple[str | bytes, str]] = {
    "half an object": (GOOD + '{"prompt": "1', r"line 4: not valid JSON: Unterminated string"),
    "no object": (GOOD + "[1]\n", r"line 4 is a list, not an object"),
    "no column": (GOOD + '{"question": "1", "answer": 2}', r"line 4 has no column 'prompt'\nIts columns are question"),
    "empty prompt": (GOOD + '{"prompt": " ", "answer": "2"}', r"line 4 has an empty prompt"),
    "null": (GOOD + '{"prompt": null, "answer": "2"}', r"line 4: the column 'prompt' is empty, not text"),
    "object": (GOOD + '{"prompt": {}, "answer": "2"}', r"line 4: the column 'prompt' is dict, not text"),
    "bad chat": (GOOD + '{"prompt": ["x"], "answer": "2"}', r"line 4: the column 'prompt' is not a list of messages"),
    "only an answer": (
        '{"prompt": [{"role": "assistant", "content": "x"}], "answer": "2"}', r"line 1 has an empty prompt",
    ),
    "empty answer": (GOOD + '{"prompt": "1", "answer": ""}', r"line 4: the column 'answer' has an empty answer"),
    "NaN": (GOOD + '{"prompt": "1", "answer": NaN}', r"line 4: answer = nan must be a finite number"),
    "infinite": (GOOD + '{"prompt": "1", "answer": 1e999}', r"line 4: answer = inf must be a finite number"),
    "endless integer": (GOOD + f'{{"prompt": "1", "answer": {"1" * 5000}}}', r"line 4: not valid JSON: Exceeds"),
    "deep": (GOOD + "[" * 100_000, r"line 4: not valid JSON: nested too deeply"),
    "huge line": (GOOD + " " * (LONGEST_LINE + 1), r"line 4: longer than 16 MiB"),
    "binary": (b"PAR1\0\0\1", r"line 1: it is not text: it contains a zero byte \(at byte 4\)"),
    "Latin-1": ('{"prompt": "é"}'.encode("latin-1"), r"line 1: it is not UTF-8 text \(at byte 12\)"),
    "a column twice": (GOOD + '{"prompt": "1", "answer": "2", "answer": "3"}', r"line 4: 'answer' is given twice"),
    "half a pair": (GOOD + r'{"prompt": "\ud83d", "answer": "1"}', r"line 4: the column 'prompt' contains half of a"),
    "nothing": ("", r"the file is empty"),
    "blank lines": ("\n\n", r"the file is empty"),
    "one prompt": (json_lines(ROWS[:1] * 3), r"has only one prompt"),
}  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_whatever_is_wrong_is_one_sentence_with_its_line(written: Callable[..., Path], content: str) -> None:
    text, sentence = BROKEN[content]
    with pytest.raises(ConfigError, match=sentence) as caught:
        find_data(written(text), {})
    assert "sums.jsonl" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("sums.csv", "a,b", r"ends in \.jsonl, \.json, \.parquet, not '\.csv'"),
        ("sums.json", '{"prompt": "1"}', r"contains an object, not a list"),
        ("sums.json", '[{"prompt": "1", "answer": "1"}, 3]', r"entry 2 is a number, not an object"),
        ("sums.json", "[1,\n2,,", r"not valid JSON: .* \(at line 2, column 3\)"),
        ("sums.parquet", "no parquet", r"is not a valid Parquet file"),
        ("sums.jsonl", b"\xef\xbb\xbf" + GOOD.encode() + b"7", r"line 4 is a number"),
    ],
)
def test_other_files_are_refused_as_clearly(
    written: Callable[..., Path], name: str, content: str | bytes, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_data(written(content, name), {})


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (LATIN, "row 3: the column 'odd' is not UTF-8 text .at byte 0."),
        (
            pa.array([0, 0, 2**62], pa.timestamp("ms")),
            "row 3: the column 'odd' contains a timestamp.ms. that Python cannot",
        ),
    ],
)
def test_values_that_python_cannot_hold_are_named(tmp_path: Path, column: pa.Array, sentence: str) -> None:
    table = pa.table({"prompt": ["1", "2", "3"], "answer": ["1", "2", "3"], "odd": column})
    pq.write_table(table, tmp_path / "odd.parquet")
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    for path in (tmp_path / "odd.parquet", folder):
        # A saved dataset is validated before its values are looked at.
        with pytest.raises(ConfigError, match=f"{path.name} {sentence}|Invalid UTF8 sequence at string index 2"):
            find_data(path, {})


def test_folders_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="has no training data .it contains nothing"):
        find_data(tmp_path, {})
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(ConfigError, match="does not list the data files"):
        find_data(tmp_path, {})
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../../secret.arrow"}]}')
    with pytest.raises(ConfigError, match="cannot be read: "):
        find_data(tmp_path, {})
    (tmp_path / "secret.arrow").write_bytes(b"none of it")
    with pytest.raises(ConfigError, match="not a valid Arrow file"):
        find_data(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    for name in ("nothing.jsonl", "some/where"):
        with pytest.raises(ConfigError, match=f"{name}: no such file"):
            find_problems(TaskSettings(environment=name))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"promt": "q"}, r"promt = 'q' is not an option of a data file\nDid you mean 'prompt'"),
        ({"prompt": 3}, r"prompt = 3 has the wrong type"),
        ({"held_out_share": 1}, r"held_out_share = 1 must be between 0 and 1"),
        ({"held_out_share": True}, r"held_out_share = True has the wrong type"),
        ({"held_out_share": 1.0}, r"must be between 0 and 1"),
        ({"answer_pattern": "(("}, r"is not a valid regular expression"),
        ({"answer_pattern": "#### (.*)"}, r"line 1: the column 'answer' does not match .*####"),
        ({"check": "exakt"}, r"check = 'exakt' is not a check\nUse one of exact, number, contains"),
        ({"check": "no_such_module:f"}, r"cannot be imported: ModuleNotFoundError"),
        ({"check": "json:no_such"}, r"does not name a function: json has no 'no_such'"),
        ({"check": "{mine}:needs"}, r"needs unheard_of, which no row has\nThe columns are answer, level, prompt"),
        ({"check": "number", "answer": "prompt", "answer_pattern": "[+]"}, r"line 1: .* without a number: '\+'"),
        ({"eval_file": "none.jsonl"}, r"none.jsonl: no such file"),
    ],
)
def test_wrong_options_are_refused(written: Callable[..., Path], options: dict[str, Any], sentence: str) -> None:
    mine = written(REWARD, "mine.py")
    filled = {name: v.replace("{mine}", str(mine)) if isinstance(v, str) else v for name, v in options.items()}
    with pytest.raises(ConfigError, match=sentence):
        find_data(written(ROWS), filled)


def test_data_without_demonstrations_says_how_to_name_them(written: Callable[..., Path]) -> None:
    data = find_data(written(ROWS), {})
    with pytest.raises(ConfigError, match=r"'sums' has no demonstrations .*line"):
        data.demonstration(data.training(0, 0))
    shown = find_data(written(ROWS), {"demonstration": "It is {answer}"})
    assert shown.demonstration(shown.training(0, 0)) == f"It is {shown.training(0, 0).answer}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(content=st.binary(max_size=200))
def test_no_file_whatever_it_holds_ends_in_a_traceback(written: Callable[..., Path], content: bytes) -> None:
    for name in ("x.jsonl", "x.json", "x.parquet"):
        with pytest.raises(ConfigError):
            find_data(written(content, name), {})


@pytest.mark.skipif(GSM8K is None, reason="GSM8K is not beside the repository in shared/data")
def test_gsm8k_is_read_split_and_graded() -> None:
    options = {
        "prompt": "{question}", "answer_pattern": r"#### (.+)", "check": "number", "demonstration": "answer",
    }  # fmt: skip
    data = find_problems(TaskSettings(environment=str(GSM8K), options=options))
    assert isinstance(data, DataProblems)
    assert (len(data.train), len(data.test)) == (7473, 1319)
    assert all(data.grade(p, data.demonstration(p), True).total == 1.0 for p in data.test)
    problem = next(p for p in data.train if p.text.startswith("Natalia sold clips"))
    assert problem.answer == "72"
    assert [data.grade(problem, t, True).total for t in ("#### 72", "72", "#### 72\n#### 73")] == [1.0, 0.0, 0.0]
    assert "####" in problem.columns["answer"]


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    column = pa.array(["2+2?"]).dictionary_encode().take(pa.array([0] * 2_000_000))
    pq.write_table(pa.table({"prompt": column, "answer": column}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 100_000
    with pytest.raises(ConfigError, match=r"bomb.parquet has .* but needs more than 64 MiB in memory"):
        find_data(tmp_path / "bomb.parquet", {})


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.json", "pipe.parquet"])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"device-{name}").symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / f"device-{name}"):
        with pytest.raises(ConfigError, match="not a regular file"):
            find_data(path, {})


def test_a_dataset_may_not_send_the_reader_to_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    os.mkfifo(tmp_path / "data.arrow")
    with pytest.raises(ConfigError, match="not a regular file"):
        find_data(tmp_path, {})


def test_integers_of_any_sensible_length_are_answers(written: Callable[..., Path]) -> None:
    rows = [{"prompt": str(n), "answer": 10**40 + n} for n in range(4)]
    assert {problem.answer for problem in find_data(written(rows), {})} == {str(10**40 + n) for n in range(4)}


def test_a_pattern_that_never_ends_is_refused_by_name(written: Callable[..., Path]) -> None:
    rows = [{"prompt": str(n), "answer": "a" * 60 + "b"} for n in range(4)]
    with pytest.raises(
        ConfigError, match=r"answer_pattern = '\(a\+\)\+\$' cannot be used: it takes longer than 2 seconds"
    ):
        find_data(written(rows), {"answer_pattern": "(a+)+$"})


@pytest.mark.parametrize("damage", ["length", "offsets"])
def test_a_saved_dataset_that_lies_about_its_data_is_refused(tmp_path: Path, damage: str) -> None:
    table = pa.table({"prompt": ["a", "b"], "answer": ["1", "2"]})
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    with pa.OSFile(str(tmp_path / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    content = (tmp_path / "data.arrow").read_bytes()
    if damage == "length":  # of the first message: two gigabytes
        content = content[:4] + (0x7AFFFFFF).to_bytes(4, "little") + content[8:]
    else:  # where the second text ends: far beyond its buffer
        ends = b"\0\0\0\0\1\0\0\0\2\0\0\0"
        assert ends in content
        content = content.replace(ends, ends[:8] + (10**9).to_bytes(4, "little"), 1)
    (tmp_path / "data.arrow").write_bytes(content)
    with pytest.raises(ConfigError, match="data.arrow is not a valid Arrow file"):
        find_data(tmp_path, {})
