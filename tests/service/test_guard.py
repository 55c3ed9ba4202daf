"""The guard, part by part: rates, origins, bodies, and what becomes of one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from groupwise.service.guard import (
    FAILURES_PER_SECOND,
    CrossSite,
    Guard,
    Limited,
    Rates,
    RequestTooSlow,
    TooLarge,
    TooMany,
    bearer,
    needed_scope,
    refuse_foreign,
)
from groupwise.service.keys import Keys
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.settings import ServiceSettings
from groupwise.service.tables import Tables


@given(st.sampled_from([1.0, 2.5, 10.0]), st.lists(st.floats(0, 3), max_size=60))
def test_a_bucket_is_filled_at_its_rate_and_never_beyond_twice_that(rate: float, pauses: list[float]) -> None:
    rates, tokens, now = Rates(rate), 2 * rate, 0.0
    for pause in pauses:
        now += pause
        tokens = min(2 * rate, tokens + pause * rate)
        wait = rates.take("a", now=now)
        assert wait == pytest.approx(0.0 if tokens >= 1 else (1 - tokens) / rate)
        # A refused request costs nothing.
        tokens -= tokens >= 1


def test_after_the_time_it_was_told_a_caller_is_let_in() -> None:
    rates = Rates(4.0)
    for _ in range(8):
        assert rates.take("a", now=0.0) == 0
    wait = rates.take("a", now=0.0)
    assert wait == pytest.approx(0.25)
    assert rates.take("a", now=0.9 * wait) > 0
    assert rates.take("a", now=wait) == 0


def test_the_callers_that_were_silent_longest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.service.guard.CALLERS", 3)
    rates = Rates(1.0)
    for caller in ("a", "b", "c", "a", "b", "c", "a"):  # two tokens each, and then one refusal
        rates.take(caller, now=0.0)
    rates.take("d", now=0.0)  # b was silent for longest
    assert [rates.take(caller, now=0.0) > 0 for caller in ("a", "c", "b")] == [True, True, False]


def test_whoever_asks_too_often_is_told_how_often_and_when_to_come_back() -> None:
    rates = Rates(0.5)
    rates.count("a")
    with pytest.raises(TooMany, match=r"^more than 0\.5 requests per second") as refused:
        rates.count("a")
    assert refused.value.hint == "Try again in 2 s."
    quick = Rates(50.0)
    with pytest.raises(TooMany) as refused:
        for _ in range(200):
            quick.count("a")
    assert refused.value.hint == "Try again in 1 s."


@pytest.mark.parametrize(("method", "path", "scope"), [
    ("GET", "/api/jobs", "read"), ("HEAD", "/api/jobs", "read"), ("OPTIONS", "/api/jobs", "read"),
    ("GET", "/api/scale", "read"), ("POST", "/api/scale", "admin"), ("PUT", "/api/scale", "admin"),
    ("DELETE", "/api/scale", "admin"), ("POST", "/api/train", "train"), ("DELETE", "/api/runs/scale", "train"),
    ("PATCH", "/v1/models", "train"), ("NONSENSE", "/api/jobs", "train"),
])  # fmt: skip
def test_only_reading_needs_no_more_than_the_scope_to_read(method: str, path: str, scope: str) -> None:
    assert needed_scope(method, path) == scope


@pytest.mark.parametrize(("header", "key"), [
    (None, None), ("Bearer gw_x", "gw_x"), ("bearer gw_x", "gw_x"), ("BEARER  gw_x ", "gw_x"), ("Bearer", ""),
    ("Bearer ", ""), ("Basic gw_x", ""), ("gw_x", ""), ("", ""), ("Bearergw_x", ""), ("Bearer a b", "a b"),
])  # fmt: skip
def test_a_key_is_what_follows_bearer(header: str | None, key: str | None) -> None:
    assert bearer(header) == key


def may(
    named: str | None = "localhost",
    origin: str | None = None,
    *,
    keys: bool = False,
    reading: bool = False,
    **more: Any,
) -> bool:
    headers = {name: value for name, value in (("host", named), ("origin", origin)) if value is not None}
    try:
        refuse_foreign(headers, ServiceSettings(**more), guarded_by_key=keys, reading=reading)
    except CrossSite:
        return False
    return True


@pytest.mark.parametrize(("host", "local"), [
    ("localhost", True), ("localhost:8001", True), ("LocalHost:1", True), ("127.0.0.1", True), ("127.0.0.1:80", True),
    ("127.9.8.7", True), ("[::1]", True), ("[::1]:80", True), ("", False), (None, False), ("0.0.0.0", False),
    ("box", False), ("localhost.evil.example", False), ("evil.example:8001", False), ("192.168.0.1", False),
    ("::1", False), ("[::2]", False), ("[::1", False), ("127.0.0.1.", False), ("1.0.0.127", False),
])  # fmt: skip
@pytest.mark.parametrize("reading", [True, False])
def test_without_keys_only_names_of_this_machine_are_served(host: str | None, local: bool, reading: bool) -> None:
    assert may(host, reading=reading) is local
    assert may(host, reading=reading, keys=True), "with keys, a page of another site does not have one"


def test_the_name_that_the_service_was_given_is_one_of_this_machine() -> None:
    assert may("box:8001", host="box")
    assert not may("other:8001", host="box")


@pytest.mark.parametrize(("host", "origin", "same"), [
    ("localhost:8001", "http://localhost:8001", True), ("localhost:8001", "https://localhost:8001", True),
    ("LOCALHOST:8001", "http://LocalHost:8001", True), ("localhost", "http://localhost", True),
    ("localhost:8001", "http://localhost:8002", False), ("localhost:8001", "http://localhost", False),
    ("localhost:8001", "http://127.0.0.1:8001", False), ("localhost", "https://evil.example", False),
    ("localhost", "null", False), ("localhost", "", False), ("localhost", "localhost", False),
    ("localhost", "http://[::1", False), ("localhost", "http://localhost.evil.example", False),
])  # fmt: skip
@pytest.mark.parametrize("keys", [True, False])
def test_a_page_may_change_something_only_where_it_came_from(host: str, origin: str, same: bool, keys: bool) -> None:
    assert may(host, origin, keys=keys) is same
    assert may(host, origin, keys=keys, reading=True), "browsers themselves keep the answer from it"
    assert may(host, origin, keys=keys, origins=("https://friend.example", origin))
    assert may(host, origin, keys=keys, origins=("https://friend.example",)) is same


def test_an_origin_without_a_place_is_not_that_of_a_request_without_a_host() -> None:
    for origin in ("null", "file://", ""):
        assert not may(None, origin, keys=True)


def body(*parts: bytes, end: bool = True) -> Callable[[], Any]:
    """A `receive` of a body in parts, after which the client is gone."""
    last = len(parts) - 1 if end else None
    messages = [{"type": "http.request", "body": part, "more_body": n != last} for n, part in enumerate(parts)]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    return receive


async def read_all(limited: Limited, most: int = 10) -> bytes:
    found = b""
    for _ in range(most):
        message = await limited()
        if message["type"] != "http.request":
            break
        found += message["body"]
    return found


def test_a_body_is_read_up_to_its_limit() -> None:
    assert asyncio.run(read_all(Limited(body(b"12345", b"67890"), 10, 60))) == b"1234567890"
    assert asyncio.run(read_all(Limited(body(b""), 10, 60))) == b""
    with pytest.raises(TooLarge, match="at least 11 bytes; the limit is 10"):
        asyncio.run(read_all(Limited(body(b"12345", b"678901"), 10, 60)))
    with pytest.raises(TooLarge, match="at least 11 bytes"):
        asyncio.run(read_all(Limited(body(b"12345678901"), 10, 60)))


@pytest.mark.parametrize(("length", "refused"), [
    ("10", False), ("11", True), ("0", False), (None, False), ("-11", False), ("many", False), ("000000000011", True),
])  # fmt: skip
def test_a_body_is_refused_by_the_size_it_announces(length: str | None, refused: bool) -> None:
    limited = Limited(body(b""), 10, 60)
    headers = Headers({} if length is None else {"content-length": length})
    if not refused:
        limited.refuse_announced(headers)
        return
    with pytest.raises(TooLarge, match="at least 11 bytes; the limit is 10"):
        limited.refuse_announced(headers)


def test_a_body_must_arrive_in_time_but_its_sender_may_then_wait_for_the_answer() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(RequestTooSlow, match=r"did not arrive within 0\.01 s"):
        asyncio.run(read_all(Limited(never, 10, 0.01)))

    async def wait_for_the_answer() -> bytes:
        gone, messages = asyncio.Event(), [{"type": "http.request", "body": b"all"}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            asyncio.get_running_loop().call_later(0.05, gone.set)
            await gone.wait()
            return {"type": "http.disconnect"}

        return await read_all(Limited(receive, 10, 0.01))

    assert asyncio.run(wait_for_the_answer()) == b"all"


class Asked:
    """A guard around an application that says who asked, and everything that was asked of it."""

    def __init__(self, folder: Path, token: str = "", **settings: Any) -> None:
        self.tables = Tables(f"sqlite:///{folder / 'keys.sqlite'}")
        self.keys, self.counting = Keys(self.tables, token=token), ServiceMetrics()
        self.failures = Rates(FAILURES_PER_SECOND)
        self.guard = Guard(self._app, ServiceSettings(**settings), self.counting)
        self.failing: Exception | None = None

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if self.failing is not None:
            raise self.failing
        read = await read_all(receive) if scope["method"] == "POST" else b""
        who = scope["state"]["who"]
        said = {"who": who and who.name, "read": read.decode()}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    def __call__(
        self, method: str, path: str, key: str | None = None, *, address: str = "1.2.3.4", content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], Any]:  # fmt: skip
        given = {"host": "localhost", **({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        parts = SimpleNamespace(keys=self.keys, failures=self.failures)
        scope = {
            "type": "http", "method": method, "path": path, "client": (address, 1), "state": {},
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "app": SimpleNamespace(state=SimpleNamespace(parts=parts)),
        }  # fmt: skip
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, body(content), send))
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], told, json.loads(sent[1]["body"])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Asked]]:
    made: list[Asked] = []

    def ask(**settings: Any) -> Asked:
        made.append(Asked(tmp_path, **settings))
        return made[-1]

    yield ask
    for one in made:
        one.tables.close()


def test_a_request_is_let_in_by_its_key_and_its_scope(make: Callable[..., Asked]) -> None:
    asked = make()
    texts = {scope: asked.keys.add(scope, scope)[0] for scope in ("read", "train", "admin")}
    assert asked.keys.is_stale  # the first request reads the keys
    for path in ("/api/x", "/v1/x", "/metrics", "/api/"):
        status, told, answer = asked("GET", path)
        assert (status, told["www-authenticate"], answer["error"]["code"]) == (401, "Bearer", "unauthorised")
        assert asked("GET", path, texts["read"])[2]["who"] == "read"
    for scope, statuses in (("read", (200, 403, 403)), ("train", (200, 200, 403)), ("admin", (200, 200, 200))):
        asks = (("HEAD", "/api/x"), ("POST", "/api/x"), ("POST", "/api/scale"))
        found = [asked(method, path, texts[scope]) for method, path in asks]
        assert tuple(status for status, _, _ in found) == statuses
        assert not any("www-authenticate" in told for _, told, _ in found)
    for path in ("/", "/health", "/docs", "/api", "/page/api/x"):
        assert asked("GET", path)[2]["who"] is None


def test_every_answer_has_the_headers_that_protect_its_reader(make: Callable[..., Asked]) -> None:
    asked = make()
    for path, status in (("/api/x", 200), ("/", 200), ("/index.html", 200), ("/api/x", 403)):
        origin = {"origin": "https://evil.example"} if status == 403 else {}
        found, told, _ = asked("GET" if status == 200 else "POST", path, headers=origin)
        assert found == status
        assert told["x-content-type-options"] == "nosniff"
        assert (told["referrer-policy"], told["x-frame-options"]) == ("no-referrer", "DENY")
        assert told.get("cache-control") == ("no-store" if path == "/api/x" else None)
        assert ("frame-ancestors 'none'" in told.get("content-security-policy", "")) is (path != "/api/x")


def test_reads_and_writes_of_each_key_and_address_are_counted_apart(make: Callable[..., Asked]) -> None:
    asked = make(reads_per_second=1.0, writes_per_second=0.5)
    ann, bob = (asked.keys.add(name, "train")[0] for name in ("ann", "bob"))

    def statuses(method: str, key: str, address: str, count: int) -> list[int]:
        return [asked(method, "/api/x", key, address=address)[0] for _ in range(count)]

    assert statuses("POST", ann, "1.1.1.1", 2) == [200, 429]
    assert statuses("POST", ann, "2.2.2.2", 2) == [200, 429]
    assert statuses("POST", bob, "1.1.1.1", 1) == [200]
    assert statuses("GET", ann, "1.1.1.1", 2) == [200, 200]
    status, told, answer = asked("POST", "/api/x", ann, address="1.1.1.1")
    assert (status, told["retry-after"], answer["error"]["code"]) == (429, "1", "too_many")
    assert asked("GET", "/", address="1.1.1.1")[0] == 200


def test_only_wrong_keys_count_against_an_address(make: Callable[..., Asked]) -> None:
    asked = make()
    right = asked.keys.add("ann", "read")[0]
    statuses = [asked("GET", "/api/x", "gw_wrong", address="6.6.6.6")[0] for _ in range(12)]
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429
    assert asked("GET", "/api/x", "gw_wrong", address="7.7.7.7")[0] == 401
    assert [asked("GET", "/api/x", right, address="6.6.6.6")[0] for _ in range(30)] == [200] * 30


def test_a_refused_request_never_reaches_the_application_and_is_counted_too(make: Callable[..., Asked]) -> None:
    asked = make(largest_body=10)
    asked.failing = AssertionError("reached")
    assert asked("POST", "/api/x", headers={"host": "evil.example"})[2]["error"]["code"] == "cross_site"
    assert asked("POST", "/api/x", headers={"content-length": "11"})[0] == 413
    assert asked.counting.requests()["total"] == 2
    with pytest.raises(AssertionError, match="reached"):
        asked("POST", "/api/x")
    assert asked.counting.requests() | {"p50_ms": 0, "p99_ms": 0} == {
        "total": 3, "server_errors": 1, "p50_ms": 0, "p99_ms": 0,
    }  # fmt: skip
    asked.failing = None
    assert asked("POST", "/api/x", content=b"1234567890")[2]["read"] == "1234567890"
    assert asked("POST", "/api/x", content=b"12345678901")[0] == 413


def test_what_is_not_http_is_passed_on_as_it_is(make: Callable[..., Asked]) -> None:
    asked, seen = make(), []

    async def app(*given: Any) -> None:
        seen.append(given)

    asked.guard.app = app
    given: Any = ({"type": "lifespan"}, object(), object())
    asyncio.run(asked.guard(*given))
    assert seen == [given]
