"""Code that the user names: found where they would look for it, and its errors shown from their own lines on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, GroupwiseError, RunError
from groupwise.user_code import LONGEST_TRACEBACK, load_module, traceback_of


def refuse(message: str) -> GroupwiseError:
    return ConfigError(f"it {message}")


def test_a_file_is_loaded_by_its_path_and_known_to_python(tmp_path: Path) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nVALUE = A(3)\n")
    module = load_module(str(file), refuse)
    assert module.VALUE.x == 3
    assert sys.modules[module.__name__] is module
    file.write_text("VALUE = 4\n# longer than before\n")
    assert load_module(str(file), refuse).VALUE == 4


def test_a_module_is_looked_for_in_the_current_folder_first_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_by_a_user.py").write_text("import sys\nfirst = sys.path[0]\n")
    before = list(sys.path)
    assert load_module("named_by_a_user", refuse).first == str(tmp_path)
    assert sys.path == before
    with pytest.raises(ConfigError, match="it cannot be imported: ModuleNotFoundError: No module named 'not_there'"):
        load_module("not_there", refuse)
    assert sys.path == before
    del sys.modules["named_by_a_user"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("x = (", "SyntaxError: '[(]' was never closed"),
    ],
)
def test_whatever_goes_wrong_in_it_is_one_sentence(tmp_path: Path, code: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(ConfigError, match=f"^it cannot be imported: {words}") as refused:
        load_module(str(tmp_path / "broken.py"), refuse)
    assert refused.value.__cause__ is not None


def test_errors_of_ours_and_missing_files_are_told_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text("from groupwise.errors import RunError\nraise RunError('as it is')\n")
    with pytest.raises(RunError, match="^as it is$"):
        load_module(str(tmp_path / "ours.py"), refuse)
    with pytest.raises(ConfigError, match=r"FileNotFoundError: there is no file .*none\.py"):
        load_module(str(tmp_path / "none.py"), refuse)


def failing(tmp_path: Path, code: str) -> BaseException:
    """What loading the code through this package raises, with what caused it."""
    (tmp_path / "users.py").write_text(code)
    with pytest.raises(ConfigError) as refused:
        load_module(str(tmp_path / "users.py"), refuse)
    return refused.value


def test_a_traceback_begins_in_the_users_own_code(tmp_path: Path) -> None:
    code = "import json\ndef mine():\n    json.loads('{')\nmine()\n"
    error = failing(tmp_path, code).__cause__
    assert error is not None
    text = traceback_of(error)
    assert "user_code.py" not in text
    assert text.index("users.py") < text.index("in mine") < text.index("decoder.py")
    assert text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_the_cause_behind_our_own_errors_is_what_is_shown(tmp_path: Path) -> None:
    outer = RunError("outside")
    outer.__cause__ = failing(tmp_path, "1 / 0")
    assert traceback_of(outer).splitlines()[-1] == "ZeroDivisionError: division by zero"
    alone = RunError("nothing behind it")
    assert traceback_of(alone).splitlines()[-1].endswith("RunError: nothing behind it")


def test_a_long_traceback_keeps_its_end(tmp_path: Path) -> None:
    def text_of(length: int) -> str:
        return traceback_of(ValueError("x" * length))

    own = len(text_of(0)) + 1  # and a space, which an empty message does not have
    fits = text_of(LONGEST_TRACEBACK - own - 1)
    assert len(fits) == LONGEST_TRACEBACK
    assert fits.startswith("ValueError: x")
    longer = text_of(LONGEST_TRACEBACK)
    assert (longer[0], len(longer)) == ("…", LONGEST_TRACEBACK + 1)
    assert "repeated" in traceback_of(failing(tmp_path, "def f(): f()\nf()\n"))
