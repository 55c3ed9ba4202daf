"""Plain text to requirements, over real HTTP against a scripted server."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from groupwise.designer.text_requirements import requirements_from_text
from groupwise.errors import ConfigError, GroupwiseError

SCRIPTED = Path(__file__).parents[1] / "rewards" / "judge" / "scripted.py"
RIGHT = {
    "name": "claim",
    "activities": {"register claim": {"duration": {"mean": 60}}, "check claim": {"duration": {"mean": 300}}},
    "rules": {"precedes": [["register claim", "check claim"]]},
}


@pytest.fixture(scope="module")
def scripted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripted_model", SCRIPTED)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["scripted_model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(scripted: ModuleType) -> Iterator[Any]:
    with scripted.serving() as server:
        yield server


def ask(server: Any) -> Any:
    return requirements_from_text("Register, then check.", "some-model", base_url=server.url, timeout=300)


def test_an_answer_that_follows_the_schema_is_read(server: Any, scripted: ModuleType) -> None:
    server.script = [scripted.say(f"<think>hm</think>\n```json\n{json.dumps(RIGHT)}\n```")]
    found = ask(server)
    assert found.rules.precedes == (("register claim", "check claim"),)
    (body,) = server.asked
    assert body["response_format"]["json_schema"]["schema"]["title"] == "Requirements"
    assert "Register, then check." in body["messages"][-1]["content"]


def test_a_mistake_is_told_once_and_repaired(server: Any, scripted: ModuleType) -> None:
    wrong = {**RIGHT, "rules": {"precedes": [["register claim", "shred claim"]]}}
    server.script = [scripted.say(json.dumps(wrong)), scripted.say(json.dumps(RIGHT))]
    assert ask(server).name == "claim"
    assert (
        "rules.precedes names 'shred claim', which is not in activities" in server.asked[1]["messages"][-1]["content"]
    )


def test_a_second_mistake_is_the_caller_s(server: Any, scripted: ModuleType) -> None:
    server.script = [scripted.say("Sorry."), scripted.say("Really, no.")]
    with pytest.raises(ConfigError, match="some-model wrote invalid requirements twice: not valid JSON"):
        ask(server)


def test_a_server_that_refuses_is_told_in_one_sentence(server: Any, scripted: ModuleType) -> None:
    server.script = [scripted.refuse(401, "who are you")]
    with pytest.raises(GroupwiseError) as error:
        ask(server)
    assert error.value.message == f"the model some-model at {server.url}: HTTP 401: who are you"


def test_without_a_model_it_says_what_to_configure() -> None:
    with pytest.raises(ConfigError) as error:
        requirements_from_text("Register, then check.", environment={})
    assert "none is configured" in error.value.message
    assert "GROUPWISE_MODEL" in error.value.hint
