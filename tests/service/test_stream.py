"""Events as they happen, over a real WebSocket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from groupwise.training.events import EventLog
from groupwise.types import Event
from tests.service.conftest import until, with_cart


def dial(service: Any, **more: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{service.port}/ws", **more)


@contextmanager
def operate(service: Any, **more: Any) -> Iterator[ClientConnection]:
    """A connection with the service's token, which sees every run."""
    with dial(service, **more) as socket:
        tell(socket, type="auth", key=service.settings.token)
        assert [hear(socket)["scope"] for _ in range(2)] == ["train", "admin"]
        yield socket


def tell(socket: ClientConnection, **message: Any) -> None:
    socket.send(json.dumps(message))


def hear(socket: ClientConnection, kind: str = "", seconds: float = 5.0) -> dict[str, Any]:
    """The next message, of that kind if one is given."""
    while True:
        message: dict[str, Any] = json.loads(socket.recv(timeout=seconds))
        if not kind or message["type"] == kind:
            return message


def make_run(folder: Path, events: int, name: str = "made") -> EventLog:
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    log = EventLog(path / "events.jsonl", keep=0)
    add(log, events)
    return log


def add(log: EventLog, count: int, attempt: int = 1) -> None:
    for _ in range(count):
        data = {"metrics": {"reward/mean": float(log.count)}}
        log.append(Event("made", log.count, attempt, time.time(), log.count, "step", data))


def seqs(socket: ClientConnection, count: int) -> list[int]:
    return [hear(socket, "event")["event"]["seq"] for _ in range(count)]


def test_a_client_gets_what_was_and_what_comes(serve: Callable[..., Any]) -> None:
    service = serve()
    log = make_run(service.settings.runs_dir, 5)
    with operate(service) as socket:
        tell(socket, type="subscribe", topic="run", run="made", **{"from": 2})
        assert hear(socket)["type"] == "subscribed"
        assert seqs(socket, 3) == [2, 3, 4]
        add(log, 2)
        assert seqs(socket, 2) == [5, 6]


def test_a_run_that_goes_back_announces_it(serve: Callable[..., Any]) -> None:
    service = serve()
    log = make_run(service.settings.runs_dir, 6)
    with operate(service) as socket:
        tell(socket, type="subscribe", topic="run", run="made")
        assert seqs(socket, 6) == list(range(6))
        log.close()
        log = EventLog(log.path, keep=3)
        add(log, 5, attempt=2)
        assert hear(socket) == {"type": "rewind", "run": "made", "from": 3}
        assert seqs(socket, 5) == [3, 4, 5, 6, 7]


def test_whoever_was_away_while_the_run_went_back_is_told_too(serve: Callable[..., Any]) -> None:
    service = serve()
    log = make_run(service.settings.runs_dir, 6)
    log = EventLog(log.path, keep=3)
    add(log, 9, attempt=2)
    with operate(service) as socket:  # it had events 0 to 5 of attempt 1
        tell(socket, type="subscribe", topic="run", run="made", attempt=1, **{"from": 6})
        assert hear(socket, "rewind")["from"] == 3
        assert seqs(socket, 2) == [3, 4]


def test_a_slow_client_loses_the_oldest_and_is_told_which(serve: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("groupwise.service.event_stream.LAG", 50)
    service = serve()
    log = make_run(service.settings.runs_dir, 1)
    with operate(service, max_queue=1) as socket:
        tell(socket, type="subscribe", topic="run", run="made")
        assert seqs(socket, 1) == [0]
        big = {"metrics": {}, "words": "x" * 60_000}
        for _ in range(400):
            log.append(Event("made", log.count, 1, time.time(), 0, "step", big))
        until(lambda: service.parts.followers._open["made"][0].count == 401)
        found, dropped = [0], []
        while found[-1] < 400:
            message = hear(socket)
            if message["type"] == "dropped":
                dropped += range(message["from"], message["to"] + 1)
            elif message["type"] == "event":
                found.append(message["event"]["seq"])
        assert dropped
        assert sorted(found + dropped) == list(range(401))


def test_runs_and_metrics_are_told_when_they_change(tmp_path: Path) -> None:
    # A service of its own: what other tests do to a shared one is told here, too.
    with with_cart(tmp_path / "runs") as service, operate(service) as socket:
        tell(socket, type="subscribe", topic="runs")
        tell(socket, type="subscribe", topic="metrics")
        assert hear(socket, "runs")["more"], "the list itself is read over HTTP"
        hear(socket, "metrics")
        service.http.patch("/api/runs/cart", json={"notes": "seen"})
        (changed,) = hear(socket, "runs")["changed"]
        assert (changed["id"], changed["state"], changed["notes"]) == ("cart", "finished", "seen")
        assert hear(socket, "metrics")["metrics"]["websocket"]["clients"] == 1


@pytest.mark.parametrize("message", [
    "no json", "[]", "{}", '{"type": 3}', '{"type": "dance"}', '{"type": "subscribe"}',
    '{"type": "subscribe", "topic": "run", "run": "../../etc"}', '{"type": "subscribe", "topic": "run", "run": "nope"}',
    '{"type": "subscribe", "topic": "run", "run": "cart", "from": -1}', '{"type": "chat", "id": 3}', "[" * 100_000,
    b"\x00\x01", json.dumps({"type": "subscribe", "topic": "run", "run": "x" * 5000}),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_the_usual_shape(service: Any, message: str | bytes) -> None:
    with dial(service) as socket:
        hear(socket, "ready")
        socket.send(message)
        answer = hear(socket)
        assert answer["type"] == "error"
        assert answer["error"].keys() == {"code", "message", "hint", "field"}
        tell(socket, type="ping")
        assert hear(socket)["type"] == "pong"


def test_pages_of_other_sites_get_no_socket(service: Any) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(service, origin="https://evil.example")
    assert refused.value.response.status_code == 403
    with dial(service, origin=f"http://127.0.0.1:{service.port}") as socket:
        assert hear(socket)["type"] == "ready"


def test_the_first_message_shows_the_key(serve: Callable[..., Any]) -> None:
    service = serve()
    text, _ = service.parts.keys.add("reader", "read")
    service.parts.keys.refresh()
    with dial(service) as socket:
        tell(socket, type="auth", key=text)
        assert hear(socket) == {"type": "ready", "name": "reader", "scope": "read", "keys_required": True}
        tell(socket, type="chat", id="1", request={"message": "hello"})
        assert hear(socket)["error"]["code"] == "forbidden"
    for first in ({"type": "auth", "key": "gw_wrong"}, {"type": "subscribe", "topic": "runs"}):
        with dial(service) as socket:
            tell(socket, **first)
            assert hear(socket)["error"]["code"] == "unauthorised"
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=600)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401


def test_guessing_keys_is_slowed_down_here_too(serve: Callable[..., Any]) -> None:
    service = serve()
    text, _ = service.parts.keys.add("reader", "read")
    service.parts.keys.refresh()
    seen = []
    for _ in range(30):
        with dial(service) as socket:
            tell(socket, type="auth", key="gw_wrong")
            seen.append(hear(socket)["error"]["code"])
    assert seen[0] == "unauthorised"
    assert "too_many" in seen
    with dial(service) as socket:
        tell(socket, type="auth", key=text)
        assert hear(socket)["type"] == "ready", "a right key is still a right key"


def test_a_key_that_is_revoked_ends_its_connections(serve: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("groupwise.service.keys.FRESH", 0.1)
    monkeypatch.setattr("groupwise.service.routes.websocket.FRESH", 0.1)
    service = serve()
    with dial(service) as before:  # no key was needed when it came
        assert hear(before)["type"] == "ready"
        text, key = service.parts.keys.add("guest", "train")
        assert hear(before)["error"]["code"] == "unauthorised"
    with dial(service) as socket:
        tell(socket, type="auth", key=text)
        assert hear(socket)["type"] == "ready"
        tell(socket, type="subscribe", topic="metrics")
        assert hear(socket)["type"] == "subscribed"
        service.parts.keys.revoke(key.id)
        assert hear(socket, "error")["error"]["code"] == "unauthorised"
        with pytest.raises(ConnectionClosed) as closed:
            hear(socket, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_no_more_clients_are_let_in_than_there_may_be(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    until(lambda: not service.parts.clients)
    monkeypatch.setattr("groupwise.service.routes.websocket.MOST_CLIENTS", 2)
    with dial(service) as first, dial(service) as second:
        assert [hear(one)["type"] for one in (first, second)] == ["ready", "ready"]
        with pytest.raises(InvalidStatus):
            dial(service)
    until(lambda: not service.parts.clients)
    with dial(service) as again:
        assert hear(again)["type"] == "ready"
