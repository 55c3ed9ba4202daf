"""Who may do what, and what is refused before anything is done."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from groupwise.errors import ConfigError
from groupwise.service.app import check, create_app
from groupwise.service.guard import LARGEST, Limited, Rates, TooLarge, needed_scope
from groupwise.service.keys import SCOPES
from groupwise.service.settings import ServiceSettings
from groupwise.service.tables import DatabaseDown
from tests.service.conftest import until

OPEN = ("/health", "/ready", "/docs", "/openapi.json", "/{path:path}")
EXAMPLES = {
    "job_id": "abc", "run": "cart", "step": "1", "trajectory": "g/m0", "name": "nobody", "design_id": "0" * 16,
    "to": "bpmn", "path": "some/page",
}  # fmt: skip


def all_routes() -> list[tuple[str, str]]:
    """Every route the application has, also those that its document does not mention."""
    found = []
    for context in iter_route_contexts(create_app(ServiceSettings()).routes):
        route = context.original_route
        if isinstance(route, WebSocketRoute):
            found.append(("WEBSOCKET", route.path))
            continue
        assert isinstance(route, Route | APIRoute), f"{route} is of a kind that is not tried here"
        found += [(method, route.path) for method in sorted(route.methods or ())]
    return sorted(found)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, str]]]:
    from tests.service.conftest import serving

    runs = tmp_path_factory.mktemp("guarded") / "runs"
    with serving(ServiceSettings(port=0, runs_dir=runs, poll=60.0, writes_per_second=1e6)) as running:
        texts = {scope: running.parts.keys.add(scope, scope)[0] for scope in SCOPES}
        running.parts.keys.refresh()
        running.parts.designs._formats = []  # spares a process that only this list would need
        yield running, texts


@pytest.mark.parametrize(("method", "path"), all_routes())
def test_every_route_asks_for_a_key_and_its_scope(guarded: tuple[Any, dict[str, str]], method: str, path: str) -> None:
    service, texts = guarded
    if method == "WEBSOCKET":
        assert path == "/ws"  # its scopes are tried below
        return
    url = path.replace(":path", "").format(**EXAMPLES)

    def status(key: str | None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return int(service.http.request(method, url, headers=headers, content=b"not json").status_code)

    if path in OPEN:
        assert status(None) in (200, 503)
        return
    assert status(None) in (401, 429)  # wrong keys are counted
    assert status("gw_wrong") in (401, 429)
    needed = needed_scope(method, url)
    assert needed == ("admin" if path == "/api/scale" else "read" if method in ("GET", "HEAD") else "train")
    for scope in SCOPES:
        may = SCOPES.index(scope) >= SCOPES.index(needed)
        assert (status(texts[scope]) not in (401, 403)) is may, f"{method} {path} with {scope}"


def test_there_is_no_route_that_the_document_does_not_have_or_that_is_open() -> None:
    paths = create_app(ServiceSettings()).openapi()["paths"]
    told = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    hidden = {path for method, path in all_routes() if (method, path.replace(":path", "")) not in told}
    assert hidden == {"/docs", "/openapi.json", "/{path:path}", "/ws"}
    assert len(told) >= 33


@pytest.mark.parametrize(("key", "answers"), [
    (None, ["unauthorised"]), ("gw_wrong", ["unauthorised"]), ("read", ["subscribed", "forbidden"]),
    ("train", ["subscribed", "contract"]), ("admin", ["subscribed", "contract"]),
])  # fmt: skip
def test_a_websocket_asks_for_a_key_and_its_scope(
    guarded: tuple[Any, dict[str, str]], key: str | None, answers: list[str]
) -> None:
    service, texts = guarded
    with connect(f"ws://127.0.0.1:{service.port}/ws") as socket:
        first = {"type": "auth", "key": texts.get(key, key)} if key is not None else {"type": "ping"}
        said = [first, {"type": "subscribe", "topic": "runs"}, {"type": "chat", "id": "1", "request": {}}]
        found: list[str] = []
        with suppress(ConnectionClosed):
            for message in said:
                socket.send(json.dumps(message))
        with suppress(ConnectionClosed):
            while len(found) < len(answers):
                answer = json.loads(socket.recv(timeout=600))
                event = answer.get("event", answer)
                if event["type"] not in ("ready", "runs"):
                    found.append(event["error"]["code"] if event["type"] == "error" else event["type"])
    assert found == answers


def test_code_and_files_of_the_machine_are_for_admins(guarded: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    service, texts = guarded
    (tmp_path / "data.jsonl").write_text('{"prompt": "a"}\n')
    for config in (
        {"product": "language", "reward_name": "python:os:system"},
        {"product": "agent", "environment": "python:/tmp/x.py:run"},
        {"product": "language", "environment": str(tmp_path / "data.jsonl")},
        {"product": "language", "environment": "addition", "options": {"check": "os:system"}},
        {"product": "language", "environment": "addition", "model_name": "/etc"},
    ):
        answer = service.post("/api/train", {"config": config}, headers={"Authorization": f"Bearer {texts['train']}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), config


def test_a_revoked_key_is_worthless_within_seconds(guarded: tuple[Any, dict[str, str]]) -> None:
    service, _ = guarded
    text, key = service.parts.keys.add("guest", "read")
    header = {"Authorization": f"Bearer {text}"}
    service.parts.keys.refresh()
    assert service.get("/api/me", headers=header).json() == {"name": "guest", "scope": "read", "keys_required": True}
    service.parts.keys.revoke(key.id)
    until(lambda: service.get("/api/me", headers=header).status_code == 401)


def test_guessing_keys_is_slowed_down(serve: Callable[..., Any]) -> None:
    service = serve()
    service.parts.keys.add("one", "read")
    service.parts.keys.refresh()
    seen = [service.get("/api/me", headers={"Authorization": "Bearer gw_x"}).status_code for _ in range(30)]
    assert seen[0] == 401
    assert 429 in seen
    assert service.get("/health").status_code == 200


def test_keys_are_in_no_log_and_no_answer(serve: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    service = serve()
    with caplog.at_level(logging.DEBUG):
        text, _ = service.parts.keys.add("one", "admin")
        service.parts.keys.refresh()
        header = {"Authorization": f"Bearer {text}"}
        answers = [
            service.get("/api/me", headers=header),
            service.get("/api/runs/none", headers=header),
            service.post("/api/train", {"config": {"learning_rate": "x"}}, headers=header),
            service.get("/api/jobs", headers={"Authorization": f"Basic {text}"}),
        ]
    assert text not in caplog.text
    assert not any(text in answer.text for answer in answers)


@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example"}, {"Host": "[::1"}, {"Origin": "http://[::1"}, {"Host": "testserver"},
    {"Host": "192.168.1.5"}, {"Host": "10.0.0.1:8000"}, {"Host": "[fd00::1]"},
])  # fmt: skip
def test_pages_of_other_sites_can_do_nothing_here(service: Any, headers: dict[str, str]) -> None:
    answer = service.post("/api/train", {"prompts": ["Hello"]}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")


def test_other_sites_get_no_permission_to_read_unless_they_are_named(service: Any, serve: Callable[..., Any]) -> None:
    asked = {"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in service.http.options("/api/jobs", headers=asked).headers
    friendly = serve(origins=("https://friend.example",))
    answer = friendly.http.options("/api/jobs", headers=asked)
    assert answer.headers["access-control-allow-origin"] == "https://friend.example"
    asked["Origin"] = "https://evil.example"
    assert "access-control-allow-origin" not in friendly.http.options("/api/jobs", headers=asked).headers


def test_a_service_for_others_needs_a_key_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no key exists"):
        check(ServiceSettings(host="0.0.0.0", runs_dir=tmp_path))
    check(ServiceSettings(host="::1", runs_dir=tmp_path))


def test_a_database_that_is_none_is_told_before_anything_is_served(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("nothing of the kind\n" * 100)
    with pytest.raises(DatabaseDown, match="not a database"):
        check(ServiceSettings(runs_dir=tmp_path, database=f"sqlite:///{broken}"))
    assert broken.read_text().startswith("nothing"), "and left as it was"


def test_bodies_are_bounded_in_size_and_time(serve: Callable[..., Any]) -> None:
    service = serve(largest_body=10_000, body_timeout=0.3)
    large = service.post("/api/train", {"prompts": ["x" * 10_000]})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
    unannounced = service.http.post(
        "/api/train", content=iter([b"x" * 6000] * 3), headers={"content-type": "application/json"}
    )
    assert unannounced.status_code == 413
    with socket.create_connection(("127.0.0.1", service.port)) as link:
        head = ("POST /api/train HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 9")
        link.sendall("\r\n".join((*head, "", "{")).encode())
        link.settimeout(5)
        assert b"408" in link.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize("path", [
    "/api/runs/..%2f..%2fetc", "/api/runs/%2e%2e", "/api/runs/.service", "/api/runs/cart%00", "/../../etc/passwd",
    "/assets/../../../app.py", "/%2e%2e/app.py", "/assets/..%2f..%2fapp.py", "/api/runs/cart/trajectories/../../../x",
    "/api/workflows/..%2f..%2f/download/json", "/api/conversations/..%2f..", "/page%00", "/assets/%00",
    "/v1/models/%00", pytest.param("/" + "x" * 5000, id="long"),
    pytest.param("/v1/models/" + "x" * 5000, id="long model"),
])  # fmt: skip
def test_paths_lead_nowhere_else(service: Any, path: str) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert answer.split(b" ")[1] in (b"404", b"422", b"400") or b"<title>Groupwise" in answer
    assert b"root:" not in answer
    assert b"create_app" not in answer


def exchanged(service: Any, *pieces: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", service.port)) as link:
        link.settimeout(10)
        answer = b""
        try:
            for piece in pieces:
                link.sendall(piece)
            while more := link.recv(65536):
                answer += more
        except ConnectionError:
            pass
    return answer


def test_what_comes_before_a_request_is_bounded_in_size_and_time(serve: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("groupwise.service.guard.SECONDS", 0.5)
    service = serve()
    begun = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    for pieces, status, code in (
        ((b"nonsense\r\n\r\n",), b"400", "bad_request"),
        ((begun,), b"408", "too_slow"),
        ((b"GET /" + b"x" * 70_000,), b"431", "too_large"),
    ):
        head, _, body = exchanged(service, *pieces).partition(b"\r\n\r\n")
        assert head.split(b" ")[1] == status
        assert json.loads(body)["error"].keys() == {"code", "message", "hint", "field"}
        assert json.loads(body)["error"]["code"] == code
    assert b" 431 " in exchanged(service, begun, *[b"x: " + b"y" * 30_000 + b"\r\n"] * 3)
    for size, status in ((LARGEST, b" 408 "), (LARGEST + 1, b" 431 ")):  # as much as allowed is waited for
        assert status in exchanged(service, b"GET /".ljust(size, b"x"))
    assert exchanged(service) == b""
    assert b" 200 OK" in exchanged(service, begun + b"Connection: close\r\n\r\n")
    assert service.get("/health").status_code == 200


def test_characters_that_are_none_are_refused_like_all_else(service: Any) -> None:
    asked = {"content": json.dumps({"config": {"\ud800": 1}}), "headers": {"content-type": "application/json"}}
    answer = service.http.post("/api/train", **asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "config")


def test_the_parts_of_a_body_are_added_up() -> None:
    part = {"type": "http.request", "body": b"123456", "more_body": True}

    async def receive() -> dict[str, Any]:
        return part

    async def read_two_parts() -> None:
        limited = Limited(receive, largest=10, seconds=60)
        assert await limited() == part
        await limited()

    with pytest.raises(TooLarge, match="at least 12 bytes; the limit is 10"):
        asyncio.run(read_two_parts())


def test_rates_fill_up_again() -> None:
    rates = Rates(10.0)
    assert all(rates.take("a", now=0.0) == 0 for _ in range(20))
    assert rates.take("a", now=0.0) == pytest.approx(0.1)
    assert rates.take("b", now=0.0) == 0
    assert rates.take("a", now=0.2) == 0


def test_a_long_silence_buys_no_more_than_a_full_bucket() -> None:
    rates = Rates(10.0)
    rates.take("a", now=0.0)
    assert all(rates.take("a", now=3600.0) == 0 for _ in range(20))
    assert rates.take("a", now=3600.0) == pytest.approx(0.1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompts": ', b"[" * 100_000, b'"x"'])
@pytest.mark.parametrize(
    "path", ["/api/train", "/api/chat", "/api/scale", "/api/workflows/check", "/v1/chat/completions"]
)
def test_bodies_that_are_no_request_are_refused_in_one_shape(service: Any, path: str, content: bytes) -> None:
    answer = service.http.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"].keys() == {"code", "message", "hint", "field"}
    assert json.loads(service.get("/health").text)["ok"]


def test_each_request_of_a_connection_has_its_own_limit_and_its_body_another(
    guarded: tuple[Any, dict[str, str]],
) -> None:
    service, texts = guarded
    headers = {"Authorization": f"Bearer {texts['train']}", "X": "y" * 40_000, "Content-Type": "application/json"}
    with httpx2.Client(base_url=service.url, timeout=600, headers=headers) as client:
        asks = [("GET", "/api/me", b""), ("GET", "/api/me", b""), ("POST", "/api/train", b" " * 200_000)]
        found = [
            client.request(method, path, content=content).status_code for method, path, content in [*asks, asks[0]]
        ]
    assert found == [200, 200, 400, 200]
