"""One client of the WebSocket, message by message, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket

from groupwise.service.keys import Who
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.settings import ServiceSettings
from groupwise.service.state import ServiceState
from groupwise.service.websocket_connection import LONGEST, LiveClient, Topics
from groupwise.training.events import EventLog
from groupwise.types import Event


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ServiceState]:
    """The parts of a service that was never started."""
    made = ServiceState(ServiceSettings(runs_dir=tmp_path, niceness=0, token="secret"), ServiceMetrics())
    for run in "abc":
        (tmp_path / run).mkdir()
        log = EventLog(tmp_path / run / "events.jsonl")
        for seq in range(3):
            log.append(Event(run, seq, 1, 1.0, seq, "step", {"metrics": {}}))
        log.close()
    yield made
    asyncio.run(made.close())


def talk(parts: ServiceState, *messages: Any, answers: int | None = None) -> list[dict[str, Any]]:
    """What a client hears that says all of this, and goes once it has heard so many answers."""
    expected = len(messages) if answers is None else answers
    waiting = [m if isinstance(m, str) else json.dumps(m) for m in ({"type": "auth", "key": "secret"}, *messages)]
    heard: list[dict[str, Any]] = []

    async def run() -> None:
        enough = asyncio.Event()

        async def receive() -> Any:
            if first:
                return {"type": first.pop()}
            if waiting:
                return {"type": "websocket.receive", "text": waiting.pop(0)}
            await enough.wait()
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message: Any) -> None:
            if message["type"] == "websocket.send":
                heard.append(json.loads(message["text"]))
            if len(heard) >= expected + 2 or message["type"] == "websocket.close":  # and both times `ready`
                enough.set()

        first = ["websocket.connect"]
        client = LiveClient(WebSocket({"type": "websocket", "client": ("1.2.3.4", 1)}, receive, send), parts)
        await client.serve()
        assert client not in parts.topics.followers["runs"]
        assert parts.followers._open == {}

    asyncio.run(run())
    assert [one["type"] for one in heard[:2]] == ["ready", "ready"]
    assert [one["scope"] for one in heard[:2]] == ["train", "admin"]
    return heard[2:]


def follow(run: str, **more: Any) -> dict[str, Any]:
    return {"type": "subscribe", "topic": "run", "run": run, "from": 3, **more}


@pytest.mark.parametrize("name", ["from", "attempt"])
@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 2**53, [1], float("nan")])
def test_a_position_is_a_whole_number(parts: ServiceState, name: str, value: Any) -> None:
    (answer,) = talk(parts, {**follow("a"), name: value, "id": 7})
    assert (answer["type"], answer["error"]["field"], answer["id"]) == ("error", name, 7)
    assert "must be a whole number, 0 or more" in answer["error"]["message"]


@pytest.mark.parametrize(("given", "first"), [
    ({}, 0), ({"from": None}, 0), ({"from": 0}, 0), ({"from": 2}, 2), ({"from": 2**53 - 1}, 3),
    ({"from": 3, "attempt": 1}, 3), ({"from": 3, "attempt": 0}, 0), ({"from": 1, "attempt": None}, 1),
])  # fmt: skip
def test_a_client_follows_from_where_it_says(parts: ServiceState, given: dict[str, Any], first: int) -> None:
    asked = {"type": "subscribe", "topic": "run", "run": "a", **given}
    back = (given.get("from") or 0) > first
    heard = talk(parts, asked, answers=1 + back + 3 - first)
    assert (heard[0]["type"], heard[0]["next"], heard[0]["count"]) == ("subscribed", first, 3)
    assert [one["from"] for one in heard if one["type"] == "rewind"] == [first] * back
    assert [one["event"]["seq"] for one in heard if one["type"] == "event"] == list(range(first, 3))


@pytest.mark.parametrize("run", ["", ".service", "../a", "a/b", "x" * 101, "a\n", 3, None])
def test_a_run_has_the_name_of_one(parts: ServiceState, run: Any) -> None:
    for kind in ("subscribe", "unsubscribe"):
        (answer,) = talk(parts, {"type": kind, "topic": "run", "run": run})
        assert (answer["type"], answer["error"]["field"]) == ("error", "run")


def test_a_client_follows_so_many_runs_and_no_more(parts: ServiceState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.service.websocket_connection.MOST_RUNS", 2)
    leave = {"type": "unsubscribe", "topic": "run", "run": "a"}
    heard = talk(parts, follow("a"), follow("b"), follow("c"), follow("b"), leave, follow("c"))
    assert [one["type"] for one in heard] == [
        "subscribed", "subscribed", "error", "subscribed", "unsubscribed", "subscribed",
    ]  # fmt: skip
    assert "already follows 2 runs" in heard[2]["error"]["message"]


def test_a_message_is_read_up_to_its_limit(parts: ServiceState) -> None:
    ping = json.dumps({"type": "ping", "id": 5})
    heard = talk(parts, ping + " " * (LONGEST - len(ping)), ping + " " * (LONGEST + 1 - len(ping)), ping)
    assert [one["type"] for one in heard] == ["pong", "error", "pong"]
    assert heard[0]["id"] == 5
    assert f"{LONGEST + 1:,} characters; the limit is {LONGEST:,}" in heard[1]["error"]["message"]


@pytest.mark.parametrize("name", ["", "x" * 101, 3, None])
def test_a_chat_has_a_name(parts: ServiceState, name: Any) -> None:
    (answer,) = talk(parts, {"type": "chat", "id": name, "request": {}})
    assert (answer["type"], answer["error"]["field"]) == ("error", "id")


def test_no_more_chats_run_at_once_than_may(parts: ServiceState, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = {"type": "chat", "id": "x" * 100, "request": {"message": 3}}
    (answer,) = talk(parts, chat)
    assert (answer["type"], answer["id"], answer["event"]["type"]) == ("chat", "x" * 100, "error")
    assert answer["event"]["error"]["field"] == "message"
    monkeypatch.setattr("groupwise.service.websocket_connection.MOST_CHATS", 0)
    (answer,) = talk(parts, chat)
    assert "0 chats are already running" in answer["error"]["message"]
    (answer,) = talk(parts, {**chat, "request": []})
    assert answer["error"]["field"] == "request"


@pytest.mark.parametrize("message", [{"type": "subscribe", "topic": "all"}, {"type": "subscribe"}, {"type": "dance"}])
def test_what_is_not_known_is_refused(parts: ServiceState, message: dict[str, Any]) -> None:
    (answer,) = talk(parts, message)
    assert answer["error"]["code"] == "contract"


def test_a_wrong_key_after_the_first_message_changes_nothing(parts: ServiceState) -> None:
    heard = talk(parts, {"type": "auth", "key": 3}, {"type": "auth"}, {"type": "ping"}, answers=1)
    assert [one["type"] for one in heard] == ["pong"]
    (again,) = talk(parts, {"type": "auth", "key": "wrong"})
    assert (again["type"], again["scope"]) == ("ready", "train")


ANN, BOB, ADMIN = (Who(name, name, scope, name) for name, scope in (("a", "train"), ("b", "train"), ("x", "admin")))


def test_a_topic_is_told_to_each_view_once_and_only_if_it_changed(parts: ServiceState) -> None:
    async def run() -> None:
        topics = Topics()
        clients = []
        for who in (ANN, BOB, ADMIN, Who("w", "w", "read", "a"), None):
            client = LiveClient(WebSocket({"type": "websocket"}, None, None), parts)  # type: ignore[arg-type]
            client.who = who
            clients.append(client)
            topics.followers["runs"].add(client)

        def told() -> list[str | None]:
            return [client._latest.pop("runs", None) for client in clients]

        assert topics.views("runs").keys() == {"a", "b", ""}
        assert topics.views("metrics") == {}
        topics.tell("runs", {"a": "1", "b": "2", "": "3"})
        assert told() == ["1", "2", "3", "1", None]
        topics.tell("runs", {"a": "1", "b": "4", "": "3"})
        assert told() == [None, "4", None, None, None]
        topics.tell("metrics", {"a": "5"})
        assert told() == [None] * 5
        topics.forget("runs")
        assert topics.newest == {("metrics", "a"): "5"}
        topics.tell("runs", {"a": "1"})
        assert told() == ["1", None, None, "1", None]

    asyncio.run(run())


def test_only_the_latest_of_a_topic_waits_for_a_client(parts: ServiceState) -> None:
    async def run() -> None:
        client = LiveClient(WebSocket({"type": "websocket"}, None, None), parts)  # type: ignore[arg-type]
        for topic, text in (("runs", "old"), ("metrics", "m"), ("runs", "new")):
            client.offer(topic, text)
        assert client._latest == {"runs": "new", "metrics": "m"}

    asyncio.run(run())
