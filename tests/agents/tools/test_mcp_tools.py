"""MCP servers as tools, with the real package on both sides; what fails is an outcome of one call."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.agents.environments.equipped import EquippedScenarios
from groupwise.agents.environments.task import TaskEnvironment
from groupwise.agents.tools.function_tool import BadArguments
from groupwise.agents.tools.mcp_server import McpServer, find_servers, read_servers
from groupwise.agents.tools.mcp_tools import JsonArguments, tools_of_servers
from groupwise.agents.tools.tool_sources import close_tools, described, find_tools
from groupwise.agents.tools.toolbox import Toolbox, ToolOutcome, ToolResult
from groupwise.config import ToolsSettings
from groupwise.errors import ConfigError
from groupwise.types import End, Task

pytest.importorskip("mcp")
DESK = Path(__file__).parents[2] / "fixtures" / "mcp_desk.py"
RUDE = f"mcp:{sys.executable} {DESK.with_name('mcp_rude.py')}"
COMMAND = f"mcp:{sys.executable} {DESK}"


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    box = Toolbox(find_tools(COMMAND), timeout=60.0)
    yield box
    box.close()


def asked(box: Toolbox, *names: str, **arguments: Any) -> list[ToolResult]:
    calls = [ToolCall(str(number), name, arguments) for number, name in enumerate(names)]
    return asyncio.run(box.run(calls))


def test_a_server_offers_its_tools_with_their_schemas(box: Toolbox) -> None:
    assert [*box.tools][:3] == ["add", "shop_price", "process"]
    schema = box.tools["add"].schema["function"]
    assert schema["description"] == "Add two numbers."
    assert schema["parameters"]["required"] == ["a", "b"]
    (line,) = described(box.tools.values())
    assert line.startswith(f"6 tools from {COMMAND}: add, shop_price")


def test_calls_are_answered_and_wrong_ones_are_named(box: Toolbox) -> None:
    (right,) = asked(box, "add", a=2, b=3)
    assert (right.outcome, right.content) == (ToolOutcome.OK, "5")
    (wrong,) = asked(box, "add", a="two")
    assert wrong.outcome is ToolOutcome.BAD_ARGUMENTS
    assert "'b' is a required property" in wrong.content
    (priced,) = asked(box, "shop_price", item="lamp")
    assert priced.content == "12"
    (raised,) = asked(box, "shop_price", item="moon")
    assert raised.outcome is ToolOutcome.RAISED


def test_a_flood_fails_its_own_call_only(box: Toolbox) -> None:
    before = box.tools["add"].connection.starts  # type: ignore[attr-defined]
    flooded, quick = asyncio.run(box.run([ToolCall("0", "flood", {}), ToolCall("1", "add", {"a": 1, "b": 1})]))
    assert flooded.outcome is ToolOutcome.UNAVAILABLE
    assert "more than 4,194,304" in flooded.content
    assert quick.content == "2"
    assert box.tools["add"].connection.starts == before  # type: ignore[attr-defined]


def test_a_server_that_dies_in_mid_call_is_started_again(box: Toolbox) -> None:
    (died,) = asked(box, "die")
    assert died.outcome is ToolOutcome.UNAVAILABLE
    assert "the desk burns down" in died.content
    assert asked(box, "add", a=1, b=2)[0].content == "3"


def test_a_server_that_is_killed_between_calls_is_started_again(box: Toolbox) -> None:
    first = asked(box, "process")[0].content
    os.kill(int(first), signal.SIGKILL)
    time.sleep(0.3)
    second = asked(box, "process")[0]
    assert second.outcome is ToolOutcome.OK
    assert second.content != first


def test_a_call_that_hangs_takes_its_time_and_a_server_that_hangs_is_started_again() -> None:
    box = Toolbox(find_tools(RUDE), timeout=0.5)
    try:
        slow, quick = asked(box, "ignore", "logs")
        assert (slow.outcome, quick.outcome) == (ToolOutcome.TIMED_OUT, ToolOutcome.OK)
        assert asked(box, "block")[0].outcome is ToolOutcome.TIMED_OUT
        patient = Toolbox(box.tools.values(), timeout=60.0)
        (after,) = asked(patient, "logs")
        assert after.outcome is ToolOutcome.UNAVAILABLE
        assert "did not answer a ping" in after.content
        assert asked(patient, "logs")[0].ok
    finally:
        box.close()


def test_a_server_that_breaks_the_protocol_fails_the_calls_it_breaks() -> None:
    box = Toolbox(find_tools(RUDE), timeout=60.0)
    try:
        broken, fine, shapeless = asked(box, "broken", "logs", "shapeless")
        assert (broken.outcome, shapeless.outcome) == (ToolOutcome.UNAVAILABLE, ToolOutcome.UNAVAILABLE)
        assert "not valid JSON-RPC" in broken.content
        assert fine.content == "done\n(3 bytes of x/y, not text)"
        (flooded,) = asked(box, "chatter")
        assert flooded.outcome is ToolOutcome.UNAVAILABLE
        assert "8 MiB that nobody asked for" in flooded.content
        assert asked(box, "logs")[0].ok
    finally:
        box.close()


@pytest.fixture
def desk_over_http() -> Iterator[tuple[str, Callable[[], Any]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def start() -> Any:
        words = [sys.executable, str(DESK), "http", str(port)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        processes.append(process)
        return process

    processes: list[Any] = []
    start()
    yield f"http://127.0.0.1:{port}/mcp", start
    for process in processes:
        process.kill()
        process.wait()


def test_a_server_over_http_is_asked_and_may_come_back(desk_over_http: tuple[str, Callable[[], Any]]) -> None:
    address, start = desk_over_http
    box = Toolbox(find_tools(address), timeout=60.0)
    try:
        assert asked(box, "add", a=2, b=2)[0].content == "4"
        (flooded,) = asked(box, "flood")
        assert flooded.outcome is ToolOutcome.UNAVAILABLE
        assert asked(box, "die")[0].outcome is ToolOutcome.UNAVAILABLE
        assert asked(box, "add", a=2, b=2)[0].outcome is ToolOutcome.UNAVAILABLE
        start()
        time.sleep(1.0)  # the pause before it is tried again
        assert asked(box, "add", a=2, b=2)[0].content == "4"
    finally:
        box.close()


def test_a_file_of_servers_is_read_as_other_clients_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_DESK", "sesame")
    monkeypatch.setenv("UNTOLD", "nobody's business")
    desk = {
        "command": sys.executable,
        "args": [DESK.name],
        "env": {"DESK_KEY": "${KEY_OF_DESK}"},
        "cwd": str(DESK.parent),
    }
    off = {"url": "https://example.com/mcp", "disabled": True}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"desk": {**desk, "cwd": str(DESK.parent)}, "away": off}}))
    box = Toolbox(find_tools(str(file)), timeout=60.0)
    try:
        # It got its own variable and none of ours, and its value is not shown.
        assert asked(box, "secret")[0].content == "[KEY_OF_DESK] None"
        assert "sesame" not in repr(box.tools)
    finally:
        box.close()
    monkeypatch.delenv("KEY_OF_DESK")
    with pytest.raises(ConfigError, match="environment variable KEY_OF_DESK"):
        find_tools(str(file))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no table mcpServers"),
        ({"mcpServers": {}}, "no servers in it"),
        ({"mcpServers": {"a": 3}}, "not an object"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "args is a list of text"),
        ({"mcpServers": {"a": {"command": "x", "url": "https://a.b"}}}, "a command or a url, and not both"),
        ({"mcpServers": {"a": {"url": "ftp://a.b"}}}, "has the address"),
        ({"mcpServers": {"a": {"url": "https://me:word@a.b/c"}}}, "has the address 'a.b/c'"),
        ({"mcpServers": {"a": {"url": "https://a.b", "type": "sse"}}}, "the transport 'sse'"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 3}}}}, "tables of text"),
    ],
)
def test_a_wrong_file_of_servers_is_one_sentence(tmp_path: Path, given: Any, said: str) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(given))
    with pytest.raises(ConfigError, match=said) as caught:
        read_servers(file)
    assert caught.value.hint
    assert "word" not in caught.value.message


def test_a_server_that_cannot_be_started_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="cannot be used: .*No such file"):
        find_tools("mcp:no-such-program-anywhere")
    with pytest.raises(ConfigError, match=r"cannot be used: .*its last words: 'alas'"):
        find_tools(f"mcp:{sys.executable} -c 'import sys; sys.exit(\"alas\")'")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_servers("mcp:python 'open")


def test_two_servers_with_tools_of_one_name_keep_both() -> None:
    words = find_servers(RUDE)[0].command
    tools = tools_of_servers([McpServer("north", words), McpServer("south", words)], {"logs"})
    try:
        assert {"north_logs", "south_logs", "south_block"} <= {tool.name for tool in tools}
    finally:
        close_tools(tools)


def test_arguments_follow_any_schema_and_patterns_are_left_to_the_server() -> None:
    schema = {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/person"}, "pattern": {"type": "string", "pattern": "(a+)+$"}},
        "$defs": {"person": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}},
        "required": ["who"],
    }
    arguments = JsonArguments("greet", schema)
    evil = {"who": {"age": 3}, "pattern": "a" * 40 + "!"}
    assert arguments.read(evil) == evil
    with pytest.raises(BadArguments, match="who.age: 'x' is not of type 'integer'"):
        arguments.read({"who": {"age": "x"}})
    with pytest.raises(ConfigError, match="cannot be used"):
        JsonArguments("greet", {"type": 3})
    # A reference to somewhere else is not fetched.
    far = JsonArguments("far", {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}})
    with pytest.raises(BadArguments, match="cannot be applied"):
        far.read({"a": 1})


def right(task: Any, messages: Any) -> float:
    return float(messages[-1]["content"] == task["answer"])


def test_conversations_get_the_tools_of_the_settings_and_a_worker_starts_its_own() -> None:
    questions = TaskEnvironment([{"goal": "2 + 3?", "answer": "5"}, {"goal": "1 + 1?", "answer": "2"}], right)
    scenarios = EquippedScenarios(questions, ToolsSettings(sources=(COMMAND,)))

    async def conversation() -> tuple[Any, Any]:
        environment = scenarios.make()
        opening = await environment.reset(Task("t", questions.train[0], 0))
        assert "add" in {tool["function"]["name"] for tool in opening.tools}
        looked = await environment.step(Reply("", (ToolCall("1", "add", {"a": 2, "b": 3}),)))
        return looked, await environment.step(Reply(questions.train[0]["answer"]))

    try:
        looked, ended = asyncio.run(conversation())
        assert looked.messages[0]["content"] == "5"
        assert (ended.end, ended.reward) == (End.FINISHED, 1.0)
    finally:
        scenarios.close()
    simple = EquippedScenarios(TaskEnvironment([{"goal": "?"}], right), ToolsSettings(sources=("tools.py",)))
    copied = pickle.loads(pickle.dumps(simple))  # noqa: S301
    assert (copied.settings, copied.name) == (simple.settings, simple.name)
