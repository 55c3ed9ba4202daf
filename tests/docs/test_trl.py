"""The TRL page: every field of TRL's own configuration is on it, and every setting it names is ours."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from groupwise.config.sections import SECTIONS, SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "trl.md").read_text("utf8")
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_field_that_trl_adds_is_on_the_page_once_and_none_that_it_has_not() -> None:
    trl = pytest.importorskip("trl")
    from transformers import TrainingArguments

    inherited = {field.name for field in dataclasses.fields(TrainingArguments)}
    own = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
    listed = [name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])]
    assert len(listed) == len(set(listed))
    assert set(listed) <= own
    assert own - inherited <= set(listed)


def test_every_row_names_a_setting_or_says_why_there_is_none() -> None:
    for left, here, difference in ROWS:
        named = re.findall(r"`(\w+\.\w+)`", here)
        assert named or (here.strip() == "–" and len(difference) > 5), left


def test_every_setting_on_the_page_is_one_of_ours() -> None:
    paths = re.findall(rf"`((?:{'|'.join(SECTIONS)})\.\w+)", PAGE)
    assert len(paths) > 40
    assert {*paths} <= {setting.path for setting in SETTINGS.values()}


def test_the_defaults_it_compares_are_the_defaults() -> None:
    trl = pytest.importorskip("trl")
    theirs = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    for left, here, difference in ROWS:
        if found := re.match(r" ?default ([\de.-]+) \(TRL: ([\de.-]+)\)", difference):
            (name,), (path,) = re.findall(r"`(\w+)`", left), re.findall(r"`\w+\.(\w+)`", here)
            assert (SETTINGS[path].default, theirs[name]) == (float(found[1]), float(found[2]))
