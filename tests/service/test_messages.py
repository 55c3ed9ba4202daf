"""One client of the WebSocket, message by message, without a server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket, WebSocketState

from groupwise.errors import ContractError
from groupwise.service.keys import LOCAL, Forbidden, Who
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.routes import websocket as websocket_routes
from groupwise.service.settings import ServiceSettings
from groupwise.service.state import ServiceState
from groupwise.service.websocket_connection import LONGEST, REREAD, LiveClient, Topics
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


def talk(
    parts: ServiceState, *messages: Any, answers: int | None = None, operator: bool = True
) -> list[dict[str, Any]]:
    """What a client hears that says all of this, and goes once it has heard so many answers."""
    expected = len(messages) if answers is None else answers
    scopes = ["train", "admin"] if operator else ["train"]
    auth = [{"type": "auth", "key": "secret"}] if operator else []
    waiting = [m if isinstance(m, str) else json.dumps(m) for m in (*auth, *messages)]
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
            if len(heard) >= expected + len(scopes) or message["type"] == "websocket.close":  # and each time `ready`
                enough.set()

        first = ["websocket.connect"]
        client = LiveClient(WebSocket({"type": "websocket", "client": ("1.2.3.4", 1)}, receive, send), parts)
        await client.serve()
        assert client not in parts.topics.followers["runs"]
        assert parts.followers._open == {}

    asyncio.run(run())
    ready, rest = heard[: len(scopes)], heard[len(scopes) :]
    assert [(one["type"], one["scope"]) for one in ready] == [("ready", scope) for scope in scopes]
    return rest


def follow(run: str, **more: Any) -> dict[str, Any]:
    return {"type": "subscribe", "topic": "run", "run": run, "from": 3, **more}


def test_a_run_whose_job_waits_is_followed_before_there_is_anything_of_it(parts: ServiceState) -> None:
    (answer,) = talk(parts, {**follow("later"), "id": 7})
    assert answer["error"]["code"] == "run_not_found"
    parts.jobs.add("later", "control", {}, LOCAL)
    (answer,) = talk(parts, {**follow("later"), "from": 0})
    assert (answer["type"], answer["next"], answer["count"]) == ("subscribed", 0, 0)


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
            topics.followers["metrics"].add(client)

        def told() -> list[str | None]:
            return [client._latest.pop("metrics", None) for client in clients]

        assert topics.views("metrics").keys() == {"a", "b", ""}
        assert topics.views("runs") == {}
        topics.tell("metrics", {"a": "1", "b": "2", "": "3"})
        assert told() == ["1", "2", "3", "1", None]
        topics.tell("metrics", {"a": "1", "b": "4", "": "3"})
        assert told() == [None, "4", None, None, None]
        topics.tell("runs", {"a": "5"})
        assert told() == [None] * 5
        topics.forget("metrics")
        assert topics.newest == {}
        topics.tell("metrics", {"a": "1"})
        assert told() == ["1", None, None, "1", None]

    asyncio.run(run())


def test_only_the_latest_of_a_topic_waits_for_a_client(parts: ServiceState) -> None:
    async def run() -> None:
        client = LiveClient(WebSocket({"type": "websocket"}, None, None), parts)  # type: ignore[arg-type]
        for topic, text in (("runs", "old"), ("metrics", "m"), ("runs", "new")):
            client.offer(topic, text)
        # A change of the list that was never sent is lost: the client reads the list again.
        assert client._latest == {"runs": REREAD, "metrics": "m"}
        client.offer("metrics", "n")
        assert client._latest["metrics"] == "n"

    asyncio.run(run())


def alone(parts: ServiceState, who: Who | None = ADMIN, receive: Any = None, send: Any = None) -> LiveClient:
    """A client whose connection nobody serves."""
    client = LiveClient(WebSocket({"type": "websocket", "client": ("1.2.3.4", 1)}, receive, send), parts)
    client.who = who
    return client


@pytest.mark.parametrize(("operator", "view"), [(True, "all"), (False, "local")])
def test_a_new_follower_of_a_topic_gets_the_latest_of_its_own_view_at_once(
    parts: ServiceState, operator: bool, view: str
) -> None:
    views = (("", "all"), ("local", "local"), ("a", "ann"))
    parts.topics.tell("metrics", {name: json.dumps({"type": "metrics", "view": told}) for name, told in views})
    heard = talk(parts, {"type": "subscribe", "topic": "metrics"}, answers=2, operator=operator)
    assert heard == [{"type": "subscribed", "topic": "metrics"}, {"type": "metrics", "view": view}]
    parts.topics.forget("metrics")
    heard = talk(parts, {"type": "subscribe", "topic": "metrics"}, {"type": "ping"}, operator=operator)
    assert [one["type"] for one in heard] == ["subscribed", "pong"]
    heard = talk(parts, {"type": "subscribe", "topic": "runs"}, answers=2, operator=operator)
    assert heard == [{"type": "subscribed", "topic": "runs"}, json.loads(REREAD)]


def test_whoever_unsubscribes_is_told_no_more(parts: ServiceState) -> None:
    async def run() -> None:
        client = alone(parts)
        for topic in ("runs", "metrics"):
            await client._obey({"type": "subscribe", "topic": topic})
        await client._obey(follow("a"))
        await client._obey(follow("b"))
        await client._obey({"type": "unsubscribe", "topic": "runs"})
        await client._obey({"type": "unsubscribe", "topic": "run", "run": "a"})
        await client._obey({"type": "unsubscribe", "topic": "run", "run": "c"})  # which it never followed
        parts.topics.tell("runs", {"": "1"})
        parts.topics.tell("metrics", {"": "2"})
        assert client._latest == {"runs": REREAD, "metrics": "2"}, "what it was told when it subscribed, and no more"
        assert client._places.keys() == parts.followers._open.keys() == {"b"}
        assert [json.loads(text).get("run") for text in list(client._outbox)[-3:]] == [None, "a", "c"]
        await client._leave()
        assert client._places == parts.followers._open == {}
        assert not parts.topics.followers["metrics"]

    asyncio.run(run())


def test_answers_come_before_topics_and_topics_before_events(
    parts: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.event_stream.LAG", 2)
    heard: list[Any] = []

    async def run() -> None:
        enough = asyncio.Event()

        async def send(message: Any) -> None:
            heard.append(json.loads(message["text"]))
            if heard[-1]["type"] == "event":
                enough.set()

        client = alone(parts, send=send)
        client.socket.application_state = WebSocketState.CONNECTED
        await client._obey(follow("a"))
        place = client._places["a"]
        place.next, place.live = 0, True  # two of its three events are too old by now
        client.offer("runs", json.dumps({"type": "runs"}))
        await client._obey({"type": "ping"})
        talking = asyncio.create_task(client._talk())
        await enough.wait()
        talking.cancel()
        await client._leave()

    asyncio.run(run())
    assert [one["type"] for one in heard] == ["subscribed", "pong", "runs", "dropped", "event"]
    assert (heard[3]["from"], heard[3]["to"], heard[4]["event"]["seq"]) == (0, 1, 2)
    assert (parts.counting.dropped._value.get(), parts.counting.sent._value.get()) == (2, 5)


def test_a_client_that_does_not_read_its_answers_is_not_listened_to(
    parts: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.websocket_connection.OUTBOX", 2)
    asked: list[str] = []

    async def settled() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def run() -> None:
        async def receive() -> Any:
            asked.append("ping")
            return {"type": "websocket.receive", "text": '{"type": "ping"}'}

        client = alone(parts, receive=receive)
        client.socket.client_state = WebSocketState.CONNECTED
        listening = asyncio.create_task(client._listen())
        await settled()
        assert (len(client._outbox), len(asked)) == (2, 3)  # the third waits for room
        client._outbox.popleft()
        client._room.set()
        await settled()
        assert (len(client._outbox), len(asked)) == (2, 4)
        listening.cancel()
        client._outbox.extend("123456")
        chatting = asyncio.create_task(client._reply({"type": "chat"}))
        await settled()
        assert (len(client._outbox), chatting.done()) == (8, False)
        client._outbox.popleft()
        client._room.set()
        await settled()
        assert (len(client._outbox), chatting.done()) == (8, True)

    asyncio.run(run())


def connected(parts: ServiceState, receive: Any, taken: int) -> list[Any]:
    """What a client is sent that accepts so many messages, until the service ends the connection."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if len(sent) > taken:  # the first accepts the connection
            await asyncio.Event().wait()
        sent.append(message)

    async def run() -> None:
        first = ["websocket.connect"]

        async def heard() -> Any:
            return {"type": first.pop()} if first else await receive()

        await LiveClient(WebSocket({"type": "websocket"}, heard, send), parts).serve()

    asyncio.run(run())
    return sent[1:]


async def never() -> Any:
    await asyncio.Event().wait()


def test_a_client_has_so_long_to_show_its_key_and_to_accept_a_message(
    parts: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.websocket_connection.PATIENCE", 0.01)
    assert connected(parts, never, taken=0) == []  # it does not even take its welcome
    monkeypatch.setattr("groupwise.service.websocket_connection.PATIENCE", 600.0)
    monkeypatch.setattr("groupwise.service.websocket_connection.AUTH_WITHIN", 0.01)
    parts.keys.add("one", "read")
    parts.keys.refresh()
    told, closed = connected(parts, never, taken=9)
    assert json.loads(told["text"])["error"]["message"] == "no key was sent in time"
    assert (closed["type"], closed["code"]) == ("websocket.close", 4401)


def test_a_client_whose_key_is_worth_nothing_any_more_is_refused_and_its_chats_end(parts: ServiceState) -> None:
    async def run() -> None:
        text, key = parts.keys.add("one", "train")
        parts.keys.refresh()
        client, unknown = alone(parts, None), alone(parts, None)
        client.who, client._key = parts.keys.who(text), text
        chat = client._chats["1"] = asyncio.create_task(never())
        client.look_at_key()
        await asyncio.sleep(0)
        assert (client._refused, chat.cancelled(), client.who.name) == (None, False, "one")
        parts.keys.revoke(key.id)
        parts.keys.refresh()
        client._wake.clear()
        for one in (client, unknown):
            one.look_at_key()
        await asyncio.sleep(0)
        assert (client._refused is not None, chat.cancelled(), client._wake.is_set()) == (True, True, True)
        assert unknown._refused is None, "it has not shown a key yet"

    asyncio.run(run())


def test_a_chat_has_a_name_that_no_other_has_and_is_stopped_by_it(parts: ServiceState) -> None:
    async def run() -> None:
        client = alone(parts, ANN)
        for name in ("1", "2"):
            client._chats[name] = asyncio.create_task(never())
        with pytest.raises(ContractError, match="id = '1' must be a string that no running chat uses"):
            await client._obey({"type": "chat", "id": "1", "request": {}})
        with pytest.raises(Forbidden):
            await alone(parts, Who("w", "w", "read", "a"))._obey({"type": "chat", "id": "1", "request": {}})
        for name in ("2", "3", None):
            await client._obey({"type": "chat_stop", "id": name})
        await asyncio.sleep(0)
        assert [task.cancelled() for task in client._chats.values()] == [False, True]
        first = client._chats["1"]
        await client._leave()
        await asyncio.sleep(0)
        assert first.cancelled()

    asyncio.run(run())


@pytest.mark.parametrize("required", [False, True])
def test_a_key_may_be_shown_late_only_where_none_was_needed(parts: ServiceState, required: bool) -> None:
    async def run() -> None:
        text, _ = parts.keys.add("admin", "admin")
        if required:
            parts.keys.refresh()
        client = alone(parts, ANN)
        for key in ("secret", text):
            await client._obey({"type": "auth", "key": key})
        told = [json.loads(one)["scope"] for one in client._outbox]
        assert told == ([] if required else ["admin", "train"])
        assert (client.who == ANN) is required

    asyncio.run(run())


def test_each_view_of_a_topic_has_the_newest_of_what_it_may_see(
    parts: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.run_list.MOST_CHANGES", 2)
    for run, who in (("a", ANN), ("b", BOB), ("x", ANN), ("y", ANN)):
        parts.jobs.add(run, "control", {}, who)
    for run in "abc":
        (parts.settings.runs_dir / run / "config.toml").touch()

    async def clients() -> None:
        parts.topics.followers["runs"] |= {alone(parts, who) for who in (ANN, BOB, ADMIN)}
        parts.topics.followers["metrics"].add(alone(parts, BOB))

    asyncio.run(clients())
    assert websocket_routes._messages(parts, "runs") == {}, "at first there is nothing to compare with"
    for job in parts.jobs.newest():
        if job.run in ("a", "b", "y"):
            parts.jobs.cancel(job.id)
    shutil.rmtree(parts.settings.runs_dir / "c")
    found = {view: json.loads(text) for view, text in websocket_routes._messages(parts, "runs").items()}
    assert {view: {run["id"] for run in one["changed"]} for view, one in found.items() if view} == {
        "a": {"a", "y"}, "b": {"b"},
    }  # fmt: skip
    assert {view: one["removed"] for view, one in found.items()} == {"a": [], "b": [], "": ["c"]}
    assert (len(found[""]["changed"]), found[""]["more"], found["a"]["more"]) == (2, True, False)
    assert websocket_routes._messages(parts, "runs") == {}
    (metrics,) = websocket_routes._messages(parts, "metrics").values()
    assert json.loads(metrics)["metrics"]["jobs"]["queued"] == 1
