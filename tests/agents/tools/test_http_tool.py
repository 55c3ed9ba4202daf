"""HTTP tools against a real server on the loopback: every answer is a defined outcome, and secrets stay secret."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from groupwise.agents.environments.contract import ToolCall
from groupwise.agents.tools.function_tool import BadArguments, ToolError, annotation
from groupwise.agents.tools.http_tool import HttpRequest, HttpRules, HttpTool, in_url, is_public
from groupwise.agents.tools.toolbox import Toolbox, ToolResult
from groupwise.errors import ConfigError

SECRET = 's3cr/t+ke"y'
stop = threading.Event()


class Server(BaseHTTPRequestHandler):
    """Answers by path; `/echo` tells what it was asked."""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].strip("/").replace("/", "_")
        getattr(self, f"on_{name}", self.on_echo)()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def give(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def on_echo(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        told = {"method": self.command, "path": self.path, "body": body, "key": self.headers.get("X-Key")}
        self.give(200, json.dumps(told, indent=4).encode())

    def on_missing(self) -> None:
        self.give(404, b'{"detail": "no such order"}')

    def on_broken(self) -> None:
        self.give(500, b"secret " + (self.headers.get("X-Key") or "").encode() + b"x" * 5000, "text/plain")

    def on_huge(self) -> None:
        self.give(200, b"z" * 3_000_000, "text/plain")

    def on_html(self) -> None:
        self.give(200, "<p>grüße</p>".encode(), "text/html; charset=utf-8")

    def on_picture(self) -> None:
        self.give(200, b"\x89PNG\0\1", "image/png")

    def on_empty(self) -> None:
        self.send_response(204)
        self.end_headers()

    def on_slow(self) -> None:
        stop.wait(5)

    def on_drip(self) -> None:
        """A header that never ends."""
        self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
        while not stop.wait(0.02):
            self.wfile.write(b"x")

    def on_short(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"half")

    def on_nonsense(self) -> None:
        self.wfile.write(b"\0\1\2 what?\r\n\r\n")

    def on_hang_up(self) -> None:
        self.connection.close()

    def on_move(self) -> None:
        self.give(302, b"", Location="/echo?moved=1")

    def on_keep(self) -> None:
        self.give(307, b"", Location="/echo")

    def on_circle(self) -> None:
        self.give(302, b"", Location="/circle")

    def on_away(self) -> None:
        self.give(302, b"", Location="http://169.254.169.254/latest/meta-data")

    def on_aside(self) -> None:
        self.give(302, b"", Location=f"http://localhost:{self.server.server_address[1]}/echo")

    def on_file(self) -> None:
        self.give(302, b"", Location="file:///etc/passwd")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that left
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    stop.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_KEY", SECRET)
    stop.clear()


def call(tool: HttpTool, /, **arguments: Any) -> ToolResult:
    (result,) = asyncio.run(Toolbox([tool]).run([ToolCall("c", tool.name, arguments)]))
    return result


def make(url: str, **options: Any) -> HttpTool:
    usual = {"headers": {"X-Key": "Bearer {ORDERS_KEY}"}, "allow_private": True}
    return HttpTool("orders", url, **{**usual, **options})


ORDER = {
    "properties": {
        "number": {"type": "string"},
        "page": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
        "open": {"type": "boolean", "default": True},
    },
    "required": ["number"],
}


def test_arguments_go_into_the_url_and_the_query(base: str) -> None:
    tool = make(f"{base}/orders/{{number}}?v=1", parameters=ORDER, description="Find an order.")
    assert tool.schema["function"]["description"] == "Find an order."
    assert tool.schema["function"]["parameters"] == {"type": "object", **ORDER}
    told = json.loads(call(tool, number="a/b ?é", page=2, tags=["x", "y&z"]).content)
    assert told["path"] == "/orders/a%2Fb%20%3F%C3%A9?v=1&open=true&page=2&tags=x&tags=y%26z"
    assert (told["method"], told["body"]) == ("GET", "")


@pytest.mark.parametrize("method", ["POST", "put", "PATCH"])
def test_other_methods_carry_a_json_body(base: str, method: str) -> None:
    told = json.loads(
        call(make(f"{base}/orders/{{number}}", method=method, parameters=ORDER), number="7", page=1).content
    )
    assert (told["method"], told["path"]) == (method.upper(), "/orders/7")
    assert json.loads(told["body"]) == {"open": True, "page": 1}


@pytest.mark.parametrize(
    ("path", "outcome", "said"),
    [
        ("missing", "raised", 'error: HTTP 404 Not Found: {"detail": "no such order"}'),
        ("broken", "raised", "error: HTTP 500 Internal Server Error: secret Bearer [ORDERS_KEY]xxx"),
        ("slow", "timed_out", "error: orders took longer than 0.1 s"),
        ("drip", "timed_out", "error: orders took longer than 0.1 s"),
        ("huge", "ok", "zzz… (cut after 100 bytes)"),
        ("html", "ok", "<p>grüße</p>"),
        ("picture", "ok", "(6 bytes of image/png, not text)"),
        ("empty", "ok", "HTTP 204 No Content"),
        ("short", "raised", "error: the connection broke off after 4 of 100 bytes"),
        ("nonsense", "raised", "error: the request failed: BadStatusLine"),
        ("hang_up", "raised", "error: the request failed: RemoteDisconnected"),
        ("circle", "raised", "error: the server redirects more than 3 times"),
        ("away", "raised", "error: the host '169.254.169.254' is not allowed, only 127.0.0.1"),
        ("aside", "raised", "error: the host 'localhost' is not allowed, only 127.0.0.1"),
        ("file", "raised", "error: the host '' is not allowed"),
    ],
)
def test_every_answer_is_a_defined_outcome(base: str, path: str, outcome: str, said: str) -> None:
    result = call(make(f"{base}/{path}", timeout=0.1 if outcome == "timed_out" else 5.0, max_bytes=100))
    assert (result.outcome, said in result.content) == (outcome, True), result
    assert "s3cr" not in result.content


def test_nobody_there_and_nowhere_are_said() -> None:
    assert "the request failed: ConnectionRefusedError" in call(make("http://127.0.0.1:9/")).content
    assert call(make("http://nowhere.invalid/")).content == "error: the host 'nowhere.invalid' was not found"


def test_a_connection_that_drips_is_ended_soon_after_its_call(base: str) -> None:
    before = set(threading.enumerate())
    call(make(f"{base}/drip", timeout=0.05))
    (own,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "tool")
    own.join(3)
    assert not own.is_alive()


def test_any_name_can_be_a_parameter(base: str) -> None:
    names = {"self": {"type": "string"}, "arguments": {"type": "string"}}
    told = json.loads(call(make(f"{base}/echo", parameters={"properties": names}), self="a", arguments="b").content)
    assert told["path"] == "/echo?self=a&arguments=b"


def test_redirects_keep_to_the_rules(base: str) -> None:
    moved = json.loads(call(make(f"{base}/move", method="POST")).content)
    assert (moved["method"], moved["path"], moved["key"]) == ("GET", "/echo?moved=1", "Bearer [ORDERS_KEY]")
    kept = json.loads(call(make(f"{base}/keep", method="POST", parameters=ORDER), number="1").content)
    assert (kept["method"], kept["body"]) == ("POST", '{"open": true, "number": "1"}')
    aside = json.loads(call(make(f"{base}/aside", allowed_hosts=("localhost",))).content)
    assert aside["key"] is None, "the headers stay with the host they are for"


def test_a_redirect_does_not_leave_encryption() -> None:
    request = HttpRequest("GET", "https://h/a", {"X-Key": "k"})
    assert request.redirected(302, "/b").headers == {"X-Key": "k"}
    assert request.redirected(302, "https://h:444/b").headers == {}
    with pytest.raises(ToolError, match="unencrypted"):
        request.redirected(302, "http://h/b")


def test_a_private_address_is_refused_unless_allowed(base: str) -> None:
    result = call(make(f"{base}/echo", allow_private=False))
    assert result.content == "error: the host '127.0.0.1' is on a private network, which is not allowed"
    with pytest.raises(ToolError, match="private network"):
        HttpRules(("localhost",), False, 1.0, 1).addresses(urlsplit("http://localhost/"))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False),
        ("169.254.169.254", False), ("0.0.0.0", False), ("100.64.0.1", False), ("224.0.0.1", False), ("::1", False),
        ("fe80::1%eth0", False), ("fc00::1", False), ("::ffff:127.0.0.1", False), ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False), ("64:ff9b::a9fe:a9fe", False), ("64:ff9b::808:808", True),
        ("64:ff9b:1::7f00:1", False), ("64:ff9b:1::808:808", False), ("::127.0.0.1", False), ("::8.8.8.8", False),
        ("::ffff:8.8.8.8", True), ("::ffff:0:127.0.0.1", False), ("2002:808:808::1", True), ("240.0.0.1", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False), ("2606:4700::5efe:7f00:1", False),
        ("2606:4700::200:5efe:a00:1", False), ("2606:4700::5efe:808:808", True), ("::", False),
    ],
)  # fmt: skip
def test_public_addresses_are_told_from_private_ones(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_secret_is_never_shown(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make(f"{base}/echo")
    result = call(tool)
    assert json.loads(result.content)["key"] == "Bearer [ORDERS_KEY]"
    assert "s3cr" not in repr(tool) + repr(result) + str(tool.schema)
    monkeypatch.setenv("ORDERS_KEY", "line\nbreak")
    with pytest.raises(ConfigError, match="needs the environment variable ORDERS_KEY") as error:
        make(f"{base}/echo")
    assert "line" not in str(error.value)
    assert "line" not in call(tool).content
    monkeypatch.delenv("ORDERS_KEY")
    with pytest.raises(ConfigError, match="ORDERS_KEY, which is not set"):
        make(f"{base}/echo")


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_an_argument_cannot_climb_out_of_its_place(value: str) -> None:
    with pytest.raises(ToolError, match="number cannot be"):
        in_url("number", value)
    assert in_url("number", "../x") == "..%2Fx"
    assert in_url("number", "a\r\nHost: b") == "a%0D%0AHost%3A%20b"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x/"}, "cannot use the URL 'ftp://x/'"),
        ({"url": "/relative"}, "cannot use the URL"),
        ({"url": "http://{host}/"}, "cannot use the URL"),
        ({"url": "http://user:pw@host/"}, "cannot use the URL 'host/'"),
        ({"url": "http://h/{order}"}, "needs 'order', which is not a required parameter"),
        ({"url": "http://h/{page}", "parameters": ORDER}, "needs 'page', which is not a required parameter"),
        ({"url": "http://h/", "method": "BREW"}, "has the method 'BREW'"),
        ({"url": "http://h/", "parameters": {"properties": {"x": {"type": "date"}}}}, r"orders\.x has the type 'date'"),
        ({"url": "http://h/", "parameters": {"properties": {"x": {"not": {}}}}}, r"orders\.x has the keyword 'not'"),
        ({"url": "http://h/", "parameters": {"required": ["x"]}}, "requires 'x', which is not one"),
        ({"url": "http://h/", "parameters": {"properties": [1]}}, r"has the properties \[1\], not an object"),
        ({"url": "http://h/", "parameters": {"properties": {"x": {"enum": []}}}}, r"has the values \[\]"),
        ({"url": "http://h/", "parameters": {"properties": {"x": {"enum": [1.5]}}}}, r"has the values \[1.5\]"),
        (
            {"url": "http://h/", "parameters": {"properties": {"x": {"type": "string", "pattern": "("}}}},
            "orders has a parameter of a type that JSON cannot represent",
        ),
        (
            {"url": "http://h/", "parameters": {"properties": {"x": {"type": "boolean", "minLength": 2}}}},
            "has the keyword 'minLength', which is not supported here",
        ),
    ],
)
def test_a_tool_that_cannot_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        make(**options)
    assert "pw" not in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "minLength": 2, "pattern": "^a"}, ["ab"], ["a", "bb", 3]),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 3}, [0, 2], [-1, 3, "1", 1.5, True]),
        ({"type": "number"}, [1, 1.5], ["1", None]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"type": ["string", "integer"], "maxLength": 1, "minimum": 5}, ["a", 50], ["aa", 4]),
        ({"enum": ["a", 1]}, ["a", 1], ["b", 2]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, [1, True], ["1"]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [[], [1]], [[1, 2], ["1"], 1]),
        ({"type": "object"}, [{"x": 1}], [[]]),
        (
            {"type": "object", "properties": {"x": {"type": "integer"}, "y": {}}, "required": ["x"]},
            [{"x": 1}, {"x": 1, "y": [None]}],
            [{}, {"x": "1"}, {"x": 1, "z": 1}],
        ),
    ],
)
def test_schemas_are_held_to(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    arguments = make("http://h/", parameters={"properties": {"a": schema}, "required": ["a"]}).arguments
    for value in good:
        assert arguments.read({"a": value}) == {"a": value}
    for value in bad:
        with pytest.raises(BadArguments, match="a"):
            arguments.read({"a": value})
    with pytest.raises(ConfigError, match="is 3, not an object"):
        annotation(3)  # type: ignore[arg-type]
